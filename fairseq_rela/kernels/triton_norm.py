r"""RMSNorm and gated RMSNorm of :mod:`fairseq_rela.kernels.rms_norm` for GPUs, with one Triton kernel for each pass.

Each pass reads every row once and keeps it on the chip. Only z, the gain and the gate are saved for the backward pass.
There, a fixed number of programs divide the rows among them, and each writes a partial sum of the gradients of gain
and gate; results are therefore bitwise reproducible on one GPU. Rows are divided by their largest absolute value
before they are squared, so that squares neither overflow nor vanish.

This module imports Triton; :func:`fairseq_rela.kernels.gpu.unavailable` tells whether the kernels can run.
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

LARGEST_ROW = 4096  # with 8,192 numbers the backward pass spills registers


def gated_rms_norm(
    z: Tensor, gain: Tensor, gate: Optional[Tensor], eps: float, dtype: Optional[torch.dtype] = None
) -> Tensor:
    r"""Return :math:`\sigma(w \odot z) \odot g \odot z / RMS(z)`, or :math:`g \odot z / RMS(z)` without a gate.

    :math:`RMS(z) = \sqrt{\overline{z^2} + \epsilon}` over the last dimension. Everything is computed in float32. The
    function can be differentiated once; gradients have the precision of their inputs.

    Args:
        z: ``(..., d)``, float16, bfloat16 or float32, with d at most 4,096.
        gain: g, ``(d,)``.
        gate: w, ``(d,)``, or None.
        eps: :math:`\epsilon`.
        dtype: precision of the result, by default that of z. The precision of the output projection saves a separate
            cast.

    Returns:
        ``(..., d)``, in ``dtype``.

    Raises:
        InputError: the kernels cannot run here or do not take this precision or size, or the gain or gate has
            another shape or device than z requires.
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
        # row 0 for the gain, row 1 for the gate, so that one sum serves both
        partial = torch.empty((1 if gate is None else 2, programs, size), dtype=torch.float32, device=z.device)
        with on_device(z.device):
            _norm_grad[(programs,)](
                z, gain, gate, grad, grad_z, partial, rows, math.sqrt(ctx.eps), GATED=gate is not None, **shape
            )
        sums = partial.sum(dim=1)
        return grad_z, sums[0].to(gain.dtype), None if gate is None else sums[1].to(gate.dtype), None, None


def _shape(size: int) -> dict:
    """Return the compile-time arguments: rows that a program holds at once and its warps, with 8 numbers a thread."""
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
    """Return the number of programs of the backward pass, 4 for each multiprocessor."""
    if INTERPRETED:
        return 4
    return 4 * torch.cuda.get_device_properties(device).multi_processor_count


# --- on the GPU: ROWS rows at a time ---


@triton.jit
def _normed(z, root_eps, SIZE: tl.constexpr):
    r"""Return ``z / RMS(z)``, and RMS(z) as two factors, because the reciprocal of their product could vanish."""
    largest = tl.maximum(tl.max(tl.abs(z), axis=1), tl.maximum(root_eps, 1e-30))
    scaled = tl.div_rn(z, largest[:, None])
    small = tl.div_rn(tl.zeros_like(largest) + root_eps, largest)
    root = tl.sqrt(tl.sum(scaled * scaled, axis=1) / SIZE + small * small)
    return scaled / root[:, None], largest, root


@triton.jit
def _vector(pointer, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Return the gain or the gate, ``(1, BLOCK)``, with 0 after its end."""
    columns = tl.arange(0, BLOCK)
    return tl.load(pointer + columns, mask=columns < SIZE, other=0.0).to(tl.float32)[None, :]


@triton.jit
def _tile(first, rows, SIZE: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Return the offsets of ROWS rows from ``first`` on, ``(ROWS, BLOCK)``, and which of them exist."""
    columns = tl.arange(0, BLOCK)
    row = first + tl.arange(0, ROWS)
    return row.to(tl.int64)[:, None] * SIZE + columns[None, :], (row < rows)[:, None] & (columns < SIZE)[None, :]


@triton.jit(do_not_specialize=["rows"])
def _norm(
    z, gain, gate, y, rows, root_eps,
    GATED: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    offsets, mask = _tile(tl.program_id(0) * ROWS, rows, SIZE, BLOCK, ROWS)
    z_tile = tl.load(z + offsets, mask=mask, other=0.0).to(tl.float32)
    normed, _, _ = _normed(z_tile, root_eps, SIZE)
    result = normed * _vector(gain, SIZE, BLOCK)
    if GATED:
        result *= tl.sigmoid(_vector(gate, SIZE, BLOCK) * z_tile)
    tl.store(y + offsets, result.to(y.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["rows"])
def _norm_grad(
    z, gain, gate, grad, grad_z, partial, rows, root_eps,
    GATED: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, BLOCK)
    inside = columns < SIZE
    g = _vector(gain, SIZE, BLOCK)
    if GATED:
        w = _vector(gate, SIZE, BLOCK)
    grad_gain = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    grad_gate = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    programs = tl.num_programs(0)
    for first in range(tl.program_id(0) * ROWS, rows, programs * ROWS):
        offsets, mask = _tile(first, rows, SIZE, BLOCK, ROWS)
        z_tile = tl.load(z + offsets, mask=mask, other=0.0).to(tl.float32)
        through = tl.load(grad + offsets, mask=mask, other=0.0).to(tl.float32)
        normed, largest, root = _normed(z_tile, root_eps, SIZE)
        # y = sigmoid(w z) g n with n = z / RMS(z): `through` is the gradient of g n, `product` first that of g and
        # then y times its gradient, `of_gate` that of w z
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
