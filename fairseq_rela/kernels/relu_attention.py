r"""Rectified linear attention with torch's functions, which needs little memory for long inputs.

ReLU needs no sum over a row, so the rows of the scores can be computed in tiles that do not depend on each other. For
long inputs, only one tile of the scores and weights exists at a time, and the backward pass computes it again.
"""

import math
from functools import partial
from typing import Callable, Iterator, List, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .tracing import is_compiling

TILED_FROM = 512  # keys; with fewer, computing the scores twice takes longer than reading them from memory
CACHED = 32 * 2**20  # bytes; smaller scores are not divided into tiles, because they fit into the caches
TILE = 16 * 2**20  # bytes of the scores of a tile

Tile = Tuple[Tensor, Tensor, Tensor, Optional[Tensor], Optional[Tensor], Optional[int]]


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
    generator: Optional[torch.Generator] = None,
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
        generator: draws the dropout of tiles, without gradients; None for torch's default generator.

    Returns:
        the context, ``(B, ..., T, d_v)``.
    """
    compute = partial(_attend_to_all, scale=scale, dropout_p=dropout_p, threshold=threshold)
    if is_compiling() or not is_tiled(query, key, value):
        return compute(query, key, value, attn_mask, key_padding_mask, 0 if is_causal else None)
    if draws_16_bits(dropout_p):  # the backward pass draws the same numbers again
        compute = partial(compute, drop=partial(drop_by_16_bits, generator=generator))
        value = value * factor_of_kept(dropout_p)
    if torch.is_grad_enabled():
        compute = partial(checkpoint, compute, use_reentrant=False, preserve_rng_state=dropout_p > 0)
    sentences = tiles(query, key, value, attn_mask, key_padding_mask, is_causal)
    return torch.cat([torch.cat([compute(*tile) for tile in sentence], dim=-2) for sentence in sentences])


def is_tiled(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Return whether the scores are so large that :func:`attend` computes them in tiles."""
    if query.dim() == 2 or key.size(-2) < TILED_FROM or not query.shape[:-2] == key.shape[:-2] == value.shape[:-2]:
        return False
    return len(query) * query.size(-2) * _row_bytes(query, key) >= CACHED


def rows_of_tile(query: Tensor, key: Tensor) -> int:
    """Return the number of queries in a tile."""
    return max(TILE // _row_bytes(query, key), 1)


def _row_bytes(query: Tensor, key: Tensor) -> int:
    """Return the bytes of the scores of one query in all heads of a sentence."""
    return math.prod(query.shape[1:-2]) * key.size(-2) * query.element_size()


def tiles(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Optional[Tensor],
    key_padding_mask: Optional[Tensor],
    is_causal: bool,
) -> Iterator[List[Tile]]:
    """Yield the tiles of each sentence: the arguments of :func:`attention_weights`, with the values after the keys.

    A tile is a view of the arguments of :func:`attend`, of one sentence and of :func:`rows_of_tile` queries. If it is
    causal, keys after its last query are left out.
    """
    rows, src_len = rows_of_tile(query, key), key.size(-2)
    full = None if attn_mask is None else attn_mask.expand(*query.shape[:-1], src_len)
    sentences = zip(*(x.split(1) for x in (query, key, value)))  # split has a cheap gradient
    for number, (queries, keys, values) in enumerate(sentences):
        padding = None if key_padding_mask is None else key_padding_mask[number : number + 1]
        sentence: List[Tile] = []
        for place, part in enumerate(queries.split(rows, dim=-2)):
            first, last = place * rows, place * rows + part.size(-2)
            if is_causal:
                past = [x[..., :last, :] for x in (keys, values)]
                sentence.append((part, *past, None, None if padding is None else padding[:, :last], first))
            else:
                mask = None if full is None else full[number : number + 1, ..., first:last, :]
                sentence.append((part, keys, values, mask, padding, None))
        yield sentence


def attention_weights(
    query: Tensor,
    key: Tensor,
    attn_mask: Optional[Tensor],
    key_padding_mask: Optional[Tensor],
    first: Optional[int] = None,
    *,
    scale: float,
    threshold: Optional[Tensor] = None,
) -> Tensor:
    r"""Return the weights :math:`\max(scale\, Q K^T + mask - \theta, 0)`, ``(B, ..., T, S)``; see :func:`attend`.

    If ``first`` is given, query i sees only the keys 0 to ``first`` + i.
    """
    scores = torch.matmul(query * scale, key.transpose(-2, -1))
    if first is not None and first < key.size(-2):
        future = scores.new_full((query.size(-2), key.size(-2) - first), -torch.inf).triu(1)
        with torch.no_grad():  # the gradient of a sum with a constant is that of the scores
            scores[..., first:] += future
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
    first: Optional[int],
    *,
    scale: float,
    dropout_p: float,
    threshold: Optional[Tensor],
    drop: Callable[[Tensor, float], Tensor] = F.dropout,
) -> Tensor:
    """Return the context of :func:`attend`, with all scores in memory at once."""
    weights = attention_weights(query, key, attn_mask, key_padding_mask, first, scale=scale, threshold=threshold)
    return torch.matmul(drop(weights, dropout_p), value)


def draws_16_bits(p: float) -> bool:
    """Return whether :func:`drop_by_16_bits` can drop a share p, rounded to a multiple of 2^-16, and keep another."""
    return 0 < round(p * 65536) < 65536


def factor_of_kept(p: float) -> float:
    """Return the factor of the weights that :func:`drop_by_16_bits` keeps, so that their expectation is unchanged."""
    return 65536 / (65536 - round(p * 65536))


def drop_by_16_bits(weights: Tensor, p: float, generator: Optional[torch.Generator] = None) -> Tensor:
    """Return the weights, with 0 at a share p, a multiple of 2^-16; other weights are not scaled as by ``F.dropout``.

    Four weights share a random number, which takes a fraction of the time of ``F.dropout`` on a CPU.
    """
    drawn = torch.empty((weights.numel() + 3) // 4, dtype=torch.int64, device=weights.device)
    drawn.random_(-(2**63), None, generator=generator)
    bits = drawn.view(torch.int16)[: weights.numel()].view(weights.shape)
    return weights.masked_fill(bits < round(p * 65536) - 32768, 0.0)
