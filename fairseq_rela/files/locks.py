"""Lock a file or folder, so that one process at a time makes it."""

import logging
import os
import platform
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Iterator

from filelock import FileLock, Timeout

from ..errors import InputError

logging.getLogger("filelock").setLevel(logging.WARNING)  # importing fairseq turns on all debug messages


@contextmanager
def only_process(output: Path, doing: str = "made") -> Iterator[None]:
    """Lock a file or folder, so that only one process makes it at a time.

    The lock is the file ``.NAME.lock`` beside ``output``, which holds the name of its process and is removed in the
    end. If the process is killed, the file stays until the next process takes the lock.

    Args:
        output: the file or folder, which need not exist.
        doing: a participle for messages, such as "made" or "trained".

    Raises:
        InputError: another process holds the lock (the message names the process and what it does), or the lock
            cannot be made.
    """
    if not output.name:
        raise InputError(f"{output}: not the name of a file or folder that can be {doing}; give another")
    path = output.with_name(f".{output.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "ab+", buffering=0)  # noqa: SIM115 (closed below)
    except OSError as error:
        raise InputError(f"{output}: cannot be {doing} ({error.strerror or error})") from error
    with file:
        file.seek(0)
        holder = file.read(200)
        text = holder.decode(errors="replace").strip() or f"{doing} by another process"
        busy = InputError(f"{output} is being {text}; wait for it, or end it")
        try:
            lock = FileLock(path).acquire(blocking=False)
        except (Timeout, FileNotFoundError) as error:
            if not os.fstat(file.fileno()).st_size:  # filelock before 3.20 (Python 3.9) empties the file
                file.write(holder)
            raise busy from error
        except (OSError, NotImplementedError) as error:
            raise InputError(f"{output}: cannot be {doing}, because {path} cannot be locked ({error})") from error
        with lock:
            if not _is_at(path, file):  # the holder removed it after it was opened here; another process has the next
                raise busy
            try:
                with suppress(OSError):  # on a full disk the lock works, but names no process
                    file.truncate(0)
                    file.write(f"{doing} by another process, {os.getpid()} on {platform.node()}".encode())
                yield
            finally:
                path.unlink()


def _is_at(path: Path, file: IO[bytes]) -> bool:
    """Return whether an open file is the one that is found at ``path``."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
