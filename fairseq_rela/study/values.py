"""Numbers of a study: one run's measures, their mean over seeds, and differences of two rows paired over seeds.

``study.json`` holds means and differences to the baseline already, and they are taken from there. Only what it does
not hold is computed here from its runs: differences between two other rows, and measures at the level of words.
"""

import math
import statistics
from functools import lru_cache
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

_CONFIDENCE = 0.95


class Summary(NamedTuple):
    """A mean over seeds.

    Attributes:
        sd: the sample's standard deviation, None for one seed.
        interval: of the mean, 95 %, by Student's t; None for one seed.
    """

    mean: float
    sd: Optional[float]
    n: int
    interval: Optional[Tuple[float, float]]


@lru_cache(maxsize=None)
def t_quantile(freedom: int, confidence: float = _CONFIDENCE) -> float:
    """Return t with P(\\|T\\| <= t) = ``confidence`` for Student's T of ``freedom`` degrees, by bisection."""
    low, high = 0.0, 1.0
    while _t_share(high, freedom) < confidence:
        high *= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _t_share(middle, freedom) < confidence else (low, middle)
    return high


def _t_share(t: float, freedom: int) -> float:
    """P(\\|T\\| <= t): the finite sums of Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(3 if odd else 2, freedom, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def summarise(values: Sequence[float]) -> Optional[Summary]:
    """Return mean, standard deviation and 95 % interval of some values, None where there are none."""
    if not values:
        return None
    sd = statistics.stdev(values) if len(values) > 1 else None
    return _summary(statistics.fmean(values), sd, len(values))


def _summary(mean: float, sd: Optional[float], n: int) -> Summary:
    if sd is None or n < 2:
        return Summary(mean, None, n, None)
    half = t_quantile(n - 1) * sd / math.sqrt(n)
    return Summary(mean, sd, n, (mean - half, mean + half))


# ---------------------------------------------------------------------------------------------------- rows and runs


def finished(row: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Return the runs of a row that ended with a model, by seed."""
    return [run for run in row["runs"] if run["state"] == "done"]


def diverged(row: Dict[str, Any]) -> List[Dict[str, Any]]:
    return [run for run in row["runs"] if run["state"] == "diverged"]


def find_row(study: Dict[str, Any], number: int) -> Optional[Dict[str, Any]]:
    """Return the study's row that is row ``number`` of Table 1, None where it has none."""
    return next((row for row in study["rows"] if row["table_1"] == number), None)


def baseline(study: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    return next((row for row in study["rows"] if row["label"] == study["baseline"]), None)


def level(study: Dict[str, Any]) -> str:
    """Return ``words`` where every analysis has that level, which is the paper's, else ``pieces``."""
    analyses = [run["analysis"] for row in study["rows"] for run in finished(row) if run.get("analysis")]
    return "words" if analyses and all(analysis.get("words") for analysis in analyses) else "pieces"


def at_level(study: Dict[str, Any], measure: str) -> str:
    """Return the name of a rate or diversity at the level of the study, see :func:`level`."""
    return f"words.{measure}" if level(study) == "words" else measure


def _block(run: Dict[str, Any], level: str) -> Dict[str, Any]:
    analysis = run.get("analysis") or {}
    return analysis if level == "pieces" else analysis.get("words") or {}


def sites(run: Dict[str, Any], level: str) -> Dict[str, Any]:
    """Return what was measured of a run at each site: layers, and their means."""
    return _block(run, level).get("sites") or {}


def shuffled(run: Dict[str, Any], level: str) -> Dict[str, Any]:
    """Return the null rates of a run at each site where each source has the target of another."""
    return (_block(run, level).get("shuffled") or {}).get("sites") or {}


def value(run: Dict[str, Any], measure: str) -> Optional[float]:
    """Return a measure of one run by its name in ``study.json``, None where the run lacks it.

    ``words.`` before the name of a rate or diversity takes it at the level of words.
    """
    level = "words" if measure.startswith("words.") else "pieces"
    kind, *rest = (measure[len("words.") :] if level == "words" else measure).split(".", 2)
    if kind in ("bleu", "tokenised_bleu"):
        return (run.get("score") or {}).get(kind)
    if kind in ("parameters", "updates"):
        return run.get(kind)
    if kind == "valid_nll":
        return min((point["nll"] for point in run.get("valid") or ()), default=None)
    if kind == "aer":
        alignment = (run.get("analysis") or {}).get("alignment")
        return alignment[rest[0]][rest[1]] if alignment else None
    if not rest:
        return None
    if kind == "null_rate_shuffled":
        return shuffled(run, level).get(rest[0], {}).get("null_rate")
    entry = sites(run, level).get(rest[0], {})
    if kind == "diversity":
        return entry.get("diversity", {}).get(rest[1])
    return entry.get(kind)


def values(row: Dict[str, Any], measure: str) -> Dict[int, float]:
    """Return a measure of every finished run of a row that has it, by seed."""
    found = {run["seed"]: value(run, measure) for run in finished(row)}
    return {seed: number for seed, number in found.items() if number is not None}


def mean(row: Optional[Dict[str, Any]], measure: str) -> Optional[Summary]:
    """Return the mean over the seeds of a row, None where no run has the measure."""
    if row is None:
        return None
    known = row.get("mean", {}).get(measure)
    if known is not None:
        return _summary(known["mean"], known["sd"], known["n"])
    return summarise(list(values(row, measure).values()))


def difference(
    study: Dict[str, Any], row: Optional[Dict[str, Any]], other: Optional[Dict[str, Any]], measure: str
) -> Optional[Summary]:
    """Return ``row`` less ``other``, paired over the seeds that both have; None where there is no such seed."""
    if row is None or other is None or row is other:
        return None
    known = row.get("difference", {}).get(measure) if other["label"] == study["baseline"] else None
    if known is not None:
        interval = known["interval"]
        return Summary(known["mean"], None, known["n"], tuple(interval) if interval else None)
    return paired(values(row, measure), values(other, measure))


def paired(first: Dict[int, float], second: Dict[int, float]) -> Optional[Summary]:
    """Return ``first`` less ``second`` over the seeds of both."""
    return summarise([first[seed] - second[seed] for seed in sorted(first) if seed in second])
