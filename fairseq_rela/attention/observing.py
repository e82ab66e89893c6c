"""Show a sample of the scores of each training batch to a threshold that moves to a target sparsity."""

import math
from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from ..functional import at_least_float32
from ..kernels.backends import is_future_mask
from ..threshold import ThresholdedReLU
from .inputs import as_minus_infinity

SCORES = 2**15  # of a sample, at most; its share of zeros is then known within half a point


def moving_threshold(attention: Any) -> Optional[ThresholdedReLU]:
    """Return the threshold that training moves to a target; None without a target, and in evaluation."""
    weights = getattr(attention, "attn_weights", None)
    return weights if isinstance(weights, ThresholdedReLU) and weights.observes else None


def observe_scores(attention: Any, scores: Tensor, key_padding_mask: Optional[Tensor]) -> None:
    """Show the scores of a batch to the moving threshold of an attention module, if it has one.

    Args:
        attention: the module.
        scores: masked, ``(B*H, T, S)``.
        key_padding_mask: ``(B, S)``, True at padding.
    """
    threshold = moving_threshold(attention)
    if threshold is None:
        return
    scores = scores.view(-1, attention.num_heads, *scores.shape[1:])
    b, t, each = choose_queries(scores.size(0), scores.size(2), scores.size(1) * scores.size(3), scores.device)
    padding = _padded_queries(attention, key_padding_mask)
    threshold.observe(allowed_only(scores[b, :, t], padding, b, t), each)  # (N, H, S)


def observe_projections(
    attention: Any, q: Tensor, k: Tensor, key_padding_mask: Optional[Tensor], attn_mask: Optional[Tensor]
) -> None:
    """Do the same as :func:`observe_scores` where a kernel keeps no scores: compute those of the sample.

    Args:
        attention: the module.
        q, k: projected queries and keys, ``(T, B, d)`` and ``(S, B, d)``.
        key_padding_mask, attn_mask: as for the module's ``forward``.
    """
    threshold = moving_threshold(attention)
    if threshold is None:
        return
    src_len, heads = k.size(0), (attention.num_heads, attention.head_dim)
    b, t, each = choose_queries(q.size(1), q.size(0), attention.num_heads * src_len, q.device)
    queries = at_least_float32(q[t, b]).view(len(t), *heads)  # (N, H, d_h)
    # k[:, b] has the same values, and a gradient that adds in another order each time
    keys = at_least_float32(k.index_select(1, b)).view(src_len, len(b), *heads)  # (S, N, H, d_h)
    scores = torch.einsum("nhd,snhd->nhs", queries * attention.scaling, keys)
    if is_future_mask(attn_mask):
        future = torch.arange(src_len, device=q.device)[None, :] > t[:, None]  # (N, S)
        scores = scores.masked_fill(future[:, None], -torch.inf)
    else:
        forbidden = as_minus_infinity(attn_mask)
        if forbidden is not None:
            scores = scores + forbidden[t][:, None]
    if key_padding_mask is not None:
        scores = scores.masked_fill(key_padding_mask.to(torch.bool)[b][:, None], -torch.inf)
    threshold.observe(allowed_only(scores, _padded_queries(attention, key_padding_mask), b, t), each)


def _padded_queries(attention: Any, key_padding_mask: Optional[Tensor]) -> Optional[Tensor]:
    """Return the padding of the queries, ``(B, T)``, or None if there is none or it is not known."""
    if attention.query_padding is not None or not attention.self_attention:
        return attention.query_padding
    return key_padding_mask


def choose_queries(
    sentences: int, queries: int, scores_each: int, device: torch.device
) -> Tuple[Tensor, Tensor, float]:
    """Choose evenly spaced queries of a batch, the same in each call, with all positions about equally often.

    Args:
        sentences: B.
        queries: T.
        scores_each: scores of a query, H * S.
        device: device of the result.

    Returns:
        the sentences and the positions of the N chosen queries, both ``(N,)``, and how many queries of the batch one
        of them stands for.
    """
    total = sentences * queries
    step = max(1, math.ceil(total * scores_each / SCORES))
    while math.gcd(step, queries) > 1:  # else some positions would never be chosen
        step += 1
    chosen = torch.arange(min(step // 2, max(total - 1, 0)), total, step, device=device)
    return torch.div(chosen, queries, rounding_mode="floor"), chosen % queries, total / max(len(chosen), 1)


def allowed_only(scores: Tensor, query_padding: Optional[Tensor], b: Tensor, t: Tensor) -> Tensor:
    """Return the scores of chosen queries with minus infinity in the rows of padded queries.

    Args:
        scores: ``(N, H, S)``, masked.
        query_padding: ``(B, T)``, True at padding, or None if there is none.
        b, t: as :func:`choose_queries` returns them.
    """
    if query_padding is None:
        return scores
    return scores.masked_fill(query_padding.to(torch.bool)[b, t][:, None, None], -torch.inf)
