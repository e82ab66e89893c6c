"""Keep scores, weights and norm in float32 in models of half precision."""

from contextlib import contextmanager
from typing import Iterator

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor

from ..functional import HALF_PRECISION, at_least_float32


@contextmanager
def full_precision(attention: MultiheadAttention) -> Iterator[None]:
    """Switch autocast off, and let the projections of a model in half precision return float32, within the context.

    In float16 the scores of large inputs are infinite, and the square of 300 in the norm is as well.

    Args:
        attention: the module whose projections of queries, keys and values return float32.
    """
    half = dtype_of(attention) in HALF_PRECISION
    projections = (attention.q_proj, attention.k_proj, attention.v_proj) if half else ()
    hooks = [p.register_forward_hook(lambda module, inputs, output: at_least_float32(output)) for p in projections]
    try:
        with torch.autocast(_weight(attention).device.type, enabled=False):
            yield
    finally:
        for hook in hooks:
            hook.remove()


def dtype_of(attention: MultiheadAttention) -> torch.dtype:
    """Return the precision of the inputs and outputs of the projections; float32 if they are quantized."""
    weight = _weight(attention)
    return torch.float32 if weight.is_quantized else weight.dtype


def _weight(attention: MultiheadAttention) -> Tensor:
    """Return the weight of a projection; a quantized layer has a method instead of a parameter."""
    weight = attention.q_proj.weight
    return weight if isinstance(weight, Tensor) else weight()


def cast(context: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the context in the precision of the model; in half precision clamp it first, so that it stays finite.

    Only ReLU without a norm reaches the limit, when training has diverged already, as the paper reports.

    Args:
        context: ``(..., d)``, float32 or float64.
        dtype: the precision of the model.
    """
    if dtype in HALF_PRECISION:
        limit = torch.finfo(dtype).max / context.size(-1)  # the output projection sums d numbers
        context = context.clamp(-limit, limit)
    return context.to(dtype)
