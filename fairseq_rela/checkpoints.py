"""Find the checkpoints of a run by the update numbers inside them, choose the last ones, average them in float32."""

import re
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from .errors import InputError
from .files.outputs import write_whole
from .identity import TASK_STATE
from .safe_loading import load

# checkpoint_3_500.pt, checkpoint3.pt and checkpoint_last.pt; not checkpoint_best.pt and not averages
_NAMES = re.compile(r"checkpoint(?:_\d+_\d+|\d+|_last)\.pt")


class Found(NamedTuple):
    """A checkpoint of a run: its file and its number of updates."""

    path: Path
    updates: int


def updates_of(state: Dict[str, Any]) -> int:
    """Return the number of updates of a checkpoint, or 0 if it is not recorded."""
    history = state.get("optimizer_history") or [{}]
    return int(history[-1].get("num_updates", 0))


def is_average(state: Dict[str, Any]) -> bool:
    """Return whether :func:`average` has made a checkpoint."""
    return "averaged_from" in (state.get("extra_state") or {})


def find(folder: Path) -> List[Found]:
    """Return the checkpoints of a run, newest first, one for each number of updates.

    fairseq writes no ``checkpoint_EPOCH_UPDATES.pt`` at the end of an epoch; ``checkpointEPOCH.pt`` or
    ``checkpoint_last.pt`` then holds that state. So the update number inside the file is used, not the file name.

    Raises:
        InputError: the folder has no checkpoint, or one that cannot be loaded.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder of checkpoints")
    found: Dict[int, Path] = {}
    for path in sorted(folder.iterdir()):
        if _NAMES.fullmatch(path.name):
            updates = updates_of(load(path))
            # prefer a file that later training does not overwrite
            if updates not in found or found[updates].name == "checkpoint_last.pt":
                found[updates] = path
    if not found:
        raise InputError(f"{folder}: no checkpoint_*.pt in it; has the model been trained?")
    return [Found(found[updates], updates) for updates in sorted(found, reverse=True)]


def newest_good(folder: Path) -> Optional[Found]:
    """Return the newest checkpoint of a run that can be loaded, or None; files that do not load are skipped."""
    good = []
    for path in sorted(folder.glob("checkpoint*.pt")) if folder.is_dir() else ():
        if _NAMES.fullmatch(path.name):
            try:
                good.append(Found(path, updates_of(load(path))))
            except InputError:
                continue
    # among equally new files prefer checkpoint_last.pt, which fairseq restores by default
    return max(good, key=lambda f: (f.updates, f.path.name == "checkpoint_last.pt"), default=None)


class Choice(NamedTuple):
    """The last checkpoints of a run.

    Attributes:
        chosen: the checkpoints, newest first.
        interval: number of updates between checkpoints, as the run was configured; 0 if it saved by epoch.
        missing: update numbers that should have a checkpoint and have none.
    """

    chosen: List[Found]
    interval: int
    missing: List[int]


def choose_last(folder: Path, number: int) -> Choice:
    """Return the last ``number`` checkpoints of a run: the final one, and earlier ones at the run's save interval.

    Raises:
        InputError: the run has fewer checkpoints, or ``number`` is below 1.
    """
    if not isinstance(number, int) or number < 1:
        raise InputError(f"--last {number}: give a number of at least 1")
    found = find(folder)
    config = load(found[0].path).get("cfg") or {}
    interval = int((config.get("checkpoint") or {}).get("save_interval_updates") or 0)
    regular = [f for f in found if interval == 0 or f.updates % interval == 0 or f is found[0]]
    if len(regular) < number:
        raise InputError(
            f"{folder}: {number} checkpoints are wanted, {len(regular)} are there (updates "
            f"{', '.join(str(f.updates) for f in regular)}"
            + (f"; {len(found) - len(regular)} not at a multiple of {interval}" if len(found) > len(regular) else "")
            + "); train longer, give a smaller --last, or name files by --inputs"
        )
    chosen = regular[:number]
    missing: List[int] = []
    if interval:
        span = range(chosen[-1].updates, chosen[0].updates, interval)
        missing = sorted(set(span) - {f.updates for f in chosen})
    return Choice(chosen, interval, missing)


def refuse_output(output: Path, inputs: Sequence[Path], what: str) -> None:
    """Raise an error if an output has the name of a checkpoint that training writes, or is an input.

    Args:
        output: the file to write.
        inputs: the files that are read.
        what: what is written, such as ``an average``.

    Raises:
        InputError: it has such a name.
    """
    if _NAMES.fullmatch(output.name) or output.resolve() in [path.resolve() for path in inputs]:
        raise InputError(f"{output}: {what} must not take the place of a checkpoint; give another --output")


def average(paths: Sequence[Path], output: Path) -> None:
    r"""Write the mean of the parameters, :math:`\bar\theta = \frac1N \sum_i \theta_i`, summed in float32.

    The output has the configuration and the parameter dtypes of the newest input and no optimizer state. It lists
    its inputs in ``extra_state``, so that an average is never averaged again.

    Args:
        paths: the N checkpoints.
        output: the file to write.

    Raises:
        InputError: an input is repeated, an average, of another model or not loadable, or the output is invalid.
    """
    if not paths:
        raise InputError("no checkpoints to average")
    resolved = [Path(path).resolve() for path in paths]
    refuse_output(output, resolved, "an average")
    for path in resolved:
        if resolved.count(path) > 1:
            raise InputError(f"{path} is given {resolved.count(path)} times; give each checkpoint once")
    newest, sums = _sum(paths)
    parameters = {
        key: (value / len(paths)).to(newest["dtypes"][key]) if value.is_floating_point() else value
        for key, value in sums.items()
    }
    save(without_optimizer(newest, parameters, averaged_from=[str(path) for path in paths]), output)


def without_optimizer(state: Dict[str, Any], parameters: Dict[str, Any], **origin: Any) -> Dict[str, Any]:
    """Return a checkpoint like ``state`` with other parameters and no optimizer state, which is for the old ones.

    Args:
        state: a checkpoint.
        parameters: the values of ``model``.
        origin: entries of ``extra_state`` that tell what the parameters were made from.
    """
    return {
        **{"args": state.get("args"), "cfg": state.get("cfg"), "model": parameters, "criterion": None},
        "optimizer_history": state.get("optimizer_history", [])[-1:],
        "task_state": state.get("task_state", {}),
        "extra_state": {
            "train_iterator": {"epoch": 1, "iterations_in_epoch": 0, "shuffle": True},
            **origin,
        },
    }


def save(state: Dict[str, Any], output: Path) -> None:
    """Write a checkpoint, which is complete or absent.

    Raises:
        InputError: the file cannot be written.
    """
    with write_whole(output, "wb") as file:
        try:
            torch.save(state, file)
        except RuntimeError as error:  # torch hides the error of the file system
            raise InputError(
                f"{output}: cannot be written ({error.__context__ or error}); is the disk full?"
            ) from error


def _sum(paths: Sequence[Path]) -> Tuple[Dict[str, Any], Dict[str, torch.Tensor]]:
    """Return the newest checkpoint, its model replaced by ``dtypes``, and the sum of each parameter in float32.

    Only one checkpoint's parameters are in memory at a time, besides the sums.
    """
    sums: Dict[str, torch.Tensor] = {}
    newest: Dict[str, Any] = {}
    seen: Dict[int, Path] = {}
    for path in paths:
        state = load(path)
        if is_average(state):
            raise InputError(f"{path} is an average already; average the checkpoints it was made from")
        updates = updates_of(state)
        if updates and updates in seen:
            raise InputError(f"{path} and {seen[updates]} hold the same update {updates}; give each state once")
        seen[updates] = path
        model = state.pop("model")
        if newest:
            _refuse_mixed(path, paths[0], state, newest, model, sums)
        for key, value in model.items():
            if value.is_floating_point():
                value = value.to(torch.promote_types(value.dtype, torch.float32))
                sums[key] = sums[key] + value if key in sums else value.clone()
            else:
                sums.setdefault(key, value)
        if not newest or updates > updates_of(newest):
            newest = {**state, "dtypes": {key: value.dtype for key, value in model.items()}}
    return newest, sums


def _refuse_mixed(
    path: Path,
    first: Path,
    state: Dict[str, Any],
    newest: Dict[str, Any],
    model: Dict[str, torch.Tensor],
    sums: Dict[str, torch.Tensor],
) -> None:
    """Raise unless a checkpoint has the same parameters, shapes, configuration and seed as the others."""
    shapes = {key: tuple(value.shape) for key, value in model.items()}
    expected = {key: tuple(value.shape) for key, value in sums.items()}
    if shapes != expected:
        different = sorted(k for k in shapes.keys() | expected.keys() if shapes.get(k) != expected.get(k))
        raise InputError(f"{path} and {first} are of different models: they differ in {different[0]}")
    for node in ("model", "task"):
        if _settings(state, node) != _settings(newest, node):
            raise InputError(f"{path} and {first} have different {node} configurations; average one run at a time")
    if _seed(state) != _seed(newest):
        raise InputError(f"{path} and {first} were trained with different seeds; average one run at a time")


def _settings(state: Dict[str, Any], node: str) -> Dict[str, Any]:
    """Return a part of a checkpoint's configuration, without options that may change when a run is resumed.

    The identity of the data, if it is recorded, is compared in place of their folder.
    """
    found = dict((state.get("cfg") or {}).get(node) or {})
    identity = (state.get("task_state") or {}).get(TASK_STATE)
    if "data" in found and identity:
        found["data"] = identity
    of_process = ("update_freq", "rela_backend")
    return {key: value for key, value in found.items() if key not in of_process and not key.startswith("eval_")}


def _seed(state: Dict[str, Any]) -> Any:
    return ((state.get("cfg") or {}).get("common") or {}).get("seed")
