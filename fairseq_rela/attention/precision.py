"""Attention in models of half precision: the scores, weights and norm stay in float32."""

from contextlib import contextmanager
from typing import Iterator

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor

from ..functional import HALF_PRECISION, at_least_float32


@contextmanager
def full_precision(attention: MultiheadAttention) -> Iterator[None]:
    """Switch autocast off, and let the projections of a model in half precision return float32.

    In float16 the scores of large inputs are infinite, and the square of 300 in the norm is as well.
    """
    half = attention.q_proj.weight.dtype in HALF_PRECISION
    projections = (attention.q_proj, attention.k_proj, attention.v_proj) if half else ()
    hooks = [p.register_forward_hook(lambda module, inputs, output: at_least_float32(output)) for p in projections]
    try:
        with torch.autocast(attention.q_proj.weight.device.type, enabled=False):
            yield
    finally:
        for hook in hooks:
            hook.remove()


def cast(context: Tensor, dtype: torch.dtype) -> Tensor:
    """Cast the context to the precision of the model; in half precision clamp it first, so that it stays finite.

    Only ReLU without a norm reaches the limit, when training has diverged already, as the paper reports.
    """
    if dtype in HALF_PRECISION:
        limit = torch.finfo(dtype).max / context.size(-1)
        context = context.clamp(-limit, limit)
    return context.to(dtype)
