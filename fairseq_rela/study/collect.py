"""Compute ``study.json`` from the records of the runs: means, differences to the baseline, significance."""

from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from ..analysis.summaries import paired, summary_of
from ..errors import InputError
from ..files.lines import read_lines
from ..files.records import read_json, sha256, write_json
from . import gold_set
from .bootstrap import paired_bootstrap
from .folder import StudyFolder
from .perform import FORMAT
from .spec import Row
from .values import by_measure, finished


def read_study(path: Path) -> Dict[str, Any]:
    """Return the content of a ``study.json``.

    Raises:
        InputError: the file is missing or has another format.
    """
    study = read_json(path)
    if not isinstance(study, dict) or study.get("format") != FORMAT:
        raise InputError(f"{path}: not a study.json of format {FORMAT}; make it by `rela study NAME --collect`")
    return study


def collect(folder: StudyFolder) -> Dict[str, Any]:
    """Write ``study.json`` from the records of the runs so far, and return its content.

    Paired bootstraps of the same translations and references are copied from an existing ``study.json``.
    """
    study, path = folder.study, folder.path / "study.json"
    bootstraps = _Bootstraps(folder, path)
    rows = [_collect_row(folder, row) for row in study.rows]
    baseline = next(row for row in rows if row["label"] == study.baseline)
    expected = by_measure(baseline)
    for row in rows:
        values = by_measure(row)
        row["mean"] = {name: summary_of(list(by_seed.values())).record for name, by_seed in values.items()}
        if row is not baseline:
            differences = {name: paired_difference(values[name], expected.get(name, {})) for name in values}
            row["difference"] = {name: value for name, value in differences.items() if value is not None}
            row["bootstrap"] = bootstraps.of(row, baseline)
    result = {
        "format": FORMAT,
        "study": study.name,
        "task": study.task,
        "baseline": study.baseline,
        "gold_kind": study.gold_kind,
        "languages": list(bootstraps.languages),
        "sentences": _sentences(rows),
        "rows": rows,
    }
    measured = gold_set.read(folder.path)
    if measured is not None:
        result["gold_set"] = gold_set.of_models(measured, rows)
    write_json(path, result)
    return result


def _collect_row(folder: StudyFolder, row: Row) -> Dict[str, Any]:
    records = [run.finished() for run in folder.runs if run.job.row is row]
    return {
        "label": row.label,
        "attention": row.attention,
        "sites": row.attention_sites,
        "overrides": list(row.overrides),
        **({"start": row.start} if row.start else {}),
        "table_1": row.table_1,
        "seeds": list(row.seeds),
        "runs": sorted((record for record in records if record), key=lambda record: record["seed"]),
    }


def paired_difference(values: Mapping[int, float], baseline: Mapping[int, float]) -> Optional[Dict[str, Any]]:
    """Return the mean of ``values - baseline`` over their common seeds, with its 95 % interval; None if there are none.

    Args:
        values, baseline: seed to value.

    Returns:
        ``mean``, ``interval`` (None for one seed), the number of seeds ``n``, and ``seeds``.
    """
    found = paired(values, baseline)
    if found is None:
        return None
    return {
        "mean": found.mean,
        "interval": found.bounds,
        "n": found.n,
        "seeds": sorted(values.keys() & baseline.keys()),
    }


def _sentences(rows: List[Dict[str, Any]]) -> Optional[int]:
    numbers = {run["score"]["sentences"] for row in rows for run in finished(row)}
    return numbers.pop() if len(numbers) == 1 else None


class _Bootstraps:
    """The paired bootstrap tests of a study.

    They need the references in the data folder. Without them, only tests that ``study.json`` already holds are given.

    Args:
        folder: the study's folder.
        path: its ``study.json``, which may not exist yet.
    """

    def __init__(self, folder: StudyFolder, path: Path) -> None:
        experiment = folder.runs[0].experiment
        self.languages = experiment.spec.settings.languages
        references = experiment.data / "raw" / f"test.{self.languages[1]}"
        self._folder = folder
        self._sha256 = sha256(references) if references.is_file() else None
        self._references = list(read_lines(references)) if references.is_file() else None
        self._known: Dict[Any, Any] = {}  # by the checksums of the texts
        known = read_json(path) if path.is_file() else {}
        for row in known["rows"] if known.get("format") == FORMAT else ():
            for entry in row.get("bootstrap", {}).values():
                self._known[tuple(entry["of"])] = entry
                self._known[tuple(entry["of"][:2])] = entry

    def of(self, row: Dict[str, Any], baseline: Dict[str, Any]) -> Dict[str, Any]:
        """Return seed to bootstrap for each seed with which both rows are done."""
        found = {}
        theirs = {run["seed"]: run for run in finished(baseline)}
        for run in finished(row):
            entry = self._compare(run, theirs[run["seed"]]) if run["seed"] in theirs else None
            if entry is not None:
                found[str(run["seed"])] = entry
        return found

    def _compare(self, run: Dict[str, Any], baseline: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        sums = [one["translation"]["sha256"] for one in (run, baseline)]
        entry = self._known.get(tuple(sums) if self._sha256 is None else (*sums, self._sha256))
        if entry is None and self._references is not None:
            mine, theirs = (
                list(read_lines(self._folder.records / one["translation"]["file"])) for one in (run, baseline)
            )
            entry = paired_bootstrap(mine, theirs, self._references, self.languages[1])
            entry["of"] = [*sums, self._sha256]
        return entry
