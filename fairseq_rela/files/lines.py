"""Read text files whose lines end only at LF."""

import gzip
import zlib
from contextlib import contextmanager
from itertools import count, islice, zip_longest
from pathlib import Path
from typing import IO, Any, Dict, Iterator, List, Optional, Tuple, Union

from ..errors import InputError

PathLike = Union[str, Path]


def read_lines(path: PathLike) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, plain or ``.gz``, without their LF.

    Only LF ends a line. Python's text mode also ends a line at CR, and ``str.splitlines`` at NEL, U+2028, VT, FF and
    others; one such character would shift one side of a parallel corpus against the other. A byte order mark at the
    start of the file is removed.

    Raises:
        InputError: the file is missing, the archive is damaged, or a line is not UTF-8; the message has its number.
    """
    number = 0
    try:
        for number, line in enumerate(read_byte_lines(path), 1):
            yield line.decode("utf-8" if number > 1 else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}, line {number}: not UTF-8 ({error.reason}); convert the file to UTF-8") from error


def read_both_sides(path: PathLike) -> Iterator[Tuple[str, str]]:
    """Yield source and target of each line ``source ||| target``; a side may be empty.

    Raises:
        InputError: as :func:`read_lines`, or a line has another form.
    """
    for number, line in enumerate(read_lines(path), 1):
        sides = f" {line} ".split(" ||| ")
        if len(sides) != 2:
            raise InputError(f'{path}, line {number}: not "source ||| target"; give one pair a line')
        yield sides[0].strip(), sides[1].strip()


def read_byte_lines(path: PathLike) -> Iterator[bytes]:
    """Yield the lines of a file, plain or ``.gz``, as bytes without their LF.

    Raises:
        InputError: the file is missing, or the archive is damaged.
    """
    with _open_bytes(path) as file:
        for line in file:
            yield line[:-1] if line.endswith(b"\n") else line


def count_lines(path: PathLike) -> int:
    """Return the number of lines that :func:`read_lines` yields; a last line without LF counts."""
    return sum(1 for _ in read_byte_lines(path))


class LineBlock:
    """A block of consecutive lines of a file, undecoded.

    A pickled block holds the position in the file instead of the content, and the process that unpickles it reads
    the lines from the file. Only a block without a position, such as one from an archive, is pickled with its content.

    Attributes:
        path: the file.
        start: index of the first line, from 0.
        offset: byte position of the content in the file; None if the file does not hold these bytes.
    """

    def __init__(self, path: PathLike, start: int, content: bytes, offset: Optional[int] = None) -> None:
        self.path = path
        self.start = start
        self.offset = offset
        self._content: Optional[bytes] = content
        self._bytes = len(content)
        self._lines = content.count(b"\n")

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_content": self._content if self.offset is None else None}

    @property
    def content(self) -> bytes:
        """The bytes of the lines; every line ends with LF.

        Raises:
            InputError: the file cannot be read any more, or its lines have changed.
        """
        if self._content is None:
            with _open_bytes(self.path) as file:
                file.seek(self.offset)  # type: ignore[arg-type]  # one of the two is set
                self._content = file.read(self._bytes)
            if self._content.count(b"\n") != self._lines or not self._content.endswith(b"\n"):
                raise InputError(f"{self.path} has changed while it was read; do not write to it, and start again")
        return self._content

    def decode(self) -> List[str]:
        """Return the lines as strings, without LF and without a byte order mark.

        Raises:
            InputError: a line is not UTF-8 (the message has its number), or as for :attr:`content`.
        """
        try:
            return self.content.decode("utf-8" if self.start else "utf-8-sig").split("\n")[:-1]
        except UnicodeDecodeError as error:
            number = self.start + self.content.count(b"\n", 0, error.start) + 1
            raise InputError(
                f"{self.path}, line {number}: not UTF-8 ({error.reason}); convert the file to UTF-8"
            ) from error

    def __len__(self) -> int:
        return self._lines


def read_line_blocks(path: PathLike, size: int) -> Iterator[LineBlock]:
    """Yield blocks of ``size`` lines; the last one may be smaller.

    Raises:
        InputError: as for :func:`read_byte_lines`.
    """
    offset = 0
    with _open_bytes(path) as file:
        for start in count(0, size):
            content = b"".join(islice(file, size))
            if not content:
                return
            if not content.endswith(b"\n"):
                yield LineBlock(path, start, content + b"\n")
                return
            yield LineBlock(path, start, content, None if _is_archive(path) else offset)
            offset += len(content)


def read_parallel_blocks(source: PathLike, target: PathLike, size: int) -> Iterator[Tuple[LineBlock, LineBlock]]:
    """Yield pairs of blocks with the same line numbers from two files, ``size`` lines each.

    Raises:
        InputError: one file has more lines than the other, or as for :func:`read_byte_lines`.
    """
    for pair in zip_longest(read_line_blocks(source, size), read_line_blocks(target, size)):
        if pair[0] is None or pair[1] is None or len(pair[0]) != len(pair[1]):
            lengths = {path: count_lines(path) for path in (source, target)}
            shorter, longer = sorted((source, target), key=lengths.__getitem__)
            raise InputError(
                f"{shorter} has {lengths[shorter]} lines, {longer} has {lengths[longer]}: "
                "the two sides of a corpus must be of equal length"
            )
        yield pair


def read_parallel(source: PathLike, target: PathLike) -> Iterator[Tuple[str, str]]:
    """Yield pairs of lines with the same number from two files.

    Raises:
        InputError: one file has more lines than the other, or as for :func:`read_lines`.
    """
    for left, right in read_parallel_blocks(source, target, 1000):
        yield from zip(left.decode(), right.decode())


def _is_archive(path: PathLike) -> bool:
    return str(path).endswith(".gz")


@contextmanager
def _open_bytes(path: PathLike) -> Iterator[IO[bytes]]:
    try:
        with gzip.open(path, "rb") if _is_archive(path) else open(path, "rb") as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: damaged or truncated gz file ({error}); fetch it again") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
