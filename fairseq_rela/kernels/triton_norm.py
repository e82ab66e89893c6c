r"""The (gated) RMSNorm of :mod:`fairseq_rela.kernels.rms_norm` on a GPU: one kernel forward, one backward.

Each row is read once and kept on the chip; z, the gain and the gate are all that is kept for the backward pass,
which walks over the rows with a fixed number of programs and leaves a partial sum of each for the gradients of
gain and gate, so that results repeat bit for bit on one GPU. Rows are divided by their largest entry before they
are squared: squares neither overflow nor vanish.

This module imports Triton; ask :func:`fairseq_rela.kernels.gpu.available` first.
"""

import math
from functools import lru_cache
from typing import Any, Optional, Tuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..errors import InputError
from .gpu import INTERPRETED, on_device, unavailable

LARGEST_ROW = 4096  # the backward pass over 8,192 numbers spills registers


def gated_rms_norm(
    z: Tensor, gain: Tensor, gate: Optional[Tensor], eps: float, dtype: Optional[torch.dtype] = None
) -> Tensor:
    r""":math:`\sigma(w \odot z) \odot g \odot z / RMS(z)` over the last dimension, or without the gate.

    Computed in float32 whatever comes in. It can be differentiated once; gradients have the precision of their
    inputs.

    Args:
        z: ``(..., d)``, float16, bfloat16 or float32, d at most 4,096.
        gain: g, ``(d,)``.
        gate: w, ``(d,)``, or None.
        dtype: precision of the result, that of z unless given: what the output projection takes, without a pass
            of its own for the cast.

    Raises:
        InputError: shapes, types or devices that do not fit.
    """
    _check(z, gain, gate)
    return _GatedRMSNorm.apply(z, gain, gate, float(eps), dtype or z.dtype)


def _check(z: Tensor, gain: Tensor, gate: Optional[Tensor]) -> None:
    reason = unavailable(z.device, z.dtype)
    if reason is None and z.size(-1) > LARGEST_ROW:
        reason = f"rows of {z.size(-1)} are larger than {LARGEST_ROW}"
    if reason is not None:
        raise InputError(f"the Triton kernels cannot run: {reason}")
    for name, vector in (("gain", gain), ("gate", gate)):
        if vector is not None and (vector.shape != z.shape[-1:] or vector.device != z.device):
            raise InputError(
                f"the {name} is {tuple(vector.shape)} on {vector.device}; give ({z.size(-1)},) on {z.device}"
            )


class _GatedRMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, gain: Tensor, gate: Optional[Tensor], eps: float, dtype: torch.dtype) -> Tensor:
        z, gain, gate = z.contiguous(), gain.contiguous(), gate if gate is None else gate.contiguous()
        ctx.save_for_backward(z, gain, gate)
        ctx.eps = eps
        y = torch.empty(z.shape, dtype=dtype, device=z.device)
        rows = z.numel() // max(1, z.size(-1))
        if rows:
            shape = _shape(z.size(-1))
            with on_device(z.device):
                _norm[(triton.cdiv(rows, shape["ROWS"]),)](
                    z, gain, gate, y, rows, math.sqrt(eps), GATED=gate is not None, **shape
                )
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        z, gain, gate = ctx.saved_tensors
        grad = grad.contiguous()
        grad_z = torch.empty_like(z)
        rows, size = z.numel() // max(1, z.size(-1)), z.size(-1)
        shape = _shape(size)
        programs = max(1, min(triton.cdiv(rows, shape["ROWS"]), _programs(z.device)))
        # of the gain, then of the gate: one sum for both
        partial = torch.empty((1 if gate is None else 2, programs, size), dtype=torch.float32, device=z.device)
        with on_device(z.device):
            _norm_grad[(programs,)](
                z, gain, gate, grad, grad_z, partial, rows, math.sqrt(ctx.eps), GATED=gate is not None, **shape
            )
        sums = partial.sum(dim=1)
        return grad_z, sums[0].to(gain.dtype), None if gate is None else sums[1].to(gate.dtype), None, None


def _shape(size: int) -> dict:
    """Rows a program holds at once, and its warps: about 8 numbers a thread."""
    block = max(16, triton.next_power_of_2(size))
    rows = max(1, 1024 // block)
    return {
        "SIZE": size,
        "BLOCK": block,
        "ROWS": rows,
        "num_warps": min(32, max(2, rows * block // 256)),
    }


@lru_cache(maxsize=None)
def _programs(device: torch.device) -> int:
    """Of the backward pass: a few for each multiprocessor."""
    if INTERPRETED:
        return 4
    return 4 * torch.cuda.get_device_properties(device).multi_processor_count


# --- on the GPU: ROWS rows at a time ---


@triton.jit
def _normed(z, root_eps, SIZE: tl.constexpr):
    r"""``z / RMS(z)``, and RMS(z) as two factors: their product may be too large for a reciprocal."""
    largest = tl.maximum(tl.max(tl.abs(z), axis=1), tl.maximum(root_eps, 1e-30))
    scaled = tl.div_rn(z, largest[:, None])
    small = tl.div_rn(tl.zeros_like(largest) + root_eps, largest)
    root = tl.sqrt(tl.sum(scaled * scaled, axis=1) / SIZE + small * small)
    return scaled / root[:, None], largest, root


@triton.jit(do_not_specialize=["rows"])
def _norm(
    z,
    gain,
    gate,
    y,
    rows,
    root_eps,
    GATED: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    columns = tl.arange(0, BLOCK)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    mask = (row < rows)[:, None] & (columns < SIZE)[None, :]
    offsets = row.to(tl.int64)[:, None] * SIZE + columns[None, :]
    z_tile = tl.load(z + offsets, mask=mask, other=0.0).to(tl.float32)
    g = tl.load(gain + columns, mask=columns < SIZE, other=0.0).to(tl.float32)
    normed, _, _ = _normed(z_tile, root_eps, SIZE)
    result = normed * g[None, :]
    if GATED:
        w = tl.load(gate + columns, mask=columns < SIZE, other=0.0).to(tl.float32)
        result *= tl.sigmoid(w[None, :] * z_tile)
    tl.store(y + offsets, result.to(y.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["rows"])
def _norm_grad(
    z,
    gain,
    gate,
    grad,
    grad_z,
    partial,
    rows,
    root_eps,
    GATED: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    columns = tl.arange(0, BLOCK)
    inside = columns < SIZE
    g = tl.load(gain + columns, mask=inside, other=0.0).to(tl.float32)[None, :]
    if GATED:
        w = tl.load(gate + columns, mask=inside, other=0.0).to(tl.float32)[None, :]
    grad_gain = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    grad_gate = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    programs = tl.num_programs(0)
    for first in range(tl.program_id(0) * ROWS, rows, programs * ROWS):
        row = first + tl.arange(0, ROWS)
        mask = (row < rows)[:, None] & inside[None, :]
        offsets = row.to(tl.int64)[:, None] * SIZE + columns[None, :]
        z_tile = tl.load(z + offsets, mask=mask, other=0.0).to(tl.float32)
        through = tl.load(grad + offsets, mask=mask, other=0.0).to(tl.float32)
        normed, largest, root = _normed(z_tile, root_eps, SIZE)
        # as in rms_norm.py: a, t and u
        if GATED:
            sigmoid = tl.sigmoid(w * z_tile)
            through *= sigmoid
        product = through * normed
        grad_gain += product
        product *= g
        mean = tl.sum(product, axis=1) / SIZE
        result = tl.div_rn(
            (through * g - normed * mean[:, None]) / root[:, None], tl.broadcast_to(largest[:, None], (ROWS, BLOCK))
        )
        if GATED:
            of_gate = product * (1.0 - sigmoid)
            grad_gate += of_gate * z_tile
            result += of_gate * w
        tl.store(grad_z + offsets, result.to(grad_z.dtype.element_ty), mask=mask)
    partial += tl.program_id(0).to(tl.int64) * SIZE
    tl.store(partial + columns, tl.sum(grad_gain, axis=0), mask=inside)
    if GATED:
        partial += programs.to(tl.int64) * SIZE
        tl.store(partial + columns, tl.sum(grad_gate, axis=0), mask=inside)
