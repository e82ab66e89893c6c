r"""Rectified linear attention with torch's functions, which needs little memory for long inputs.

ReLU needs no sum over a row, so the rows of the scores can be computed in tiles that do not depend on each other. For
long inputs, only one tile of the scores and weights exists at a time, and the backward pass computes it again.
"""

from functools import partial
from typing import Callable, Optional

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .tracing import is_compiling

TILED_FROM = 512  # keys; with fewer, computing the scores twice takes longer than reading them from memory
CACHED = 32 * 2**20  # bytes; smaller scores are not divided into tiles, because they fit into the caches
TILE = 16 * 2**20  # bytes of the scores of a tile


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float,
    attn_mask: Optional[Tensor] = None,
    key_padding_mask: Optional[Tensor] = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    threshold: Optional[Tensor] = None,
) -> Tensor:
    r"""Return :math:`dropout(\max(scale\, Q K^T + mask - \theta, 0))\, V` for each sentence and head.

    Args:
        query: ``(B, ..., T, d_h)``, float32 or float64, not scaled.
        key: ``(B, ..., S, d_h)``.
        value: ``(B, ..., S, d_v)``.
        scale: factor of the scores, :math:`1 / \sqrt{d_h}`.
        attn_mask: broadcasts to the scores, ``(B, ..., T, S)``; boolean, True at allowed keys, or added to the scores.
        key_padding_mask: ``(B, S)``, boolean, True at padding, or added to the scores.
        is_causal: query i sees only the keys 0 to i; not together with ``attn_mask``.
        dropout_p: probability of dropping a weight; 0 in evaluation.
        threshold: :math:`\theta` of each head, ``(H,)``, for inputs ``(B, H, T, d_h)``; None for 0.

    Returns:
        the context, ``(B, ..., T, d_v)``.
    """
    tgt_len, src_len = query.size(-2), key.size(-2)
    if is_causal:
        attn_mask = query.new_full((tgt_len, src_len), -torch.inf).triu(1)
    compute = partial(_attend_to_all, scale=scale, dropout_p=dropout_p, threshold=threshold)
    if is_compiling() or src_len < TILED_FROM or not query.shape[:-2] == key.shape[:-2] == value.shape[:-2]:
        return compute(query, key, value, attn_mask, key_padding_mask)
    row_bytes = query[:1, ..., :1, :1].numel() * src_len * query.element_size()  # of a query's scores
    if query.dim() == 2 or len(query) * tgt_len * row_bytes < CACHED:
        return compute(query, key, value, attn_mask, key_padding_mask)
    kept = 65536 - round(dropout_p * 65536)
    if 0 < kept < 65536:  # the backward pass draws the same numbers again
        compute = partial(compute, drop=drop_by_16_bits)
        value = value * (65536 / kept)
    if torch.is_grad_enabled():
        compute = partial(checkpoint, compute, use_reentrant=False, preserve_rng_state=dropout_p > 0)
    rows = max(TILE // row_bytes, 1)
    masks = [None] * len(query)
    if attn_mask is not None:
        masks = attn_mask.expand(*query.shape[:-1], src_len).split(1)
    padding = [None] * len(query) if key_padding_mask is None else key_padding_mask.split(1)
    sentences = zip(*(x.split(1) for x in (query, key, value)), masks, padding)  # split has a cheap gradient
    return torch.cat(
        [
            torch.cat(
                [
                    compute(part, keys, values, part_mask, padded)
                    for part, part_mask in zip(
                        queries.split(rows, dim=-2), [None] * tgt_len if mask is None else mask.split(rows, dim=-2)
                    )
                ],
                dim=-2,
            )
            for queries, keys, values, mask, padded in sentences
        ]
    )


def attention_weights(
    query: Tensor,
    key: Tensor,
    attn_mask: Optional[Tensor],
    key_padding_mask: Optional[Tensor],
    *,
    scale: float,
    threshold: Optional[Tensor] = None,
) -> Tensor:
    r"""Return the weights :math:`\max(scale\, Q K^T + mask - \theta, 0)`, ``(B, ..., T, S)``; see :func:`attend`."""
    scores = torch.matmul(query * scale, key.transpose(-2, -1))
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores.masked_fill_(~attn_mask, -torch.inf)
        else:
            scores += attn_mask.to(scores.dtype)
    if key_padding_mask is not None:
        padding = key_padding_mask.view(len(key_padding_mask), *(1,) * (scores.dim() - 2), -1)
        if padding.dtype == torch.bool:
            scores.masked_fill_(padding, -torch.inf)
        else:
            scores += padding.to(scores.dtype)
    if threshold is not None:
        scores -= threshold.to(scores.dtype)[:, None, None]
    return scores.relu_()


def _attend_to_all(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Optional[Tensor],
    key_padding_mask: Optional[Tensor],
    *,
    scale: float,
    dropout_p: float,
    threshold: Optional[Tensor],
    drop: Callable[[Tensor, float], Tensor] = F.dropout,
) -> Tensor:
    """Return the context of :func:`attend`, with all scores in memory at once."""
    weights = attention_weights(query, key, attn_mask, key_padding_mask, scale=scale, threshold=threshold)
    return torch.matmul(drop(weights, dropout_p), value)


def drop_by_16_bits(weights: Tensor, p: float) -> Tensor:
    """Return the weights, with 0 at a share p, a multiple of 2^-16; other weights are not scaled as by ``F.dropout``.

    Four weights share a random number, which takes a fraction of the time of ``F.dropout`` on a CPU.
    """
    drawn = torch.empty((weights.numel() + 3) // 4, dtype=torch.int64, device=weights.device).random_(-(2**63), None)
    bits = drawn.view(torch.int16)[: weights.numel()].view(weights.shape)
    return weights.masked_fill(bits < round(p * 65536) - 32768, 0.0)
