"""Parse what a corpus file says about the sources of a task's raw text."""

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ..errors import InputError

SPLITS = ("train", "valid", "test")
_FORMATS = ("plain", "sgm", "tsv", "bars", "tmx")
ONE_FILE = ("tsv", "bars", "tmx")  # the formats that have both sides in one file
_BYTES_A_PAIR = 275  # of raw text, both sides together; the default of a corpus file


class Expected(NamedTuple):
    """An expected number of pairs, and the share of it by which the actual number may differ (0.01 is 1 %)."""

    pairs: int
    tolerance: float = 0.0

    def allows(self, pairs: int) -> bool:
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
        InputError: if an entry is missing or has a wrong form.
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
        InputError: if ``pairs`` is not a count, or ``tolerance`` is not at least 0 and below 1.
    """
    if not isinstance(entry, Mapping):
        raise InputError(f"{where}: {entry!r} is not pairs and tolerance")
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
