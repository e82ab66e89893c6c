"""Ranking sentence pairs by null rate (Zhang et al. 2021, section 5.2); pure functions on arrays."""

from typing import Any, Optional

import numpy
from torch import Tensor

from .sparsity import null_queries


def count_nulls(weights: Tensor, allowed: Tensor) -> Tensor:
    """How many (head, query) of each sentence attend to nothing: all of their weights are exactly 0.

    With L layers, H heads and T queries, the null rate of a sentence is the sum of this over the layers, divided by
    ``L * H * T``: what section 5.2 ranks pairs by, low = good.

    Args:
        weights, allowed: as of :func:`fairseq_rela.analysis.sparsity.null_queries`, which may raise.

    Returns:
        (B,), integers.
    """
    return null_queries(weights, allowed).sum(dim=(1, 2))


def roc_auc(good_scores: Any, bad_scores: Any) -> float:
    """Area under the ROC curve: how likely a good item has a higher score than a bad one, ties counting half.

    .. math:: AUC = (\\#\\{g > b\\} + \\#\\{g = b\\} / 2) / (n_g n_b)

    which is the statistic of Mann and Whitney over its maximum; from ranks, in O(n log n). 0.5 is chance.

    Args:
        good_scores, bad_scores: (n_g,), (n_b,); infinities are allowed.

    Raises:
        ValueError: no good or no bad score, or one that is nan.
    """
    good = numpy.asarray(good_scores, dtype=numpy.float64)
    bad = numpy.sort(numpy.asarray(bad_scores, dtype=numpy.float64))
    if good.ndim != 1 or bad.ndim != 1 or not good.size or not bad.size:
        raise ValueError(f"AUC of {good.shape} good and {bad.shape} bad scores: give a list of each, not empty")
    if numpy.isnan(good).any() or numpy.isnan(bad).any():
        raise ValueError("AUC of scores that are nan: leave these pairs out")
    below = numpy.searchsorted(bad, good, side="left")
    up_to = numpy.searchsorted(bad, good, side="right")
    return float((below.sum() + up_to.sum()) / (2 * good.size * bad.size))


def select_pairs(
    null_rate: "numpy.ndarray",
    log_probability: "numpy.ndarray",
    keep_best: Optional[int] = None,
    max_null_rate: Optional[float] = None,
) -> "numpy.ndarray":
    """Which pairs of a corpus to keep: the best ones, those at or below a null rate, or those that are both.

    The best have the lowest null rate, of equal ones the highest log-probability, of equal ones the lowest number.
    Pairs without a score (nan) are never kept.

    Args:
        null_rate, log_probability: (n,), float32 is enough; nan where there is no score.
        keep_best: how many to keep at most.
        max_null_rate: the highest null rate to keep.

    Returns:
        (n,), True where a pair is kept. Memory is a few copies of the arrays, as nothing is sorted but ties.
    """
    kept = ~(numpy.isnan(null_rate) | numpy.isnan(log_probability))
    if max_null_rate is not None:
        # in the precision of the scores: or 0.1 as float32 is above 0.1
        kept &= null_rate <= null_rate.dtype.type(max_null_rate)
    return kept if keep_best is None else _best(null_rate, log_probability, kept, keep_best)


def _best(
    null_rate: "numpy.ndarray", log_probability: "numpy.ndarray", candidates: "numpy.ndarray", number: int
) -> "numpy.ndarray":
    """The best ``number`` of the candidates: those below a threshold, and of those at it the best by the next key."""
    if number < 1:
        raise ValueError(f"the best {number} pairs: give a number of at least 1")
    best = numpy.zeros_like(candidates)
    for key in (null_rate, -log_probability):
        if numpy.count_nonzero(candidates) <= number:
            return best | candidates
        threshold = numpy.partition(key[candidates], number - 1)[number - 1]
        below = candidates & (key < threshold)
        best |= below
        number -= int(numpy.count_nonzero(below))  # at least 1 is left, the one at the threshold
        candidates = candidates & (key == threshold)
    best[numpy.flatnonzero(candidates)[:number]] = True
    return best
