"""Load fairseq checkpoints as data: no code from the file runs."""

import _compat_pickle
import argparse
import pickle
import re
from collections import defaultdict
from pathlib import Path
from typing import Any, Dict

import numpy
import torch
from omegaconf import AnyNode, BooleanNode, DictConfig, FloatNode, IntegerNode, ListConfig, OmegaConf, StringNode
from omegaconf.base import ContainerMetadata, Metadata

from .errors import InputError


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
        raise InputError(f"{path}: not a checkpoint, or a damaged one; use another") from error
    except Exception as error:  # torch's unpickler reads any bytes as opcodes and can fail in any way
        raise InputError(f"{path}: not a checkpoint, or a damaged one; use another") from error
    if isinstance(state, dict) and OmegaConf.is_config(state.get("cfg")):
        state["cfg"] = OmegaConf.to_container(state["cfg"], enum_to_str=True)  # fairseq before 0.12
    if not isinstance(state, dict) or not _is_checkpoint(state):
        raise InputError(f"{path}: not a checkpoint of fairseq, which holds a model and its configuration; use another")
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
    """Return the content of a file, with torch's own safe loading if this version of torch has it."""
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
