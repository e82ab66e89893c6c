"""Download the files that corpora are made from: resume, try mirrors, verify, and notice files that have changed.

Beside each file ``NAME``, its folder holds a record ``NAME.json``. The record has one entry for each source that the
file ever came from, with the checksum of its bytes at that time. A source must give the same bytes forever; another
source may give other bytes (a zip instead of a tgz). The local file must match one of the entries.
"""

import errno
import hashlib
import logging
import os
import re
import shutil
import time
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple
from urllib.parse import unquote, urlsplit

import requests
import urllib3
from tqdm import tqdm

from ..errors import InputError
from ..files.locks import only_process
from ..files.outputs import remove_half_written
from ..files.records import read_json, write_json
from .archives import kind, looks_like_html, verify

# an entry of a record: url (list of the parts; empty for a file that the user put there), bytes, sha256, md5 (if a
# mirror states one), content (the kind of archive, or "plain")
Entry = Dict[str, Any]
_BLOCK = 1 << 16
_MARGIN = 100 * 10**6  # bytes of the disk that must stay free
_LONGEST_PAUSE = 60.0  # seconds
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}")
_ARCHIVE_NAME = re.compile(r"\.(tgz|tbz2?|txz|tar|zip|gz|bz2|xz)(\.\d+)?((\.joined)?\.part)?$", re.I)
_OUR_ENDINGS = (".json", ".part")
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "fairseq-rela"}  # Content-Length is the file's size
_PASSING = (408, 425, 429)  # 4xx statuses after which another attempt may succeed


@dataclass(frozen=True)
class Mirror:
    """A source of a file.

    Attributes:
        parts: the URL of the file, or several URLs whose bytes are joined in order.
        md5, sha256: expected checksum of the joined file in lower-case hexadecimal, or None.
        bytes: expected size of the joined file, or None.
    """

    parts: Tuple[str, ...]
    md5: Optional[str] = None
    sha256: Optional[str] = None
    bytes: Optional[int] = None

    @property
    def states_something(self) -> bool:
        return any((self.md5, self.sha256, self.bytes))


@dataclass(frozen=True)
class Download:
    """A file to download: its local name, and its mirrors in the order in which to try them."""

    name: str
    mirrors: Tuple[Mirror, ...]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name.endswith(_OUR_ENDINGS):
            raise InputError(
                f"{self.name!r}: not a name for a download; give a file name of letters, digits and . _ + - "
                f"that does not begin with a dot or end in {' or '.join(_OUR_ENDINGS)}"
            )


def parse_downloads(spec: Any) -> Dict[str, Download]:
    """Parse the section ``downloads`` of a configuration file.

    Args:
        spec: ``{name: {urls: [entry, ...]}}``; an entry is a URL, a list of URLs (the parts of one file), or
            ``{url: URL or list, md5: ..., sha256: ..., bytes: ...}``.

    Returns:
        each download by its name.

    Raises:
        InputError: if an entry has another form; the message names the entry.
    """
    if not isinstance(spec, Mapping):
        raise InputError("downloads: give a mapping of file names to their urls")
    downloads = {}
    for name, value in spec.items():
        if not isinstance(name, str):
            raise InputError(f"downloads: the file name {name!r} is not text; put it in quotes")
        if not isinstance(value, Mapping) or set(value) != {"urls"}:
            raise InputError(f"downloads, {name}: give `urls:` with a list of mirrors, and nothing else")
        entries = value["urls"]
        if not isinstance(entries, (list, tuple)) or not entries:
            raise InputError(f"downloads, {name}: urls must be a list of at least one mirror")
        mirrors = (_parse_mirror(f"downloads, {name}, mirror {n}", entry) for n, entry in enumerate(entries, 1))
        downloads[name] = Download(name, tuple(mirrors))
    return downloads


def fetch(
    download: Download,
    folder: Path,
    offline: Optional[Path] = None,
    tries: int = 5,
    timeout: float = 60,
    wait: Callable[[float], Any] = time.sleep,
) -> Path:
    """Return the path of a verified local file, and download the file if it is not there yet.

    A download that was interrupted, by the network or by killing this process, is resumed at the next attempt or
    call.

    Args:
        download: the file.
        folder: where the file is looked for, and downloaded to.
        offline: a folder with files that the user has fetched. A file that is not in ``folder`` is then looked for
            here, under its own name or that of a URL, and nothing is downloaded.
        tries: failed attempts in a row, at one mirror, after which the next mirror is tried. An attempt that brings
            new bytes restarts the count.
        timeout: seconds without a byte after which an attempt fails.
        wait: called with the seconds to pause before another attempt.

    Raises:
        InputError: if no mirror gives a valid file, the file or its source has changed since it was recorded, the
            disk is full, or another process is fetching the file.
    """
    return fetch_recorded(download, folder, offline, _Patience(tries, timeout, wait))[0]


def sizes(
    downloads: Dict[str, Download], folder: Path, offline: Optional[Path] = None, timeout: float = 10
) -> Dict[str, Optional[int]]:
    """Return the bytes that each file still needs in ``folder``: 0 if the file is there, None if unknown."""
    with _session() as session:
        return {name: _still_needed(session, item, folder, offline, timeout) for name, item in downloads.items()}


def fetch_all(downloads: Dict[str, Download], folder: Path, offline: Optional[Path] = None) -> Dict[str, Path]:
    """Fetch all downloads, after printing how many bytes each of them needs.

    Returns:
        the path of each file, by the name of its download.

    Raises:
        InputError: as :func:`fetch`; also, before the first download, if the disk has no space for all of them.
    """
    needed = sizes(downloads, folder, offline)
    for name, size in needed.items():
        print(f"{name}: {'already here' if size == 0 else 'size unknown' if size is None else _human(size)}")
    total = sum(size or 0 for size in needed.values())
    unknown = sum(size is None for size in needed.values())
    more = f" and {unknown} of unknown size" if unknown else ""
    print(f"to fetch: {_human(total)}{more}; free in {folder}: {_human(_free(folder))}", flush=True)
    _require_space(folder, total)
    paths = {}
    for name, download in downloads.items():
        paths[name], entry = fetch_recorded(download, folder, offline)
        source = " + ".join(entry["url"]) or f"{paths[name]}, put there by hand"
        print(f"{name}: {_human(entry['bytes'])}, sha256 {entry['sha256']}, from {source}", flush=True)
    return paths


# --- the specification -------------------------------------------------------------------------------------------


def _parse_mirror(where: str, entry: Any) -> Mirror:
    if not isinstance(entry, Mapping):
        return Mirror(_parse_parts(where, entry))
    unknown = sorted(map(str, set(entry) - {"url", "md5", "sha256", "bytes"}))
    if unknown or "url" not in entry:
        raise InputError(
            f"{where}: {'unknown ' + ', '.join(unknown) if unknown else 'no url'}; "
            "give url, and where known md5, sha256, bytes"
        )
    size = entry.get("bytes")
    if size is not None and (type(size) is not int or size <= 0):
        raise InputError(f"{where}: bytes {size!r} is not a whole number above 0")
    md5, sha256 = (_parse_hex(where, entry, key, length) for key, length in (("md5", 32), ("sha256", 64)))
    return Mirror(_parse_parts(where, entry["url"]), md5, sha256, size)


def _parse_hex(where: str, entry: Any, key: str, length: int) -> Optional[str]:
    value = entry.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not re.fullmatch(f"[0-9a-fA-F]{{{length}}}", value):
        raise InputError(f"{where}: {key} {value!r} is not {length} hexadecimal digits in quotes")
    return value.lower()


def _parse_parts(where: str, value: Any) -> Tuple[str, ...]:
    urls = [value] if isinstance(value, str) else value
    if not isinstance(urls, (list, tuple)) or not urls:
        raise InputError(f"{where}: {value!r} is neither a URL, nor a list of URLs, nor a mapping with url")
    for url in urls:
        if not isinstance(url, str) or not _is_web(url):
            raise InputError(f"{where}: {url!r} is not a URL of http or https")
    return tuple(urls)


def _is_web(url: str) -> bool:
    try:
        address = urlsplit(url)
        return address.scheme in ("http", "https") and bool(address.hostname) and not re.search(r"[\s\x00-\x1f]", url)
    except ValueError:
        return False


# --- one file ----------------------------------------------------------------------------------------------------


class _Patience(NamedTuple):
    """How long to try one mirror; the fields are arguments of :func:`fetch`."""

    tries: int = 5
    timeout: float = 60
    wait: Callable[[float], Any] = time.sleep


_PATIENCE = _Patience()


class _TryAgain(Exception):
    """Raised when an attempt failed and another one may succeed."""

    def __init__(self, reason: str, pause: float = 0.0):
        super().__init__(reason)
        self.pause = pause


class _NextMirror(Exception):
    """Raised when a mirror cannot give the file."""


def fetch_recorded(
    download: Download, folder: Path, offline: Optional[Path] = None, patience: _Patience = _PATIENCE
) -> Tuple[Path, Entry]:
    """Fetch a file as :func:`fetch` does; return its path and its entry in the record (size, checksum, source)."""
    path = folder / download.name
    with only_process(path, "fetched"):
        if path.exists():
            return path, _entry_of_present(path, path, download.mirrors)
        if offline is not None:
            return _use_offline(path, download, offline)
        reasons = []
        for mirror in _begun_first(download, path):
            try:
                return path, _fetch_from(mirror, path, patience)
            except _NextMirror as error:
                reasons.append(f"{' + '.join(mirror.parts)} ({error})")
        if _size(_part(path)) == 0:
            _remove_part(path)
    raise InputError(
        f"{download.name}: no mirror gives it: {'; '.join(reasons)}; "
        f"fetch it by hand to {folder} and give --offline {folder}"
    )


def _fetch_from(mirror: Mirror, path: Path, patience: _Patience) -> Entry:
    """Download, check, record and rename a file; return its entry in the record.

    A file that fails its check is downloaded once more, because the transfer may have damaged it.
    """
    part = _part(path)
    for last_chance in (False, True):
        length_was_known = _download(mirror, part, patience)
        try:
            entry = _check(part, mirror.parts, (mirror,))
            break
        except InputError as error:
            _remove_part(path)
            if last_chance:
                raise _NextMirror(str(error)) from error
    if entry["content"] == "plain" and not length_was_known and not mirror.states_something:
        _remove_part(path)
        raise _NextMirror("plain text of a length that the server does not tell, so it may be cut")
    _finish(path, part, entry)
    _remove_part(path)
    return entry


def _finish(path: Path, part: Path, entry: Entry) -> None:
    """Record a new file, then rename it from ``part`` to ``path``, so that no file is there without a record.

    Raises:
        InputError: if the same source gave another file before, or the disk cannot be written.
    """
    try:
        _add_to_record(path, entry)
    except InputError:
        _remove_part(path)
        raise
    try:
        with open(part, "rb") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from error


def _entry_of_present(path: Path, found: Path, mirrors: Sequence[Mirror]) -> Entry:
    """Return the recorded entry of a file that is there; check and record the file if it has no record yet.

    Args:
        path: where the file belongs; its record is beside it.
        found: where the file is.
        mirrors: the mirrors that the file may have come from.

    Raises:
        InputError: if the file is damaged, matches no entry of the record, or matches none of the mirrors.
    """
    if not found.is_file():
        raise InputError(f"{found}: not a file; remove it")
    record = _read_record(path)
    if not record:
        entry = _check(found, (), mirrors)
        _add_to_record(path, entry)
        return entry
    size = _size(found)
    likely = [entry for entry in record if entry["bytes"] == size]
    facts = _facts(found, mirrors) if likely else {}
    same = [{**entry, **facts} for entry in likely if entry["sha256"] == facts["sha256"]]
    reasons = [why_not_of(entry, mirrors) for entry in same]
    for entry, reason in zip(same, reasons):
        if reason is None:
            return entry
    if same:
        raise InputError(f"{found}: {reasons[-1]}; remove it and {_record(path)} to fetch it again")
    if found == path:
        raise InputError(f"{path} has changed since it was fetched; remove it and its .json to fetch it again")
    raise InputError(f"{found} is not the file that was fetched before; remove {_record(path)} to accept it")


def _check(path: Path, url: Sequence[str], mirrors: Sequence[Mirror]) -> Entry:
    """Check a file and return an entry for the record.

    The file must have the checksums and the size that one of the mirrors states; a mirror that states none accepts
    every file.

    Raises:
        InputError: if the file is damaged, is not the archive that its name promises, or matches none of the mirrors.
    """
    verify(path)
    content = kind(path)
    # another kind of archive is accepted, but a file that is no archive could be any text
    if content == "plain" and (_ARCHIVE_NAME.search(path.name) or all(map(_names_archive, mirrors))):
        raise InputError(f"{path}: not the archive that its name promises; fetch it again")
    facts = _facts(path, mirrors)
    differences = {mirror: _difference(mirror, facts) for mirror in mirrors}
    if all(differences.values()):
        raise InputError(f"{path}: {' and '.join(map(str, differences.values()))}; fetch it again")
    if any(differences.values()) and not any(m.states_something and not differences[m] for m in mirrors):
        others = "; ".join(f"{' + '.join(m.parts)}, whose {reason}" for m, reason in differences.items() if reason)
        print(f"{path}: taken for the file of a mirror that states no checksum, since it is not that of {others}")
    return {"url": list(url), **facts, "content": content}


def why_not_of(entry: Entry, mirrors: Sequence[Mirror]) -> Optional[str]:
    """Return why a recorded download no longer matches the configured mirrors, or None."""
    its = [mirror for mirror in mirrors if list(mirror.parts) == entry["url"]] if entry["url"] else mirrors
    if not its:
        return f"it came from {' + '.join(entry['url'])}, which is none of its addresses now"
    differences = [_difference(mirror, entry) for mirror in its]
    return " and ".join(map(str, differences)) if all(differences) else None


def _facts(path: Path, mirrors: Sequence[Mirror]) -> Dict[str, Any]:
    md5 = ["md5"] if any(mirror.md5 for mirror in mirrors) else []
    return {"bytes": _size(path), **_digests(path, ["sha256", *md5])}


def _names_archive(mirror: Mirror) -> bool:
    return any(_ARCHIVE_NAME.search(_basename(url)) for url in mirror.parts)


def _difference(mirror: Mirror, facts: Dict[str, Any]) -> Optional[str]:
    for key in ("bytes", "md5", "sha256"):
        expected = getattr(mirror, key)
        if expected is not None and facts.get(key, expected) != expected:  # an old record may have no md5
            return f"{key} is {facts[key]}, not {expected}"
    return None


# --- files fetched by the user -----------------------------------------------------------------------------------


def _use_offline(path: Path, download: Download, offline: Path) -> Tuple[Path, Entry]:
    found, mirrors = _find_offline(download, offline)
    if not found:
        names = " or ".join(" + ".join(group) for group in _names_by_hand(download))
        urls = " or ".join(" + ".join(mirror.parts) for mirror in download.mirrors)
        raise InputError(f"{offline} has no file {names}; fetch {urls} by hand and put it there")
    if len(found) == 1:
        try:
            return found[0], _entry_of_present(path, found[0], mirrors)
        except InputError as error:
            if found[0].name == download.name:
                raise
            raise InputError(f"{error}; or save it as {download.name}, if that file is another of its name") from error
    joined = path.with_name(path.name + ".joined.part")  # .part may hold an unfinished download
    try:
        _join(found, joined)
        entry = _entry_of_present(path, joined, mirrors)
        _finish(path, joined, entry)
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
        group = tuple(map(_basename, mirror.parts))
        if group != (download.name,) and len(set(group)) == len(group) and not {"", ".."} & set(group):
            groups.setdefault(group, []).append(mirror)
    return groups


def _basename(url: str) -> str:
    return PurePosixPath(unquote(urlsplit(url).path)).name


def _join(parts: Sequence[Path], target: Path) -> None:
    _require_space(target.parent, sum(map(_size, parts)))
    with _disk_errors_named(target), open(target, "wb") as writer:
        for part in parts:
            with open(part, "rb") as reader:
                shutil.copyfileobj(reader, writer, _BLOCK)


# --- the record --------------------------------------------------------------------------------------------------


def _record(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def _read_record(path: Path) -> List[Entry]:
    record = _record(path)
    if not record.exists():
        return []
    entries = read_json(record)
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) and {"url", "bytes", "sha256", "content"} <= entry.keys() for entry in entries
    ):
        raise InputError(f"{record}: not the record of a download; remove it")
    return entries


def _add_to_record(path: Path, entry: Entry) -> None:
    """Add an entry to the record of a file, unless the record has an entry of the same source and checksum.

    Raises:
        InputError: if the same source gave another file before.
    """
    record = _read_record(path)
    for old in record:
        if old["url"] == entry["url"]:
            if old["sha256"] != entry["sha256"]:
                raise InputError(
                    f"{' + '.join(entry['url'])}: the source of {path.name} has changed since {_record(path)} was "
                    f"written (sha256 {entry['sha256']}, not {old['sha256']}); remove that to accept it"
                )
            return
    write_json(_record(path), [*record, entry])


# --- downloading -------------------------------------------------------------------------------------------------


def _part(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def _sidecar(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _remove_part(path: Path) -> None:
    sidecar = _sidecar(_part(path))
    remove_half_written(sidecar)
    for file in (_part(path), sidecar):
        if file.exists():
            file.unlink()


def _begun_first(download: Download, path: Path) -> List[Mirror]:
    """Return the mirrors in their order, but first the mirror that an unfinished download came from."""
    return sorted(download.mirrors, key=lambda mirror: not _begun(_part(path), mirror))


def _begun(part: Path, mirror: Mirror) -> int:
    """Return how many bytes of an unfinished download came from this mirror and can be kept."""
    state = _load_state(part, mirror)
    return _size(part) if state["sizes"] or state["validator"] else 0


def _load_state(part: Path, mirror: Mirror) -> Dict[str, Any]:
    """Return the state of an unfinished download from its sidecar file, or a new state if nothing can be kept.

    url: the URLs of the mirror; sizes: bytes of each complete URL; validator and total: ETag or Last-Modified, and
    bytes if known, of the URL in progress; length_known: whether the server marked the end of every complete URL.
    """
    fresh = {"url": list(mirror.parts), "sizes": [], "validator": None, "total": None, "length_known": True}
    try:
        state = read_json(_sidecar(part))
    except InputError:
        return fresh
    if not isinstance(state, dict) or state.keys() != fresh.keys() or state["url"] != fresh["url"]:
        return fresh
    return state if sum(state["sizes"]) <= _size(part) else fresh


def _download(mirror: Mirror, part: Path, patience: _Patience) -> bool:
    """Download all URLs of a mirror to ``part``, one after the other; return whether the end of each was certain.

    An attempt that brings new bytes restarts the count of failures, so that a long file over an unreliable connection
    is complete in the end.

    Raises:
        _NextMirror: if the mirror failed too often, or cannot give the file.
    """
    failures, most = 0, _begun(part, mirror)
    with _session() as session:
        while True:
            state = _load_state(part, mirror)
            if len(state["sizes"]) == len(mirror.parts):
                return state["length_known"]
            try:
                _receive(session, mirror, part, state, patience.timeout)
            except _TryAgain as error:
                size = _size(part)
                failures = 1 if size > most else failures + 1
                most = max(most, size)
                if failures >= patience.tries:
                    raise _NextMirror(f"{error}, after {failures} tries") from error
                patience.wait(max(error.pause, min(2.0 ** (failures - 1), _LONGEST_PAUSE)))


def _receive(session: requests.Session, mirror: Mirror, part: Path, state: Dict[str, Any], timeout: float) -> None:
    """Download the rest of the URL in progress, from the end of ``part`` on.

    Raises:
        _TryAgain, _NextMirror: if the rest was not received completely.
        InputError: if the disk is full.
    """
    index, base = len(state["sizes"]), sum(state["sizes"])
    offset = _size(part) - base if state["validator"] else 0
    with _ask(session, mirror.parts[index], offset, state["validator"], timeout) as response:
        told = _content_range(response)[1]
        if response.status_code == 416 and offset and told == offset and state["total"] in (None, offset):
            expected: Optional[int] = 0  # everything was received before
        else:
            proves_itself = mirror.states_something or (offset > 0 and kind(part) != "plain")
            offset, expected = _where_it_goes_on(response, offset, state, part, proves_itself)
        if mirror.bytes and len(mirror.parts) == 1 and expected is not None and offset + expected != mirror.bytes:
            raise _NextMirror(f"has {offset + expected} bytes, not {mirror.bytes}")
        blocks = _blocks(response) if expected != 0 else iter(())
        first = next(blocks, b"")  # checked before _append removes the bytes of another mirror
        if offset == 0 and looks_like_html(first):
            raise _NextMirror("a web page instead of the file")
        _require_space(part.parent, (expected or 0) - (_size(part) - base - offset))
        if not offset:
            state.update(validator=_validator(response), total=expected)
        what = part.name[: -len(".part")] + (f" ({index + 1} of {len(mirror.parts)})" if len(mirror.parts) > 1 else "")
        received = _append(part, base + offset, chain([first], blocks), state, expected, what)
    if expected is not None and received != expected:
        raise _TryAgain(f"the connection was cut after {offset + received} of {offset + expected} bytes")
    chunked = "chunked" in response.headers.get("Transfer-Encoding", "")  # marks the end of the body
    state["length_known"] = state["length_known"] and (expected is not None or chunked)
    state["sizes"].append(offset + received)
    state.update(validator=None, total=None)
    write_json(_sidecar(part), state)


def _append(
    part: Path, start: int, blocks: Iterable[bytes], state: Dict[str, Any], expected: Optional[int], what: str
) -> int:
    """Cut ``part`` at byte ``start`` and append blocks; return how many bytes were appended."""
    received = 0
    bar = dict(desc=what, unit="B", unit_scale=True, disable=None, initial=start)
    with _disk_errors_named(part), open(part, "r+b" if part.exists() else "wb") as file:
        file.truncate(start)
        file.seek(start)
        write_json(_sidecar(part), state)  # after the cut, because the validator describes the bytes that are left
        with tqdm(total=None if expected is None else start + expected, **bar) as progress:
            for block in blocks:
                _write(file, block)
                received += len(block)
                progress.update(len(block))
    return received


def _write(file: BinaryIO, block: bytes) -> None:
    file.write(block)
    file.flush()  # so that nothing is lost when the process is killed


def _ask(session: requests.Session, url: str, offset: int, validator: Optional[str], timeout: float) -> Any:
    """Request a URL from byte ``offset`` on; return a response of status 200, or of 206 or 416 if ``offset`` > 0.

    Raises:
        _TryAgain: if the failure may be temporary.
        _NextMirror: if it is not, or the response is a web page.
    """
    headers = {"Range": f"bytes={offset}-", "If-Range": validator or ""} if offset else {}
    try:
        response = session.get(url, headers=headers, stream=True, timeout=timeout)
    except _NETWORK_ERRORS as error:
        failure = _NextMirror if isinstance(error, _LASTING_ERRORS) else _TryAgain
        raise failure(_reason(error)) from error
    except ValueError as error:  # raised by requests for a redirect to an invalid address
        raise _NextMirror(f"redirects to no valid address ({_reason(error)})") from error
    status = response.status_code
    if status not in ((200, 206, 416) if offset else (200,)):
        response.close()
        if status >= 500 or status in _PASSING:
            pause = response.headers.get("Retry-After", "")
            raise _TryAgain(f"status {status}", min(float(pause), _LONGEST_PAUSE) if pause.isdecimal() else 0.0)
        raise _NextMirror(f"status {status}")
    if status != 416 and "text/html" in response.headers.get("Content-Type", "").lower():
        response.close()
        raise _NextMirror("a web page instead of the file")
    return response


def _where_it_goes_on(
    response: Any, offset: int, state: Dict[str, Any], part: Path, proves_itself: bool
) -> Tuple[int, Optional[int]]:
    """Return the offset in the file at which the body of a response begins, and its length or None, in bytes.

    Args:
        proves_itself: whether a later check, such as a checksum, would detect a file joined from two versions.

    Raises:
        _TryAgain: if the file has changed on the server, or the server cannot resume.
    """
    expected = _length(response)
    if response.status_code == 200:
        return 0, expected
    start, total = _content_range(response)
    end = total if total is not None or expected is None else offset + expected
    told = [response.headers[name] for name in ("ETag", "Last-Modified") if name in response.headers]
    same = state["validator"] in told if told else proves_itself
    other_size = None not in (end, state["total"]) and end != state["total"]
    if response.status_code != 206 or start != offset or not same or other_size:
        write_json(_sidecar(part), {**state, "validator": None})  # so the next attempt starts this URL again
        raise _TryAgain("the file has changed on the server, or the server cannot resume")
    return offset, expected if total is None else total - offset


def _length(response: Any) -> Optional[int]:
    length = response.headers.get("Content-Length", "")
    return int(length) if re.fullmatch(r"[0-9]{1,18}", length) else None


def _content_range(response: Any) -> Tuple[Optional[int], Optional[int]]:
    """Return the start and the total size in bytes that a response states, each None if missing."""
    match = re.fullmatch(
        r"bytes (?:(\d{1,18})-\d{1,18}|\*)/(?:(\d{1,18})|\*)", response.headers.get("Content-Range", "")
    )
    start, total = match.groups() if match else (None, None)
    return None if start is None else int(start), None if total is None else int(total)


def _validator(response: Any) -> Optional[str]:
    """Return the ETag or Last-Modified for If-Range, which accepts no weak ETag."""
    etag = response.headers.get("ETag")
    return etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified")


def _blocks(response: Any) -> Iterator[bytes]:
    """Yield the body as it was sent: statmt.org, like many servers, labels a tgz as Content-Encoding gzip."""
    while True:
        try:
            block = response.raw.read(_BLOCK, decode_content=False)
        except _NETWORK_ERRORS as error:
            raise _TryAgain(_reason(error)) from error
        if not block:
            return
        yield block


_NETWORK_ERRORS = (requests.RequestException, urllib3.exceptions.HTTPError)
_LASTING_ERRORS = (
    *(requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema, requests.exceptions.MissingSchema),
    *(requests.exceptions.SSLError, requests.exceptions.TooManyRedirects),
)


def _reason(error: Exception) -> str:
    if isinstance(error, (requests.Timeout, urllib3.exceptions.TimeoutError)):
        return "no answer in time"
    if isinstance(error, requests.exceptions.SSLError):
        return "its certificate is not accepted"
    if isinstance(error, requests.exceptions.ConnectionError):
        return "it cannot be reached"
    if isinstance(error, urllib3.exceptions.ProtocolError):
        return "the connection was cut"
    return " ".join(str(error).split())[:200]


def _session() -> requests.Session:
    logging.getLogger("urllib3").setLevel(logging.WARNING)  # importing fairseq turns on all debug messages
    session = requests.Session()
    session.headers.update(_HEADERS)
    return session


# --- sizes and the disk ------------------------------------------------------------------------------------------


def _still_needed(
    session: requests.Session, download: Download, folder: Path, offline: Optional[Path], timeout: float
) -> Optional[int]:
    path = folder / download.name
    if path.exists():
        return 0
    if offline is not None:
        found, _ = _find_offline(download, offline)
        return (0 if len(found) == 1 else sum(map(_size, found))) if found else None
    for mirror in _begun_first(download, path):
        lengths = [_told_size(session, url, timeout) for url in mirror.parts]
        total = mirror.bytes if None in lengths else sum(filter(None, lengths))
        if total is not None:
            return max(total - _begun(_part(path), mirror), 0)
    return None


def _told_size(session: requests.Session, url: str, timeout: float) -> Optional[int]:
    try:
        response = session.head(url, timeout=timeout, allow_redirects=True)
    except (*_NETWORK_ERRORS, ValueError):
        return None
    is_page = "text/html" in response.headers.get("Content-Type", "").lower()
    return _length(response) if response.status_code == 200 and not is_page else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _free(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _require_space(folder: Path, needed: int) -> None:
    free = _free(folder)
    if needed > 0 and needed + _MARGIN > free:
        raise InputError(
            f"{folder}: {needed / 1e9:.2f} GB are needed and {free / 1e9:.2f} GB free; make room or use another disk"
        )


@contextmanager
def _disk_errors_named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "no space left on the disk" if full else error.strerror or error
        raise InputError(f"{path}: cannot be written ({reason}); make room and run again to go on") from error


def _digests(path: Path, names: Sequence[str]) -> Dict[str, str]:
    digests = {name: hashlib.new(name) for name in names}
    bar = dict(total=_size(path), desc=f"check {path.name}", unit="B", unit_scale=True, disable=None, leave=False)
    with open(path, "rb") as file, tqdm.wrapattr(file, "read", **bar) as watched:
        for block in iter(lambda: watched.read(1 << 20), b""):
            for digest in digests.values():
                digest.update(block)
    return {name: digest.hexdigest() for name, digest in digests.items()}


def _human(size: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"
