"""The experiment: one task with one attention, and the folders of its files."""

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Iterator, Optional, Tuple

from ..analysis.goldset import GoldSet, open_gold_set
from ..errors import InputError
from ..variants import find_variant
from .composed import composed_values
from .naming import SITES_KEYS, keys_of, run_name, split_override
from .tasks import Task, load_task

# options that the attention of the first model may refuse
_OF_RELA = tuple(f"model.rela_{name}" for name in ("threshold", "threshold_warmup", "sparsity_target", "backend"))


@dataclass(frozen=True)
class Experiment:
    """One task with one attention.

    Attributes:
        task: a name from :func:`fairseq_rela.experiment.tasks.task_names`.
        attention: a variant name (paper, Table 1).
        root: the folder of all experiments. It holds downloads in ``root/downloads``, raw text in ``root/TASK/raw``,
            prepared data in ``root/TASK/data`` and a run in ``root/TASK/RUN`` (see
            :func:`fairseq_rela.experiment.naming.run_name`). TASK includes the non-default choices of ``choose``.
        raw: a folder with the raw corpus; replaces the stages download and extract.
        overrides: Hydra overrides, such as ``optimization.max_epoch=3``.
        start: name of the folder of another run of the task, whose averaged checkpoint starts the model.
        workers: number of processes that prepare the text; None uses all cores.
        choose: ``KEY=VALUE`` for each choice of data that is not the task's default.
        offline: a folder with files downloaded elsewhere; nothing is downloaded.
        moses: a checkout of Moses, whose scripts then normalise and tokenise.
        gold: a word alignment of the test set for the stage analyze; replaces the task's own.
        gold_alignment: a folder, or files, with a gold word alignment of sentences other than the test set, see
            :func:`fairseq_rela.analysis.goldset.open_gold_set`.
    """

    task: str
    attention: str
    root: Path
    raw: Optional[Path] = None
    overrides: Tuple[str, ...] = ()
    workers: Optional[int] = None
    choose: Tuple[str, ...] = ()
    offline: Optional[Path] = None
    moses: Optional[Path] = None
    gold: Optional[Path] = None
    gold_alignment: Tuple[Path, ...] = ()
    start: Optional[str] = None

    @cached_property
    def spec(self) -> Task:
        """The task's data, as ``configs/corpus/`` describes them."""
        return load_task(self.task, self.choose)

    @property
    def folder(self) -> Path:
        """The folder of the task, ``root/TASK``."""
        return self.root / self.spec.label

    @property
    def downloads(self) -> Path:
        """The folder of the downloaded archives, which all tasks share."""
        return self.root / "downloads"

    @property
    def raw_text(self) -> Path:
        """The folder with the raw corpus: given, or extracted from the downloads."""
        return self.raw or self.folder / "raw"

    @property
    def data(self) -> Path:
        """The data folder, which all attentions share."""
        return self.folder / "data"

    @property
    def run(self) -> Path:
        """The folder of the run: checkpoints, translations, records."""
        start = () if self.start is None else (f"start={self.start}",)
        return self.folder / run_name(self.attention, (*start, *self.overrides))

    @cached_property
    def first(self) -> Optional["Experiment"]:
        """The experiment that is trained first, for its model to start this one; None without ``+start=ATTENTION``.

        It has the same overrides but for those that are for this attention only.
        """
        attention = next((value for key, value in map(split_override, self.overrides) if key == "start"), None)
        own = ("start", *SITES_KEYS, *_OF_RELA)
        others = (override for override in self.overrides if split_override(override)[0] not in own)
        return None if attention is None else replace(self, attention=attention, overrides=tuple(others))

    @property
    def start_model(self) -> Optional[Path]:
        """The checkpoint that starts the model, or None."""
        if self.first is not None:
            return self.first.average
        return None if self.start is None else self.folder / self.start / "average.pt"

    @property
    def average(self) -> Path:
        """The averaged checkpoint, which translates the test set and is analysed."""
        return self.run / "average.pt"

    @property
    def test_links(self) -> Optional[Path]:
        """The file with the gold word alignment of the test set, or None."""
        if self.gold is not None or self.spec.gold is None:
            return self.gold
        return self.raw_text / self.spec.gold

    @contextmanager
    def open_gold_set(self) -> Iterator[Optional[GoldSet]]:
        """Yield the opened gold set, or None if there is none; its files exist within the context."""
        if not self.gold_alignment:
            yield None
            return
        with tempfile.TemporaryDirectory(prefix="rela-gold-") as work:
            yield open_gold_set(self.gold_alignment, self.spec.settings.languages, Path(work))

    def check(self) -> None:
        """Refuse what a stage would refuse hours later.

        Raises:
            InputError: the task, a choice or the attention is unknown, or a given file or folder is missing.
        """
        find_variant(self.attention)
        self.spec  # noqa: B018  raises for unknown tasks and choices
        with self.open_gold_set():
            pass
        if self.first is not None:
            self._check_first(self.first)
        elif self.start_model is not None and not self.start_model.is_file():
            raise InputError(f"--start {self.start}: {self.start_model} is missing; train that run first")
        for option, folder in (("--offline", self.offline), ("--raw", self.raw), ("--moses", self.moses)):
            if folder is not None and not folder.is_dir():
                raise InputError(f"{option} {folder}: no such folder")

    def _check_first(self, first: "Experiment") -> None:
        find_variant(first.attention)
        keys = keys_of(self.overrides)
        if self.start is not None or keys & {"checkpoint.finetune_from_model", "checkpoint.restore_file"}:
            raise InputError("--override +start names the model to start from; leave out --start and other checkpoints")
        length = {"optimization.max_epoch", "optimization.max_update"}
        if not keys & length and composed_values(self.task)["optimization.max_update"]:
            raise InputError(
                f"--override +start: {self.task} is not trained by epochs; give --override optimization.max_update=N "
                f"for both models, or train {first.attention} first and give --start {first.run.name}"
            )
