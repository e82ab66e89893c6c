"""Benchmark of the attention core, from projected queries, keys and values to the input of the output projection."""

from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import functional
from ..errors import InputError
from ..kernels import backends
from ..norms import GatedRMSNorm
from ..variants import BASELINE
from .passes import Candidates, Passes, difference, measure_passes
from .timing import Timing

# candidates that must have the same results, up to rounding
PAIRS = (("softmax", "sdpa"), ("rela_g_plain", "rela_g"))
# number of tensors of the size of the scores that exist at once in forward and backward with dropout: measured by
# peak_bytes at T = 512 and rounded up, plus the memory that sorting takes
_COPIES = {"softmax": 6, "rela_g_plain": 7, "sparsemax": 12, "entmax15": 18}


class Cell(NamedTuple):
    """One setting of the benchmark.

    Attributes:
        length: T, the number of queries and of keys.
        tokens: B * T, about.
        causal: mask the future.
        padded: the last eighth of the keys of every second sentence is padding.
        dropout: dropout probability of the weights.
        heads: H.
        dim: d, the model size.
        dtype: name of the precision, such as ``float32``.
    """

    length: int
    tokens: int
    causal: bool = False
    padded: bool = False
    dropout: float = 0.0
    heads: int = 8
    dim: int = 512
    dtype: str = "float32"

    @property
    def batch(self) -> int:
        """B, the number of sentences, at least 1."""
        return max(self.tokens // self.length, 1)

    @property
    def score_bytes(self) -> int:
        """The size of the scores in bytes, in float32, the precision in which weights are computed."""
        return 4 * self.batch * self.heads * self.length**2


class Inputs(NamedTuple):
    """Inputs of the attention core.

    Attributes:
        q, k, v: projected queries, keys and values, ``(T, B, d)``.
        padding: ``(B, T)``, True at padding, or None.
        future: ``(T, T)``, minus infinity above the diagonal, or None.
        grad: gradient of the output, ``(T, B, d)``.
        norm: the norm of ReLA-g.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    padding: Optional[Tensor]
    future: Optional[Tensor]
    grad: Tensor
    norm: GatedRMSNorm


def make_inputs(cell: Cell, device: torch.device, seed: int = 1) -> Inputs:
    """Return random inputs of the attention core in one setting, with gradients."""
    generator = torch.Generator().manual_seed(seed)
    shape, dtype = (cell.length, cell.batch, cell.dim), getattr(torch, cell.dtype)
    q, k, v, grad = (torch.randn(shape, generator=generator).to(device, dtype) for _ in range(4))
    padding = future = None
    if cell.padded:
        padding = torch.zeros(cell.batch, cell.length, dtype=torch.bool)
        padding[::2, cell.length - max(cell.length // 8, 1) :] = True
        padding = padding.to(device)
    if cell.causal:
        future = torch.triu(torch.full((cell.length, cell.length), -torch.inf), 1).to(device, dtype)
        future = backends.mark_future(future)
    norm = GatedRMSNorm(cell.dim).to(device)
    for x in (q, k, v):
        x.requires_grad_()
    return Inputs(q, k, v, padding, future, grad, norm)


def candidates(cell: Cell, x: Inputs) -> Candidates:
    """Return the implementations to compare, as a dictionary from name to a function that returns ``(T, B, d)``."""
    scale = (cell.dim // cell.heads) ** -0.5

    def by_head(tensor: Tensor) -> Tensor:  # to (B*H, T, d_h), as in fairseq
        return tensor.view(-1, cell.batch * cell.heads, cell.dim // cell.heads).transpose(0, 1)

    def explicit(weigh: Callable[[Tensor], Tensor]) -> Tensor:
        """Compute attention with the operations of fairseq and the weight function ``weigh``."""
        scores = torch.bmm(by_head(x.q * scale), by_head(x.k).transpose(1, 2))
        if x.future is not None:
            scores += x.future
        if x.padding is not None:
            scores = scores.view(cell.batch, cell.heads, cell.length, cell.length)
            scores = scores.masked_fill(x.padding[:, None, None], -torch.inf).view(-1, cell.length, cell.length)
        weights = F.dropout(weigh(functional.at_least_float32(scores)), cell.dropout).to(x.v.dtype)
        context = torch.bmm(weights, by_head(x.v))
        return context.transpose(0, 1).reshape(cell.length, cell.batch, cell.dim)

    def sdpa() -> Tensor:
        q, k, v = (
            t.view(cell.length, cell.batch, cell.heads, cell.dim // cell.heads).permute(1, 2, 0, 3)
            for t in (x.q, x.k, x.v)
        )
        mask = x.future
        if x.padding is not None:
            mask = torch.zeros(x.padding.shape, dtype=x.q.dtype, device=x.q.device)
            mask = mask.masked_fill(x.padding, -torch.inf)[:, None, None]
            mask = mask if x.future is None else mask + x.future
        causal = x.padding is None and cell.causal
        context = F.scaled_dot_product_attention(
            q, k, v, attn_mask=None if causal else mask, dropout_p=cell.dropout, is_causal=causal
        )
        return context.permute(2, 0, 1, 3).reshape(cell.length, cell.batch, cell.dim)

    def rela_g_plain() -> Tensor:
        return x.norm(explicit(functional.relu))

    found = {
        "softmax": lambda: explicit(lambda scores: F.softmax(scores, dim=-1)),
        "sdpa": sdpa,
        "rela_g_plain": rela_g_plain,
        "sparsemax": lambda: explicit(functional.sparsemax),
        "entmax15": lambda: explicit(functional.entmax15),
    }
    kernel, _ = backends.find(x.q, cell.dim // cell.heads, x.future)
    if kernel is not None:
        options = dict(key_padding_mask=x.padding, is_causal=cell.causal, dropout_p=cell.dropout, scale=scale)

        def rela_g() -> Tensor:
            context = kernel.attend(*(backends.split_heads(t, cell.heads) for t in (x.q, x.k, x.v)), **options)
            return x.norm.by(kernel.norm, backends.join_heads(context))

        found["rela_g"] = rela_g
    return found


def too_large(cell: Cell, memory_limit: float, copies_of: Mapping[str, int] = _COPIES) -> Dict[str, str]:
    """Return the candidates that store the scores and would need more memory than the limit, with the reasons.

    Args:
        cell: the setting.
        memory_limit: bytes.
        copies_of: number of tensors of the size of the scores that exist at once, by candidate.
    """
    size = cell.score_bytes
    return {
        name: f"its scores take {size / 2**30:.1f} GiB, {copies} times"
        for name, copies in copies_of.items()
        if copies * size > memory_limit
    }


def _that_fit(cell: Cell, x: Inputs, memory_limit: float) -> Candidates:
    skipped = too_large(cell, memory_limit)
    return {name: function for name, function in candidates(cell, x).items() if name not in skipped}


def check(cell: Cell, device: torch.device, memory_limit: float = float("inf")) -> Dict[str, float]:
    """Check that the candidates of :data:`PAIRS` agree in outputs and gradients, without dropout.

    Candidates of :func:`too_large` are not compared.

    Returns:
        for each pair the largest difference, divided by the largest absolute value.

    Raises:
        InputError: a difference is larger than 1e-4 (5e-2 in half precision).
    """
    cell = without_dropout(cell)
    x = make_inputs(cell, device)
    found, distances = _that_fit(cell, x, memory_limit), {}
    for first, second in PAIRS:
        if first in found and second in found:
            far = difference(Passes((x.q, x.k, x.v), x.grad), found[first], found[second])
            distances[f"{first}, {second}"] = far
            refuse_difference(first, second, far, cell)
    return distances


def without_dropout(cell: Cell) -> Cell:
    """Return a setting like ``cell`` in which candidates can be compared, with at most two sentences."""
    return cell._replace(dropout=0.0, tokens=min(cell.tokens, 2 * cell.length))


def refuse_difference(first: str, second: str, far: float, cell: Cell) -> None:
    """Raise an error if two candidates that should agree do not.

    Raises:
        InputError: the difference is larger than 1e-4 (5e-2 in half precision).
    """
    if not far <= (1e-4 if cell.dtype in ("float32", "float64") else 5e-2):
        raise InputError(f"{second} and {first} differ by {far:.1g} of the largest value at {cell}")


def measure(
    cell: Cell,
    device: torch.device,
    timing: Timing,
    memory_limit: float,
) -> Dict[str, Any]:
    """Measure time, time divided by softmax's, and memory of every candidate in one setting.

    Args:
        cell: the setting.
        device: where to compute.
        timing: how long to time all candidates.
        memory_limit: bytes; see :func:`too_large`.

    Returns:
        the setting, ``baseline`` (``sdpa`` if softmax does not fit into memory), ``distances`` from :func:`check`,
        and the results of :func:`fairseq_rela.benchmark.passes.measure_passes`.

    Raises:
        InputError: candidates that should agree do not.
    """
    distances = check(cell, device, memory_limit)
    x = make_inputs(cell, device)
    found = _that_fit(cell, x, memory_limit)
    baseline = BASELINE if BASELINE in found else "sdpa"
    passes = Passes((x.q, x.k, x.v), x.grad, dict.fromkeys(("rela_g", "rela_g_plain"), tuple(x.norm.parameters())))
    measured = measure_passes(found, passes, device, timing, baseline, too_large(cell, memory_limit))
    return {**cell._asdict(), "batch": cell.batch, "baseline": baseline, "distances": distances, **measured}
