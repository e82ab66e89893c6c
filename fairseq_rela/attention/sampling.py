"""Choose the queries of a training batch whose scores move a threshold to its target."""

import math
from typing import Optional, Tuple

import torch
from torch import Tensor

SCORES = 2**15  # of a sample, at most; its share of zeros is then known within half a point


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
