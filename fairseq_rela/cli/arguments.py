"""What several verbs share: the noun :class:`Verb`, options that are declared once, types of arguments, and a lock."""

import argparse
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Callable, ContextManager, Dict, List, NamedTuple, Optional

Parser = argparse.ArgumentParser
Options = argparse.Namespace


class Verb(NamedTuple):
    """A verb of ``rela``.

    Functions of the verb import the modules that they need, so that ``rela --help`` is fast.

    Attributes:
        name: the word on the command line.
        summary: one line for the help.
        add_options: adds the options to the verb's parser.
        run: does the work with the parsed options.
    """

    name: str
    summary: str
    add_options: Callable[[Parser], None]
    run: Callable[[Options], None]


# --- types of arguments ---


def positive(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: give a number of at least 1")
    return int(text)


def indices(text: str) -> List[int]:
    numbers = [part.strip() for part in text.split(",")]
    if not all(number.isascii() and number.isdecimal() for number in numbers):
        raise argparse.ArgumentTypeError(f"{text}: give numbers from 0 with commas between, such as 3,17")
    return list(dict.fromkeys(map(int, numbers)))


# --- options ---


def task_argument(parser: Parser) -> None:
    parser.add_argument("task", help="a task of configs/")


def checkpoint_argument(parser: Parser) -> None:
    parser.add_argument("checkpoint", type=Path, help="a model of this plugin or of fairseq's transformer")


def subset_option(parser: Parser) -> None:
    parser.add_argument("--subset", default="test", help="subset of the data folder")


def device_option(parser: Parser, default: Optional[str]) -> None:
    shown = "where to run" if default else "where to run (default: cuda where there is one)"
    parser.add_argument("--device", choices=("cpu", "cuda"), default=default, help=shown)


def seed_option(parser: Parser, text: str) -> None:
    parser.add_argument("--seed", type=int, default=1, help=text)


def target_lang_option(parser: Parser, required: bool) -> None:
    parser.add_argument("-t", "--target-lang", required=required, help="target language code")


def root_option(parser: Parser) -> None:
    parser.add_argument("--root", type=Path, default=Path("experiments"), help="folder for data and runs")


def choose_option(parser: Parser) -> None:
    parser.add_argument(
        "--choose",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="other data where the task offers a choice, such as train=stanford; may be repeated",
    )


def offline_option(parser: Parser) -> None:
    parser.add_argument("--offline", type=Path, metavar="FOLDER", help="fetch nothing: the archives lie in this folder")


def workers_option(parser: Parser) -> None:
    parser.add_argument("--workers", type=positive, help="processes (default: all cores)")


def moses_option(parser: Parser) -> None:
    parser.add_argument(
        "--moses", type=Path, metavar="FOLDER", help="a checkout of Moses, whose scripts then normalise and tokenise"
    )


def override_option(parser: Parser) -> None:
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="of the Hydra configuration, such as optimization.max_epoch=3; may be repeated",
    )


def text_pair_options(parser: Parser, required: bool) -> None:
    instead = "" if required else " instead of a subset; words are those that its spaces separate"
    parser.add_argument("--source", type=Path, required=required, help="source text, raw or tokenised" + instead)
    parser.add_argument("--target", type=Path, required=required, help="its translation, line by line")
    parser.add_argument(
        "--tokenised", action="store_true", help="the text is tokenised as that of the data: apply BPE alone"
    )


def given(options: Options, *names: str) -> Dict[str, Any]:
    """Return the options of these names that were given on the command line."""
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


def flag(name: str) -> str:
    """Return an option as it stands on the command line, such as ``--max-tokens`` for ``max_tokens``."""
    return f"--{name.replace('_', '-')}"


# --- outputs ---


def holding(output: Optional[Path]) -> ContextManager[None]:
    """Return a context manager that locks an output against other processes; for None it does nothing."""
    if output is None or not output.name:
        return nullcontext()
    from ..files.locks import only_process

    return only_process(output, "written")
