"""Arguments that several verbs share: declarations of options, types of values, and a lock of the output."""

import argparse
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ContextManager, Dict, List, Optional

Parser = argparse.ArgumentParser
Options = argparse.Namespace


def positive(text: str) -> int:
    """Return an argument as a whole number of at least 1.

    Raises:
        argparse.ArgumentTypeError: it is not one.
    """
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: give a number of at least 1")
    return int(text)


def indices(text: str) -> List[int]:
    """Return an argument such as ``3,17`` as different numbers from 0, in the given order.

    Raises:
        argparse.ArgumentTypeError: a part is not a number.
    """
    numbers = [part.strip() for part in text.split(",")]
    if not all(number.isascii() and number.isdecimal() for number in numbers):
        raise argparse.ArgumentTypeError(f"{text}: give numbers from 0 with commas between, such as 3,17")
    return list(dict.fromkeys(map(int, numbers)))


_SHARED: Dict[str, Dict[str, Any]] = {
    "task": {"help": "a task of configs/"},
    "checkpoint": {"type": Path, "help": "a model of this plugin or of fairseq's transformer"},
    "--data": {"type": Path, "required": True, "help": "data folder, of `rela prepare` or fairseq-preprocess"},
    "--subset": {"default": "test", "help": "subset of the data folder"},
    "--device": {"choices": ("cpu", "cuda"), "help": "where to run"},
    "--seed": {"type": int, "default": 1},
    "--root": {"type": Path, "default": Path("experiments"), "help": "folder for data and runs"},
    "--choose": {
        **{"action": "append", "default": [], "metavar": "KEY=VALUE"},
        "help": "other data where the task offers a choice, such as train=stanford; may be repeated",
    },
    "--offline": {"type": Path, "metavar": "FOLDER", "help": "download nothing; the archives are in this folder"},
    "--workers": {"type": positive, "help": "number of worker processes (default: all cores)"},
    "--moses": {
        **{"type": Path, "metavar": "FOLDER"},
        "help": "a checkout of Moses, whose scripts then normalise and tokenise",
    },
    "--override": {
        **{"action": "append", "default": [], "metavar": "KEY=VALUE"},
        "help": "override of the Hydra configuration, such as optimization.max_epoch=3; may be repeated",
    },
    "--source": {"type": Path, "help": "source text, raw or tokenised"},
    "--target": {"type": Path, "help": "its translation, line by line"},
    "--tokenised": {"action": "store_true", "help": "the text is tokenised like the data folder's: only apply BPE"},
}


def add_shared(parser: Parser, *names: str, **changes: Any) -> None:
    """Add options that several verbs have; ``changes`` replace entries of their declaration."""
    for name in names:
        parser.add_argument(name, **{**_SHARED[name], **changes})


def values(options: Options, *names: str) -> Dict[str, Any]:
    """Return options of the command line as keyword arguments."""
    return {name: getattr(options, name) for name in names}


def given(options: Options, *names: str) -> Dict[str, Any]:
    """Return the options that were given on the command line among ``names``, as keyword arguments."""
    return {name: value for name, value in values(options, *names).items() if value is not None}


def flag(name: str) -> str:
    """Return the option for a name, such as ``--max-tokens`` for ``max_tokens``."""
    return f"--{name.replace('_', '-')}"


def locked(output: Optional[Path]) -> ContextManager[None]:
    """Return a context manager that locks an output against other processes; for None it does nothing."""
    if output is None or not output.name:
        return nullcontext()
    from ..files.locks import only_process

    return only_process(output, "written")
