"""Fetch the files that corpora are made from: from mirrors, or from a folder of the user."""

import errno
import os
import shutil
from pathlib import Path, PurePosixPath
from typing import Dict, List, Optional, Sequence, Tuple
from urllib.parse import unquote, urlsplit

from ..errors import InputError
from ..files.locks import only_process
from . import ledger
from .spec import Download, Mirror
from .transfer import Failed, Part, size_on_server, transfer

_MARGIN = 100 * 10**6  # bytes of the disk that must stay free


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
            lengths = [size_on_server(url) for url in mirror.parts]
            total = mirror.bytes if None in lengths else sum(filter(None, lengths))
            if total is not None:
                return max(total - sum(part.begun for part in parts), 0)
        return None

    return {name: needed(download) for name, download in downloads.items()}


def fetch(download: Download, folder: Path, offline: Optional[Path] = None) -> Tuple[Path, ledger.Entry]:
    """Return the path of a verified local file, downloaded if it is not there yet, and its entry in the record.

    An interrupted download is resumed at the next call. If ``offline`` is given, a folder with files that the user has
    fetched, nothing is downloaded: a file that is not in ``folder`` is used from there, by its name or that of a URL.

    Raises:
        InputError: no mirror gives a valid file, the file or its source has changed since it was recorded, the
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
            raise InputError(f"{path}: cannot be written ({reason}); make room and rerun the same command") from error


# --- mirrors -----------------------------------------------------------------------------------------------------


def _begun_first(path: Path, mirrors: Sequence[Mirror]) -> List[Tuple[Mirror, List[Part]]]:
    """Return the mirrors and their parts in order, but first the mirror that an unfinished download came from."""
    pairs = [(mirror, [Part(path, number, url) for number, url in enumerate(mirror.parts)]) for mirror in mirrors]
    return sorted(pairs, key=lambda pair: not any(part.begun for part in pair[1]))


def _use_mirrors(path: Path, download: Download) -> Tuple[Path, ledger.Entry]:
    """Download the file from the first mirror that gives it; record and rename it."""
    pairs = _begun_first(path, download.mirrors)
    every_part = [part for _, parts in pairs for part in parts]
    reasons = []
    for mirror, parts in pairs:
        try:
            entry = _fetch_from(mirror, parts)
            ledger.add(path, entry)
            os.replace(parts[0].path, path)
        except Failed as error:
            reasons.append(f"{' + '.join(mirror.parts)} ({error})")
            continue
        except InputError:
            _remove(every_part)
            raise
        _remove(every_part)
        return path, entry
    _remove([part for part in every_part if not part.size])
    raise InputError(
        f"{download.name}: no mirror gives it: {'; '.join(reasons)}; "
        f"fetch it by hand to {path.parent} and give --offline {path.parent}"
    )


def _fetch_from(mirror: Mirror, parts: Sequence[Part], again: bool = True) -> ledger.Entry:
    """Download a file to its first part and check it; return its entry for the record.

    A file that fails its check is downloaded once more, because the transfer may have damaged it.
    """
    for part in parts:
        transfer(part)
    _append(parts[0].path, [part.path for part in parts[1:]])
    try:
        return ledger.check(parts[0].path, mirror.parts, (mirror,))
    except InputError as error:
        _remove(parts)
        if again:
            return _fetch_from(mirror, parts, again=False)
        raise Failed(str(error), again=False) from error


def _remove(parts: Sequence[Part]) -> None:
    for part in parts:
        part.remove()


def _append(target: Path, files: Sequence[Path]) -> None:
    with open(target, "ab") as writer:
        for file in files:
            with open(file, "rb") as reader:
                shutil.copyfileobj(reader, writer)
        os.fsync(writer.fileno())


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
            raise InputError(
                f"{error}; if that is another file of the same name, save the right one as {download.name}"
            ) from error
    joined = path.with_name(path.name + ".joined.part")  # .part may hold an unfinished download
    try:
        joined.write_bytes(b"")
        _append(joined, found)
        entry = ledger.entry_of(path, joined, mirrors)
        os.replace(joined, path)
    finally:
        joined.unlink(missing_ok=True)
    return path, entry


def _find_offline(download: Download, offline: Path) -> Tuple[List[Path], List[Mirror]]:
    """Return the file, or all its parts, in ``offline``, and the mirrors that it may come from; else empty lists."""
    found = (
        ([offline / name for name in group], mirrors)
        for group, mirrors in _names_by_hand(download).items()
        if all((offline / name).is_file() for name in group)
    )
    return next(found, ([], []))


def _names_by_hand(download: Download) -> Dict[Tuple[str, ...], List[Mirror]]:
    """Return the names under which a user may have saved a file, or its parts, each with its possible mirrors."""
    groups: Dict[Tuple[str, ...], List[Mirror]] = {(download.name,): list(download.mirrors)}
    for mirror in download.mirrors:
        group = tuple(PurePosixPath(unquote(urlsplit(url).path)).name for url in mirror.parts)
        if group != (download.name,) and all(group):
            groups.setdefault(group, []).append(mirror)
    return groups
