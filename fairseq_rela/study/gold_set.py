"""Measure runs of a study on a gold word alignment with sentences of its own, which may be of another domain."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from ..analysis.summaries import summarise
from ..data.folder import DataFolder
from ..errors import InputError
from ..files.records import read_record, sha256, write_json
from ..report.table import Table
from . import text
from .folder import Run, StudyFolder
from .paper_tables import ERRORS, NUMBER, TEXT, in_order, make_table, row_number
from .values import by_measure, finished

FORMAT = 2
_FILE = "gold_set.json"


def best_label(study: Dict[str, Any]) -> str:
    """Return the label of the row with the highest mean BLEU.

    Raises:
        InputError: no run of the study is finished.
    """
    scores = {row["label"]: list(by_measure(row)["bleu"].values()) for row in study["rows"] if finished(row)}
    if not scores:
        raise InputError(f"{study['study']}: no run is finished; train some before --gold-alignment")
    return max(scores, key=lambda label: sum(scores[label]) / len(scores[label]))


def measure(folder: StudyFolder, labels: Sequence[str], paths: Sequence[Path]) -> Path:
    """Measure the alignment error of the finished runs of rows on a gold set, and add them to ``gold_set.json``.

    Args:
        folder: the study.
        labels: the rows.
        paths: the gold set, see :func:`fairseq_rela.analysis.goldset.open_gold_set`.

    Returns:
        the path of the file.

    Raises:
        InputError: no run of the rows is finished, the model of a run is missing or another than its record says, the
            gold set cannot be used, or the file has results of another gold set.
    """
    from ..analysis.align import measure_gold_set
    from ..register import load_plugin

    records = [(run, run.finished() or {}) for run in folder.runs if run.job.row.label in labels]
    runs = [(run, record) for run, record in records if record.get("state") == "done"]
    if not runs:
        raise InputError(f"{', '.join(labels)}: no run is finished; train some before --gold-alignment")
    load_plugin()
    path = folder.path / _FILE
    data = DataFolder(runs[0][0].experiment.data)
    with replace(runs[0][0].experiment, gold_alignment=tuple(paths)).open_gold_set() as gold_set:
        assert gold_set is not None  # for it has paths
        record = read(folder.path) or {"format": FORMAT, "gold": gold_set.record, "rows": {}}
        if record["gold"] != gold_set.record:
            raise InputError(f"{path} has results of another gold set; remove it to measure this one")
        for run, measured in runs:
            _refuse_other_model(run, measured["analysis"]["sha256"])
            found = measure_gold_set(run.experiment.average, data, gold_set)
            errors = {kind: {mean: found["alignment"][kind][mean] for mean in ("aol", "aoh")} for kind in _KINDS}
            entry = {"sha256": measured["analysis"]["sha256"], **errors}
            record["rows"].setdefault(run.job.row.label, {})[str(run.job.seed)] = entry
            record.update(sentences=found["alignment"]["sentences"], text=found["gold_text"])
            write_json(path, record)
    return path


_KINDS = ("normal", "shifted")


def _refuse_other_model(run: Run, checksum: str) -> None:
    """Raise an error unless the averaged checkpoint of a run is the one that its record was measured with."""
    checkpoint = run.experiment.average
    if not checkpoint.is_file():
        raise InputError(f"{checkpoint}: no such file; --gold-alignment needs the trained models of the study")
    if sha256(checkpoint) != checksum:
        raise InputError(f"{checkpoint} is not the model that {run.record} was measured with; train it again")


def read(folder: Path) -> Optional[Dict[str, Any]]:
    """Return the content of ``gold_set.json`` in the folder of a study, or None if there is none.

    Raises:
        InputError: the file has another format.
    """
    path = folder / _FILE
    if not path.is_file():
        return None
    record = read_record(path)
    if record.get("format") != FORMAT:
        raise InputError(f"{path}: not of format {FORMAT}; remove it and measure again")
    return record


def of_models(record: Dict[str, Any], rows: Sequence[Dict[str, Any]]) -> Dict[str, Any]:
    """Return the content of ``gold_set.json`` without the entries of models that were trained again since.

    Args:
        record: the content.
        rows: the rows of ``study.json``.
    """
    checksums = {(row["label"], str(run["seed"])): run["analysis"]["sha256"] for row in rows for run in finished(row)}

    def entries(label: str, seeds: Dict[str, Any]) -> Dict[str, Any]:
        return {seed: one for seed, one in seeds.items() if checksums.get((label, seed)) == one["sha256"]}

    kept = {label: entries(label, seeds) for label, seeds in record["rows"].items()}
    return {**record, "rows": {label: seeds for label, seeds in kept.items() if seeds}}


def table(study: Dict[str, Any]) -> List[Table]:
    """Return the table of the alignment errors on the gold set; an empty list if nothing was measured."""
    record = study.get("gold_set")
    if record is None or not record["rows"]:
        return []
    rows = []
    for row in (row for row in in_order(study) if row["label"] in record["rows"]):
        seeds = record["rows"][row["label"]].values()
        cells = [row_number(row), text.row_name(row)]
        for name in ERRORS:
            kind, mean = name.lower().split()
            cells.append(text.mean_sd(summarise([errors[kind][mean] for errors in seeds]), 1, 100))
        rows.append(cells)
    unknown = (
        f"{side['unknown']:,} of {side['total']:,} {where} words ({side['unknown'] / side['total']:.1%})"
        for where, side in ((where, record["text"][where]) for where in ("source", "target"))
    )
    note = (
        f"In percent, mean ± standard deviation over the seeds, as in Table 5. The {record['sentences']:,} sentence "
        f"pairs of {record['gold']['file']} were aligned by people; they are not from the study's corpus: "
        f"{text.join(list(unknown))} have pieces that the models do not know."
    )
    caption = "Alignment error rate against a gold alignment of other text"
    return [make_table(caption, [NUMBER, TEXT] + len(ERRORS) * [NUMBER], ["row", "model", *ERRORS], rows, [note])]
