"""Read pairs of lines from every format of the WMT corpora."""

import re
import xml.etree.ElementTree as ElementTree
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import regex

from ..errors import InputError
from ..files.lines import count_lines, read_byte_lines
from .archives import without_dot
from .spec import ONE_FILE, Part

Member = Tuple[str, Path]


def read_pairs(part: Part, files: List[List[Member]], languages: Tuple[str, str]) -> Iterator[Any]:
    """Yield the pairs of lines of a part; for a damaged pair, yield a string that names the damage."""
    if part.format in ONE_FILE:
        columns = [part.columns.index(lang) for lang in languages]
        for _, path in files[0]:
            if part.format == "tmx":
                yield from _read_tmx(path, languages, part.name)
            else:
                yield from _read_columns(path, "\t" if part.format == "tsv" else " ||| ", columns, languages)
        return
    for source, target in _paired(part, *files):
        yield from (_read_sgm_pair if part.format == "sgm" else _read_plain)(source, target, part)


def _paired(part: Part, sources: List[Member], targets: List[Member]) -> Iterator[Tuple[Path, Path]]:
    """Yield pairs of source and target files whose ``*`` match the same text, sorted by that text.

    Raises:
        InputError: a file has no other side.
    """
    keyed = [
        {_stars(member_name(name), member): path for member, path in side}
        for name, side in zip(part.files, (sources, targets))
    ]
    if keyed[0].keys() != keyed[1].keys() or any(len(k) != len(s) for k, s in zip(keyed, (sources, targets))):
        names = ", ".join(member for member, _ in sources + targets)
        raise InputError(f"{part.name}: a file has no other side among {names}; correct the patterns")
    for key in sorted(keyed[0]):
        yield keyed[0][key], keyed[1][key]


def member_name(name: str) -> str:
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


def _text(line: bytes) -> str:
    """Decode a line of UTF-8.

    Raises:
        UnicodeDecodeError: the line is not UTF-8, or has zero bytes, as text in UTF-16 does.
    """
    if b"\0" in line:
        raise UnicodeDecodeError("utf-8", line, 0, 1, "zero bytes")
    return line.decode("utf-8")


def _read_plain(source: Path, target: Path, part: Part) -> Iterator[Any]:
    for left, right in zip_longest(read_byte_lines(source), read_byte_lines(target)):
        if left is None or right is None:
            raise InputError(
                f"{part.name} has {count_lines(source):,} lines, {part.files[1]} has {count_lines(target):,}: "
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
            raise InputError(f"{part.name} and {part.files[1]} differ at document {where[0]}, segment {where[1]}")
        yield left[1], right[1]


def _read_sgm(path: Path, name: str) -> Iterator[Tuple[Tuple[str, str], str]]:
    """Yield ``((document, segment id), text)`` of each segment of an SGML file.

    The text is that of sacreBLEU: entities stay, and runs of white space become one space.

    Raises:
        InputError: the file is not UTF-8, a segment has no id, or a segment does not have a line of its own, so
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
        InputError: the file is damaged, or has an encoding that is not supported.
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
