"""Read the rows and runs of a study: measures by seed, means with intervals, and differences paired over the seeds."""

from typing import Any, Dict, List, Optional

from ..analysis.levels import levels_of
from ..analysis.summaries import Summary, paired, summarise
from .measures import measures


def finished(row: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Return the runs of a row that are done and did not diverge, in the order of their seeds."""
    return [run for run in row["runs"] if run["state"] == "done"]


def diverged(row: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Return the runs of a row that diverged, in the order of their seeds."""
    return [run for run in row["runs"] if run["state"] == "diverged"]


def find_row(study: Dict[str, Any], number: int) -> Optional[Dict[str, Any]]:
    """Return the study's row for row ``number`` of Table 1, or None."""
    return next((row for row in study["rows"] if row["table_1"] == number), None)


def baseline(study: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """Return the row that the others are compared with, or None if the study has lost it."""
    return next((row for row in study["rows"] if row["label"] == study["baseline"]), None)


def level(study: Dict[str, Any]) -> str:
    """Return ``words``, the paper's level, if every analysis has it, otherwise ``pieces``."""
    analyses = [run["analysis"] for row in study["rows"] for run in finished(row) if run.get("analysis")]
    return "words" if analyses and all(analysis.get("words") for analysis in analyses) else "pieces"


def at_level(study: Dict[str, Any], measure: str) -> str:
    """Return the name of a measure at the level of the study, see :func:`level`."""
    return f"words.{measure}" if level(study) == "words" else measure


def _block(run: Dict[str, Any], level: str) -> Dict[str, Any]:
    return levels_of(run.get("analysis") or {}).get(level) or {}


def sites(run: Dict[str, Any], level: str) -> Dict[str, Any]:
    """Return the analysis of a run at each site: layers, and their means."""
    return _block(run, level).get("sites") or {}


def shuffled(run: Dict[str, Any], level: str) -> Dict[str, Any]:
    """Return the null rates of a run at each site, measured on sources with the target of another sentence."""
    return (_block(run, level).get("shuffled") or {}).get("sites") or {}


def by_measure(row: Dict[str, Any]) -> Dict[str, Dict[int, float]]:
    """Return measure to seed to value; a measure has only the finished runs that have it."""
    found: Dict[str, Dict[int, float]] = {}
    for run in finished(row):
        for name, value in measures(run).items():
            found.setdefault(name, {})[run["seed"]] = value
    return found


def values(row: Dict[str, Any], measure: str) -> Dict[int, float]:
    """Return seed to value of a measure, for the finished runs of a row that have it."""
    return by_measure(row).get(measure, {})


def mean(row: Optional[Dict[str, Any]], measure: str) -> Optional[Summary]:
    """Return the mean of a measure over the seeds of a row, or None if no run has the measure."""
    return None if row is None else summarise(list(values(row, measure).values()))


def difference(row: Optional[Dict[str, Any]], other: Optional[Dict[str, Any]], measure: str) -> Optional[Summary]:
    """Return the mean of ``row`` minus ``other``, paired over their common seeds, or None without a common seed."""
    if row is None or other is None or row is other:
        return None
    return paired(values(row, measure), values(other, measure))
