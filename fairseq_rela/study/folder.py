"""The folder of a study, opened once, and its runs with their records."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Dict, List, Optional

from ..data.folder import DataFolder
from ..errors import InputError
from ..experiment.composed import attention_overrides, composed_values
from ..experiment.experiment import Experiment
from ..files.configs import load_defaults
from ..files.records import read_record, sha256
from ..user_dir import user_code
from .spec import Job, Study

# entries of Run.made_of that older records lack
_ADDED = ("start_model", "user_dir", "averaged", "ranking")


@dataclass(frozen=True)
class StudyFolder:
    """A study with the folders of its files.

    Attributes:
        study: the definition of the study.
        path: the folder with records, ``study.json``, tables, page and figures.
        root: the folder of all experiments, with data and run folders.
        raw: a folder with the raw corpus, for tasks that are not downloaded.
        workers: number of processes that prepare the text; None uses all cores.
    """

    study: Study
    path: Path
    root: Path
    raw: Optional[Path] = None
    workers: Optional[int] = None

    @property
    def records(self) -> Path:
        """The folder with the record and the translation of each run."""
        return self.path / "runs"

    @property
    def gold(self) -> Optional[Path]:
        """The study's own word alignment of the test set, or None."""
        return self.path / self.study.gold if self.study.gold else None

    @cached_property
    def runs(self) -> List["Run"]:
        """The runs in the order of training, with the settings that ``configs/`` has now."""
        composed = {
            row.label: composed_values(self.study.task, [*attention_overrides(row.attention), *row.settings])
            for row in self.study.rows
        }
        return [
            Run(index, job, self, self._experiment(job), composed[job.row.label])
            for index, job in enumerate(self.study.jobs)
        ]

    def _experiment(self, job: Job) -> Experiment:
        start = next((row for row in self.study.rows if row.label == job.row.start), None)
        return Experiment(
            task=self.study.task,
            attention=job.row.attention,
            root=self.root,
            raw=self.raw,
            overrides=job.overrides,
            workers=self.workers,
            gold=self.gold,
            start=self._experiment(Job(start, job.seed)).run.name if start else None,
        )


@dataclass(frozen=True)
class Run:
    """One run of a study.

    Attributes:
        index: its place in the order of training, from 0.
        job: the row and the seed.
        folder: the study's folder.
        experiment: what is trained and measured.
        composed: the settings that Hydra composes, name to value.
    """

    index: int
    job: Job
    folder: StudyFolder
    experiment: Experiment
    composed: Dict[str, Any]

    @property
    def name(self) -> str:
        """The name of the run in messages and files, such as ``rela_g.seed-1``."""
        return self.job.name

    @property
    def record(self) -> Path:
        """The JSON file with the results of the run."""
        return self.folder.records / f"{self.name}.json"

    @property
    def translation(self) -> Path:
        """The packed translation of the test set."""
        return self.folder.records / f"{self.name}.txt.gz"

    def made_of(self) -> Dict[str, Any]:
        """Return the settings and data that determine the result, in the form in which JSON reads them back."""
        gold, start = self.experiment.gold, self.experiment.start_model
        return {
            "task": self.experiment.task,
            "attention": self.experiment.attention,
            "overrides": list(self.experiment.overrides),
            "configs": self.composed,
            "data": _test_and_binaries(self.experiment.data),
            "gold": sha256(gold) if gold is not None and gold.is_file() else None,
            "start": self.experiment.start,
            "start_model": sha256(start) if start is not None and start.is_file() else None,
            "user_dir": user_code(),
            "averaged": load_defaults("experiment")["averaged"],
            "ranking": self.folder.study.ranking,
        }

    def finished(self) -> Optional[Dict[str, Any]]:
        """Return the record of a run that is done or has diverged, or None if there is no record.

        Settings that were added to ``configs/`` or to :meth:`made_of` after the record was written are not compared,
        nor are data and models that a checkout with the records only lacks.

        Raises:
            InputError: the record was made with other settings, or from data other than the prepared data.
        """
        if not self.record.is_file():
            return None
        record = read_record(self.record)
        recorded, made_of = record.get("made_of", {}), self.made_of()
        absent = {key for key in ("data", "start_model") if made_of[key] is None}
        for key, value in made_of.items():
            if key in absent or (key in _ADDED and key not in recorded):
                continue
            old = recorded.get(key)
            if key == "configs" and isinstance(old, dict):
                value = {name: value[name] for name in old if name in value}
            if old != value:
                what = f"{key} ({_first_difference(old, value)})"
                raise InputError(f"{self.record} was measured with other {what}; remove it to run this job again")
        return record


def _test_and_binaries(data: Path) -> Optional[Dict[str, str]]:
    """Return the checksums of the binarised data and the raw test set, or None if the data are not prepared."""
    if not DataFolder.is_prepared(data):
        return None
    outputs = DataFolder(data).outputs
    return {name: outputs[name] for name in outputs if name.endswith((".bin", ".idx")) or name.startswith("raw/test.")}


def _first_difference(old: Any, new: Any) -> str:
    """Return the first differing key of two dictionaries, or both values otherwise, for a message."""
    if isinstance(old, dict) and isinstance(new, dict):
        return next(str(key) for key in sorted({**old, **new}) if old.get(key) != new.get(key))
    return f"{json.dumps(old)[:80]}, now {json.dumps(new)[:80]}"
