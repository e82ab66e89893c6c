"""Running fairseq's own commands: the exact command line is shown, its output kept, its failure reported."""

import logging
import os
import re
import shlex
import subprocess
import sys
import warnings
from collections import deque
from functools import partial
from pathlib import Path
from typing import IO, Callable, Deque, Iterable, List, Optional, Sequence

from .data.workers import die_with_parent
from .errors import InputError

USER_DIR = Path(__file__).resolve().parent


def load_plugin() -> None:
    """Import fairseq and register the plugin, without what fairseq and the plugin say of their commands.

    Raises:
        ImportError: fairseq is missing or broken.
    """
    for name in ("fairseq", "fairseq_rela.compat"):
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.getLogger("fairseq_rela.models").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*pin_memory")
    from . import register

    register()


def fairseq_command(module: str, arguments: Sequence[object]) -> List[str]:
    """``fairseq_cli.<module>`` by this very Python, whatever is on PATH."""
    return [sys.executable, "-m", f"fairseq_cli.{module}", *map(str, arguments)]


def shown(module: str, arguments: Sequence[object]) -> str:
    """The same command as a person would type it."""
    return " ".join(["fairseq-" + module.replace("_", "-"), *(shlex.quote(str(a)) for a in arguments)])


def refuse_misread(path: Path) -> None:
    """
    Raises:
        InputError: a path that fairseq would take for several, or for one with a variable in it.
    """
    if ":" in str(path):
        raise InputError(f"{path}: fairseq splits paths at a colon; use a path without one")
    if "${" in str(path):
        raise InputError(f"{path}: fairseq's configurations have variables in ${{}}; use a path without them")


def run_fairseq(
    module: str, arguments: Sequence[object], log: Path, shorten: Callable[[str], Optional[str]] = lambda line: None
) -> None:
    """Run a fairseq command to its end.

    Args:
        module: a module of ``fairseq_cli``: ``train``, ``hydra_train``, ``generate``, ``preprocess`` ...
        arguments: its command line.
        log: takes the command and all it prints.
        shorten: what to print of a line of its output as well, or None.

    Raises:
        InputError: it failed; the line names its last words and the log.
    """
    for argument in arguments:
        if isinstance(argument, Path):
            refuse_misread(argument)
    print(f"$ {shown(module, arguments)}", flush=True)
    last: Deque[str] = deque(maxlen=20)
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"$ {shown(module, arguments)}\n")
            code = _run(fairseq_command(module, arguments), file, last, shorten)
    except BrokenPipeError:
        raise  # nobody reads what is printed any more; the log is well
    except OSError as error:
        raise InputError(f"{log}: cannot be written ({error.strerror or error})") from error
    if code != 0:
        raise InputError(
            f"fairseq-{module.replace('_', '-')} failed with exit code {code}: {_last_words(last)} (log: {log})"
        )


def _run(command: Sequence[str], log: IO[str], last: Deque[str], shorten: Callable[[str], Optional[str]]) -> int:
    """The exit code; what the command prints goes to ``log``, its last lines to ``last``."""
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
    assert process.stdout is not None  # a pipe, see above
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
    """The exception that ended a process, which may go on for lines, or the last line of what it printed."""
    words: List[str] = []
    for line in lines:
        if _EXCEPTION.match(line) or not words or not _EXCEPTION.match(words[0]):
            words = []
        if line.strip() and not line.lstrip().startswith(("Traceback", "File ", "During handling")):
            words.append(line.strip())
    return "; ".join(words)[:500] or "no output"
