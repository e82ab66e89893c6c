"""The exception for errors that the user can fix: a wrong option, file or line."""

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator


class InputError(ValueError):
    """Raised for input that cannot be used.

    The message is one line: the file, line or option, what is wrong with it, and what to do.
    Commands print it without a traceback and exit with code 2.
    """


@contextmanager
def one_line_in_fairseq() -> Iterator[None]:
    """Turn an InputError in a fairseq command into one line on standard error and exit code 2.

    fairseq's commands would print a traceback. In any other program, such as one that uses the hub interface, the
    exception is raised unchanged.
    """
    try:
        yield
    except InputError as error:
        command = Path(sys.argv[0])
        if command.parent.name != "fairseq_cli" and not command.name.startswith("fairseq-"):
            raise
        print(f"fairseq_rela: error: {error}", file=sys.stderr)
        raise SystemExit(2) from error
