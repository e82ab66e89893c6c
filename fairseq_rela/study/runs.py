"""Train, decode, score and analyse one run of a study in its folder, and write its record."""

import gzip
import json
import os
import re
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

from ..data.folder import DataFolder
from ..errors import InputError
from ..experiment import config
from ..experiment.pipeline import Experiment, reproduce
from ..files.machine import processor, versions
from ..files.outputs import write_whole
from ..files.records import read_json, read_record, sha256, write_json
from .spec import Job, Study

FORMAT = 1
STAGES = ("train", "average", "translate", "score", "analyze")
_VALIDATION = re.compile(r"valid on 'valid' subset .* nll_loss (\S+) .* num_updates (\d+)")
_SECONDS = re.compile(r"done training in ([\d.]+) seconds")
# fairseq's messages if the loss or a gradient is not finite
_DIVERGED = re.compile(r"FloatingPointError|Nan/Inf|Minimum loss scale reached|not finite")
_RECORDED = ("torch", "ve-fairseq", "fairseq-fixed", "fairseq", "entmax", "sacrebleu")
_SEPARATE = ("wake", "checkpoint")  # parts of an analysis that no table of a study shows


class Places(NamedTuple):
    """Folders of a study.

    Attributes:
        root: the folder of all experiments, with data and run folders.
        output: the folder of the study, with records, ``study.json``, tables, page and figures.
        raw: a folder with the raw corpus, for tasks that are not downloaded.
        workers: number of processes that prepare the text; None uses all cores.
    """

    root: Path
    output: Path
    raw: Optional[Path] = None
    workers: Optional[int] = None

    def record(self, job: Job) -> Path:
        return self.output / "runs" / f"{job.name}.json"

    def translation(self, job: Job) -> Path:
        return self.output / "runs" / f"{job.name}.txt.gz"

    def experiment(self, study: Study, job: Job) -> Experiment:
        gold = self.output / study.gold if study.gold else None
        return Experiment(
            study.task, job.row.attention, self.root, self.raw, job.overrides, workers=self.workers, gold=gold
        )


def perform(study: Study, job: Job, places: Places) -> Dict[str, Any]:
    """Run one job, or resume it where an earlier call stopped, and write its record.

    A run whose loss or gradient is not finite is recorded as diverged.

    Returns:
        the record, as :func:`finished` returns it.

    Raises:
        InputError: a stage failed for another reason.
    """
    done = finished(study, job, places)
    if done is not None:
        print(f"{places.record(job)}: already there")
        return done
    experiment = places.experiment(study, job)
    record = {"format": FORMAT, "study": study.name, "label": job.row.label, "seed": job.seed}
    try:
        reproduce(experiment, STAGES)
        record.update(state="done", **_measured(experiment))
        if study.ranking:
            record["ranking"] = _ranking(experiment)
        translated = experiment.run / "test.txt"
        with write_whole(places.translation(job), "wb") as file, gzip.GzipFile("", "wb", 9, file, 0) as packed:
            packed.write(translated.read_bytes())
        record["translation"] = {"file": places.translation(job).name, "sha256": sha256(translated)}
    except InputError as error:
        if not _DIVERGED.search(str(error)):
            raise
        print(f"diverged: {error}")
        record.update(state="diverged", reason=_without_paths(str(error)), valid=_validations(experiment.run))
    record.update(machine=_machine(), versions=versions(_RECORDED), made_of=_made_of(experiment))
    write_json(places.record(job), record)
    return record


def finished(study: Study, job: Job, places: Places) -> Optional[Dict[str, Any]]:
    """Return the record of a job that is done or has diverged, or None if there is no record.

    A setting that is new in ``configs/`` since the record was written is taken for one that changes nothing by default.

    Raises:
        InputError: the record is of other settings, or of other data than the prepared data.
    """
    path = places.record(job)
    if not path.is_file():
        return None
    record, experiment = read_record(path), places.experiment(study, job)
    made_of = _made_of(experiment)
    if not (experiment.data / "prepare.json").is_file():  # a checkout with the records only
        made_of["data"] = record.get("made_of", {}).get("data")
    for key, value in made_of.items():
        old = record.get("made_of", {}).get(key)
        if key == "configs" and isinstance(old, dict):
            value = {name: value[name] for name in old if name in value}
        if old != value:
            what = f"{key} ({_first_difference(old, value)})"
            raise InputError(f"{path} was measured with other {what}; remove it to run this job again")
    return record


def _measured(experiment: Experiment) -> Dict[str, Any]:
    """Return the results that the stages wrote to the run's folder."""
    run = experiment.run
    analysis = read_record(run / "analysis.json")
    trained = read_record(run / "train.json")
    return {
        "score": read_record(run / "score.json"),
        "updates": trained["updates"],
        "computed_by": trained["computed_by"],
        "parameters": analysis["parameters"],
        "valid": _validations(run),
        "analysis": {key: value for key, value in analysis.items() if key not in _SEPARATE},
        "decoding": read_record(run / "translate.json").get("speed"),
        "seconds": _training_seconds(run),
    }


def _ranking(experiment: Experiment) -> Dict[str, Any]:
    """Return, by kind of damage, how well the model finds damaged pairs among those of the test set."""
    from ..analysis.damage import evaluate
    from ..register import load_plugin

    load_plugin()
    done, checkpoint = experiment.run / "rank.json", experiment.run / "average.pt"
    settings = experiment.spec.settings
    source, target = (experiment.data / "raw" / f"test.{lang}" for lang in settings.languages)
    return evaluate(checkpoint, experiment.data, source, target, done)["kinds"]


def _validations(run: Path) -> List[Dict[str, float]]:
    """Return the loss on the dev set (bits per piece, without label smoothing) at each validation, from the log."""
    found = {int(updates): float(nll) for nll, updates in _VALIDATION.findall(_log(run))}
    return [{"updates": updates, "nll": found[updates]} for updates in sorted(found)]


def _training_seconds(run: Path) -> Dict[str, float]:
    seconds = _SECONDS.search(_log(run))
    return {"train": float(seconds[1])} if seconds else {}


def _log(run: Path) -> str:
    path = run / "train.log"
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _without_paths(text: str) -> str:
    return re.sub(r"\s*\(log: .*?\)", "", text)


def _made_of(experiment: Experiment) -> Dict[str, Any]:
    """Return the settings and data that determine the result of a run, in the form in which JSON reads them back."""
    overrides = [f"attention={experiment.attention}", *experiment.overrides]
    data = experiment.data
    return {
        "task": experiment.task,
        "attention": experiment.attention,
        "overrides": list(experiment.overrides),
        "configs": config.composed_values(experiment.task, overrides),
        "data": _test_and_binaries(data) if (data / "prepare.json").is_file() else None,
        "gold": sha256(experiment.gold) if experiment.gold is not None and experiment.gold.is_file() else None,
    }


def _test_and_binaries(data: Path) -> Dict[str, str]:
    outputs = DataFolder(data).outputs
    return {name: outputs[name] for name in outputs if name.endswith((".bin", ".idx")) or name.startswith("raw/test.")}


def _first_difference(old: Any, new: Any) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        return next(str(key) for key in sorted({**old, **new}) if old.get(key) != new.get(key))
    return f"{json.dumps(old)[:80]}, now {json.dumps(new)[:80]}"


def _machine() -> Dict[str, Any]:
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"processor": processor(), "cores": os.cpu_count(), "gpu": gpu}


def read_study(path: Path) -> Dict[str, Any]:
    """Return the content of a ``study.json``.

    Raises:
        InputError: the file is missing or has another format.
    """
    study = read_json(path)
    if not isinstance(study, dict) or study.get("format") != FORMAT:
        raise InputError(f"{path}: not a study of format {FORMAT}; make it by `rela study NAME --collect`")
    return study
