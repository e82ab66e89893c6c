"""The record ``NAME.json`` of a download ``NAME``: a list of one entry, by which a changed file is noticed.

Every later copy of the file must have the same bytes, whatever its source. Old records may have several entries.
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
    """Check a file against its record and its mirrors, write its record, and return its entry.

    Args:
        path: where the file belongs; its record is beside it.
        file: where the file is.
        mirrors: the mirrors that it may have come from; one that states neither checksum nor size fits every file.
        url: the source from which the file has just been fetched; empty if the file was there before.

    Raises:
        InputError: the file is damaged, differs from its record, matches none of the mirrors, or is no archive
            although all mirrors promise one by their names.
    """
    if not file.is_file():
        raise InputError(f"{file}: not a file; remove it")
    entries, algorithms = _read(path), ["sha256"] + ["md5"] * any(mirror.md5 for mirror in mirrors)
    facts = {"bytes": file.stat().st_size, **checksums(file, algorithms, progress=True)}
    known = [entry for entry in entries if entry["sha256"] == facts["sha256"]]
    if known:
        entry = {**known[0], **facts}
    elif entries:
        raise InputError(
            f"{file}: not the file of {_record(path)} (sha256 is {facts['sha256']}, not {entries[0]['sha256']}); "
            "remove it to fetch it again, or remove the record to accept it"
        )
    else:
        verify(file)
        entry = {"url": [], **facts, "content": kind(file)}
        # another kind of archive is accepted, but a file that is no archive could be any text
        if entry["content"] == "plain" and all(_ARCHIVE_NAME.search(urlsplit(m.parts[0]).path) for m in mirrors):
            raise InputError(f"{file}: not the archive that its name promises; fetch it again")
    entry["url"] = list(url) or entry["url"]
    reason = why_outdated(entry, mirrors)
    if reason:
        raise InputError(f"{file}: {reason}; remove it{f' and {_record(path)}' if known else ''} to fetch it again")
    differing = _differences(entry, mirrors)
    if differing and not known and not any(m.is_verifiable for m in mirrors if m not in differing):
        others = "; ".join(f"{mirror} ({difference})" for mirror, difference in differing.items())
        print(f"{file}: accepted as the file of a mirror without a checksum, because it differs from that of {others}")
    if entries != [entry]:
        write_json(_record(path), [entry])
    return entry


def why_outdated(entry: Entry, mirrors: Sequence[Mirror]) -> Optional[str]:
    """Return why a recorded download no longer matches the configured mirrors, or None."""
    possible = [mirror for mirror in mirrors if entry["url"] in ([], list(mirror.parts))]
    if not possible:
        return f"it came from {' + '.join(entry['url'])}, which is no longer one of its addresses"
    differing = _differences(entry, possible)
    return " and ".join(differing.values()) if all(mirror in differing for mirror in possible) else None


def _differences(entry: Entry, mirrors: Sequence[Mirror]) -> Dict[Mirror, str]:
    """Return the mirrors that state something else than the entry, each with the first difference."""
    found: Dict[Mirror, str] = {}
    for mirror in mirrors:
        for key in ("bytes", "md5", "sha256"):
            expected = getattr(mirror, key)
            if expected is not None and entry.get(key, expected) != expected:  # an old record may have no md5
                found.setdefault(mirror, f"{key} is {entry[key]}, not {expected}")
    return found


def _record(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def _read(path: Path) -> List[Entry]:
    """Return the entries of the record of a file; none if there is no record."""
    entries = read_json(_record(path)) if _record(path).exists() else []
    if isinstance(entries, list) and all(
        isinstance(entry, dict) and {"url", "bytes", "sha256", "content"} <= entry.keys() for entry in entries
    ):
        return entries
    raise InputError(f"{_record(path)}: not the record of a download; remove it")
