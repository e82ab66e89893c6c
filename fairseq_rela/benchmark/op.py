r"""Benchmark of the operator, :func:`fairseq_rela.ops.rela_attention`, against other implementations of attention.

Shapes are those of SDPA, ``(B, H, T, d_h)``, contiguous. There are no projections, and only ``rela_g`` has a norm.

FlexAttention divides by the sum of a row, like softmax, but :math:`e^{lse}` multiplies by it again, where lse is the
logarithm of that sum: with the scores :math:`\log \max(S, 0)` the product is ReLU attention.
"""

from functools import lru_cache
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import functional, ops
from .core import Cell, refuse_difference, too_large, without_dropout
from .passes import Candidates, Passes, difference, measure_passes
from .timing import Timing

BASELINE = "sdpa"
# candidates with the same results, up to rounding; the second of the last two is optional
PAIRS = (("softmax", "sdpa"), ("relu", "rela"))
OPTIONAL_PAIRS = (("relu", "relu_compiled"), ("relu", "flex"))
# as for the core, see fairseq_rela.benchmark.core.too_large
COPIES = {"softmax": 6, "relu": 7, "relu_compiled": 7, "sparsemax": 12, "entmax15": 18}


class Inputs(NamedTuple):
    """Inputs of the operator.

    Attributes:
        q, k, v: queries, keys and values, ``(B, H, T, d_h)``.
        padding: ``(B, T)``, True at padding, or None.
        allowed: ``(B or 1, 1, T or 1, T)``, True at keys that take part, or None.
        grad: gradient of the context, ``(B, H, T, d_h)``.
        gain, gate: vectors of the norm, ``(d,)``.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    padding: Optional[Tensor]
    allowed: Optional[Tensor]
    grad: Tensor
    gain: Tensor
    gate: Tensor


def make_inputs(cell: Cell, device: torch.device, seed: int = 1) -> Inputs:
    """Return random inputs of the operator in one setting, with gradients."""
    generator = torch.Generator().manual_seed(seed)
    shape, dtype = (cell.batch, cell.heads, cell.length, cell.dim // cell.heads), getattr(torch, cell.dtype)
    q, k, v, grad = (torch.randn(shape, generator=generator).to(device, dtype) for _ in range(4))
    padding = allowed = None
    if cell.padded:
        padding = torch.zeros(cell.batch, cell.length, dtype=torch.bool, device=device)
        padding[::2, cell.length - max(cell.length // 8, 1) :] = True
        allowed = ~padding[:, None, None]
    if cell.causal:
        past = torch.ones(cell.length, cell.length, dtype=torch.bool, device=device).tril()[None, None]
        allowed = past if allowed is None else allowed & past
    gain, gate = (torch.randn(cell.dim, generator=generator).to(device) for _ in range(2))
    for x in (q, k, v, gain, gate):
        x.requires_grad_()
    return Inputs(q, k, v, padding, allowed, grad, gain, gate)


def plain(
    weigh: Callable[[Tensor], Tensor], q: Tensor, k: Tensor, v: Tensor, allowed: Optional[Tensor], dropout: float
) -> Tensor:
    """Return the context of a weight function with torch's matrix products, all scores in memory."""
    scores = torch.matmul(q * q.size(-1) ** -0.5, k.transpose(-2, -1))
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    weights = F.dropout(weigh(functional.at_least_float32(scores)), dropout).to(v.dtype)
    return torch.matmul(weights, v)


@lru_cache(maxsize=None)
def compiled_plain() -> Callable[..., Tensor]:
    """Return :func:`plain`, compiled for any length; each kind of mask, dropout and gradient is compiled once."""
    import torch._dynamo

    torch._dynamo.config.cache_size_limit = 64  # the default is 8 kinds; any more would not be compiled
    return torch.compile(plain, dynamic=True, fullgraph=True)


@lru_cache(maxsize=None)
def compiled_flex() -> Callable[..., Tensor]:
    """Return :func:`flex_relu`, compiled, without which FlexAttention stores the scores."""
    return torch.compile(flex_relu)


def flex_relu(q: Tensor, k: Tensor, v: Tensor, padding: Optional[Tensor], causal: bool) -> Tensor:
    r"""Return ReLU attention by FlexAttention, as :math:`softmax(\log \max(S, 0)) V e^{lse}`, ``(B, H, T, d_h)``."""
    from torch.nn.attention.flex_attention import flex_attention

    def log_relu(score: Tensor, b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        seen = score > 0
        if causal:
            seen = seen & (key <= query)
        if padding is not None:
            seen = seen & ~padding[b, key]
        return torch.where(seen, torch.log(torch.where(seen, score, 1.0)), -torch.inf)

    context, lse = flex_attention(q, k, v, score_mod=log_relu, return_lse=True)
    return context.float() * torch.exp(lse)[..., None]


def candidates(cell: Cell, x: Inputs) -> Candidates:
    """Return the implementations to compare, as a dictionary from name to a function that returns the context.

    ``rela`` is the operator, ``rela_g`` the operator and its norm (its context is that of the joined heads, in the
    same shape), ``relu`` the operator's formula in plain PyTorch, ``relu_compiled`` the same by ``torch.compile``.
    """
    qkv = (x.q, x.k, x.v)

    def explicit(weigh: Callable[[Tensor], Tensor], compute: Callable[..., Tensor] = plain) -> Tensor:
        return compute(weigh, *qkv, x.allowed, cell.dropout)

    def sdpa() -> Tensor:
        alone = cell.causal and not cell.padded
        mask = None if alone else x.allowed
        return F.scaled_dot_product_attention(*qkv, attn_mask=mask, dropout_p=cell.dropout, is_causal=alone)

    def rela() -> Tensor:
        return ops.rela_attention(*qkv, None, cell.dropout, cell.causal, key_padding_mask=x.padding)

    def rela_g() -> Tensor:
        joined = rela().transpose(1, 2).flatten(2)  # (B, T, d)
        normed = ops.gated_rms_norm(joined, x.gain, x.gate)
        return normed.unflatten(2, (cell.heads, -1)).transpose(1, 2)

    return {
        "sdpa": sdpa,
        "softmax": lambda: explicit(lambda scores: F.softmax(scores, dim=-1)),
        "rela": rela,
        "rela_g": rela_g,
        "relu": lambda: explicit(functional.relu),
        "relu_compiled": lambda: explicit(functional.relu, compiled_plain()),
        "sparsemax": lambda: explicit(functional.sparsemax),
        "entmax15": lambda: explicit(functional.entmax15),
        "flex": lambda: compiled_flex()(*qkv, x.padding, cell.causal),
    }


def impossible(cell: Cell, device: torch.device) -> Dict[str, str]:
    """Return the candidates that cannot compute a setting, with the reasons."""
    if cell.dropout:
        return {"flex": "FlexAttention has no dropout"}
    return {} if device.type == "cuda" else {"flex": "FlexAttention has no gradient on a CPU"}


def check(cell: Cell, device: torch.device, skipped: Dict[str, str]) -> Tuple[Dict[str, float], Dict[str, str]]:
    """Compare candidates that compute the same, in outputs and gradients, without dropout.

    Args:
        cell: the setting.
        device: where to compute.
        skipped: candidates that are not compared.

    Returns:
        the largest difference of each pair, divided by the largest absolute value; and the reasons why candidates of
        :data:`OPTIONAL_PAIRS` fail here, by name, for example because there is no compiler.

    Raises:
        InputError: two candidates of :data:`PAIRS` differ.
    """
    cell = without_dropout(cell)
    x = make_inputs(cell, device)
    found, passes = candidates(cell, x), Passes((x.q, x.k, x.v), x.grad)
    distances, failed = {}, {}
    for first, second in PAIRS:
        if first not in skipped and second not in skipped:
            distances[f"{first}, {second}"] = far = difference(passes, found[first], found[second])
            refuse_difference(first, second, far, cell)
    for first, second in OPTIONAL_PAIRS:
        if first not in skipped and second not in skipped:
            try:
                distances[f"{first}, {second}"] = far = difference(passes, found[first], found[second])
                refuse_difference(first, second, far, cell)
            except Exception as error:  # compilers raise errors of their own
                lines = str(error).strip().splitlines() or [""]
                failed[second] = f"{type(error).__name__}: {lines[0][:200]}"
    return distances, failed


def measure(cell: Cell, device: torch.device, timing: Timing, memory_limit: float) -> Dict[str, Any]:
    """Measure time, time divided by SDPA's, and memory of every candidate in one setting.

    The peak memory of compiled code is known on a GPU only: on a CPU it is counted by operation.

    Args:
        cell: the setting.
        device: where to compute.
        timing: how long to time all candidates.
        memory_limit: bytes; see :func:`fairseq_rela.benchmark.core.too_large`.

    Returns:
        the setting, ``baseline``, ``distances`` from :func:`check`, and the results of
        :func:`fairseq_rela.benchmark.passes.measure_passes`.

    Raises:
        InputError: candidates that should agree do not.
    """
    skipped = {**too_large(cell, memory_limit, COPIES), **impossible(cell, device)}
    distances, failed = check(cell, device, skipped)
    skipped.update(failed)
    x = make_inputs(cell, device)
    found = {name: function for name, function in candidates(cell, x).items() if name not in skipped}
    passes = Passes((x.q, x.k, x.v), x.grad, {"rela_g": (x.gain, x.gate)})
    uncounted = ("relu_compiled",) if device.type == "cpu" else ()
    measured = measure_passes(found, passes, device, timing, BASELINE, skipped, uncounted)
    return {**cell._asdict(), "batch": cell.batch, "baseline": BASELINE, "distances": distances, **measured}
