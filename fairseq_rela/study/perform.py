"""Train, decode, score and analyse one run of a study, and write its record."""

import gzip
import os
import re
from pathlib import Path
from typing import Any, Dict, List, Optional

from ..data.folder import DataFolder
from ..errors import InputError
from ..experiment.experiment import Experiment
from ..experiment.reproduce import reproduce
from ..files.machine import processor, versions
from ..files.outputs import write_whole
from ..files.records import read_record, sha256, write_json
from .folder import Run

FORMAT = 1
STAGES = ("train", "average", "translate", "score", "analyze")
_VALIDATION = re.compile(r"valid on 'valid' subset .* nll_loss (\S+) .* num_updates (\d+)")
_SECONDS = re.compile(r"done training in ([\d.]+) seconds")  # of the last process of a training
_LOADED = "Loaded checkpoint"
# fairseq's messages if the loss or a gradient is not finite
_DIVERGED = re.compile(r"FloatingPointError|Nan/Inf|Minimum loss scale reached|not finite")
_RECORDED = ("torch", "ve-fairseq", "fairseq-fixed", "fairseq", "entmax", "sacrebleu")
_LEFT_OUT = ("wake", "checkpoint")  # entries of an analysis that no table of a study shows


def perform(run: Run) -> Dict[str, Any]:
    """Perform one run of a study, or resume it where an earlier call stopped, and write its record.

    A run whose loss or gradient is not finite is recorded as diverged.

    Returns:
        the record, as :meth:`fairseq_rela.study.folder.Run.finished` returns it.

    Raises:
        InputError: the model that starts the run is missing, or a stage failed for another reason.
    """
    done = run.finished()
    if done is not None:
        print(f"{run.record}: already complete")
        return done
    study, experiment = run.folder.study, run.experiment
    start = experiment.start_model
    if start is not None and not start.is_file():
        raise InputError(
            f"{run.name} starts from the model {start}, which is missing; remove "
            f"{run.folder.records / str(run.job.start)}.json, and the study trains it again"
        )
    record = {"format": FORMAT, "study": study.name, "label": run.job.row.label, "seed": run.job.seed}
    begun = run.made_of()
    try:
        reproduce(experiment, STAGES)
        record.update(state="done", **_measured(experiment.run, start))
        if study.ranking:
            record["ranking"] = _ranking(experiment)
        translated = experiment.run / "test.txt"
        with write_whole(run.translation, "wb") as file, gzip.GzipFile("", "wb", 9, file, 0) as packed:
            packed.write(translated.read_bytes())
        record["translation"] = {"file": run.translation.name, "sha256": sha256(translated)}
    except InputError as error:
        if not _DIVERGED.search(str(error)):
            raise
        print(f"diverged: {error}")
        reason = re.sub(r"\s*\(log: .*?\)", "", str(error))  # paths differ between machines
        record.update(state="diverged", reason=reason, valid=_validations(_log(experiment.run)))
    # settings and code may have been edited since; the data may have been prepared
    made_of = {**run.made_of(), **{key: begun[key] for key in ("configs", "user_dir")}}
    record.update(machine=_machine(), versions=versions(_RECORDED), made_of=made_of)
    write_json(run.record, record)
    return record


def _measured(run: Path, start: Optional[Path] = None) -> Dict[str, Any]:
    """Return the results that the stages wrote to the folder of a training, which began with the model ``start``."""
    analysis, trained, log = read_record(run / "analysis.json"), read_record(run / "train.json"), _log(run)
    starts = [] if start is None else [str(start), str(start.resolve())]
    loaded = [line for line in log.splitlines() if _LOADED in line and not any(one in line for one in starts)]
    seconds = None if loaded else _SECONDS.search(log)
    return {
        "score": read_record(run / "score.json"),
        "updates": trained["updates"],
        "computed_by": trained["computed_by"],
        "parameters": analysis["parameters"],
        "valid": _validations(log),
        "analysis": {key: value for key, value in analysis.items() if key not in _LEFT_OUT},
        "decoding": read_record(run / "translate.json").get("speed"),
        "seconds": {"train": float(seconds[1])} if seconds else {},
    }


def _ranking(experiment: Experiment) -> Dict[str, Any]:
    """Return the areas under the ROC curve for finding damaged pairs of the test set, by kind of damage."""
    from ..analysis.detection import evaluate
    from ..register import load_plugin

    load_plugin()
    done = experiment.run / "rank.json"
    settings = experiment.spec.settings
    source, target = (experiment.data / "raw" / f"test.{lang}" for lang in settings.languages)
    return evaluate([experiment.average], DataFolder(experiment.data), source, target, done)["kinds"]


def _validations(log: str) -> List[Dict[str, float]]:
    """Return the loss on the dev set (bits per piece, without label smoothing) at each validation, from the log."""
    found = {int(updates): float(nll) for nll, updates in _VALIDATION.findall(log)}
    return [{"updates": updates, "nll": found[updates]} for updates in sorted(found)]


def _log(run: Path) -> str:
    path = run / "train.log"
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _machine() -> Dict[str, Any]:
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"processor": processor(), "cores": os.cpu_count(), "gpu": gpu}
