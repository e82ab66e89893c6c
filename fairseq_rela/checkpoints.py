"""Load checkpoints as data only, choose them by the update numbers inside them, average them in float32."""

import _compat_pickle
import argparse
import pickle
import re
from collections import defaultdict
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import numpy
import torch
from omegaconf import AnyNode, BooleanNode, DictConfig, FloatNode, IntegerNode, ListConfig, OmegaConf, StringNode
from omegaconf.base import ContainerMetadata, Metadata

from .errors import InputError

# checkpoint_3_500.pt, checkpoint3.pt and checkpoint_last.pt; not checkpoint_best.pt and not averages
_NAMES = re.compile(r"checkpoint(?:_\d+_\d+|\d+|_last)\.pt")


class Found(NamedTuple):
    """A checkpoint of a run: its file and its number of updates."""

    path: Path
    updates: int


def load(path: Path) -> Dict[str, Any]:
    """Return the content of a fairseq checkpoint without running any code from the file.

    Raises:
        InputError: the file is missing, damaged, not a fairseq checkpoint, or holds more than data.
    """
    try:
        state = _load_data_only(path)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such checkpoint") from error
    except pickle.UnpicklingError as error:
        hostile = "Unsupported" in str(error) or "weights_only" in str(error).lower()
        if hostile and _is_archive_or_pickle(path):  # torch reads a text file as pickle opcodes
            raise InputError(f"{path}: holds more than data, and could run code when loaded: refused") from error
        raise InputError(f"{path}: not a checkpoint, or a torn one; use another") from error
    except Exception as error:  # torch's unpickler reads any bytes as opcodes and can fail in any way
        raise InputError(f"{path}: not a checkpoint, or a torn one; use another") from error
    if isinstance(state, dict) and OmegaConf.is_config(state.get("cfg")):
        state["cfg"] = OmegaConf.to_container(state["cfg"], enum_to_str=True)  # fairseq before 0.12
    if not isinstance(state, dict) or not _is_checkpoint(state):
        raise InputError(f"{path}: not a checkpoint of fairseq, which holds a model and how it was trained")
    return state


def _is_archive_or_pickle(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(4).startswith((b"PK", b"\x80"))


def _is_checkpoint(state: Dict[str, Any]) -> bool:
    model, history = state.get("model"), state.get("optimizer_history", [])
    return (
        isinstance(model, dict)
        and len(model) > 0
        and all(isinstance(value, torch.Tensor) for value in model.values())
        and isinstance(history, list)
        and all(isinstance(entry, dict) for entry in history)
        and any(isinstance(state.get(key), (dict, argparse.Namespace)) for key in ("cfg", "args"))
    )


# The classes that fairseq checkpoints hold besides tensors, by their name in the file: command-line arguments and, in
# fairseq before 0.12, an omegaconf configuration. They hold data only; creating or filling them runs no code.
DATA_CLASSES: Dict[str, Any] = {
    f"{cls.__module__}.{cls.__qualname__}": cls
    for cls in (
        *(argparse.Namespace, DictConfig, ListConfig, ContainerMetadata, Metadata, defaultdict),
        *(AnyNode, StringNode, IntegerNode, FloatNode, BooleanNode),
        *(dict, list, tuple, str, bytes, int, float, bool),
    )
}
DATA_CLASSES["typing.Any"] = Any


class _Array(numpy.ndarray):
    """Replacement for a NumPy array in a checkpoint that allows numbers only; fairseq's BLEU meters hold such arrays.

    NumPy itself accepts any dtype that a pickle names, also object, which turns arbitrary bytes into Python objects.
    """

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, data = state
        if not isinstance(dtype, _NumberType):
            raise pickle.UnpicklingError(f"Unsupported array of {type(dtype).__name__}")
        super().__setstate__((1, shape, dtype.made(), fortran, data))

    def __reduce__(self) -> Any:
        return self.view(numpy.ndarray).__reduce__()  # pickled again, it is a plain NumPy array


class _NumberType:
    """Replacement for a ``numpy.dtype`` in a checkpoint: the name of a numeric type and its byte order."""

    def __init__(self, name: str, *_: Any) -> None:
        if not isinstance(name, str) or not re.fullmatch(r"b1|[iu][1248]|f[248]", name):
            raise pickle.UnpicklingError(f"Unsupported dtype {name!r}")
        self.name, self.order = name, "="

    def __setstate__(self, state: Any) -> None:
        if state[1] not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError(f"Unsupported byte order {state[1]!r}")
        self.order = state[1]

    def made(self) -> "numpy.dtype[Any]":
        return numpy.dtype(self.order + self.name)


def _new_array(*_: Any) -> _Array:
    return numpy.ndarray.__new__(_Array, (0,), "b")


def _new_number(dtype: _NumberType, data: Any) -> Any:
    return numpy.frombuffer(data if isinstance(data, bytes) else data.encode("latin-1"), dtype.made(), 1)[0]


for module in ("numpy.core.multiarray", "numpy._core.multiarray"):  # before NumPy 2, and from NumPy 2 on
    DATA_CLASSES[f"{module}._reconstruct"] = _new_array
    DATA_CLASSES[f"{module}.scalar"] = _new_number
DATA_CLASSES["numpy.ndarray"] = DATA_CLASSES[f"{__name__}._Array"] = _Array
DATA_CLASSES["numpy.dtype"] = _NumberType


def allow_data_classes() -> None:
    """Register :data:`DATA_CLASSES` as safe to load; from 2.6 on, ``torch.load`` by default loads tensors only.

    The registration holds for the whole process, and so for the checkpoints that fairseq itself loads.
    """
    torch.serialization.add_safe_globals([(cls, name) for name, cls in DATA_CLASSES.items()])


def _load_data_only(path: Path) -> Any:
    if hasattr(torch.serialization, "safe_globals"):
        # not the context manager safe_globals: at its end it removes names that fairseq's own loading still needs
        allow_data_classes()
        return torch.load(path, map_location="cpu", weights_only=True)
    return torch.load(path, map_location="cpu", pickle_module=_DataOnlyPickle)


class _DataOnlyPickle:
    """A ``pickle`` module that finds data classes only, for torch without ``safe_globals``."""

    load = staticmethod(lambda file, **options: _DataOnlyPickle.Unpickler(file, **options).load())

    class Unpickler(pickle.Unpickler):
        _ALLOWED = re.compile(
            r"collections\.OrderedDict|_codecs\.encode|torch\.(Size|device|dtype|\w+Storage)"
            r"|torch\._utils\._rebuild_(tensor_v2|parameter)|torch\.storage\._?\w+Storage"
        )

        def find_class(self, module: str, name: str) -> Any:
            # torch pickles with the module names of Python 2
            module, name = _compat_pickle.NAME_MAPPING.get((module, name), (module, name))
            module = _compat_pickle.IMPORT_MAPPING.get(module, module)
            if f"{module}.{name}" in DATA_CLASSES:
                return DATA_CLASSES[f"{module}.{name}"]
            if not self._ALLOWED.fullmatch(f"{module}.{name}"):
                raise pickle.UnpicklingError(f"Unsupported global: {module}.{name}")
            return super().find_class(module, name)


def updates_of(state: Dict[str, Any]) -> int:
    """Return the number of updates of a checkpoint, or 0 if it is not recorded."""
    history = state.get("optimizer_history") or [{}]
    return int(history[-1].get("num_updates", 0))


def is_average(state: Dict[str, Any]) -> bool:
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
    if number < 1:
        raise InputError(f"--last {number}: give a number of at least 1")
    found = find(folder)
    config = load(found[0].path).get("cfg") or {}
    interval = int((config.get("checkpoint") or {}).get("save_interval_updates") or 0)
    regular = [f for f in found if interval == 0 or f.updates % interval == 0 or f is found[0]]
    if len(regular) < number:
        raise InputError(
            f"{folder}: {number} checkpoints are wanted, {len(regular)} are there (updates "
            f"{', '.join(str(f.updates) for f in regular)}"
            + (f"; {len(found) - len(regular)} between saves at {interval}" if len(found) > len(regular) else "")
            + "); train longer, give a smaller --last, or name files by --inputs"
        )
    chosen = regular[:number]
    missing: List[int] = []
    if interval:
        span = range(chosen[-1].updates, chosen[0].updates, interval)
        missing = sorted(set(span) - {f.updates for f in chosen})
    return Choice(chosen, interval, missing)


def average(paths: Sequence[Path], output: Path) -> None:
    r"""Write the mean of the parameters, :math:`\bar\theta = \frac1N \sum_i \theta_i`, summed in float32.

    The output has the configuration and the parameter dtypes of the newest input and no optimizer state. It lists
    its inputs in ``extra_state``, so that an average is never averaged again.

    Raises:
        InputError: an input is repeated, an average, of another model or not loadable, or the output is invalid.
    """
    from .files.outputs import write_whole

    if not paths:
        raise InputError("no checkpoints to average")
    if _NAMES.fullmatch(output.name) or output.resolve() in [Path(path).resolve() for path in paths]:
        raise InputError(f"{output}: an average must not take the place of a checkpoint; give another --output")
    _refuse_repeated([Path(path).resolve() for path in paths])
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
            newest = state
            newest["dtypes"] = {key: value.dtype for key, value in model.items()}
    dtypes = newest["dtypes"]
    mean = {
        key: (value / len(paths)).to(dtypes[key]) if value.is_floating_point() else value for key, value in sums.items()
    }
    averaged = {
        "args": newest.get("args"),
        "cfg": newest.get("cfg"),
        "model": mean,
        "criterion": None,
        "optimizer_history": newest.get("optimizer_history", [])[-1:],
        "task_state": newest.get("task_state", {}),
        "extra_state": {
            "train_iterator": {"epoch": 1, "iterations_in_epoch": 0, "shuffle": True},
            "averaged_from": [str(path) for path in paths],
        },
    }
    with write_whole(output, "wb") as file:
        try:
            torch.save(averaged, file)
        except RuntimeError as error:  # torch hides the error of the file system
            raise InputError(
                f"{output}: cannot be written ({error.__context__ or error}); is the disk full?"
            ) from error


def _refuse_repeated(paths: List[Path]) -> None:
    for path in paths:
        if paths.count(path) > 1:
            raise InputError(f"{path} is given {paths.count(path)} times; give each checkpoint once")


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
        if (state.get("cfg") or {}).get(node) != (newest.get("cfg") or {}).get(node):
            raise InputError(f"{path} and {first} have different {node} configurations; average one run at a time")
    if _seed(state) != _seed(newest):
        raise InputError(f"{path} and {first} were trained with different seeds; average one run at a time")


def _seed(state: Dict[str, Any]) -> Any:
    return ((state.get("cfg") or {}).get("common") or {}).get("seed")
