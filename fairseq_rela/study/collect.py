"""Compute ``study.json`` from the records of the runs: means, differences to the baseline, significance."""

from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from ..experiment.config import load_task
from ..files.lines import read_lines
from ..files.records import sha256, write_json
from ..variants import SITES
from .runs import FORMAT, Places, finished
from .spec import Row, Study
from .statistics import paired_bootstrap, paired_difference, summary


def collect(study: Study, places: Places) -> Dict[str, Any]:
    """Write ``study.json`` from the records of the runs so far, and return its content.

    Paired bootstraps of the same translations and references are copied from an existing ``study.json``.
    """
    path = places.output / "study.json"
    known = _known_bootstraps(path)
    rows = [_collect_row(study, row, places) for row in study.rows]
    baseline = next(row for row in rows if row["label"] == study.baseline)
    references = _References(study, places)
    values = {row["label"]: _values(row) for row in rows}
    for row in rows:
        own = values[row["label"]]
        row["mean"] = {name: summary(list(by_seed.values())) for name, by_seed in own.items()}
        if row is baseline:
            continue
        theirs = values[study.baseline]
        differences = {name: paired_difference(own[name], theirs[name]) for name in own if name in theirs}
        row["difference"] = {name: value for name, value in differences.items() if value is not None}
        row["bootstrap"] = _bootstraps(row, baseline, places, references, known)
    result = {
        "format": FORMAT,
        "study": study.name,
        "task": study.task,
        "baseline": study.baseline,
        "gold_kind": study.gold_kind,
        "languages": list(references.languages),
        "sentences": _sentences(rows),
        "rows": rows,
    }
    write_json(path, result)
    return result


def measures(run: Mapping[str, Any]) -> Dict[str, float]:
    """Return the measures of a finished run that are averaged over seeds, by name; none for a diverged run.

    Rates are between 0 and 1. The documentation of studies lists the names.
    """
    if run["state"] != "done":
        return {}
    score, analysis = run["score"], run["analysis"]
    found = {
        "bleu": score["bleu"],
        "length_ratio": score["hypothesis_length"] / score["reference_length"],
        "parameters": run["parameters"],
        "updates": run["updates"],
    }
    if "tokenised_bleu" in score:
        found["tokenised_bleu"] = score["tokenised_bleu"]
    if run["valid"]:
        found["valid_nll"] = min(entry["nll"] for entry in run["valid"])
    for prefix, block in (("", analysis), ("words.", analysis.get("words"))):
        if block:
            found.update({prefix + name: value for name, value in _analysed(block).items()})
    if analysis.get("alignment"):
        for kind in ("normal", "shifted"):
            for rate in ("aol", "aoh"):
                found[f"aer.{kind}.{rate}"] = analysis["alignment"][kind][rate]
    for kind, areas in run.get("ranking", {}).items():
        found[f"auc.null_rate.{kind}"] = areas["null_rate_auc"]
        found[f"auc.log_probability.{kind}"] = areas["logprob_auc"]
    return found


def _analysed(block: Mapping[str, Any]) -> Dict[str, float]:
    """Return the measures of one level of the analysis, pieces or words, as means over layers."""
    found: Dict[str, float] = {}
    for site in SITES:
        entry = block["sites"].get(site)
        if entry is None:
            continue
        for name in ("sparsity", "null_rate", "layer_null_rate"):
            if name in entry:
                found[f"{name}.{site}"] = entry[name]
        for tau, value in entry.get("diversity", {}).items():
            found[f"diversity.{site}.{tau}"] = value
        shuffled = block.get("shuffled", {}).get("sites", {}).get(site)
        if shuffled:
            rates = [layer["null_rate"] for layer in shuffled["layers"]]
            found[f"null_rate_shuffled.{site}"] = sum(rates) / len(rates)
    return found


def _collect_row(study: Study, row: Row, places: Places) -> Dict[str, Any]:
    jobs = [job for job in study.jobs if job.row is row]
    records = [finished(study, job, places) for job in jobs]
    return {
        "label": row.label,
        "attention": row.attention,
        "sites": row.attention_sites,
        "overrides": list(row.overrides),
        "table_1": row.table_1,
        "seeds": list(row.seeds),
        "runs": sorted((record for record in records if record), key=lambda record: record["seed"]),
    }


def _values(row: Mapping[str, Any]) -> Dict[str, Dict[int, float]]:
    """Return measure to seed to value; a measure includes only the runs that have it."""
    values: Dict[str, Dict[int, float]] = {}
    for run in row["runs"]:
        for name, value in measures(run).items():
            values.setdefault(name, {})[run["seed"]] = value
    return values


def _sentences(rows: List[Dict[str, Any]]) -> Optional[int]:
    numbers = {run["score"]["sentences"] for row in rows for run in row["runs"] if run["state"] == "done"}
    return numbers.pop() if len(numbers) == 1 else None


class _References:
    """The raw references of the test set; ``lines`` and ``sha256`` are None without the data folder."""

    def __init__(self, study: Study, places: Places) -> None:
        settings = load_task(study.task).settings
        self.languages = settings.languages
        self.target_lang = settings.target_lang
        path = places.root / study.task / "data" / "raw" / f"test.{self.target_lang}"
        self.sha256 = sha256(path) if path.is_file() else None
        self.lines = list(read_lines(path)) if path.is_file() else None


def _bootstraps(
    row: Dict[str, Any], baseline: Dict[str, Any], places: Places, references: _References, known: Dict[Any, Any]
) -> Dict[str, Any]:
    found = {}
    theirs = {run["seed"]: run for run in baseline["runs"] if run["state"] == "done"}
    for run in row["runs"]:
        other = theirs.get(run["seed"])
        if run["state"] != "done" or other is None:
            continue
        sums = [run["translation"]["sha256"], other["translation"]["sha256"]]
        entry = known.get(tuple(sums) if references.sha256 is None else (*sums, references.sha256))
        if entry is None and references.lines is not None:
            mine, base = (list(read_lines(places.output / "runs" / one["translation"]["file"])) for one in (run, other))
            entry = paired_bootstrap(mine, base, references.lines, references.target_lang)
            entry["of"] = [*sums, references.sha256]
        if entry is not None:
            found[str(run["seed"])] = entry
    return found


def _known_bootstraps(path: Path) -> Dict[Any, Any]:
    """Return the bootstraps of an existing ``study.json``, by the checksums of the texts they were computed from."""
    from .runs import read_study

    if not path.is_file():
        return {}
    known = {}
    for row in read_study(path)["rows"]:
        for entry in row.get("bootstrap", {}).values():
            known[tuple(entry["of"])] = entry
            known[tuple(entry["of"][:2])] = entry
    return known
