"""The parser of ``rela VERB ...`` and the entry point that runs a verb."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

from ..errors import InputError
from ..user_dir import VARIABLE, load_user_code
from . import alignment, analysis, bench, data, experiments, pruning, ranking, training, translation
from .arguments import Options, Parser

# a verb to the function that adds its options and the one that does its work, whose docstring is the verb's help;
# both import what they need, so that `rela --help` is fast
Verb = Tuple[Callable[[Parser], None], Callable[[Options], None]]
VERBS: Dict[str, Verb] = {
    **{**experiments.VERBS, **data.VERBS, **training.VERBS, **translation.VERBS},
    **{**analysis.VERBS, **alignment.VERBS, **ranking.VERBS, **pruning.VERBS, **bench.VERBS},
}


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run one verb and return its exit code: 0, 2 for an error (one line on standard error), 130 if interrupted."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    if options.verb is None:
        parser.print_help()
        return 0
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a path that the terminal cannot encode must not end a run
            stream.reconfigure(errors="backslashreplace")
    if options.user_dir is not None:
        os.environ[VARIABLE] = str(options.user_dir.resolve())
    try:
        load_user_code()
        options.run(options)
        print(end="", flush=True)
    except (InputError, ImportError) as error:
        print(f"rela {options.verb}: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a full or read-only disk, or a folder without write permission
        where = f"{error.filename}: " if error.filename else ""
        reason = error.strerror or str(error)
        print(f"rela {options.verb}: error: {where}{reason}; fix this and rerun the same command", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"rela {options.verb}: interrupted; rerun the same command to continue", file=sys.stderr)
        return 130
    return 0


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``rela``, with a subparser for each verb."""
    parser = _Parser(prog="rela", description="Rectified linear attention for fairseq: from raw text to score.")
    parser.add_argument(
        "--user-dir", type=Path, metavar="FOLDER", help="a folder that registers an attention of your own"
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=_VerbParser)
    for name, verb in VERBS.items():
        text = verb[1].__doc__
        verbs.add_parser(name, help=text, description=text, formatter_class=_Formatter).verb = verb
    return parser


class _Formatter(argparse.HelpFormatter):
    def _get_help_string(self, action: argparse.Action) -> Optional[str]:
        """Return the help of an option with its default, if it has one."""
        none = action.default is None or action.default is False or action.default in ([], argparse.SUPPRESS)
        return action.help if none else f"{action.help} (default: %(default)s)"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        """Exit with code 2 and one line on standard error; argparse would print the whole usage before it."""
        self.exit(2, f"{self.prog}: error: {message}; see {self.prog} --help\n")


class _VerbParser(_Parser):
    """The parser of a verb, whose positional arguments may be anywhere, also between and after options.

    It adds the options when it is first used, so that ``rela --help`` reads no defaults from ``configs/``.
    """

    verb: Optional[Verb] = None
    _within = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self._within:  # called by parse_known_intermixed_args
            return super().parse_known_args(args, namespace)
        if self.verb is not None:
            (add_options, run), self.verb = self.verb, None
            try:
                add_options(self)
            except InputError as error:
                self.exit(2, f"{self.prog}: error: {error}\n")
            self.set_defaults(run=run)
        self._within = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._within = False
