"""Train with ``fairseq-hydra-train`` and the shipped configuration."""

import re
import sys
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from .. import checkpoints, safe_loading
from ..data.folder import DataFolder
from ..errors import InputError
from ..files.commands import refuse_misread, run_fairseq
from ..files.configs import config_folder
from ..files.locks import only_process
from ..files.records import sha256, write_json
from ..user_dir import user_code, user_dir
from ..variants import find_variant
from . import resuming
from .composed import attention_overrides, checksums, runs_with_updates_of, update_tokens
from .naming import changes_the_model, keys_of, split_override
from .progress import TrainingProgress
from .run_record import is_trained, record_start
from .tasks import load_task, require_task

_START = "checkpoint.finetune_from_model"
_COMPUTED_BY = re.compile(r"attention: computed by (.+)$", re.MULTILINE)


def train(
    task: str,
    attention: str,
    data: Path,
    save_dir: Path,
    overrides: Sequence[str] = (),
    start: Optional[Path] = None,
) -> None:
    """Train with ``fairseq-hydra-train`` and the shipped configuration, or resume an interrupted run.

    The checkpoint to restore is loaded before training. If ``checkpoint_last.pt`` is damaged, training resumes from
    the newest checkpoint that loads. A missing restore file is an error; fairseq would train from scratch. After
    training, the checkpoint must hold the requested attention.

    Args:
        task: a name from :func:`fairseq_rela.experiment.tasks.task_names`.
        attention: a variant name.
        data: a prepared data folder.
        save_dir: the folder for checkpoints, log and records.
        overrides: Hydra overrides.
        start: a checkpoint whose parameters start the model; parameters that it lacks start as usual.

    Raises:
        InputError: unknown task or attention; a start that is missing, damaged or of other dictionaries; changed data;
            a folder that was trained with other settings; or training failed.
    """
    find_variant(attention)
    require_task(task)
    check_overrides(task, overrides)
    folder = DataFolder(data)
    meant = "-".join(load_task(task).settings.languages)
    if folder.pair != meant:
        print(f"warning: {data} holds {folder.pair}, and {task} is made for {meant}", file=sys.stderr)
    folder.refuse_changed(name for name in folder.outputs if name.endswith((".bin", ".idx", ".txt")))
    keys = keys_of(overrides)
    if start is None and "start" in keys and _START not in keys:
        raise InputError(f"+start: name the model to start from by --override {_START}=FILE, or use `rela reproduce`")
    training = _Training(task, attention, folder, save_dir.resolve(), overrides, start)
    if training.starts_from is not None:
        folder.refuse_model(training.starts_from, safe_loading.load(training.starts_from))
    refuse_misread(data.resolve())
    refuse_misread(training.folder)
    with only_process(training.folder, "trained"):
        _train_alone(training)


class _Training(NamedTuple):
    """The arguments of :func:`train`, checked and opened."""

    task: str
    attention: str
    data: DataFolder
    folder: Path  # of the checkpoints, absolute
    overrides: Sequence[str]
    start: Optional[Path] = None

    @property
    def starts_from(self) -> Optional[Path]:
        """The checkpoint of another run that starts the model: ``start``, or one that an override names."""
        return self.start or resuming.start_file(self.overrides)

    @property
    def settings(self) -> Dict[str, Any]:
        """Everything that determines the trained model, for the run's record."""
        own_code = user_code()
        return {
            "task": self.task,
            "attention": self.attention,
            "overrides": list(self.overrides),
            "data": self.data.outputs,
            "configs": checksums(self.task, [*attention_overrides(self.attention), *self.overrides]),
            **({"user_dir": own_code} if own_code else {}),
            **({"start": sha256(self.starts_from)} if self.starts_from else {}),
        }

    def arguments(self, restore: Optional[Path]) -> List[str]:
        """Return the arguments of fairseq-hydra-train; ``restore`` is a checkpoint to resume from, if not the last."""
        arguments = ["--config-dir", str(config_folder()), "--config-name", self.task]
        arguments += [
            *attention_overrides(self.attention),
            f"common.user_dir={_quoted(user_dir())}",
            f"task.data={_quoted(self.data.path.resolve())}",
            f"checkpoint.save_dir={_quoted(self.folder)}",
            *([f"{_START}={_quoted(self.start.resolve())}"] if self.start is not None and restore is None else []),
            *self.overrides,
        ]
        if restore is not None:  # fairseq refuses both, also if the start is an override
            arguments += [f"checkpoint.restore_file={_quoted(restore)}", f"{_START}=null"]
        # Hydra uses the Slurm launcher only in a multirun; it returns when the job has ended
        return [*arguments, "-m"] if "run=slurm" in self.overrides else arguments


def _train_alone(training: _Training) -> None:
    """Train or resume, and write ``train.json``; the caller holds the lock of the folder."""
    folder, settings = training.folder, training.settings
    if is_trained(folder, settings):
        print(f"{folder}: already trained")
        return
    good = checkpoints.newest_good(folder)
    restore = resuming.restore_file(folder, training.overrides, good)
    record_start(folder, settings)
    for path in resuming.half_written(folder):
        path.unlink()
    if not resuming.complete(folder, good):
        _run(training, restore, resumed=good is not None)
    last = checkpoints.find(folder)[0]
    model = safe_loading.load(last.path)["cfg"]["model"]
    if model["attention"] != training.attention:
        raise InputError(
            f"{last.path} holds attention {model['attention']}, {training.attention} was requested; look into "
            f"{folder / 'train.log'}"
        )
    computed_by = list(dict.fromkeys(_COMPUTED_BY.findall((folder / "train.log").read_text(encoding="utf-8"))))
    write_json(folder / "train.json", {**settings, "updates": last.updates, "computed_by": computed_by})
    print(f"trained for {last.updates:,} updates; checkpoints in {folder}")


def _run(training: _Training, restore: Optional[Path], resumed: bool) -> None:
    progress = TrainingProgress(training.folder)
    try:
        run_fairseq("hydra_train", training.arguments(restore), training.folder / "train.log", progress, append=resumed)
    except InputError:
        resuming.refuse_full_disk(training.folder)
        raise
    finally:
        progress.close()


# keys that `rela train` sets itself, with the option to use instead
_RESERVED = {
    "attention": "--attention",
    "model.attention": "--attention",
    "task.data": "--data",
    "checkpoint.save_dir": "--save-dir",
    "common.user_dir": "rela --user-dir FOLDER",
}


def check_overrides(task: str, overrides: Sequence[str]) -> None:
    """Raise unless every override can be given to ``rela train``.

    Raises:
        InputError: an override is not ``KEY=VALUE``, sets what an option sets, names another plugin's model, or is a
            ``run=`` that changes the number of tokens of an update.
    """
    for override in overrides:
        name, value = split_override(override)
        if "=" not in override and not override.startswith("~"):
            raise InputError(f"--override {override}: give KEY=VALUE")
        if name == "start" and not override.startswith("+start="):
            raise InputError(f"--override {override}: give +start=softmax")
        if name in _RESERVED:
            raise InputError(f"--override {override}: give {_RESERVED[name]} instead")
        if name == "model._name" and not value.startswith("transformer_rela"):
            raise InputError(f"--override {override}: not a model of this plugin; train it by fairseq-train")
    keys = keys_of(overrides)
    for run in (override for override in overrides if not changes_the_model(override)):
        before, now = update_tokens(task), update_tokens(task, [run])
        if before and now and now != before and not keys & {"dataset.max_tokens", "dataset.batch_size"}:
            raise InputError(
                f"--override {run}: an update would have {now:,} tokens, and {task} is made for {before:,}; give "
                f"{' or '.join(f'run={name}' for name in runs_with_updates_of(before))}, or your own dataset.max_tokens"
            )


def _quoted(path: Path) -> str:
    """Return a path as the value of a Hydra override, quoted if it holds special characters."""
    if re.fullmatch(r"[\w/.\-]+", str(path), re.ASCII):
        return str(path)
    escaped = str(path).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
