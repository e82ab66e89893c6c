r"""Rectified linear attention for CPUs, which needs little memory for long inputs.

ReLU needs no sum over a row, so the rows of the scores can be computed in tiles that do not depend on each other. For
long inputs, only one tile of the scores and weights exists at a time, and the backward pass computes it again.
"""

from functools import partial
from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

TILED_FROM = 512  # keys; with fewer, computing the scores twice takes longer than reading them from memory
CACHED = 32 * 2**20  # bytes; smaller scores are not divided into tiles, because they fit into the caches
TILE = 16 * 2**20  # bytes of the scores of a tile


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    num_heads: int,
    key_padding_mask: Optional[Tensor] = None,
    attn_mask: Optional[Tensor] = None,
    dropout: float = 0.0,
) -> Tensor:
    r"""Return :math:`concat_h(dropout(\max(scale\, Q_h K_h^T + mask, 0))\, V_h)`.

    Args:
        q: projected queries, ``(T, B, d)``, float32 or float64, not scaled.
        k, v: projected keys and values, ``(S, B, d)``.
        scale: factor of the scores, :math:`1 / \sqrt{d_h}`.
        num_heads: H.
        key_padding_mask: ``(B, S)``, True at padding.
        attn_mask: ``(T, S)``, added to the scores; it gets no gradient.
        dropout: probability of dropping a weight; 0 in evaluation.

    Returns:
        the context, ``(T, B, d)``.
    """
    tgt_len, bsz, src_len = len(q), q.size(1), len(k)
    if key_padding_mask is not None:
        key_padding_mask = key_padding_mask.to(torch.bool)
    if attn_mask is not None:
        attn_mask = attn_mask.to(q.dtype)
    compute = partial(_attend_to_all, scale=scale, num_heads=num_heads, dropout=dropout)
    row_bytes = src_len * num_heads * q.element_size()  # of a query's scores
    if src_len < TILED_FROM or tgt_len * bsz * row_bytes < CACHED:
        return compute(q, k, v, key_padding_mask, attn_mask)
    if torch.is_grad_enabled():
        compute = partial(checkpoint, compute, use_reentrant=False, preserve_rng_state=dropout > 0)
    rows = max(TILE // row_bytes, 1)
    masks = [None] * tgt_len if attn_mask is None else attn_mask.split(rows)
    padding = [None] * bsz if key_padding_mask is None else key_padding_mask.split(1)
    sentences = zip(*(x.split(1, dim=1) for x in (q, k, v)), padding)  # split has a cheap gradient; an index has not
    return torch.cat(
        [
            torch.cat([compute(part, keys, values, padded, mask) for part, mask in zip(queries.split(rows), masks)])
            for queries, keys, values, padded in sentences
        ],
        dim=1,
    )


def _attend_to_all(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_padding_mask: Optional[Tensor],
    attn_mask: Optional[Tensor],
    *,
    scale: float,
    num_heads: int,
    dropout: float,
) -> Tensor:
    """Return the context of :func:`attend`, with all scores in memory at once."""
    tgt_len, bsz, dim = q.shape
    # (T, B, d) to (B*H, T, d_h)
    queries, keys, values = (x.reshape(len(x), bsz * num_heads, -1).transpose(0, 1) for x in (q, k, v))
    scores = torch.bmm(queries * scale, keys.transpose(1, 2))  # (B*H, T, S)
    if attn_mask is not None:
        scores += attn_mask
    if key_padding_mask is not None:
        scores.view(bsz, num_heads, tgt_len, -1).masked_fill_(key_padding_mask[:, None, None], -torch.inf)
    weights = F.dropout(scores.relu_(), dropout)
    return torch.bmm(weights, values).transpose(0, 1).reshape(tgt_len, bsz, dim)
