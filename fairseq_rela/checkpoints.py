"""Checkpoints: loaded as data only, chosen by the update numbers inside them, averaged in float32."""

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

# checkpoint_3_500.pt and checkpoint3.pt and checkpoint_last.pt; not the best ones, nor what averaging wrote
_NAMES = re.compile(r"checkpoint(?:_\d+_\d+|\d+|_last)\.pt")


class Found(NamedTuple):
    """A checkpoint of a run: its file, and how many updates had been made."""

    path: Path
    updates: int


def load(path: Path) -> Dict[str, Any]:
    """A checkpoint of fairseq, as data: a pickle that would run code is refused and nothing of it runs.

    Raises:
        InputError: no such file, a torn or foreign one, or one that holds more than data.
    """
    try:
        state = _load_data_only(path)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such checkpoint") from error
    except pickle.UnpicklingError as error:
        hostile = "Unsupported" in str(error) or "weights_only" in str(error).lower()
        if hostile and _is_archive_or_pickle(path):  # not so a text, which torch takes for instructions of a pickle
            raise InputError(f"{path}: holds more than data, and could run code when loaded: refused") from error
        raise InputError(f"{path}: not a checkpoint, or a torn one; use another") from error
    except Exception as error:  # torch's unpickler reads any bytes as instructions, and stumbles over them in any way
        raise InputError(f"{path}: not a checkpoint, or a torn one; use another") from error
    if isinstance(state, dict) and OmegaConf.is_config(state.get("cfg")):
        state["cfg"] = OmegaConf.to_container(state["cfg"], enum_to_str=True)  # of fairseq before 0.12
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


# What checkpoints of fairseq hold beside tensors, by the name in the file: arguments, and of versions before 0.12 the
# configuration as an object of omegaconf. All of them hold data, and run nothing when they are made or filled.
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
    """What is made of an array of NumPy in a checkpoint, as fairseq's meters of BLEU hold: one of numbers.

    NumPy itself trusts what a pickle says of the type of an array, which can make objects of any bytes.
    """

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, data = state
        if not isinstance(dtype, _NumberType):
            raise pickle.UnpicklingError(f"Unsupported array of {type(dtype).__name__}")
        super().__setstate__((1, shape, dtype.made(), fortran, data))

    def __reduce__(self) -> Any:
        return self.view(numpy.ndarray).__reduce__()  # written again, it is NumPy's


class _NumberType:
    """What is made of a ``numpy.dtype`` in a checkpoint: the name of a type of numbers, and their byte order."""

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


for module in ("numpy.core.multiarray", "numpy._core.multiarray"):  # before NumPy 2, and since
    DATA_CLASSES[f"{module}._reconstruct"] = _new_array
    DATA_CLASSES[f"{module}.scalar"] = _new_number
DATA_CLASSES["numpy.ndarray"] = DATA_CLASSES[f"{__name__}._Array"] = _Array
DATA_CLASSES["numpy.dtype"] = _NumberType


def allow_data_classes() -> None:
    """From torch 2.6 on, which loads nothing but tensors by itself; also in fairseq's own commands."""
    torch.serialization.add_safe_globals([(cls, name) for name, cls in DATA_CLASSES.items()])


def _load_data_only(path: Path) -> Any:
    if hasattr(torch.serialization, "safe_globals"):
        # a context would take the names away again at its end, also those that fairseq's own loading goes on needing
        allow_data_classes()
        return torch.load(path, map_location="cpu", weights_only=True)
    return torch.load(path, map_location="cpu", pickle_module=_DataOnlyPickle)


class _DataOnlyPickle:
    """For versions of torch without weights-only loading: a ``pickle`` that finds no classes but those of data."""

    load = staticmethod(lambda file, **options: _DataOnlyPickle.Unpickler(file, **options).load())

    class Unpickler(pickle.Unpickler):
        _ALLOWED = re.compile(
            r"collections\.OrderedDict|_codecs\.encode|torch\.(Size|device|dtype|\w+Storage)"
            r"|torch\._utils\._rebuild_(tensor_v2|parameter)|torch\.storage\._?\w+Storage"
        )

        def find_class(self, module: str, name: str) -> Any:
            # torch writes the names that Python 2 had
            module, name = _compat_pickle.NAME_MAPPING.get((module, name), (module, name))
            module = _compat_pickle.IMPORT_MAPPING.get(module, module)
            if f"{module}.{name}" in DATA_CLASSES:
                return DATA_CLASSES[f"{module}.{name}"]
            if not self._ALLOWED.fullmatch(f"{module}.{name}"):
                raise pickle.UnpicklingError(f"Unsupported global: {module}.{name}")
            return super().find_class(module, name)


def updates_of(state: Dict[str, Any]) -> int:
    """How many updates had been made, 0 where the checkpoint does not say."""
    history = state.get("optimizer_history") or [{}]
    return int(history[-1].get("num_updates", 0))


def is_average(state: Dict[str, Any]) -> bool:
    return "averaged_from" in (state.get("extra_state") or {})


def find(folder: Path) -> List[Found]:
    """The states of a run, newest first, one for each number of updates.

    fairseq writes no ``checkpoint_EPOCH_UPDATES.pt`` where an epoch ends; ``checkpointEPOCH.pt`` or
    ``checkpoint_last.pt`` then holds that state. Names are not trusted: the number inside the file counts.

    Raises:
        InputError: no checkpoint there, or one that cannot be loaded.
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
    """The newest state that loads, or None; files that do not load are passed over."""
    good = []
    for path in sorted(folder.glob("checkpoint*.pt")) if folder.is_dir() else ():
        if _NAMES.fullmatch(path.name):
            try:
                good.append(Found(path, updates_of(load(path))))
            except InputError:
                continue
    # checkpoint_last.pt is fairseq's own choice where it is as new as any
    return max(good, key=lambda f: (f.updates, f.path.name == "checkpoint_last.pt"), default=None)


class Choice(NamedTuple):
    """The last states of a run.

    Attributes:
        chosen: newest first.
        interval: updates between checkpoints, as the run was configured; 0 where it saved by epoch.
        missing: updates at which a checkpoint should be and is not.
    """

    chosen: List[Found]
    interval: int
    missing: List[int]


def choose_last(folder: Path, number: int) -> Choice:
    """The last ``number`` states: the final one, and those before it at the run's save interval.

    Raises:
        InputError: fewer are there.
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

    The result keeps the configuration of the newest input and the precision of the parameters. It has no
    optimizer state, and says from what it was made, so that it is not averaged again.

    Raises:
        InputError: repeated files, files of different models, averages, or as :func:`load`.
    """
    from .data.lines import write_whole

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
        except RuntimeError as error:  # torch's own, in the place of what the disk said
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
    """Only states of one model can be averaged: same parameters, same shapes, same configuration."""
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
