"""Compare areas under the ROC curve of null rate and log-probability over several models, and recommend an order."""

import statistics
from typing import Any, Dict, List, Sequence, Tuple

import numpy

from ..errors import InputError
from .orders import DEFAULT_BY
from .summaries import summary_of

# order of orders.ORDERS to the key of its area under the ROC curve in a record
AREAS = {"log_probability": "logprob_auc", "null_rate": "null_rate_auc", "both": "both_auc"}
_CLEAR = 0.01  # gain in area under the ROC curve from which another order than the default is recommended


def roc_auc(good_scores: Any, bad_scores: Any) -> float:
    """Return the area under the ROC curve: the probability that a good item has a higher score than a bad one.

    .. math:: AUC = (\\#\\{g > b\\} + \\#\\{g = b\\} / 2) / (n_g n_b)

    Ties count half; 0.5 is chance. This is the Mann-Whitney U statistic divided by its maximum. With n items it takes
    O(n log n) time.

    Args:
        good_scores, bad_scores: (n_g,), (n_b,); infinities are allowed.

    Raises:
        ValueError: there is no good or no bad score, or a score is nan.
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


def combine(results: Sequence[Dict[str, Any]]) -> Dict[str, Dict[str, Any]]:
    """Combine the records of several models, such as those of several seeds, evaluated on the same damaged pairs.

    Args:
        results: results of :func:`fairseq_rela.analysis.detection.evaluate`, one for each model.

    Returns:
        kind of damage to a dictionary with

        - ``null_rate``, ``log_probability``, ``both``: ``mean``, sample standard deviation ``sd`` and number ``n`` of
          the areas under the ROC curve;
        - ``difference``: the same for null rate minus log-probability, paired by model, and ``interval``, the 95 %
          confidence interval of its mean by Student's t.

        ``sd`` and ``interval`` are None if n < 2.

    Raises:
        InputError: there is no record, or the records differ in their kinds of damage, pairs or damage seed.
    """
    if not results:
        raise InputError("no record of `rela rank --damage` to combine; give one or more")
    for name in ("pairs", "damage_seed", "kinds"):
        if any(_comparable(one, name) != _comparable(results[0], name) for one in results):
            raise InputError(f"the records differ in their {name.replace('_', ' ')}; measure all on the same pairs")
    summary: Dict[str, Dict[str, Any]] = {}
    for kind in results[0]["kinds"]:
        areas = [one["kinds"][kind] for one in results]
        summary[kind] = {
            order: summary_of([area[key] for area in areas]).record
            for order, key in AREAS.items()
            if all(key in area for area in areas)
        }
        difference = summary_of([area["null_rate_auc"] - area["logprob_auc"] for area in areas])
        summary[kind]["difference"] = {**difference.record, "interval": difference.bounds}
    return summary


def _comparable(record: Dict[str, Any], name: str) -> Any:
    value = record.get(name)
    return list(value) if isinstance(value, dict) else value


def recommend(summary: Dict[str, Dict[str, Any]]) -> str:
    """Return the order to rank by: the one with the largest mean area under the ROC curve over all kinds of damage.

    If this order is better than the default by less than 0.01, the default is returned.

    Args:
        summary: result of :func:`combine`.
    """
    means = {
        order: statistics.fmean(kind[order]["mean"] for kind in summary.values())
        for order in AREAS
        if all(order in kind for kind in summary.values())
    }
    best = max(means, key=lambda order: means[order])
    return best if means[best] >= means[DEFAULT_BY] + _CLEAR else DEFAULT_BY


def describe_evidence(summary: Dict[str, Dict[str, Any]]) -> str:
    """Return lines that list the kinds of damage that the null rate detects better, and the recommended order."""
    better, beyond = _where_better(summary)
    n = next(iter(summary.values()))["difference"]["n"]
    where = f"in {', '.join(better)}" if better else "in no kind of damage"
    models = f"mean of {n} model{'s' if n > 1 else ''}"
    lines = [f"the null rate detects damage better than the log-probability {where} ({models})"]
    if n > 1:
        lines.append(f"with a 95 % interval of the paired difference above 0: {', '.join(beyond) or 'none'}")
    lines.append(f"recommended: rela rank --by {recommend(summary)}")
    return "\n".join(lines)


def _where_better(summary: Dict[str, Dict[str, Any]]) -> Tuple[List[str], List[str]]:
    """Return the kinds of damage with a mean difference above 0, and those whose whole interval is above 0."""
    better = [kind for kind, one in summary.items() if one["difference"]["mean"] > 0]
    intervals = {kind: summary[kind]["difference"]["interval"] for kind in better}
    return better, [kind for kind, interval in intervals.items() if interval is not None and interval[0] > 0]
