"""Download the files that corpora are made from: resume, try mirrors, verify."""

import errno
import logging
import os
import re
import shutil
from pathlib import Path, PurePosixPath
from time import sleep
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple
from urllib.parse import unquote, urlsplit

import requests
import urllib3
from tqdm import tqdm

from ..errors import InputError
from ..files.locks import only_process
from ..files.outputs import remove_half_written
from ..files.records import read_json, write_json
from . import ledger
from .spec import Download, Mirror

logging.getLogger("urllib3").setLevel(logging.WARNING)  # importing fairseq turns on all debug messages
_BLOCK = 1 << 16
_MARGIN = 100 * 10**6  # bytes of the disk that must stay free
_TRIES = 5  # failed attempts in a row, at one mirror, after which the next mirror is tried
_TIMEOUT = 60.0  # seconds without a byte after which an attempt fails
_LONGEST_PAUSE = 60.0  # seconds between attempts
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "fairseq-rela"}  # Content-Length is the file's size
_NETWORK_ERRORS = (requests.RequestException, urllib3.exceptions.HTTPError)


def fetch_all(downloads: Dict[str, Download], folder: Path, offline: Optional[Path] = None) -> Dict[str, Path]:
    """Fetch all downloads, after printing how many bytes each needs; return the path of each file by its name.

    Raises:
        InputError: as :func:`fetch`; also, before the first download, if the disk has no space for all of them.
    """
    needed = sizes(downloads, folder, offline)
    for name, size in needed.items():
        print(f"{name}: {'already here' if size == 0 else 'size unknown' if size is None else _human(size)}")
    total, unknown = sum(size or 0 for size in needed.values()), list(needed.values()).count(None)
    free = shutil.disk_usage(next(place for place in (folder, *folder.absolute().parents) if place.exists())).free
    more = f" and {unknown} of unknown size" if unknown else ""
    print(f"to fetch: {_human(total)}{more}; free in {folder}: {_human(free)}", flush=True)
    if total and total + _MARGIN > free:
        raise InputError(
            f"{folder}: {total / 1e9:.2f} GB are needed and {free / 1e9:.2f} GB free; make room or use another disk"
        )
    paths = {}
    for name, download in downloads.items():
        paths[name], entry = fetch(download, folder, offline)
        source = " + ".join(entry["url"]) or f"{paths[name]}, put there by hand"
        print(f"{name}: {_human(entry['bytes'])}, sha256 {entry['sha256']}, from {source}", flush=True)
    return paths


def sizes(downloads: Dict[str, Download], folder: Path, offline: Optional[Path] = None) -> Dict[str, Optional[int]]:
    """Return the bytes that each file still needs in ``folder``: 0 if the file is there, None if unknown."""

    def needed(download: Download) -> Optional[int]:
        if (folder / download.name).exists():
            return 0
        if offline is not None:
            found, _ = _find_offline(download, offline)
            return sum(file.stat().st_size for file in found) * (len(found) > 1) if found else None
        for mirror, parts in _begun_first(folder / download.name, download.mirrors):
            lengths = [_told_size(url) for url in mirror.parts]
            total = mirror.bytes if None in lengths else sum(filter(None, lengths))
            if total is not None:
                return max(total - sum(part.begun for part in parts), 0)
        return None

    return {name: needed(download) for name, download in downloads.items()}


def fetch(download: Download, folder: Path, offline: Optional[Path] = None) -> Tuple[Path, ledger.Entry]:
    """Return the path of a verified local file, downloaded if it is not there yet, and its entry in the record.

    A download that was interrupted, by the network or by killing this process, is resumed at the next call.

    Args:
        download: the file.
        folder: where the file is looked for, and downloaded to.
        offline: a folder with files that the user has fetched. A file that is not in ``folder`` is then looked for
            here, under its own name or that of a URL, and nothing is downloaded.

    Raises:
        InputError: if no mirror gives a valid file, the file or its source has changed since it was recorded, the
            disk is full, or another process is fetching the file.
    """
    path = folder / download.name
    with only_process(path, "fetched"):
        if path.exists():
            return path, ledger.entry_of(path, path, download.mirrors)
        try:
            return _use_mirrors(path, download) if offline is None else _use_offline(path, download, offline)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            reason = "no space left on the disk" if full else error.strerror or error
            raise InputError(f"{path}: cannot be written ({reason}); make room and run again to go on") from error


# --- mirrors -----------------------------------------------------------------------------------------------------


class _Failed(Exception):
    """Raised when an attempt failed: whether another one may succeed, and after how many seconds at least."""

    def __init__(self, reason: str, again: bool = True, pause: float = 0.0):
        super().__init__(reason)
        self.again, self.pause = again, pause


class _Part:
    """The bytes of one URL so far, ``NAME.part`` (``NAME.1.part`` of a second URL), and their state ``.part.json``.

    The state has ``url``, ``version`` (ETag or Last-Modified) and ``total`` (bytes, None if unknown).
    """

    def __init__(self, path: Path, number: int, url: str):
        self.path = path.with_name(f"{path.name}.{number}.part" if number else f"{path.name}.part")
        self.sidecar = self.path.with_name(self.path.name + ".json")
        self.url = url

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def begun(self) -> int:
        """How many bytes can be kept."""
        return self.size if self.load()["version"] else 0

    def load(self) -> Dict[str, Any]:
        """Return the state, or a new one if the bytes came from elsewhere."""
        try:
            state = read_json(self.sidecar)
        except InputError:
            state = None
        known = isinstance(state, dict) and state.keys() == {"url", "version", "total"} and state["url"] == self.url
        return state if known else {"url": self.url, "version": None, "total": None}

    def save(self, version: Optional[str], total: Optional[int]) -> None:
        write_json(self.sidecar, {"url": self.url, "version": version, "total": total})

    def remove(self) -> None:
        remove_half_written(self.sidecar)
        for file in (self.path, self.sidecar):
            if file.exists():
                file.unlink()


def _begun_first(path: Path, mirrors: Sequence[Mirror]) -> List[Tuple[Mirror, List[_Part]]]:
    """Return the mirrors and their parts in order, but first the mirror that an unfinished download came from."""
    pairs = [(mirror, [_Part(path, number, url) for number, url in enumerate(mirror.parts)]) for mirror in mirrors]
    return sorted(pairs, key=lambda pair: not any(part.begun for part in pair[1]))


def _use_mirrors(path: Path, download: Download) -> Tuple[Path, ledger.Entry]:
    """Download the file from the first mirror that gives it; record and rename it."""
    reasons = []
    for mirror, parts in _begun_first(path, download.mirrors):
        try:
            entry = _transfer(mirror, parts)
        except _Failed as error:
            reasons.append(f"{' + '.join(mirror.parts)} ({error})")
            continue
        try:
            ledger.add(path, entry)
            os.replace(parts[0].path, path)
        finally:
            for part in parts:
                part.remove()
        return path, entry
    raise InputError(
        f"{download.name}: no mirror gives it: {'; '.join(reasons)}; "
        f"fetch it by hand to {path.parent} and give --offline {path.parent}"
    )


def _transfer(mirror: Mirror, parts: Sequence[_Part]) -> ledger.Entry:
    """Download a file to its first part and check it; return its entry for the record.

    A file that fails its check is downloaded once more, because the transfer may have damaged it.
    """
    for last_chance in (False, True):
        for part in parts:
            _download(part)
        _append(parts[0].path, [part.path for part in parts[1:]])
        try:
            return ledger.check(parts[0].path, mirror.parts, (mirror,))
        except InputError as error:
            for part in parts:
                part.remove()
            if last_chance:
                raise _Failed(str(error), again=False) from error
    raise AssertionError("the second round returns or raises")


def _append(target: Path, files: Sequence[Path]) -> None:
    with open(target, "ab") as writer:
        for file in files:
            with open(file, "rb") as reader:
                shutil.copyfileobj(reader, writer)
        os.fsync(writer.fileno())


def _download(part: _Part) -> None:
    """Download a URL. New bytes restart the count of failures, so that an unreliable connection suffices."""
    failures, most = 0, part.begun
    while part.size != part.load()["total"]:
        try:
            _receive(part)
        except _Failed as error:
            failures = 1 if part.size > most else failures + 1
            most = max(most, part.size)
            if not error.again:
                raise
            if failures >= _TRIES:
                raise _Failed(f"{error}, after {failures} tries", again=False) from error
            sleep(max(error.pause, min(2.0 ** (failures - 1), _LONGEST_PAUSE)))


def _receive(part: _Part) -> None:
    """Download the rest of a URL, from the end of the part on."""
    state, offset = part.load(), part.begun
    with _ask(part.url, offset) as response:
        length, version = _length(response), response.headers.get("ETag") or response.headers.get("Last-Modified")
        if response.status_code == 200:
            offset = 0
        elif (
            not response.headers.get("Content-Range", "").startswith(f"bytes {offset}-")
            or version != state["version"]
            or (length is not None and state["total"] not in (None, offset + length))
        ):
            part.save(None, None)  # so the next attempt starts this URL again
            raise _Failed("the file has changed on the server, or the server cannot resume")
        total = None if length is None else offset + length
        bar: Any = dict(total=total, initial=offset, desc=part.path.stem, unit="B", unit_scale=True, disable=None)
        with open(part.path, "r+b" if part.path.exists() else "wb") as file, tqdm(**bar) as progress:
            file.truncate(offset)
            file.seek(offset)
            part.save(version, total)  # after the cut, because it describes the bytes that are left
            for block in _blocks(response):
                file.write(block)
                file.flush()  # so that nothing is lost when the process is killed
                progress.update(len(block))
    if total is not None and part.size != total:
        raise _Failed(f"the connection was cut after {part.size} of {total} bytes")
    part.save(version, part.size)


def _ask(url: str, offset: int) -> Any:
    """Request a URL from byte ``offset`` on; return a response of status 200, or of 206 or 416 if ``offset`` > 0.

    Raises:
        _Failed: for another status, a web page, or if there is no response.
    """
    rest = {"Range": f"bytes={offset}-"} if offset else {}
    try:
        response = requests.get(url, headers={**_HEADERS, **rest}, stream=True, timeout=_TIMEOUT)
    except (*_NETWORK_ERRORS, ValueError) as error:  # requests raises ValueError for a redirect to no address
        raise _Failed(_reason(error)) from error
    status = response.status_code
    if (status == 200 and not _is_page(response)) or (offset and status in (206, 416)):
        return response
    response.close()
    pause = response.headers.get("Retry-After", "")
    raise _Failed(
        "a web page instead of the file" if status == 200 else f"status {status}",
        again=status >= 500 or status == 429,
        pause=min(float(pause), _LONGEST_PAUSE) if pause.isdecimal() else 0.0,
    )


def _blocks(response: Any) -> Iterator[bytes]:
    """Yield the body as it was sent: statmt.org, like many servers, labels a tgz as Content-Encoding gzip."""
    try:
        yield from iter(lambda: response.raw.read(_BLOCK, decode_content=False), b"")
    except _NETWORK_ERRORS as error:
        raise _Failed(_reason(error)) from error


def _told_size(url: str) -> Optional[int]:
    try:
        response = requests.head(url, headers=_HEADERS, timeout=_TIMEOUT / 6, allow_redirects=True)
    except (*_NETWORK_ERRORS, ValueError):
        return None
    return _length(response) if response.status_code == 200 and not _is_page(response) else None


def _length(response: Any) -> Optional[int]:
    length = response.headers.get("Content-Length", "")
    return int(length) if re.fullmatch(r"[0-9]{1,18}", length) else None


def _is_page(response: Any) -> bool:
    return "text/html" in response.headers.get("Content-Type", "").lower()


def _reason(error: Exception) -> str:
    for kinds, reason in (
        ((requests.Timeout, urllib3.exceptions.TimeoutError), "no answer in time"),
        (requests.exceptions.SSLError, "its certificate is not accepted"),
        (requests.exceptions.ConnectionError, "it cannot be reached"),
        (urllib3.exceptions.ProtocolError, "the connection was cut"),
    ):
        if isinstance(error, kinds):
            return reason
    return " ".join(str(error).split())[:200]


def _human(size: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"


# --- files fetched by the user -----------------------------------------------------------------------------------


def _use_offline(path: Path, download: Download, offline: Path) -> Tuple[Path, ledger.Entry]:
    """Return a file in ``offline`` and its entry in the record; the parts of a file are joined to ``path`` first."""
    found, mirrors = _find_offline(download, offline)
    if not found:
        names = " or ".join(" + ".join(group) for group in _names_by_hand(download))
        urls = " or ".join(" + ".join(mirror.parts) for mirror in download.mirrors)
        raise InputError(f"{offline} has no file {names}; fetch {urls} by hand and put it there")
    if len(found) == 1:
        try:
            return found[0], ledger.entry_of(path, found[0], mirrors)
        except InputError as error:
            if found[0].name == download.name:
                raise
            raise InputError(f"{error}; or save it as {download.name}, if that file is another of its name") from error
    joined = path.with_name(path.name + ".joined.part")  # .part may hold an unfinished download
    try:
        joined.write_bytes(b"")
        _append(joined, found)
        entry = ledger.entry_of(path, joined, mirrors)
        os.replace(joined, path)
    finally:
        if joined.exists():
            joined.unlink()
    return path, entry


def _find_offline(download: Download, offline: Path) -> Tuple[List[Path], List[Mirror]]:
    """Return the file, or all its parts, in ``offline``, and the mirrors that it may come from; else empty lists."""
    for group, mirrors in _names_by_hand(download).items():
        if all((offline / name).is_file() for name in group):
            return [offline / name for name in group], mirrors
    return [], []


def _names_by_hand(download: Download) -> Dict[Tuple[str, ...], List[Mirror]]:
    """Return the names under which a user may have saved a file, or its parts, each with its possible mirrors."""
    groups: Dict[Tuple[str, ...], List[Mirror]] = {(download.name,): list(download.mirrors)}
    for mirror in download.mirrors:
        group = tuple(PurePosixPath(unquote(urlsplit(url).path)).name for url in mirror.parts)
        if group != (download.name,) and all(group):
            groups.setdefault(group, []).append(mirror)
    return groups
