"""The sources of a task's raw text, parsed from its corpus file: downloads with mirrors, and parts of archives."""

import re
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple
from urllib.parse import urlsplit

from ..errors import InputError

SPLITS = ("train", "valid", "test")
_FORMATS = ("plain", "sgm", "tsv", "bars", "tmx")
ONE_FILE = ("tsv", "bars", "tmx")  # the formats that have both sides in one file
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}")
_OUR_ENDINGS = (".json", ".part")
_BYTES_A_PAIR = 275  # of raw text, both sides together; the default of a corpus file


class Expected(NamedTuple):
    """An expected number of pairs, and the share of it by which the actual number may differ (0.01 is 1 %)."""

    pairs: int
    tolerance: float = 0.0

    def allows(self, pairs: int) -> bool:
        """Return whether a number of pairs is within the tolerance."""
        return abs(pairs - self.pairs) <= self.tolerance * self.pairs

    def __str__(self) -> str:
        return f"{self.pairs:,}" + (f" give or take {self.tolerance:.1%}" if self.tolerance else "")


@dataclass(frozen=True)
class Part:
    """One corpus of a split.

    Attributes:
        format: ``plain`` (two files of lines), ``sgm`` (two files of ``<seg>``), ``tsv``, ``bars`` ("a ||| b")
            or ``tmx`` (one file).
        files: ``DOWNLOAD:MEMBER`` of source and target, or of the one file. The member may be a shell pattern; leave
            it out if the download itself is the file. If patterns match several files, a source file and a target
            file form a pair if their ``*`` match the same text.
        columns: the languages of the columns, for formats with one file.
        expected: the number of pairs, if known.
    """

    format: str
    files: Tuple[str, ...]
    columns: Tuple[str, ...] = ()
    expected: Optional[Expected] = None

    @property
    def name(self) -> str:
        """The first file, for messages and records."""
        return self.files[0]

    @property
    def downloads(self) -> List[str]:
        """The name of the download of each file."""
        return [name.partition(":")[0] for name in self.files]


@dataclass(frozen=True)
class Sources:
    """The sources of a task's raw text.

    Attributes:
        languages: source and target.
        splits: the parts of each split, which are joined in order.
        subsets: for each subset of the test set, the part that holds the pairs of the subset.
        reference_length: number of tokens of the test reference by sacreBLEU's tokeniser 13a, if known.
        train_pairs: number of pairs in all parts of the training split together, if known.
        bytes_a_pair: estimated bytes of raw training text per pair, both sides together; used by :func:`cost`.
    """

    languages: Tuple[str, str]
    splits: Dict[str, Tuple[Part, ...]]
    subsets: Dict[str, Part]
    reference_length: Optional[int] = None
    train_pairs: Optional[Expected] = None
    bytes_a_pair: int = _BYTES_A_PAIR

    @property
    def parts(self) -> List[Part]:
        """The parts of all splits and subsets."""
        return [part for parts in self.splits.values() for part in parts] + list(self.subsets.values())

    @property
    def downloads(self) -> List[str]:
        """The names of all downloads that the task needs, each once."""
        return list(dict.fromkeys(name for part in self.parts for name in part.downloads))


def parse_sources(spec: Mapping[str, Any], languages: Tuple[str, str]) -> Sources:
    """Parse a corpus file: the entries of its splits and subsets, and of their sizes.

    Args:
        spec: the entries ``train``, ``valid``, ``test``, and where given ``subsets``, ``reference_length``,
            ``train_pairs`` and ``bytes_a_pair``.
        languages: source and target.

    Raises:
        InputError: an entry is missing or has a wrong form.
    """
    splits = {}
    for split in SPLITS:
        if not isinstance(spec.get(split), list) or not spec[split]:
            raise InputError(f"{split}: give a list of corpora")
        splits[split] = tuple(_parse_part(entry, split, languages) for entry in spec[split])
    if not isinstance(spec.get("subsets") or {}, Mapping):
        raise InputError(f"subsets: {spec['subsets']!r} is not a mapping of names to corpora")
    subsets = {name: _parse_part(entry, name, languages) for name, entry in (spec.get("subsets") or {}).items()}
    for key in ("reference_length", "bytes_a_pair"):
        if spec.get(key) is not None and not is_count(spec[key]):
            raise InputError(f"{key}: {spec[key]!r} is not a number")
    train_pairs = parse_expected(spec["train_pairs"], "train_pairs") if "train_pairs" in spec else None
    size = spec.get("bytes_a_pair") or _BYTES_A_PAIR
    return Sources(languages, splits, subsets, spec.get("reference_length"), train_pairs, size)


def is_count(value: Any) -> bool:
    """Return whether a value is a whole number of at least 1; YAML's ``true`` is not one."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def parse_expected(entry: Mapping[str, Any], where: str) -> Expected:
    """Parse ``pairs`` and ``tolerance`` (0 by default) of an entry.

    Args:
        entry: the entry.
        where: its name, for messages.

    Raises:
        InputError: ``pairs`` is not a count, or ``tolerance`` is not at least 0 and below 1.
    """
    if not isinstance(entry, Mapping):
        raise InputError(f"{where}: {entry!r} is not a mapping with pairs and tolerance")
    pairs, tolerance = entry.get("pairs"), entry.get("tolerance", 0.0)
    if pairs is None or not is_count(pairs):
        raise InputError(f"{where}: pairs: {pairs!r} is not a count")
    if not isinstance(tolerance, (int, float)) or not 0 <= tolerance < 1:
        raise InputError(f"{where}: tolerance: {tolerance!r} is not a share between 0 and 1")
    return Expected(pairs, float(tolerance))


def _parse_part(entry: Any, where: str, languages: Tuple[str, str]) -> Part:
    known = {"format", "source", "target", "file", "columns", "pairs", "tolerance"}
    if not isinstance(entry, dict) or not set(entry) <= known:
        raise InputError(f"{where}: an entry has other keys than {', '.join(sorted(known))}")
    style = entry.get("format", "plain")
    if style not in _FORMATS:
        raise InputError(f"{where}: no format {style!r}; there are {', '.join(_FORMATS)}")
    keys = ("file",) if style in ONE_FILE else ("source", "target")
    for key in ("source", "target", "file"):
        if (key in entry) != (key in keys):
            raise InputError(f"{where}: the format {style} has {' and '.join(keys)}")
    columns = entry.get("columns", [])
    if not isinstance(columns, list) or not all(isinstance(column, str) for column in columns):
        raise InputError(f"{where}: columns: {columns!r} is not a list of language codes")
    columns = tuple(columns)
    if style in ONE_FILE and sorted(columns) != sorted(languages):
        raise InputError(f"{where}: columns must be {languages[0]} and {languages[1]} in their order in the file")
    expected = parse_expected(entry, where) if "pairs" in entry else None
    files = tuple(str(entry[key]) for key in keys)
    if len(set(files)) < len(files):
        raise InputError(f"{where}: {files[0]} is given for both sides")
    return Part(style, files, columns, expected)


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

    def __str__(self) -> str:
        return " + ".join(self.parts)

    @property
    def is_verifiable(self) -> bool:
        """Whether a checksum or a size is expected."""
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
        InputError: an entry has another form; the message names the entry.
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
