r"""Rectified linear attention for GPUs, with Triton kernels that never write the weights to memory.

Let :math:`S = \alpha Q K^T - \theta`, where :math:`\theta` is the threshold of a head, 0 for ReLA. :math:`M` is 1 at
allowed keys and 0 elsewhere; :math:`D` is 1 at weights that dropout with probability p keeps, and 0 elsewhere. A bar
denotes a gradient of the loss.

.. math::
    A = M \odot D \odot \max(S, 0) / (1 - p), \quad z = A V \\
    \bar S = [A > 0] \odot (\bar z V^T) / (1 - p), \quad
    \bar Q = \alpha \bar S K, \quad \bar K = \alpha \bar S^T Q, \quad \bar V = A^T \bar z, \quad
    \bar\theta = -\textstyle\sum_{ij} \bar S_{ij}

ReLU needs no sum over a row, so the products of A are summed tile by tile. Only q, k, v, the padding mask and the
seed of D are saved, and the backward pass computes A again: one kernel loops over the keys for :math:`\bar Q` and the
sums of :math:`\bar S` for each query, another over the queries for :math:`\bar K` and :math:`\bar V`. There are no
atomic additions, so results are bitwise reproducible on one GPU. Padded keys and values are read as 0, so that they
add nothing to contexts and gradients.

Matrix products have operands in the precision of the inputs and sum in float32. D comes from Philox4x32 with 7 rounds
at the counter (query, key // 8, sentence * H + head, 0). Each key gets 16 bits, so p is rounded to a multiple of
2^-16.

This module imports Triton; :func:`fairseq_rela.kernels.gpu.unavailable` tells whether the kernels can run.
"""

from functools import lru_cache
from typing import Any, NamedTuple, Optional, Tuple, Union

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..errors import InputError
from .gpu import INTERPRETED, on_device, unavailable

# Triton's interpreter multiplies the bit patterns of bfloat16, without an error
_UPCAST = tl.constexpr(INTERPRETED)
_ALL = tl.constexpr(tl.PropagateNan.ALL)
_LARGEST_HALF = tl.constexpr(65504.0)
_LEVELS = 1 << 16


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    num_heads: int,
    key_padding_mask: Optional[Tensor] = None,
    causal: bool = False,
    dropout: float = 0.0,
    seed: Optional[Union[int, Tensor]] = None,
    threshold: Optional[Tensor] = None,
) -> Tensor:
    r"""Return :math:`z = concat_h(dropout(\max(\alpha Q_h K_h^T - \theta_h, 0)) V_h)`.

    A query without an allowed key gives 0.

    The result is in float32, because a sum of unnormalised weights can exceed 65504, the largest number in float16,
    and the norm that follows needs float32. Weights are rounded to the precision of v before the product with v; in
    float16 they are limited to 65504. The function can be differentiated once; gradients have the precision of their
    inputs.

    Args:
        q: projected queries, ``(T, B, H * d_h)``, float16, bfloat16 or float32, with any strides.
        k, v: projected keys and values, ``(S, B, H * d_h)``, in the precision of q.
        scale: :math:`\alpha`.
        num_heads: H.
        key_padding_mask: ``(B, S)``, boolean, True at padding.
        causal: query i sees only the keys 0 to i; requires T = S.
        dropout: p, the probability of dropping a weight; weights that are kept are divided by 1 - p.
        seed: seed of the dropout mask. None draws one from PyTorch's CPU generator, which ``torch.manual_seed`` and
            activation checkpointing control. A tensor on the GPU causes a synchronisation.
        threshold: :math:`\theta` of each head, ``(H,)``, which can have a gradient; None for 0.

    Returns:
        the context, ``(T, B, H * d_h)``, float32.

    Raises:
        InputError: the kernels cannot run here, shapes, types or devices do not fit, or the dropout is not in [0, 1).
    """
    _check(q, k, v, num_heads, key_padding_mask, causal, dropout)
    if threshold is not None:
        if threshold.shape != (num_heads,) or threshold.device != q.device:
            raise InputError(
                f"threshold is {tuple(threshold.shape)} on {threshold.device}; give ({num_heads},) on {q.device}"
            )
        threshold = threshold.float().contiguous()
    limit = min(round(dropout * _LEVELS), _LEVELS - 1)
    if not limit:
        seed = 0
    elif seed is None:
        seed = torch.randint(2**62, ()).item()
    options = float(scale), num_heads, causal, limit, int(seed)
    return _Attend.apply(q, k, v, threshold, key_padding_mask, options)


def _check(
    q: Tensor, k: Tensor, v: Tensor, num_heads: int, mask: Optional[Tensor], causal: bool, dropout: float
) -> None:
    if q.dim() != 3 or k.dim() != 3 or k.shape != v.shape or q.shape[1:] != k.shape[1:] or q.size(-1) % num_heads:
        raise InputError(
            f"q {tuple(q.shape)}, k {tuple(k.shape)} and v {tuple(v.shape)} are not (T, B, d), (S, B, d) and"
            f" (S, B, d) with d a multiple of {num_heads} heads; reshape them"
        )
    if not (q.dtype == k.dtype == v.dtype and q.device == k.device == v.device):
        raise InputError("q, k and v differ in type or device; cast or move them first")
    reason = unavailable(q.device, q.dtype, q.size(-1) // num_heads)
    if reason is not None:
        raise InputError(f"the Triton kernels cannot run: {reason}")
    if mask is not None and (
        mask.shape != (k.size(1), k.size(0)) or mask.dtype != torch.bool or mask.device != k.device
    ):
        raise InputError(
            f"key_padding_mask is {tuple(mask.shape)} {mask.dtype} on {mask.device}; give"
            f" ({k.size(1)}, {k.size(0)}) torch.bool on {k.device}"
        )
    if causal and q.size(0) != k.size(0):
        raise InputError(f"causal attention of {q.size(0)} queries to {k.size(0)} keys; give as many keys as queries")
    if not 0.0 <= dropout < 1.0:
        raise InputError(f"attention dropout {dropout} is not a probability below 1")


class Tiles(NamedTuple):
    """Tile size of a kernel: queries and keys of a tile, warps of a program, and stages of its pipeline."""

    queries: int
    keys: int
    warps: int
    stages: int


KERNELS = ("context", "grad_q", "grad_kv")
LONG = 256  # sequences longer than this have the same tiles


@lru_cache(maxsize=None)
def default_tiles(kernel: str, dtype: torch.dtype, block_d: int, capability: Tuple[int, int], longest: int) -> Tiles:
    """Return the tiles of a kernel, the largest that were found with almost no register spills.

    They were chosen from the compiler's reports for sm_80 and sm_90, with padding, causal mask and dropout on or off,
    and for the shared memory of the smaller Ampere GPUs (99 KB), not from timings. ``triton.autotune`` is not used: it
    could choose different tiles, and so a different order of summation, in each run, and would stop training for
    seconds at every new length.

    Args:
        kernel: one of :data:`KERNELS`.
        dtype: precision of the inputs.
        block_d: d_h, rounded up by :func:`block_of`.
        capability: compute capability of the GPU, such as (9, 0).
        longest: the larger of T and S, rounded up by :func:`block_of`, at most :data:`LONG`.
    """
    if dtype == torch.float32:
        if block_d > 128:
            return Tiles(16, 16, 8, 2)
        if longest == 16:
            return Tiles(16, 16, 1 if block_d <= 64 else 4, 2)
        if kernel == "grad_q" and block_d > 64:
            return Tiles(32, 16, 8, 2)  # with 32 keys the sums for the threshold spill registers
        return Tiles(32, 32, 4 if block_d <= 64 else 8, 2)
    datacentre = capability[0] in (9, 10)  # Hopper and Blackwell: 227 KB of shared memory
    if longest <= 32:
        warps = longest // 16 if block_d <= 64 else 4
        return Tiles(longest, longest, warps, 2)
    if block_d > 128:
        return Tiles(16, 32, 4, 2) if kernel == "grad_kv" and not datacentre else Tiles(32, 32, 8, 2)
    warps = 4 if block_d <= 64 else 8
    if kernel != "context" and not datacentre:
        return Tiles(64, 32, warps, 2)
    if kernel == "context" and datacentre and block_d <= 64 and longest >= 256:
        return Tiles(128, 64, 8, 3)
    return Tiles(64, 64, warps, 2)


@lru_cache(maxsize=None)
def _capability(device: torch.device) -> Tuple[int, int]:
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else (0, 0)


def block_of(size: int) -> int:
    """Return the smallest power of two that is at least ``size`` and 16, a size that tensor cores support."""
    return max(16, triton.next_power_of_2(size))


Options = Tuple[float, int, bool, int, int]  # scale, H, causal, dropout in 2^-16, seed


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        theta: Optional[Tensor],
        mask: Optional[Tensor],
        options: Options,
    ) -> Tensor:
        ctx.save_for_backward(q, k, v, theta, mask)
        ctx.options = options
        context = torch.empty(q.shape, dtype=torch.float32, device=q.device)
        _launch(_context, "context", (q, k, v), theta, mask, (context,), options)
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        q, k, v, theta, mask = ctx.saved_tensors
        grad_q = grad_k = grad_v = grad_theta = sums = None
        num_heads = ctx.options[1]
        if ctx.needs_input_grad[3]:
            sums = torch.zeros((q.size(1), num_heads, q.size(0)), dtype=torch.float32, device=q.device)
        if ctx.needs_input_grad[0] or sums is not None:
            grad_q = torch.empty(q.shape, dtype=q.dtype, device=q.device)
            _launch(_grad_q, "grad_q", (q, k, v, grad), theta, mask, (grad_q, sums), ctx.options)
        if sums is not None:
            grad_theta = -sums.sum(dim=(0, 2))
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            grad_k, grad_v = (torch.empty(k.shape, dtype=k.dtype, device=k.device) for _ in range(2))
            _launch(_grad_kv, "grad_kv", (q, k, v, grad), theta, mask, (grad_k, grad_v), ctx.options)
        return grad_q, grad_k, grad_v, grad_theta, None, None


def _launch(
    kernel: Any,
    name: str,
    inputs: Tuple[Tensor, ...],
    theta: Optional[Tensor],
    mask: Optional[Tensor],
    outputs: Tuple[Optional[Tensor], ...],
    options: Options,
) -> None:
    """Run a kernel with one program for each sentence, head and tile of the outputs; tiles of a head are neighbours."""
    first = outputs[0]
    assert first is not None  # only the sums of grad_q can be missing
    if not first.numel():
        return
    q, k = inputs[:2]
    scale, num_heads, causal, limit, seed = options
    head_dim = q.size(-1) // num_heads
    block_d, longest = block_of(head_dim), block_of(max(q.size(0), k.size(0)))
    tiles = default_tiles(name, q.dtype, block_d, _capability(q.device), min(longest, LONG))
    rows = tiles.keys if name == "grad_kv" else tiles.queries
    grid = (triton.cdiv(first.size(0), rows) * q.size(1) * num_heads,)
    strides = [stride for x in inputs for stride in x.stride()]
    with on_device(q.device):
        kernel[grid](
            *inputs,
            theta,
            mask,
            *outputs,
            *strides,
            *((0, 0) if mask is None else mask.stride()),
            *first.stride()[:2],
            q.size(0),
            k.size(0),
            scale,
            seed,
            limit,
            NUM_HEADS=num_heads,
            HEAD_DIM=head_dim,
            BLOCK_D=block_d,
            BLOCK_M=tiles.queries,
            BLOCK_N=tiles.keys,
            CAUSAL=causal,
            PADDED=mask is not None,
            SHIFTED=theta is not None,
            DROPOUT=limit > 0,
            **({"SUMS": outputs[1] is not None} if name == "grad_q" else {}),
            PRECISION="ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32",
            num_warps=tiles.warps,
            num_stages=tiles.stages,
        )


# --- on the GPU: one program computes the outputs of BLOCK_M queries or of BLOCK_N keys of one head ---


# Triton reads the arguments of a kernel from its source, so the three lists are written out; a list has, in this order,
# inputs, mask, outputs, their strides, numbers that change with every batch, and constants of the compilation
_kernel = triton.jit(do_not_specialize=["mask_b", "mask_s", "tgt_len", "src_len", "seed", "limit"])


@triton.jit
def _place(length, NUM_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, ROWS: tl.constexpr):
    """Return where this program works: head (of all sentences), sentence, first column of the head, first row."""
    tiles = tl.cdiv(length, ROWS)
    head = tl.program_id(0) // tiles
    b = (head // NUM_HEADS).to(tl.int64)
    return head, b, (head % NUM_HEADS) * HEAD_DIM, (tl.program_id(0) % tiles) * ROWS


@triton.jit
def _dot(a, b, PRECISION: tl.constexpr):
    if _UPCAST:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, input_precision=PRECISION)


@triton.jit
def _rows(
    pointer, start, allowed, row_stride, column_stride, HEAD_DIM: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr
):
    """Return the rows of one head from ``start`` on, ``(ROWS, D)``, with 0 in rows that are not allowed."""
    columns = tl.arange(0, D)
    mask = allowed[:, None]
    if HEAD_DIM != D:
        mask = mask & (columns < HEAD_DIM)[None, :]
    pointer += tl.cast(start, tl.int64) * row_stride
    offsets = tl.arange(0, ROWS)[:, None] * row_stride + columns[None, :] * column_stride
    return tl.load(pointer + offsets, mask=mask, other=0.0)


@triton.jit
def _store_rows(pointer, start, allowed, row_stride, tile, HEAD_DIM: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr):
    columns = tl.arange(0, D)
    mask = allowed[:, None]
    if HEAD_DIM != D:
        mask = mask & (columns < HEAD_DIM)[None, :]
    pointer += tl.cast(start, tl.int64) * row_stride
    offsets = tl.arange(0, ROWS)[:, None] * row_stride + columns[None, :]
    tl.store(pointer + offsets, tile.to(pointer.dtype.element_ty), mask=mask)


@triton.jit
def _keys_allowed(mask_pointer, start, mask_stride, src_len, PADDED: tl.constexpr, N: tl.constexpr):
    keys = start + tl.arange(0, N)
    allowed = keys < src_len
    if PADDED:
        padding = tl.load(mask_pointer + keys.to(tl.int64) * mask_stride, mask=allowed, other=1)
        allowed = allowed & (padding == 0)
    return allowed


@triton.jit
def _weights(scores, queries, keys, CAUSAL: tl.constexpr, HALF: tl.constexpr):
    """Return ReLU of the scores, and 0 at keys after the query; the numbers of queries and keys broadcast to a tile.

    NaN stays NaN. For float16 weights are limited to 65504, because inf * 0 is NaN.
    """
    weights = tl.maximum(scores, 0.0, propagate_nan=_ALL)
    if HALF:
        weights = tl.minimum(weights, _LARGEST_HALF, propagate_nan=_ALL)
    if CAUSAL:
        weights = tl.where(keys <= queries, weights, 0.0)
    return weights


@triton.jit
def _kept(seed, head, query_start, key_start, limit, M: tl.constexpr, N: tl.constexpr):
    """Return booleans ``(M, N)``, True at weights that dropout keeps.

    They do not depend on the size of the tiles. One call of Philox gives the bits for 8 keys.
    """
    zeros = tl.zeros((M, N // 8), dtype=tl.int32)
    queries = zeros + (query_start + tl.arange(0, M))[:, None]
    keys = zeros + (key_start // 8 + tl.arange(0, N // 8))[None, :]
    a, b, c, d = tl.philox(seed, queries, keys, zeros + head, zeros, n_rounds=7)
    limit = limit.to(tl.uint32)
    low = tl.join(
        tl.join((a & 0xFFFF) >= limit, (b & 0xFFFF) >= limit), tl.join((c & 0xFFFF) >= limit, (d & 0xFFFF) >= limit)
    )
    high = tl.join(tl.join((a >> 16) >= limit, (b >> 16) >= limit), tl.join((c >> 16) >= limit, (d >> 16) >= limit))
    return tl.reshape(tl.join(low, high), (M, N))


@triton.jit
def _without_range(grad, HALF: tl.constexpr):
    """Return the rows of a gradient divided by their largest absolute values, and these values.

    Only float16 rows are divided; otherwise the values are 1. At a null row the norm multiplies the gradient by 5,000,
    which could be infinite in float16 and give inf * 0 = NaN in the gradient of v.
    """
    largest = tl.full((grad.shape[0],), 1.0, dtype=tl.float32)
    if HALF:
        grad = grad.to(tl.float32)
        largest = tl.max(tl.abs(grad), axis=1)
        largest = tl.where(largest < 1e-30, 1.0, largest)
        grad = grad / largest[:, None]
    return grad, largest


@_kernel
def _context(
    q, k, v, theta, mask, out,
    q_t, q_b, q_c, k_s, k_b, k_c, v_s, v_b, v_c, mask_b, mask_s, out_t, out_b,
    tgt_len, src_len, scale, seed: tl.int64, limit,
    NUM_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr, PADDED: tl.constexpr, SHIFTED: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    HALF: tl.constexpr = v.dtype.element_ty == tl.float16
    head, b, column, start = _place(tgt_len, NUM_HEADS, HEAD_DIM, BLOCK_M)
    q += b * q_b + column * q_c
    k += b * k_b + column * k_c
    v += b * v_b + column * v_c
    out += b * out_b + column
    if PADDED:
        mask += b * mask_b
    if SHIFTED:
        shift = tl.load(theta + head % NUM_HEADS)

    rows = start + tl.arange(0, BLOCK_M)
    q_tile = _rows(q, start, rows < tgt_len, q_t, q_c, HEAD_DIM, BLOCK_M, BLOCK_D)
    total = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)
    end = src_len
    if CAUSAL:
        end = tl.minimum(src_len, start + BLOCK_M)
    for key_start in range(0, end, BLOCK_N):
        allowed = _keys_allowed(mask, key_start, mask_s, src_len, PADDED, BLOCK_N)
        k_tile = _rows(k, key_start, allowed, k_s, k_c, HEAD_DIM, BLOCK_N, BLOCK_D)
        scores = _dot(q_tile, tl.trans(k_tile), PRECISION) * scale
        if SHIFTED:
            scores -= shift
        keys = key_start + tl.arange(0, BLOCK_N)
        weights = _weights(scores, rows[:, None], keys[None, :], CAUSAL, HALF)
        if DROPOUT:
            weights = tl.where(_kept(seed, head, start, key_start, limit, BLOCK_M, BLOCK_N), weights, 0.0)
        v_tile = _rows(v, key_start, allowed, v_s, v_c, HEAD_DIM, BLOCK_N, BLOCK_D)
        total += _dot(weights.to(v_tile.dtype), v_tile, PRECISION)
    if DROPOUT:
        total *= 65536.0 / (65536 - limit)
    _store_rows(out, start, rows < tgt_len, out_t, total, HEAD_DIM, BLOCK_M, BLOCK_D)


@_kernel
def _grad_q(
    q, k, v, grad, theta, mask, out, sums,
    q_t, q_b, q_c, k_s, k_b, k_c, v_s, v_b, v_c, grad_t, grad_b, grad_c, mask_b, mask_s, out_t, out_b,
    tgt_len, src_len, scale, seed: tl.int64, limit,
    NUM_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr, PADDED: tl.constexpr, SHIFTED: tl.constexpr, DROPOUT: tl.constexpr, SUMS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    HALF: tl.constexpr = v.dtype.element_ty == tl.float16
    head, b, column, start = _place(tgt_len, NUM_HEADS, HEAD_DIM, BLOCK_M)
    q += b * q_b + column * q_c
    k += b * k_b + column * k_c
    v += b * v_b + column * v_c
    grad += b * grad_b + column * grad_c
    out += b * out_b + column
    if PADDED:
        mask += b * mask_b
    if SHIFTED:
        shift = tl.load(theta + head % NUM_HEADS)

    rows = start + tl.arange(0, BLOCK_M)
    q_tile = _rows(q, start, rows < tgt_len, q_t, q_c, HEAD_DIM, BLOCK_M, BLOCK_D)
    grad_tile = _rows(grad, start, rows < tgt_len, grad_t, grad_c, HEAD_DIM, BLOCK_M, BLOCK_D)
    grad_tile, largest = _without_range(grad_tile, HALF)
    grad_tile = grad_tile.to(q_tile.dtype)
    total = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)
    if SUMS:
        row_sums = tl.zeros((BLOCK_M,), dtype=tl.float32)
    end = src_len
    if CAUSAL:
        end = tl.minimum(src_len, start + BLOCK_M)
    for key_start in range(0, end, BLOCK_N):
        allowed = _keys_allowed(mask, key_start, mask_s, src_len, PADDED, BLOCK_N)
        k_tile = _rows(k, key_start, allowed, k_s, k_c, HEAD_DIM, BLOCK_N, BLOCK_D)
        v_tile = _rows(v, key_start, allowed, v_s, v_c, HEAD_DIM, BLOCK_N, BLOCK_D)
        scores = _dot(q_tile, tl.trans(k_tile), PRECISION) * scale
        if SHIFTED:
            scores -= shift
        keys = key_start + tl.arange(0, BLOCK_N)
        weights = _weights(scores, rows[:, None], keys[None, :], CAUSAL, HALF)
        if DROPOUT:
            weights = tl.where(_kept(seed, head, start, key_start, limit, BLOCK_M, BLOCK_N), weights, 0.0)
        grad_scores = tl.where(weights > 0.0, _dot(grad_tile, tl.trans(v_tile), PRECISION), 0.0)
        if SUMS:
            row_sums += tl.sum(grad_scores, axis=1)
        total += _dot(grad_scores.to(k_tile.dtype), k_tile, PRECISION)
    if DROPOUT:
        keep = 65536.0 / (65536 - limit)
        scale *= keep
        if SUMS:
            row_sums *= keep
    total *= scale
    if HALF:
        total *= largest[:, None]
        if SUMS:
            row_sums *= largest
    if SUMS:
        tl.store(sums + head.to(tl.int64) * tgt_len + rows, row_sums, mask=rows < tgt_len)
    _store_rows(out, start, rows < tgt_len, out_t, total, HEAD_DIM, BLOCK_M, BLOCK_D)


@_kernel
def _grad_kv(
    q, k, v, grad, theta, mask, out_k, out_v,
    q_t, q_b, q_c, k_s, k_b, k_c, v_s, v_b, v_c, grad_t, grad_b, grad_c, mask_b, mask_s, out_s, out_b,
    tgt_len, src_len, scale, seed: tl.int64, limit,
    NUM_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr, PADDED: tl.constexpr, SHIFTED: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    HALF: tl.constexpr = v.dtype.element_ty == tl.float16
    head, b, column, start = _place(src_len, NUM_HEADS, HEAD_DIM, BLOCK_N)
    q += b * q_b + column * q_c
    k += b * k_b + column * k_c
    v += b * v_b + column * v_c
    grad += b * grad_b + column * grad_c
    out_k += b * out_b + column
    out_v += b * out_b + column
    if PADDED:
        mask += b * mask_b
    if SHIFTED:
        shift = tl.load(theta + head % NUM_HEADS)

    keys = start + tl.arange(0, BLOCK_N)
    allowed = _keys_allowed(mask, start, mask_s, src_len, PADDED, BLOCK_N)
    k_tile = _rows(k, start, allowed, k_s, k_c, HEAD_DIM, BLOCK_N, BLOCK_D)
    v_tile = _rows(v, start, allowed, v_s, v_c, HEAD_DIM, BLOCK_N, BLOCK_D)
    total_k = tl.zeros((BLOCK_N, BLOCK_D), dtype=tl.float32)
    total_v = tl.zeros((BLOCK_N, BLOCK_D), dtype=tl.float32)
    first = 0
    if CAUSAL:
        first = (start // BLOCK_M) * BLOCK_M
    end = tgt_len
    if PADDED:  # a tile with only padding is skipped
        end = tl.where(tl.max(allowed.to(tl.int32), axis=0) > 0, tgt_len, first)
    for query_start in range(first, end, BLOCK_M):
        queries = query_start + tl.arange(0, BLOCK_M)
        q_tile = _rows(q, query_start, queries < tgt_len, q_t, q_c, HEAD_DIM, BLOCK_M, BLOCK_D)
        grad_tile = _rows(grad, query_start, queries < tgt_len, grad_t, grad_c, HEAD_DIM, BLOCK_M, BLOCK_D)
        grad_tile, largest = _without_range(grad_tile, HALF)
        grad_tile = grad_tile.to(q_tile.dtype)
        # shape (keys, queries), so that the next product needs no transposition
        scores = _dot(k_tile, tl.trans(q_tile), PRECISION) * scale
        if SHIFTED:
            scores -= shift
        weights = _weights(scores, queries[None, :], keys[:, None], CAUSAL, HALF)
        if SHIFTED:  # below 0, a threshold gives weight to padded keys
            weights = tl.where(allowed[:, None], weights, 0.0)
        if DROPOUT:
            kept = _kept(seed, head, query_start, start, limit, BLOCK_M, BLOCK_N)
            weights = tl.where(tl.trans(kept), weights, 0.0)
        grad_scores = tl.where(weights > 0.0, _dot(v_tile, tl.trans(grad_tile), PRECISION), 0.0)
        if HALF:
            weights *= largest[None, :]
            grad_scores *= largest[None, :]
        total_v += _dot(weights.to(grad_tile.dtype), grad_tile, PRECISION)
        total_k += _dot(grad_scores.to(q_tile.dtype), q_tile, PRECISION)
    if DROPOUT:
        keep = 65536.0 / (65536 - limit)
        total_v *= keep
        scale *= keep
    total_k *= scale
    _store_rows(out_k, start, keys < src_len, out_s, total_k, HEAD_DIM, BLOCK_N, BLOCK_D)
    _store_rows(out_v, start, keys < src_len, out_s, total_v, HEAD_DIM, BLOCK_N, BLOCK_D)
