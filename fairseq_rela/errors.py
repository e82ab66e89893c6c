"""The one exception for what a person can mend: a wrong option, file or line."""

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator


class InputError(ValueError):
    """Input that cannot be used.

    The message is one line: the file, line or option, what is wrong with it, and what to do.
    Commands print it and end with exit code 2; a traceback would only hide it.
    """


@contextmanager
def one_line_in_fairseq() -> Iterator[None]:
    """In a command of fairseq, which would bury it in a traceback, an InputError ends the process with its line.

    In Python, as by the hub interface, it stays what it is.
    """
    try:
        yield
    except InputError as error:
        command = Path(sys.argv[0])
        if command.parent.name != "fairseq_cli" and not command.name.startswith("fairseq-"):
            raise
        print(f"fairseq_rela: error: {error}", file=sys.stderr)
        raise SystemExit(2) from error
