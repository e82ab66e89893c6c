"""The ledger of downloads: the record ``NAME.json`` of each file ``NAME``, by which changed files are noticed.

The record has one entry for each source that the file ever came from, with the checksum of its bytes at that time.
A source must give the same bytes forever; another source may give other bytes (a zip instead of a tgz). The local
file must match one of the entries.
"""

import hashlib
import re
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence
from urllib.parse import urlsplit

from tqdm import tqdm

from ..errors import InputError
from ..files.records import read_json, write_json
from .archives import kind, verify
from .spec import Mirror

# url (list of the parts; empty for a file that the user put there), bytes, sha256, md5 (if a mirror states one),
# content (the kind of archive, or "plain")
Entry = Dict[str, Any]
_ARCHIVE_NAME = re.compile(r"\.(tgz|tar|zip|gz)(\.\d+)?$", re.I)


def entry_of(path: Path, found: Path, mirrors: Sequence[Mirror]) -> Entry:
    """Return the recorded entry of a file that is there; check and record the file if it has no record yet.

    Args:
        path: where the file belongs; its record is beside it.
        found: where the file is.
        mirrors: the mirrors that the file may have come from.

    Raises:
        InputError: the file is damaged, matches no entry of the record, or matches none of the mirrors.
    """
    if not found.is_file():
        raise InputError(f"{found}: not a file; remove it")
    entries, record = _read(path), _record(path)
    if not entries:
        entry = check(found, (), mirrors)
        add(path, entry)
        return entry
    facts = _facts(found, mirrors)
    same = [{**entry, **facts} for entry in entries if entry["sha256"] == facts["sha256"]]
    reasons = [why_outdated(entry, mirrors) for entry in same]
    if None in reasons:
        return same[reasons.index(None)]
    if same:
        raise InputError(f"{found}: {reasons[-1]}; remove it and {record} to fetch it again")
    if found == path:
        raise InputError(f"{path} has changed since it was fetched; remove it and its .json to fetch it again")
    raise InputError(f"{found} is not the file that was fetched before; remove {record} to accept it")


def check(file: Path, url: Sequence[str], mirrors: Sequence[Mirror]) -> Entry:
    """Check a file that came from ``url`` (empty if the user put it there), and return its entry for the record.

    Raises:
        InputError: the file is damaged, is not the archive that its mirrors promise, or has not the checksums and
            the size that one of its mirrors states. A mirror that states none accepts every file.
    """
    verify(file)
    content = kind(file)
    # another kind of archive is accepted, but a file that is no archive could be any text
    if content == "plain" and all(_ARCHIVE_NAME.search(urlsplit(mirror.parts[0]).path) for mirror in mirrors):
        raise InputError(f"{file}: not the archive that its name promises; fetch it again")
    facts = _facts(file, mirrors)
    differences = {mirror: _difference(mirror, facts) for mirror in mirrors}
    if all(differences.values()):
        raise InputError(f"{file}: {' and '.join(map(str, differences.values()))}; fetch it again")
    if any(differences.values()) and not any(m.is_verifiable for m in mirrors if not differences[m]):
        others = "; ".join(f"{' + '.join(m.parts)} ({reason})" for m, reason in differences.items() if reason)
        print(f"{file}: accepted as the file of a mirror without a checksum, because it differs from that of {others}")
    return {"url": list(url), **facts, "content": content}


def why_outdated(entry: Entry, mirrors: Sequence[Mirror]) -> Optional[str]:
    """Return why a recorded download no longer matches the configured mirrors, or None."""
    possible = [mirror for mirror in mirrors if list(mirror.parts) == entry["url"]] if entry["url"] else mirrors
    if not possible:
        return f"it came from {' + '.join(entry['url'])}, which is no longer one of its addresses"
    differences = [_difference(mirror, entry) for mirror in possible]
    return " and ".join(map(str, differences)) if all(differences) else None


def add(path: Path, entry: Entry) -> None:
    """Add an entry to the record of a file, unless the record has an entry of the same source and checksum.

    Raises:
        InputError: the same source gave another file before.
    """
    entries = _read(path)
    old = next((old for old in entries if old["url"] == entry["url"]), None)
    if old is None:
        write_json(_record(path), [*entries, entry])
    elif old["sha256"] != entry["sha256"]:
        raise InputError(
            f"{' + '.join(entry['url'])}: the source of {path.name} has changed since {_record(path)} was "
            f"written (sha256 {entry['sha256']}, not {old['sha256']}); remove that to accept it"
        )


def _record(path: Path) -> Path:
    """Return the path of the record of a file."""
    return path.with_name(path.name + ".json")


def _read(path: Path) -> List[Entry]:
    """Return the entries of the record of a file; none if there is no record."""
    record = _record(path)
    entries = read_json(record) if record.exists() else []
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) and {"url", "bytes", "sha256", "content"} <= entry.keys() for entry in entries
    ):
        raise InputError(f"{record}: not the record of a download; remove it")
    return entries


def _facts(path: Path, mirrors: Sequence[Mirror]) -> Dict[str, Any]:
    """Return the size and SHA-256 of a file in hexadecimal, and its MD5 if a mirror states one."""
    size = path.stat().st_size
    digests = {name: hashlib.new(name) for name in ("sha256", "md5")[: 1 + any(mirror.md5 for mirror in mirrors)]}
    bar = dict(total=size, desc=f"check {path.name}", unit="B", unit_scale=True, disable=None, leave=False)
    with open(path, "rb") as file, tqdm.wrapattr(file, "read", **bar) as watched:
        for block in iter(lambda: watched.read(1 << 20), b""):
            for digest in digests.values():
                digest.update(block)
    return {"bytes": size, **{name: digest.hexdigest() for name, digest in digests.items()}}


def _difference(mirror: Mirror, facts: Dict[str, Any]) -> Optional[str]:
    """Return how a file differs from what a mirror states, or None."""
    for key in ("bytes", "md5", "sha256"):
        expected = getattr(mirror, key)
        if expected is not None and facts.get(key, expected) != expected:  # an old record may have no md5
            return f"{key} is {facts[key]}, not {expected}"
    return None
