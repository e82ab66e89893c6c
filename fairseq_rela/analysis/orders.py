"""Order and select sentence pairs by null rate (Zhang et al. 2021, section 5.2) or log-probability; pure functions."""

from typing import List, Optional, Sequence

import numpy

ORDERS = ("log_probability", "null_rate", "both")
DEFAULT_BY = "log_probability"


def select_pairs(
    null_rate: "numpy.ndarray",
    log_probability: "numpy.ndarray",
    keep_best: Optional[int] = None,
    max_null_rate: Optional[float] = None,
    by: str = DEFAULT_BY,
) -> "numpy.ndarray":
    """Return which pairs of a corpus to keep: the best ones in the order of :func:`sort_keys`, up to a null rate.

    Pairs without a score (nan) are never kept. Memory use is a few copies of the arrays.

    Args:
        null_rate, log_probability: (n,); nan where there is no score. float32 is precise enough.
        keep_best: most pairs to keep; None for no limit.
        max_null_rate: highest null rate to keep; None for no limit.
        by: order, one of :data:`ORDERS`.

    Returns:
        (n,), True where a pair is kept.

    Raises:
        ValueError: ``keep_best`` is less than 1, or ``by`` is not an order.
    """
    kept = scored_pairs(null_rate, log_probability)
    if max_null_rate is not None:
        # compare in the precision of the scores: 0.1 as float32 is above 0.1 as float64
        kept &= null_rate <= null_rate.dtype.type(max_null_rate)
    return kept if keep_best is None else _first(sort_keys(null_rate, log_probability, by), kept, keep_best)


def worst_pairs(
    null_rate: "numpy.ndarray", log_probability: "numpy.ndarray", number: int, by: str = DEFAULT_BY
) -> "numpy.ndarray":
    """Return the last ``number`` pairs in the order of :func:`sort_keys`, as (n,) booleans.

    Among pairs with equal scores, those later in the corpus are taken, so that the N best and the M worst of at least
    N + M scored pairs do not overlap. Pairs without a score (nan) are never taken.

    Raises:
        ValueError: ``number`` is less than 1, or ``by`` is not an order.
    """
    keys = [-key[::-1] for key in sort_keys(null_rate, log_probability, by)]
    return _first(keys, scored_pairs(null_rate, log_probability)[::-1], number)[::-1]


def sample_pairs(
    null_rate: "numpy.ndarray", log_probability: "numpy.ndarray", number: int, seed: int = 1
) -> "numpy.ndarray":
    """Return a random sample of ``number`` scored pairs without replacement, or all if there are fewer: (n,) booleans.

    Raises:
        ValueError: ``number`` is less than 1.
    """
    if number < 1:
        raise ValueError(f"a sample of {number} pairs: give a number of at least 1")
    scored = numpy.flatnonzero(scored_pairs(null_rate, log_probability))
    chosen = numpy.zeros(null_rate.shape, dtype=bool)
    generator = numpy.random.RandomState(seed % 2**32)  # its numbers are the same in all versions of numpy
    chosen[generator.permutation(scored)[:number]] = True
    return chosen


def scored_pairs(null_rate: "numpy.ndarray", log_probability: "numpy.ndarray") -> "numpy.ndarray":
    """Return which pairs have both scores, as (n,) booleans."""
    return ~(numpy.isnan(null_rate) | numpy.isnan(log_probability))


def sort_keys(
    null_rate: "numpy.ndarray", log_probability: "numpy.ndarray", by: str = DEFAULT_BY
) -> List["numpy.ndarray"]:
    """Return the keys by which pairs are sorted, most important first, low = good.

    The orders are:

    - ``log_probability``: highest log-probability first, then lowest null rate;
    - ``null_rate``: lowest null rate first, then highest log-probability;
    - ``both``: lowest mean of the two ranks first (see :func:`mean_ranks`), then highest log-probability.

    Pairs that are equal in both keys are sorted by their position in the corpus.

    Args:
        null_rate, log_probability: (n,); nan where there is no score.
        by: one of :data:`ORDERS`.

    Returns:
        arrays (n,).

    Raises:
        ValueError: ``by`` is not one of :data:`ORDERS`.
    """
    if by == "log_probability":
        return [-log_probability, null_rate]
    if by == "null_rate":
        return [null_rate, -log_probability]
    if by == "both":
        return [mean_ranks(null_rate, log_probability), -log_probability]
    raise ValueError(f"no order {by!r}; choose one of {', '.join(ORDERS)}")


def mean_ranks(null_rate: "numpy.ndarray", log_probability: "numpy.ndarray") -> "numpy.ndarray":
    """Return the mean of each pair's ranks by null rate and by log-probability, from 0 = best: (n,), nan without score.

    Pairs with equal scores get the mean of their ranks. If no head can be null, all null rates are 0, and the order is
    that of the log-probability.
    """
    from scipy.stats import rankdata

    ranks = numpy.full(null_rate.shape, numpy.nan)
    scored = scored_pairs(null_rate, log_probability)
    ranks[scored] = (rankdata(null_rate[scored]) + rankdata(-log_probability[scored])) / 2 - 1
    return ranks


def _first(keys: Sequence["numpy.ndarray"], candidates: "numpy.ndarray", number: int) -> "numpy.ndarray":
    """Return the first ``number`` candidates in the order of ``keys`` and then of position."""
    if number < 1:
        raise ValueError(f"the best {number} pairs: give a number of at least 1")
    positions = numpy.flatnonzero(candidates)
    order = numpy.lexsort([key[positions] for key in reversed(keys)])  # stable; the last key is the most important
    first = numpy.zeros_like(candidates)
    first[positions[order[:number]]] = True
    return first
