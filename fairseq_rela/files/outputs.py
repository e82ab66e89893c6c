"""Write files and folders that are complete or absent."""

import glob
import os
import re
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Iterable, Iterator

from ..errors import InputError
from .lines import PathLike
from .locks import only_process


@contextmanager
def write_whole(path: PathLike, mode: str = "w") -> Iterator[IO[Any]]:
    """Yield a temporary file beside ``path`` for writing; rename it to ``path`` when the block ends without error.

    Raises:
        InputError: ``path`` is a folder, or the file cannot be written.
    """
    path = Path(path)
    if not path.name or path.is_dir():
        raise InputError(f"{path}: a folder; give the name of a file to write")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    remove_half_written(path)
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(partial, mode, **text) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        if partial.exists():
            partial.unlink()


def remove_half_written(path: Path) -> None:
    """Remove temporary files for ``path`` that :func:`write_whole` left in processes that were killed."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.(\d+)\.partial")
    for file in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
        found = pattern.fullmatch(file.name)
        if found and not _is_alive(int(found[1])):
            file.unlink()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # the process of another user
        return True
    return True


def join_files(files: Iterable[Path], target: Path) -> None:
    """Append the bytes of files to ``target``."""
    with open(target, "ab") as writer:
        for file in files:
            with open(file, "rb") as reader:
                shutil.copyfileobj(reader, writer)
        os.fsync(writer.fileno())


def refuse_small_disk(folder: Path, needed: float) -> None:
    """Raise if a disk has less than ``needed`` bytes free.

    Args:
        folder: a folder on the disk, which may not exist yet.

    Raises:
        InputError: the disk is too small.
    """
    free = shutil.disk_usage(next(place for place in (folder, *folder.absolute().parents) if place.exists())).free
    if needed > free:
        sizes = f"{needed / 1e9:.2f} GB are needed and {free / 1e9:.2f} GB are free"
        raise InputError(f"{folder}: {sizes}; make room or use another disk")


def refuse_overwriting(inputs: Iterable[PathLike], outputs: Iterable[PathLike]) -> None:
    """Raise if an output would overwrite an input.

    Raises:
        InputError: a path is both an input and an output.
    """
    given = {Path(path).resolve() for path in inputs}
    for path in outputs:
        if Path(path).resolve() in given:
            raise InputError(f"--output: {path} is an input and would be overwritten; choose another name")


@contextmanager
def work_folder(output: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``output``, and rename it to ``output`` if the context ends without an error.

    The temporary folder of an interrupted run is removed first.

    Raises:
        InputError: the folder cannot be made, or another process is making it.
    """
    if not output.name:
        raise InputError(f"--output {output}: give the name of a folder to make")
    work = output.with_name(f".{output.name}.partial")
    with only_process(output):
        try:
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
        except OSError as error:
            raise InputError(f"{work}: cannot be made ({error.strerror or error})") from error
        try:
            yield work
            work.rename(output)
        finally:
            shutil.rmtree(work, ignore_errors=True)
