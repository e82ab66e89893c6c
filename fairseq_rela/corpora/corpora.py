"""Extract the raw text of a task from downloaded archives: read every format of the WMT corpora, and count pairs."""

import re
import shutil
import xml.etree.ElementTree as ElementTree
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import regex
from tqdm import tqdm

from ..errors import InputError
from ..files.folders import work_folder
from ..files.lines import (
    count_lines,
    read_byte_lines,
    read_json,
    read_lines,
    read_parallel,
    sha256,
    write_json,
    write_whole,
)
from .archives import matches, read_members, without_dot

RECORD = "extract.json"
SPLITS = ("train", "valid", "test")
_FORMATS = ("plain", "sgm", "tsv", "bars", "tmx")
_ONE_FILE = ("tsv", "bars", "tmx")
_BYTES_A_PAIR = 275  # of raw text, both sides together; the default of a corpus file
_MOST_DAMAGED = 0.01  # largest share of damaged pairs in a training corpus; above it, the file is refused

Pair = Tuple[str, str]
Member = Tuple[str, Path]


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
    keys = ("file",) if style in _ONE_FILE else ("source", "target")
    for key in ("source", "target", "file"):
        if (key in entry) != (key in keys):
            raise InputError(f"{where}: the format {style} has {' and '.join(keys)}")
    columns = entry.get("columns", [])
    if not isinstance(columns, list) or not all(isinstance(column, str) for column in columns):
        raise InputError(f"{where}: columns: {columns!r} is not a list of language codes")
    columns = tuple(columns)
    if style in _ONE_FILE and sorted(columns) != sorted(languages):
        raise InputError(f"{where}: columns must be {languages[0]} and {languages[1]} in their order in the file")
    expected = parse_expected(entry, where) if "pairs" in entry else None
    files = tuple(str(entry[key]) for key in keys)
    if len(set(files)) < len(files):
        raise InputError(f"{where}: {files[0]} is given for both sides")
    return Part(style, files, columns, expected)


def extract(
    sources: Sources, archives: Mapping[str, Path], output: Path, identity: Mapping[str, Any]
) -> Dict[str, Any]:
    """Write ``SPLIT.LANG`` and ``test.SUBSET.lines`` of a task to the new folder ``output``.

    Dev and test sets must be complete and undamaged. In a training corpus, up to 1 % of the pairs may be damaged (not
    UTF-8, or without two sides); they are left out and counted. Empty lines stay, and cleaning counts them.

    Args:
        sources: the corpora of the task.
        archives: the file of each download, by name.
        output: the folder to make.
        identity: what the text is made from; stored in the record and compared by :func:`finished`.

    Returns:
        the record, which is also written to ``extract.json``: the counts of each corpus, and checksums.

    Raises:
        InputError: if a member is missing or damaged, sides have unequal lengths, or counts are not as expected.
    """
    with work_folder(output) as work:
        record: Dict[str, Any] = {**identity, "splits": {}, "subsets": {}}
        for split, parts in sources.splits.items():
            record["splits"][split] = _write_split(split, parts, sources.languages, archives, work)
        _check_train_pairs(record["splits"]["train"], sources.train_pairs)
        for name, part in sources.subsets.items():
            record["subsets"][name] = _write_subset(name, part, sources.languages, archives, work)
        if sources.reference_length is not None:
            _check_reference(work / f"test.{sources.languages[1]}", sources.reference_length)
        record["outputs"] = {path.name: sha256(path) for path in sorted(work.iterdir()) if path.is_file()}
        write_json(work / RECORD, record)
    return record


def cost(sources: Sources, folder: Path) -> str:
    """Return a line with the number of training pairs, the size of their text, and the free disk space, in GB."""
    known = [part.expected.pairs for part in sources.splits["train"] if part.expected is not None]
    pairs = sources.train_pairs.pairs if sources.train_pairs is not None else sum(known)
    more = " and more" if sources.train_pairs is None and len(known) < len(sources.splits["train"]) else ""
    needed, free = pairs * sources.bytes_a_pair / 1e9, shutil.disk_usage(folder).free / 1e9
    return f"{pairs:,} training pairs{more}: about {needed:.1f} GB of text; {free:.1f} GB are free"


def finished(output: Path, identity: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
    """Return the record of a complete folder that was made with the same ``identity``, or None if there is no folder.

    Raises:
        InputError: if the folder was made from something else, or one of its files is missing or has changed.
    """
    if not output.exists():
        return None
    if not (output / RECORD).is_file():
        raise InputError(f"{output} exists and was not made by the stage extract; move it away")
    record = read_json(output / RECORD)
    if not isinstance(record, dict) or any(record.get(key) != value for key, value in identity.items()):
        raise InputError(f"{output} was made from other corpora; remove it, or choose another experiments folder")
    for name, checksum in record.get("outputs", {}).items():
        if not (output / name).is_file() or sha256(output / name) != checksum:
            raise InputError(f"{output / name} is missing or has changed; remove {output} and run again")
    return record


def describe(record: Mapping[str, Any]) -> str:
    """Return the counts of a record as text, one line for each corpus and subset."""
    lines = []
    for split, parts in record["splits"].items():
        for part in parts:
            damaged = ", ".join(f"{rule} {n:,}" for rule, n in part["left_out"].items() if n)
            lines.append(f"{split}: {part['pairs']:,} pairs from {part['from']}" + (f" ({damaged})" if damaged else ""))
    lines += [f"test.{name}: {n:,} lines of the test set" for name, n in record["subsets"].items()]
    return "\n".join(lines)


# --- a split -------------------------------------------------------------------------------------------------------


def _write_split(
    split: str, parts: Iterable[Part], languages: Tuple[str, str], archives: Mapping[str, Path], work: Path
) -> List[Dict[str, Any]]:
    counts = []
    with ExitStack() as stack:
        sides = [stack.enter_context(write_whole(work / f"{split}.{lang}", "wb")) for lang in languages]
        for part in parts:
            pairs = 0
            left_out: "Counter[str]" = Counter()
            with _members(part, archives, work) as files:
                for pair in tqdm(
                    _read(part, files, languages),
                    desc=f"{split}: {_shown(part)}",
                    unit=" pairs",
                    unit_scale=True,
                    disable=None,
                ):
                    if isinstance(pair, str):
                        left_out[pair] += 1
                        continue
                    pairs += 1
                    for side, line in zip(sides, pair):
                        side.write(line.encode("utf-8") + b"\n")
            _check_counts(split, part, pairs, left_out)
            counts.append({"from": _shown(part), "pairs": pairs, "left_out": dict(left_out)})
    return counts


def _check_counts(split: str, part: Part, pairs: int, left_out: "Counter[str]") -> None:
    damaged = sum(left_out.values())
    if damaged and (split != "train" or damaged > _MOST_DAMAGED * (pairs + damaged)):
        what = ", ".join(f"{rule}: {n:,}" for rule, n in left_out.items())
        raise InputError(f"{_shown(part)}: of {pairs + damaged:,} pairs some are damaged ({what}); fetch it again")
    if not pairs:
        raise InputError(f"{_shown(part)}: holds no pair of lines")
    if part.expected is not None and not part.expected.allows(pairs + damaged):
        raise InputError(
            f"{_shown(part)}: {pairs + damaged:,} pairs, {part.expected} are expected; is it the right file, complete?"
        )


def _check_train_pairs(parts: List[Dict[str, Any]], expected: Optional[Expected]) -> None:
    """Check the number of training pairs in all corpora together, with the damaged pairs.

    Raises:
        InputError: if it is not as expected.
    """
    pairs = sum(part["pairs"] + sum(part["left_out"].values()) for part in parts)
    if expected is not None and not expected.allows(pairs):
        raise InputError(
            f"train: {pairs:,} pairs in all corpora together, {expected} are expected; are they the right files, "
            "complete?"
        )


def _write_subset(name: str, part: Part, languages: Tuple[str, str], archives: Mapping[str, Path], work: Path) -> int:
    """Write ``test.NAME.lines``, the numbers of a subset's lines in the test set, and return how many they are.

    Lines are numbered from 0 and written in the order of the subset. A pair is found by both sides, or else by its
    source if only one line of the test set has that source; the reference of the test set is used then.

    Raises:
        InputError: if a pair is not in the test set, a line occurs twice, or the count is not as expected.
    """
    pairs = list(read_parallel(*(work / f"test.{lang}" for lang in languages)))
    where: Dict[Pair, List[int]] = {}
    for number, pair in enumerate(pairs):
        where.setdefault(pair, []).append(number)
    sources = Counter(source for source, _ in pairs)
    only = {source: number for number, (source, _) in enumerate(pairs) if sources[source] == 1}
    lines, other = [], 0
    with _members(part, archives, work) as files:
        for pair in _read(part, files, languages):
            if where.get(pair):
                lines.append(where[pair].pop(0))
            elif not isinstance(pair, str) and pair[0] in only:
                lines.append(only[pair[0]])
                other += 1
            else:
                raise InputError(f"{_shown(part)}: a pair of the subset {name} is not in the test set")
    if len(set(lines)) < len(lines):
        raise InputError(f"{_shown(part)}: the subset {name} has a line of the test set twice")
    if other:
        print(f"{_shown(part)}: {other:,} references of {len(lines):,} are not those of the test set, which are used")
    _check_counts(name, part, len(lines), Counter())
    with write_whole(work / f"test.{name}.lines") as file:
        file.writelines(f"{line}\n" for line in lines)
    return len(lines)


def _check_reference(path: Path, expected: int) -> None:
    """Check the length of the test reference in tokens of sacreBLEU's tokeniser 13a.

    Raises:
        InputError: if the length differs: then this is not the reference of published scores.
    """
    from sacrebleu.metrics import BLEU

    lines = list(read_lines(path))
    length = BLEU(tokenize="13a").corpus_score(lines, [lines]).ref_len
    if length != expected:
        raise InputError(f"{path.name}: the test reference has {length:,} 13a tokens, {expected:,} are expected")


def _shown(part: Part) -> str:
    return part.files[0]


@contextmanager
def _members(part: Part, archives: Mapping[str, Path], work: Path) -> Iterator[List[List[Member]]]:
    """Unpack the members of a part; yield their names and paths, one list for each of ``part.files``.

    The unpacked files are removed at the end of the context.
    """
    folder = work / "members"
    folder.mkdir()
    found: Dict[str, List[Member]] = {name: [] for name in part.files}
    for download in dict.fromkeys(part.downloads):
        wanted = {name: _member_name(name) for name in found if name.partition(":")[0] == download}
        for number, (member, file) in enumerate(read_members(archives[download], list(wanted.values()))):
            # a download that is a single file has one member, with the name of the file; a member should match only
            # one of two patterns, because the names of the files contain their languages
            names = [name for name, pattern in wanted.items() if len(wanted) == 1 or matches(member, pattern)]
            if len(names) != 1:
                raise InputError(f"{member} of {download} is of both {' and '.join(wanted.values())}")
            name = names[0]
            path = folder / f"{download}.{number}"
            with open(path, "wb") as output:
                shutil.copyfileobj(file, output, 1 << 20)
            found[name].append((member, path))
    try:
        yield [found[name] for name in part.files]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _member_name(name: str) -> str:
    """Return ``MEMBER`` of ``DOWNLOAD:MEMBER``, a name or a pattern; it is empty if the download is the file."""
    return without_dot(name.partition(":")[2])


def _stars(pattern: str, member: str) -> Tuple[str, ...]:
    """Return the texts that the ``*`` of a shell pattern match in a name; an empty tuple if there is no ``*``."""
    pieces = []
    for piece in re.split(r"(\*|\?|\[[^]]*\])", pattern):
        piece = re.sub(r"^\[!", "[^", piece)
        pieces.append(
            {"*": "([^/]*)", "?": "[^/]"}.get(piece) or (piece if piece.startswith("[") else re.escape(piece))
        )
    match = re.fullmatch("".join(pieces), member)
    return match.groups() if match else ()


# --- formats -------------------------------------------------------------------------------------------------------


def _read(part: Part, files: List[List[Member]], languages: Tuple[str, str]) -> Iterator[Any]:
    """Yield the pairs of lines of a part; for a damaged pair, yield a string that names the damage."""
    if part.format in _ONE_FILE:
        columns = [part.columns.index(lang) for lang in languages]
        for _, path in files[0]:
            if part.format == "tmx":
                yield from _read_tmx(path, languages, _shown(part))
            else:
                yield from _read_columns(path, "\t" if part.format == "tsv" else " ||| ", columns, languages)
        return
    for source, target in _paired(part, *files):
        yield from (_read_sgm_pair if part.format == "sgm" else _read_plain)(source, target, part)


def _paired(part: Part, sources: List[Member], targets: List[Member]) -> Iterator[Tuple[Path, Path]]:
    """Yield pairs of source and target files whose ``*`` match the same text, sorted by that text.

    Raises:
        InputError: if a file has no other side.
    """
    keyed = []
    for name, side in zip(part.files, (sources, targets)):
        pattern = _member_name(name)
        keyed.append({_stars(pattern, member): path for member, path in side})
    if keyed[0].keys() != keyed[1].keys() or any(len(k) != len(s) for k, s in zip(keyed, (sources, targets))):
        names = ", ".join(member for member, _ in sources + targets)
        raise InputError(f"{_shown(part)}: files without their other side among {names}")
    for key in sorted(keyed[0]):
        yield keyed[0][key], keyed[1][key]


def _text(line: bytes) -> str:
    """Decode a line of UTF-8.

    Raises:
        UnicodeDecodeError: if the line is not UTF-8, or has zero bytes, as text in UTF-16 does.
    """
    if b"\0" in line:
        raise UnicodeDecodeError("utf-8", line, 0, 1, "zero bytes")
    return line.decode("utf-8")


def _read_plain(source: Path, target: Path, part: Part) -> Iterator[Any]:
    for left, right in zip_longest(read_byte_lines(source), read_byte_lines(target)):
        if left is None or right is None:
            raise InputError(
                f"{_shown(part)} has {count_lines(source):,} lines, {part.files[1]} has {count_lines(target):,}: "
                "the two sides of a corpus must be of equal length"
            )
        try:
            yield _text(left), _text(right)
        except UnicodeDecodeError:
            yield "not UTF-8"


def _read_columns(path: Path, separator: str, columns: List[int], languages: Tuple[str, str]) -> Iterator[Any]:
    if "zh" in languages:
        columns = _check_chinese(path, separator, columns, languages)
    width = 2 if separator != "\t" else None
    for line in read_byte_lines(path):
        try:
            fields = _text(line).split(separator)
        except UnicodeDecodeError:
            yield "not UTF-8"
            continue
        width = width or len(fields)  # more columns may follow, equally many in every line
        if width < 2 or len(fields) != width:
            yield "not two columns" if width == 2 else f"not {width} columns"
        else:
            yield fields[columns[0]], fields[columns[1]]


_HAN = regex.compile(r"\p{Han}")


def _check_chinese(path: Path, separator: str, columns: List[int], languages: Tuple[str, str]) -> List[int]:
    """Return the columns, swapped if Chinese is in the other column, because published descriptions disagree.

    The first 1,000 lines decide.
    """
    han = [0, 0]
    for line in islice(read_byte_lines(path), 1000):
        for index, text in enumerate(line.decode("utf-8", "replace").split(separator)[:2]):
            han[index] += len(_HAN.findall(text))
    if han[columns[languages.index("zh")]] >= han[columns[1 - languages.index("zh")]]:
        return columns
    print("Chinese is in the other column of the file, and is taken from there")
    return columns[::-1]


_SEGMENT = re.compile(r"<seg [^>]*>(.*)</seg>(?:</\w+>)*")
_SEGMENT_TAG = re.compile(r"<seg\b", re.IGNORECASE)
_DOCUMENT = re.compile(r"<doc\b[^>]*\bdocid=\"([^\"]*)\"", re.IGNORECASE)
_IDENTITY = re.compile(r"<seg\b[^>]*\bid=\"([^\"]*)\"")


def _read_sgm_pair(source: Path, target: Path, part: Part) -> Iterator[Any]:
    sides = [_read_sgm(path, name) for path, name in zip((source, target), part.files)]
    for left, right in zip_longest(*sides):
        if left is None or right is None or left[0] != right[0]:
            where = (left or right)[0]
            raise InputError(f"{_shown(part)} and {part.files[1]} differ at document {where[0]}, segment {where[1]}")
        yield left[1], right[1]


def _read_sgm(path: Path, name: str) -> Iterator[Tuple[Tuple[str, str], str]]:
    """Yield ``((document, segment id), text)`` of each segment of an SGML file.

    The text is that of sacreBLEU: entities stay, and runs of white space become one space.

    Raises:
        InputError: if the file is not UTF-8, a segment has no id, or a segment does not have a line of its own, so
            that sacreBLEU would miss it.
    """
    document = ""
    for number, content in enumerate(read_byte_lines(path), 1):
        try:
            line = _text(content)
        except UnicodeDecodeError as error:
            raise InputError(f"{name}, line {number}: not UTF-8 ({error.reason})") from error
        found = _DOCUMENT.search(line)
        if found:
            document = found.group(1)
        stripped = line.strip()
        segments = len(_SEGMENT_TAG.findall(stripped))
        if not segments:
            continue
        match, identity = _SEGMENT.fullmatch(stripped), _IDENTITY.search(stripped)
        if segments > 1 or match is None or identity is None:
            raise InputError(
                f"{name}, line {number}: a <seg> without id, or without a line to itself, or that does not end in its "
                f"line: {stripped[:60]}"
            )
        yield (document, identity.group(1)), re.sub(r"\s+", " ", match.group(1)).strip()


def _read_tmx(path: Path, languages: Tuple[str, str], name: str) -> Iterator[Any]:
    """Yield the pairs of a translation memory, or a string for a unit that lacks one of the languages.

    Language codes in the file may have a region (``en-GB``) or capitals.

    Raises:
        InputError: if the file is damaged, or has an encoding that is not supported.
    """
    xml = "{http://www.w3.org/XML/1998/namespace}lang"
    wanted = [_code(lang) for lang in languages]
    body = None
    try:
        for event, element in ElementTree.iterparse(str(path), events=("start", "end")):
            if event == "start":
                body = element if _tag(element) == "body" else body
                continue
            if _tag(element) != "tu":
                continue
            texts: Dict[str, str] = {}
            for variant in element:
                segment = next((part for part in variant if _tag(part) == "seg"), None)
                if _tag(variant) == "tuv" and segment is not None:
                    code, text = _code(variant.get(xml) or variant.get("lang") or ""), _text_of(segment)
                    for key in (code, code.split("-")[0]):
                        texts.setdefault(key, text.replace("\n", " "))
            yield (texts[wanted[0]], texts[wanted[1]]) if set(wanted) <= set(texts) else "not both languages"
            if body is not None:
                body.clear()  # frees the memory of the units read so far
    except ElementTree.ParseError as error:
        raise InputError(f"{name}: damaged TMX file ({error}); fetch it again") from error
    except (ValueError, LookupError) as error:  # expat supports few encodings
        raise InputError(f"{name}: the encoding of this TMX file is not read ({error}); convert it to UTF-8") from error


_MARKUP = ("bpt", "ept", "it", "ph", "ut")  # elements of a <seg> that hold codes of the original file, not text


def _tag(element: ElementTree.Element) -> str:
    """Return the tag of an element without its XML namespace."""
    return element.tag.rpartition("}")[2]


def _code(lang: str) -> str:
    return lang.lower().replace("_", "-")


def _text_of(segment: ElementTree.Element) -> str:
    inner = ((("" if _tag(part) in _MARKUP else _text_of(part)), part.tail or "") for part in segment)
    return (segment.text or "") + "".join(chain.from_iterable(inner))
