"""Fetch the files that corpora are made from: from mirrors, or from a folder of the user."""

import errno
import os
from functools import partial
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from tqdm import tqdm

from ..errors import InputError
from ..files.locks import only_process
from ..files.outputs import join_files, refuse_small_disk
from . import ledger
from .offline import find, take
from .spec import Download, Mirror
from .transfer import Failed, Part, size_on_server, transfer

_MARGIN = 100 * 10**6  # bytes of the disk that must stay free


def fetch_all(downloads: Dict[str, Download], folder: Path, offline: Optional[Path] = None) -> Dict[str, Path]:
    """Fetch all downloads, after printing how many bytes each needs; return the path of each file by its name.

    Raises:
        InputError: as :func:`fetch`; also, before the first download, if the disk has no space for all of them.
    """
    needed, human = sizes(downloads, folder, offline), partial(tqdm.format_sizeof, suffix="B")
    for name, size in needed.items():
        print(f"{name}: {'already here' if size == 0 else 'size unknown' if size is None else human(size)}")
    total, unknown = sum(size or 0 for size in needed.values()), list(needed.values()).count(None)
    print(f"to fetch: {human(total)}" + (f" and {unknown} of unknown size" if unknown else ""), flush=True)
    refuse_small_disk(folder, total and total + _MARGIN)
    paths = {}
    for name, download in downloads.items():
        paths[name], entry = fetch(download, folder, offline)
        source = " + ".join(entry["url"]) or f"{paths[name]}, put there by hand"
        print(f"{name}: {human(entry['bytes'])}, sha256 {entry['sha256']}, from {source}", flush=True)
    return paths


def sizes(downloads: Dict[str, Download], folder: Path, offline: Optional[Path] = None) -> Dict[str, Optional[int]]:
    """Return the bytes that each file still needs in ``folder``: 0 if the file is there, None if unknown."""

    def needed(download: Download) -> Optional[int]:
        if (folder / download.name).exists():
            return 0
        if offline is not None:
            found, _ = find(download, offline)
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
        try:
            if path.exists():
                return path, ledger.check(path, path, download.mirrors)
            return _use_mirrors(path, download) if offline is None else take(path, download, offline)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            reason = "no space left on the disk" if full else error.strerror or error
            raise InputError(f"{path}: cannot be written ({reason}); make room and rerun the same command") from error


def _begun_first(path: Path, mirrors: Sequence[Mirror]) -> List[Tuple[Mirror, List[Part]]]:
    """Return the mirrors and their parts in order, but first the mirror that an unfinished download came from."""
    pairs = [(mirror, [Part(path, number, url) for number, url in enumerate(mirror.parts)]) for mirror in mirrors]
    return sorted(pairs, key=lambda pair: not any(part.begun for part in pair[1]))


def _use_mirrors(path: Path, download: Download) -> Tuple[Path, ledger.Entry]:
    """Download the file from the first mirror that gives it, and rename it."""
    pairs = _begun_first(path, download.mirrors)
    every_part = [part for _, parts in pairs for part in parts]
    reasons = []
    for mirror, parts in pairs:
        try:
            entry = _fetch_from(path, mirror, parts)
        except Failed as error:
            reasons.append(f"{mirror} ({error})")
            continue
        os.replace(parts[0].path, path)
        _remove(every_part)
        return path, entry
    _remove([part for part in every_part if not part.size])
    raise InputError(
        f"{download.name}: no mirror gives it: {'; '.join(reasons)}; "
        f"fetch it by hand to {path.parent} and give --offline {path.parent}"
    )


def _fetch_from(path: Path, mirror: Mirror, parts: Sequence[Part], again: bool = True) -> ledger.Entry:
    """Download a file to its first part and check it; a damaged file is downloaded once more."""
    for part in parts:
        transfer(part)
    join_files([part.path for part in parts[1:]], parts[0].path)
    try:
        return ledger.check(path, parts[0].path, [mirror], mirror.parts)
    except InputError as error:
        _remove(parts)
        if again:
            return _fetch_from(path, mirror, parts, again=False)
        raise Failed(str(error)) from error


def _remove(parts: Sequence[Part]) -> None:
    for part in parts:
        part.remove()
