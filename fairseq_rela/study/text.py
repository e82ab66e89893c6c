"""Format the numbers and names of a study as text."""

from typing import Any, Dict, List, Optional, Sequence

from ..analysis.summaries import Summary
from ..report import paper
from ..variants import SITES
from .values import diverged, finished

NONE = "-"
_NAME_LENGTH = 24  # maximum number of characters that fit a figure
_MINUS = "\u2212"


def number(value: float, digits: int = 2, sign: bool = False) -> str:
    """Return a number with the Unicode minus sign; with ``sign``, positive numbers get a plus sign."""
    text = f"{value:{'+' if sign else ''}.{digits}f}"
    if not float(text):
        text = text.lstrip("+-")  # no -0.00
    return text.replace("-", _MINUS)


def interval(summary: Summary, digits: int = 2, scale: float = 1.0) -> str:
    """Return ``[low, high]``, or ``(n = 1)`` for one seed, which has no interval."""
    if summary.interval is None:
        return f"(n = {summary.n})"
    low, high = (number(scale * bound, digits) for bound in summary.interval)
    return f"[{low}, {high}]"


def mean_sd(summary: Optional[Summary], digits: int = 2, scale: float = 1.0) -> str:
    """Return ``mean ± standard deviation``, ``mean (n = 1)`` for one seed, or ``-`` for None."""
    if summary is None:
        return NONE
    text = number(scale * summary.mean, digits)
    return f"{text} (n = {summary.n})" if summary.sd is None else f"{text} ± {number(scale * summary.sd, digits)}"


def mean_interval(summary: Optional[Summary], digits: int = 2, scale: float = 1.0, sign: bool = False) -> str:
    """Return ``mean [low, high]``, ``mean (n = 1)`` for one seed, or ``-`` for None."""
    if summary is None:
        return NONE
    return f"{number(scale * summary.mean, digits, sign)} {interval(summary, digits, scale)}"


def optional(value: Optional[float], digits: int = 2, sign: bool = False) -> str:
    """Return :func:`number`, or ``-`` for None."""
    return NONE if value is None else number(value, digits, sign)


def duration(seconds: float) -> str:
    """Return a duration in words, such as ``45 seconds``, ``14 minutes`` or ``5.2 hours``."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 90 * 60 else f"{seconds / 3600:.1f} hours"


def join(parts: Sequence[str], last: str = "and") -> str:
    """Return the parts as a list in words, such as ``a, b and c``; ``last`` joins the last two."""
    return f" {last} ".join(filter(None, (", ".join(parts[:-1]), parts[-1]))) if parts else ""


def study_title(study: Dict[str, Any]) -> str:
    """Return the name of the task for readers, such as ``Multi30k En-De``."""
    if study["task"] in paper.TASK_NAMES:
        return paper.TASK_NAMES[study["task"]]
    ending = "_" + "_".join(study["languages"])
    name = study["task"][: -len(ending)] if study["task"].endswith(ending) else study["task"]
    pair = "-".join(language.capitalize() for language in study["languages"])
    return " ".join(filter(None, (name[:1].upper() + name[1:].replace("_", " "), pair)))


def test_set(study: Dict[str, Any]) -> str:
    """Return the name of the task with the size of its test set, if a run has recorded it."""
    sentences = study.get("sentences")
    return study_title(study) + (f" ({sentences:,} test sentences)" if sentences else "")


def machine(record: Dict[str, Any]) -> str:
    """Return the machine of a run in words: its GPU, or its processor and number of cores if it has none."""
    if record.get("gpu"):
        return str(record["gpu"])
    processor, cores = record.get("processor"), record.get("cores")
    return ", ".join(filter(None, (processor, f"{cores} cores" if cores else None)))


def row_name(row: Dict[str, Any]) -> str:
    """Return the name of a row: variant, sites if not all, and a label that tells more if it is not in Table 1."""
    name = paper.NAMES.get(row["attention"], row["attention"])
    where = "" if len(row["sites"]) == len(SITES) else f", {join(row['sites'])} only"
    plain = published_row(row) or row["label"] == row["attention"]
    return f"{name}{where}" if plain else f"{name}{where} ({row['label']})"


def settings(row: Dict[str, Any]) -> str:
    """Return the settings of a row that differ from the task's: the row that it starts from, and Hydra overrides."""
    start = [f"start={row['start']}"] if row.get("start") else []
    return " ".join([*start, *row["overrides"]])


def figure_names(rows: Sequence[Dict[str, Any]]) -> Dict[str, str]:
    """Return label to name for figures; a name that is too long or not unique is replaced by the label."""
    names = {row["label"]: row_name(row) for row in rows}
    taken = list(names.values())
    return {
        label: name if len(name) <= _NAME_LENGTH and taken.count(name) == 1 else label for label, name in names.items()
    }


def published_row(row: Dict[str, Any]) -> Optional[paper.Ablation]:
    """Return the row of Table 1 that a row of the study repeats, or None."""
    return next((published for published in paper.TABLE_1 if published.row == row["table_1"]), None)


def runs_done(row: Dict[str, Any]) -> str:
    """Return the number of seeds that are done, such as ``4``, ``2 of 4`` or ``1 of 2, 1 diverged``."""
    done, lost, wanted = len(finished(row)), len(diverged(row)), len(row["seeds"])
    parts = [str(done) if done == wanted else f"{done} of {wanted}"]
    if lost:
        parts.append(f"{lost} diverged")
    return ", ".join(parts)


def without_number(row: Dict[str, Any]) -> str:
    """Return the text for a missing number: ``diverged`` if all runs so far diverged, otherwise ``-``."""
    return "diverged" if diverged(row) and not finished(row) else NONE


def seeds_text(rows: Sequence[Dict[str, Any]]) -> str:
    """Return the range of the numbers of seeds of the rows, such as ``2 to 4 seeds`` or ``1 seed``."""
    numbers: List[int] = sorted({len(row["seeds"]) for row in rows})
    if not numbers:
        return "no seed"
    count = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
    return f"{count} seed{'' if count == '1' else 's'}"
