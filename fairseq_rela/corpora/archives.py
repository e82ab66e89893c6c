"""Read the members of downloaded archives without unpacking them to disk; every kind of damage raises an error."""

import gzip
import io
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from contextlib import contextmanager, nullcontext
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO, Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from tqdm import tqdm

from ..errors import InputError
from ..files.lines import PathLike

_BLOCK = 1 << 16
_GZ_MAGIC = b"\x1f\x8b"
_ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
_SINGLE = ("plain", "gz")  # kinds of a single file
_HTML = re.compile(rb"(\xef\xbb\xbf)?\s*(<\?xml[^>]*>\s*|<!--.*?-->\s*)*<(!doctype\s+html|html)\b", re.I | re.S)
_TAR_RECORD = 10240  # bytes of a record, the unit in which a tar is written; some programs leave junk in the last one
_LARGEST_HEADER = 1 << 20  # bytes; no real name is longer, and tarfile reads such a header into memory
_NAME_TYPES = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, b"X")
_NAMES_KEPT = 1000
# exceptions of the standard library for archives that are damaged or malicious; OverflowError and ValueError come from
# numbers in headers, RuntimeError and NotImplementedError from zip features that it does not support
_DAMAGE = (
    *(EOFError, OSError, zlib.error, tarfile.TarError, zipfile.BadZipFile, zipfile.LargeZipFile),
    *(struct.error, ValueError, OverflowError, IndexError, KeyError, RuntimeError),
)


class _Entry(NamedTuple):
    """A member of an archive; ``refused`` is the reason why its content cannot be read, or None."""

    name: str
    refused: Optional[str]
    size: int
    open: Callable[[], Any]


def kind(path: PathLike) -> str:
    """Return the kind of a file from its content, because names can be wrong (``training-giga-fren.tar`` is gzipped).

    Returns:
        ``zip``, ``tar``, ``tar.gz``, ``gz`` or ``plain``; all others are ``plain``.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(tarfile.BLOCKSIZE)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    if head.startswith(_ZIP_MAGIC):
        return "zip"
    if head.startswith(_GZ_MAGIC):
        return "tar.gz" if _is_tar(_unpacked_head(path, "gz")) else "gz"
    return "tar" if _is_tar(head) else "plain"


def looks_like_html(head: bytes) -> bool:
    """Return whether content that begins with ``head`` is a web page, as servers send in place of a missing file."""
    return _HTML.match(head) is not None


def verify(path: PathLike) -> None:
    """Check an archive by reading it to its end: checksums of compressed data, structure of tar.

    Text, plain or compressed, is also refused if it is a web page or begins with zero bytes.

    Raises:
        InputError: the file is empty, damaged, truncated or encrypted, or has data after its end.
    """
    path = Path(path)
    content = kind(path)
    size = path.stat().st_size
    if not size:
        raise InputError(f"{path}: empty file; fetch it again")
    if content in _SINGLE:
        head = _unpacked_head(path, content)
        if looks_like_html(head):
            raise InputError(f"{path}: a web page instead of the file; fetch it again from another place")
        if len(head) == head.count(0) > 0:
            raise InputError(f"{path}: begins with zero bytes instead of text; fetch it again")
    if content == "plain":
        return
    with _damage_named(path):
        if content == "zip":
            _verify_zip(path)
            return
        bar = dict(total=size, desc=f"test {path.name}", unit="B", unit_scale=True, disable=None, leave=False)
        with open(path, "rb") as file, tqdm.wrapattr(file, "read", **bar) as watched:
            _read_to_the_end(watched, content)


def read_members(path: PathLike, wanted: Sequence[str]) -> Iterator[Tuple[str, BinaryIO]]:
    """Yield the name and a file object of each wanted member of an archive, in the archive's order and in one pass.

    A member whose name ends in ``.gz`` is decompressed and keeps its name. A file of kind ``gz`` or ``plain`` has one
    member with the file's own name; ``wanted`` must then have one entry, which may be any name.

    Damage and missing members may be detected only at the end, so do not use the data before the iteration has ended.
    Each file object is closed when the next one is requested.

    Args:
        path: the archive.
        wanted: names, or shell patterns in which ``*`` and ``?`` do not match ``/``. A leading ``./`` is ignored.

    Raises:
        InputError: the archive is damaged, a name or pattern of ``wanted`` matches nothing, or a wanted member
            occurs twice, is encrypted, is not a regular file, or has a name that leads out of the archive. Reading
            from a file object raises it as well.
    """
    path = Path(path)
    content = kind(path)
    wanted = [without_dot(name) for name in wanted]
    if content in _SINGLE:
        yield from _only_member(path, content, wanted)
        return
    names: List[str] = []
    given: List[str] = []
    with _damage_named(path), open(path, "rb") as file:
        for entry in _entries(file, content):
            if len(names) < _NAMES_KEPT:
                names.append(entry.name)
            if not any(matches(entry.name, pattern) for pattern in wanted):
                continue
            _refuse(path, entry, given)
            given.append(entry.name)
            with _reader(path, entry) as reader:
                yield entry.name, reader
    for pattern in wanted:
        if not any(matches(name, pattern) for name in given):
            raise InputError(f"{path}: has no member {_shown(pattern)}; it has {_examples(pattern, names)}")


# --- entries -----------------------------------------------------------------------------------------------------


def _entries(file: BinaryIO, content: str) -> Iterator[_Entry]:
    """Yield the members of an archive of kind ``content``, folders excepted."""
    if content == "zip":
        with zipfile.ZipFile(file) as archive:
            yield from _zip_entries(archive)
    else:
        with _unpacked(file, content) as stream:
            yield from _tar_entries(stream)


def _zip_entries(archive: zipfile.ZipFile) -> Iterator[_Entry]:
    for info in archive.infolist():
        if info.is_dir():
            continue
        mode = stat.S_IFMT(info.external_attr >> 16)  # 0 if the archive was not made on Unix
        refused = "is encrypted" if info.flag_bits & 1 else None
        if mode not in (0, stat.S_IFREG):
            refused = "is a link or device, not a file"
        # B023: each entry is used before the next one is made
        yield _Entry(without_dot(info.filename), refused, info.file_size, lambda: archive.open(info))  # noqa: B023


class _StrictInfo(tarfile.TarInfo):
    """A header that must be valid: tarfile takes a damaged or missing header for the end of the archive."""

    @classmethod
    def frombuf(cls, buf: Any, encoding: str, errors: str) -> Any:
        if len(buf) == tarfile.BLOCKSIZE == buf.count(0):
            return super().frombuf(buf, encoding, errors)  # raises the exception that marks the end
        try:
            info = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"{error} before the end marker") from error
        if info.size < 0 or (info.type in _NAME_TYPES and info.size > _LARGEST_HEADER):
            raise tarfile.ReadError("a header of impossible size")
        return info


def _tar_entries(stream: BinaryIO) -> Iterator[_Entry]:
    """Yield the entries of an unpacked stream, and read the stream to its end.

    tarfile can unpack by itself (``r|*``), but then it checks no checksum and stops after the first gzip member.
    """
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_StrictInfo, bufsize=_BLOCK) as archive:
        for info in archive:
            if not info.isdir():
                refused = None if info.isreg() else "is a link or device, not a file"
                name = without_dot(info.name)
                yield _Entry(name, refused, info.size, lambda: archive.extractfile(info))  # noqa: B023
        rest, junk = 0, False
        for block in iter(lambda: archive.fileobj.read(_BLOCK), b""):
            rest, junk = rest + len(block), junk or len(block) != block.count(0)
            if junk and rest > _TAR_RECORD:
                raise tarfile.ReadError("data after the end of the archive")


def _read_to_the_end(file: BinaryIO, content: str) -> None:
    with _unpacked(file, content) as stream:
        if content.startswith("tar"):
            for _ in _tar_entries(stream):
                pass
        while stream.read(_BLOCK):
            pass


def _verify_zip(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        bar = dict(total=sum(info.file_size for info in entries), desc=f"test {path.name}", unit="B", leave=False)
        with tqdm(**bar, unit_scale=True, disable=None) as progress:
            for info in entries:
                if info.flag_bits & 1:
                    raise InputError(f"{path}: {_shown(info.filename)} is encrypted; fetch it from another place")
                with archive.open(info) as member:
                    for block in iter(lambda: member.read(_BLOCK), b""):
                        progress.update(len(block))


# --- members -----------------------------------------------------------------------------------------------------


class _Reader(io.RawIOBase):
    """The content of a member; damage raises an InputError."""

    def __init__(self, where: str, source: BinaryIO):
        self._where, self._source = where, source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _damage_named(self._where):
            block = self._source.read(len(buffer))
        buffer[: len(block)] = block
        return len(block)


def _named(where: str, source: BinaryIO) -> Any:
    """Return a file object whose reads all go through :class:`_Reader`."""
    return io.BufferedReader(_Reader(where, source), _BLOCK)


@contextmanager
def _reader(path: Path, entry: _Entry) -> Iterator[BinaryIO]:
    source = entry.open()
    if entry.name.endswith(".gz"):
        source = gzip.GzipFile(fileobj=source)
    with _named(f"{path}: {_shown(entry.name)}", source) as reader:
        yield reader


def _only_member(path: Path, content: str, wanted: Sequence[str]) -> Iterator[Tuple[str, BinaryIO]]:
    if len(wanted) != 1:
        raise InputError(f"{path}: a single file and no archive, but {len(wanted)} members of it are wanted")
    with open(path, "rb") as file, _unpacked(file, content) as stream, _named(str(path), stream) as reader:
        yield path.name, reader


def _refuse(path: Path, entry: _Entry, given: Sequence[str]) -> None:
    """Refuse a wanted entry that must not be used.

    Raises:
        InputError: the entry is no readable file, its name leads out of the archive or occurs twice, or it is an
            empty ``.gz``.
    """
    refused = entry.refused
    if entry.name.startswith("/") or ".." in entry.name.split("/"):
        refused = "has a name that leads out of the archive"
    elif entry.name in given:
        refused = "is there twice"
    elif entry.name.endswith(".gz") and not entry.size:
        refused = "is empty, which no gz file is"
    if refused:
        raise InputError(f"{path}: member {_shown(entry.name)} {refused}; fetch the archive from another place")


def matches(name: str, pattern: str) -> bool:
    """Return whether a name equals or matches a shell pattern; both must come from :func:`without_dot`."""
    names, patterns = name.split("/"), pattern.split("/")
    return name == pattern or (len(names) == len(patterns) and all(map(fnmatchcase, names, patterns)))


def _examples(name: str, names: Sequence[str]) -> str:
    """Return the up to five of ``names`` that are most similar to ``name``, for a message."""
    return ", ".join(_shown(name) for name in get_close_matches(name, names, 5, 0.0)) or "no file at all"


def without_dot(name: str) -> str:
    """Return a member's name, or a pattern, without a leading ``./``, as :func:`read_members` yields it."""
    while name.startswith("./"):
        name = name[2:].lstrip("/")
    return name


def _shown(name: str) -> str:
    """Return a name that fits on one line of a message, whatever characters it holds."""
    return name if name.isprintable() else ascii(name)


# --- bytes -------------------------------------------------------------------------------------------------------


def _unpacked(file: BinaryIO, content: str) -> Any:
    """Return a context with the decompressed bytes of a file of kind ``content``; the file itself stays open."""
    return gzip.open(file, "rb") if content.endswith("gz") else nullcontext(file)


def _unpacked_head(path: PathLike, content: str) -> bytes:
    """Return the first 1,024 bytes of a file after decompression; empty if it cannot be decompressed."""
    try:
        with open(path, "rb") as file, _unpacked(file, content) as stream:
            return stream.read(2 * tarfile.BLOCKSIZE)
    except _DAMAGE:
        return b""


def _is_tar(head: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(head[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape")
    except (tarfile.TarError, ValueError):
        return False
    return True


@contextmanager
def _damage_named(where: Any) -> Iterator[None]:
    """Turn every exception for a damaged archive into an InputError that names ``where``."""
    try:
        yield
    except InputError:
        raise
    except _DAMAGE as error:
        if isinstance(error, OSError) and error.errno:
            raise InputError(f"{where}: cannot be read ({error.strerror or error})") from error
        reason = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, NotImplementedError):
            raise InputError(f"{where}: a kind of archive that is not supported ({reason}); pack it again") from error
        raise InputError(f"{where}: damaged or truncated ({reason}); fetch it again") from error
