"""The ledger of downloads: the record ``NAME.json`` of each file ``NAME``, by which changed files are noticed.

The record is a list with one entry: the source of the file, and the size and checksum of its bytes. Every later copy
of the file must have the same bytes, also if it comes from another source. A record of an earlier version may
have several entries.
"""

import re
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence
from urllib.parse import urlsplit

from ..errors import InputError
from ..files.records import checksums, read_json, write_json
from .archives import kind, verify
from .spec import Mirror

# url (list of the parts; empty for a file that the user put there), bytes, sha256, md5 (if a mirror states one),
# content (the kind of archive, or "plain")
Entry = Dict[str, Any]
_ARCHIVE_NAME = re.compile(r"\.(tgz|tar|zip|gz)(\.\d+)?$", re.I)


def check(path: Path, file: Path, mirrors: Sequence[Mirror], url: Sequence[str] = ()) -> Entry:
    """Check a file against its record and its mirrors; return its entry.

    A file without a record must also be a complete archive, if all mirrors promise an archive by their names. A mirror
    that states neither checksum nor size accepts every file.

    Args:
        path: where the file belongs; its record is beside it.
        file: where the file is.
        mirrors: the mirrors that the file may have come from.
        url: the source from which the file has just been fetched; empty if the file was there before.

    Raises:
        InputError: the file is damaged, differs from its record, or matches none of the mirrors.
    """
    if not file.is_file():
        raise InputError(f"{file}: not a file; remove it")
    entries = _read(path)
    algorithms = ["sha256", "md5"] if any(mirror.md5 for mirror in mirrors) else ["sha256"]
    facts = {"bytes": file.stat().st_size, **checksums(file, algorithms, progress=True)}
    known = next((entry for entry in entries if entry["sha256"] == facts["sha256"]), None)
    if known is not None:
        entry = {**known, **facts, **({"url": list(url)} if url else {})}
    elif entries:
        raise InputError(
            f"{file}: not the file of {_record(path)} (sha256 is {facts['sha256']}, not {entries[0]['sha256']}); "
            "remove it to fetch it again, or remove the record to accept it"
        )
    else:
        entry = {"url": list(url), **facts, "content": _verified_kind(file, mirrors)}
    reason = why_outdated(entry, mirrors)
    if reason:
        raise InputError(f"{file}: {reason}; remove it{f' and {_record(path)}' if entries else ''} to fetch it again")
    if known is None:
        _print_doubt(file, entry, mirrors)
    return entry


def record(path: Path, entry: Entry) -> None:
    """Write the record of a file, unless it has this entry already."""
    if _read(path) != [entry]:
        write_json(_record(path), [entry])


def why_outdated(entry: Entry, mirrors: Sequence[Mirror]) -> Optional[str]:
    """Return why a recorded download no longer matches the configured mirrors, or None."""
    possible = [mirror for mirror in mirrors if list(mirror.parts) == entry["url"]] if entry["url"] else mirrors
    if not possible:
        return f"it came from {' + '.join(entry['url'])}, which is no longer one of its addresses"
    differences = [_difference(mirror, entry) for mirror in possible]
    return " and ".join(map(str, differences)) if all(differences) else None


def _difference(mirror: Mirror, entry: Entry) -> Optional[str]:
    """Return how a file differs from what a mirror states, or None."""
    for key in ("bytes", "md5", "sha256"):
        expected = getattr(mirror, key)
        if expected is not None and entry.get(key, expected) != expected:  # an old record may have no md5
            return f"{key} is {entry[key]}, not {expected}"
    return None


def _print_doubt(file: Path, entry: Entry, mirrors: Sequence[Mirror]) -> None:
    """Print a line if a file differs from that of a mirror, and is accepted because another mirror states nothing."""
    differences = {mirror: _difference(mirror, entry) for mirror in mirrors}
    if any(differences.values()) and not any(m.is_verifiable for m in mirrors if not differences[m]):
        others = "; ".join(f"{' + '.join(m.parts)} ({reason})" for m, reason in differences.items() if reason)
        print(f"{file}: accepted as the file of a mirror without a checksum, because it differs from that of {others}")


def _verified_kind(file: Path, mirrors: Sequence[Mirror]) -> str:
    """Return the kind of archive that a file is, or "plain".

    Raises:
        InputError: the archive is damaged, or the file is no archive although all mirrors promise one.
    """
    verify(file)
    content = kind(file)
    # another kind of archive is accepted, but a file that is no archive could be any text
    if content == "plain" and all(_ARCHIVE_NAME.search(urlsplit(mirror.parts[0]).path) for mirror in mirrors):
        raise InputError(f"{file}: not the archive that its name promises; fetch it again")
    return content


def _record(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def _read(path: Path) -> List[Entry]:
    """Return the entries of the record of a file; none if there is no record."""
    entries = read_json(_record(path)) if _record(path).exists() else []
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) and {"url", "bytes", "sha256", "content"} <= entry.keys() for entry in entries
    ):
        raise InputError(f"{_record(path)}: not the record of a download; remove it")
    return entries
