"""Lock a file or folder, so that one process at a time makes it."""

import fcntl
import os
import platform
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Iterator

from ..errors import InputError


@contextmanager
def only_process(output: Path, doing: str = "made") -> Iterator[None]:
    """Lock a file or folder, so that only one process makes it at a time.

    Args:
        output: the file or folder, which need not exist.
        doing: a participle for messages, such as "made" or "trained".

    Raises:
        InputError: if another process holds the lock (the message names the process and what it does), or the lock
            cannot be made.
    """
    if not output.name:
        raise InputError(f"{output}: not a name that something can be {doing} under; give another")
    lock = output.with_name(f".{output.name}.lock")
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = open(lock, "a+")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise InputError(f"{output}: cannot be {doing} ({error.strerror or error})") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise _busy(output, doing, file) from error
        # between opening and locking, the previous holder may have removed the file and another process made a new one
        if not lock.exists() or not os.path.samestat(os.fstat(file.fileno()), lock.stat()):
            raise _busy(output, doing, file)
        try:
            with suppress(OSError):  # on a full disk the lock works, but names no process
                os.ftruncate(file.fileno(), 0)
                holder = f"{doing} by another process, {os.getpid()} on {platform.node()}"
                os.write(file.fileno(), holder.encode())
            yield
        finally:
            lock.unlink()


def _busy(output: Path, doing: str, lock: IO[str]) -> InputError:
    lock.seek(0)
    holder = lock.read(200).strip() or f"{doing} by another process"
    return InputError(f"{output} is being {holder}; wait for it, or end it")
