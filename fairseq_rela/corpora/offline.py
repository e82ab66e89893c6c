"""Find the files of a corpus that the user has fetched by hand."""

import os
from pathlib import Path, PurePosixPath
from typing import Dict, List, Tuple
from urllib.parse import unquote, urlsplit

from ..errors import InputError
from ..files.outputs import join_files
from . import ledger
from .spec import Download, Mirror


def take(path: Path, download: Download, offline: Path) -> Tuple[Path, ledger.Entry]:
    """Return a verified file in ``offline`` and its entry in the record; parts are joined to ``path`` first.

    Raises:
        InputError: the file is not there, or as :func:`fairseq_rela.corpora.ledger.check`.
    """
    found, mirrors = find(download, offline)
    if not found:
        names = " or ".join(" + ".join(group) for group in _names(download))
        urls = " or ".join(map(str, download.mirrors))
        raise InputError(f"{offline} has no file {names}; fetch {urls} by hand and put it there")
    if len(found) == 1:
        try:
            return found[0], ledger.check(path, found[0], mirrors)
        except InputError as error:
            hint = "if that is another file of the same name, save the right one as"
            raise InputError(f"{error}; {hint} {download.name}") from error
    joined = path.with_name(path.name + ".joined.part")  # .part may hold an unfinished download
    try:
        joined.write_bytes(b"")
        join_files(found, joined)
        entry = ledger.check(path, joined, mirrors)
        os.replace(joined, path)
    finally:
        joined.unlink(missing_ok=True)
    return path, entry


def find(download: Download, offline: Path) -> Tuple[List[Path], List[Mirror]]:
    """Return the file, or all its parts, in ``offline``, and the mirrors that it may come from; else empty lists."""
    for names, mirrors in _names(download).items():
        files = [offline / name for name in names]
        if all(file.is_file() for file in files):
            return files, mirrors
    return [], []


def _names(download: Download) -> Dict[Tuple[str, ...], List[Mirror]]:
    """Return the names under which a user may have saved a file, or its parts, each with its possible mirrors."""
    groups: Dict[Tuple[str, ...], List[Mirror]] = {(download.name,): list(download.mirrors)}
    for mirror in download.mirrors:
        group = tuple(PurePosixPath(unquote(urlsplit(url).path)).name for url in mirror.parts)
        if group != (download.name,) and all(group):
            groups.setdefault(group, []).append(mirror)
    return groups
