"""Run fairseq's own commands: print the exact command line, keep the output in a log, report a failure."""

import os
import re
import shlex
import subprocess
import sys
from collections import deque
from functools import partial
from pathlib import Path
from typing import IO, Callable, Deque, Iterable, List, Optional, Sequence

from ..errors import InputError
from .workers import die_with_parent


def fairseq_command(module: str, arguments: Sequence[object]) -> List[str]:
    """Return the command that runs ``fairseq_cli.<module>`` with the current Python, independent of PATH."""
    return [sys.executable, "-m", f"fairseq_cli.{module}", *map(str, arguments)]


def shell_command(module: str, arguments: Sequence[object]) -> str:
    """Return a fairseq command as a user would type it in a shell, such as ``fairseq-train data``."""
    return " ".join(["fairseq-" + module.replace("_", "-"), *(shlex.quote(str(a)) for a in arguments)])


def refuse_misread(path: Path) -> None:
    """Raise if fairseq would misread a path.

    Raises:
        InputError: the path has a colon, at which fairseq splits paths, or ``${``, which starts a variable.
    """
    if ":" in str(path):
        raise InputError(f"{path}: fairseq splits paths at a colon; use a path without one")
    if "${" in str(path):
        raise InputError(f"{path}: fairseq's configurations have variables in ${{}}; use a path without them")


def run_fairseq(
    module: str,
    arguments: Sequence[object],
    log: Path,
    shorten: Callable[[str], Optional[str]] = lambda line: None,
    append: bool = False,
) -> None:
    """Run a fairseq command and return when it has ended.

    Args:
        module: a module of ``fairseq_cli``: ``train``, ``hydra_train``, ``generate``, ``preprocess`` ...
        arguments: the arguments of the command.
        log: the file to which the command and its whole output are written.
        shorten: function that takes an output line and returns the text to print for it, or None for no text.
        append: keep what the log has, of a command that this one continues.

    Raises:
        InputError: the command failed, fairseq would misread a path, or the log cannot be written. For a failed
            command the message has its last error and the path of the log.
    """
    for argument in arguments:
        if isinstance(argument, Path):
            refuse_misread(argument)
    print(f"$ {shell_command(module, arguments)}", flush=True)
    last: Deque[str] = deque(maxlen=20)
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "a" if append else "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"$ {shell_command(module, arguments)}\n")
            code = _run(fairseq_command(module, arguments), file, last, shorten)
    except BrokenPipeError:
        raise  # the reader of standard output has gone; the log is not the problem
    except OSError as error:
        raise InputError(f"{log}: cannot be written ({error.strerror or error})") from error
    if code != 0:
        raise InputError(
            f"fairseq-{module.replace('_', '-')} failed with exit code {code}: {_last_words(last)} (log: {log})"
        )


def _run(command: Sequence[str], log: IO[str], last: Deque[str], shorten: Callable[[str], Optional[str]]) -> int:
    """Run a command and return its exit code; write its output to ``log`` and append its lines to ``last``."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        # without this variable Hydra hides the true error
        env=dict(os.environ, HYDRA_FULL_ERROR="1", PYTHONUNBUFFERED="1"),
        preexec_fn=partial(die_with_parent, os.getpid()),
        encoding="utf-8",
        errors="replace",
    )
    assert process.stdout is not None  # for mypy
    try:
        for line in process.stdout:
            log.write(line)
            log.flush()
            last.append(line.rstrip())
            short = shorten(line)
            if short is not None:
                print(short, flush=True)
    finally:
        if sys.exc_info()[0] is not None:
            process.kill()
        code = process.wait()
    return code


_EXCEPTION = re.compile(r"(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt): ")


def _last_words(lines: Iterable[str]) -> str:
    """Return the last exception in a process's output, all lines of it, or the last line if there is none."""
    words: List[str] = []
    for line in lines:
        if _EXCEPTION.match(line) or not words or not _EXCEPTION.match(words[0]):
            words = []
        if line.strip() and not line.lstrip().startswith(("Traceback", "File ", "During handling")):
            words.append(line.strip())
    return "; ".join(words)[:500] or "no output"
