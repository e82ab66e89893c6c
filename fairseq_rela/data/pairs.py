"""Binarise the sentence pairs of any two text files for a model, and keep the word number of every token."""

import re
import tempfile
from contextlib import contextmanager
from difflib import SequenceMatcher
from itertools import accumulate
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Set, Tuple

from ..errors import InputError
from ..files.lines import read_lines, read_parallel
from ..files.outputs import write_whole
from ..files.records import sha256
from ..text.preprocess import repair_tokens
from .binarise import binarise_texts
from .folder import DataFolder
from .settings import MAX_POSITIONS, refuse_unfit_pair

SUBSET = "test"  # name of the subset that holds the pairs
_ENTITY = re.compile(r"&(amp|apos|quot|lt|gt|#124|#91|#93);")
_CHARACTERS = dict(zip(("amp", "apos", "quot", "lt", "gt", "#124", "#91", "#93"), "&'\"<>|[]"))
_SHOWN = 5  # largest number of unknown words that a message names


class Words(NamedTuple):
    """The words of one line, separated by white space in the file.

    Attributes:
        total: number of words of the line.
        of_tokens: for each token of the line, in order, the number of its word, from 0. A word can have several
            tokens, or none.
    """

    total: int
    of_tokens: List[int]


class Side(NamedTuple):
    """The words of one of the two files.

    Attributes:
        words: the words of every line.
        total: number of words of the whole file.
        unknown: number of words with a piece that the dictionary of the model lacks.
        lost: number of words that have no tokens, such as control characters.
        examples: some of the unknown words.
    """

    words: List[Words]
    total: int
    unknown: int
    lost: int
    examples: List[str]


class Pairs(NamedTuple):
    """Binarised sentence pairs with the words that their tokens belong to.

    Attributes:
        folder: the binarised data and dictionaries, as in a data folder of ``rela prepare`` but without its record.
            The pairs are the subset :data:`SUBSET`.
        words: the words of both sides of every pair.
        record: files, checksums and counts, for JSON.
        languages: source and target.
    """

    folder: Path
    words: List[Tuple[Words, Words]]
    record: Dict[str, Any]
    languages: Tuple[str, str]


@contextmanager
def binarised_pairs(source: Path, target: Path, data: DataFolder, tokenised: bool = False) -> Iterator[Pairs]:
    """Binarise two text files in a temporary folder, with the settings, BPE and dictionaries of a data folder.

    The temporary folder is removed at the end of the context.

    Args:
        source, target: text of the two languages of ``data``, plain or ``.gz``, one sentence per line. A line may be
            empty.
        data: a data folder of ``rela prepare``.
        tokenised: whether the text is already tokenised (and truecased, if the data are) like that of the data
            folder; only BPE is applied then.

    Raises:
        InputError: a file is missing, the files have unequal lengths or no lines, the sides are swapped, a line is
            longer than the models can take, or the text is raw Chinese, which has no spaces between words.
    """
    settings = data.settings
    data.refuse_changed(data.text_files())
    refuse_unfit_pair(source, target, settings)
    tokenised = tokenised or settings.tokeniser == "none"
    if "zh" in settings.languages and not tokenised:
        raise InputError("raw Chinese has no spaces between words; give tokenised text, and --tokenised")
    _refuse_unequal(source, target)
    with tempfile.TemporaryDirectory(prefix="rela-pairs-") as name:
        folder = Path(name)
        sides = [
            _segment(path, lang, data, tokenised, folder / "bpe" / f"{SUBSET}.{lang}")
            for path, lang in zip((source, target), settings.languages)
        ]
        binarise_texts(folder, data, {lang: folder / "bpe" / f"{SUBSET}.{lang}" for lang in data.languages}, SUBSET)
        record = {
            "tokenised": tokenised,
            **{
                name: {
                    "file": path.name,
                    "sha256": sha256(path),
                    **{key: getattr(side, key) for key in ("total", "unknown", "lost", "examples")},
                }
                for name, path, side in zip(("source", "target"), (source, target), sides)
            },
        }
        yield Pairs(folder, list(zip(*(side.words for side in sides))), record, settings.languages)


def describe_words(record: Dict[str, Any]) -> str:
    """Return, in one line for each side, how many words have pieces that are unknown to the model."""
    lines = []
    for name in ("source", "target"):
        side = record[name]
        examples = f", such as {' '.join(side['examples'])}" if side["examples"] else ""
        lost = f"; {side['lost']:,} without any token" if side["lost"] else ""
        share = side["unknown"] / max(side["total"], 1)
        lines.append(
            f"{name} {side['file']}: {side['total']:,} words, {side['unknown']:,} ({share:.1%}) with pieces unknown to "
            f"the model{examples}{lost}"
        )
    return "\n".join(lines)


def number_tokens(line: str, tokens: Sequence[str]) -> List[int]:
    """Return, for each token, the number of the word of ``line`` that it was made from.

    Tokenisation splits words, escapes characters and replaces some of them. A few rules join words; a token made from
    several words belongs to the first one. If characters were replaced, the characters around them decide.

    Args:
        line: a line of text, with words separated by white space.
        tokens: its tokens, before truecasing and BPE.
    """
    words = line.split()
    if list(tokens) == words:
        return list(range(len(words)))
    text = "".join(words)
    plain = list(tokens) if _ENTITY.search(text) else [_plain(token) for token in tokens]
    owner = [number for number, word in enumerate(words) for _ in word]
    places = _places(text, "".join(plain))
    numbers, start = [], 0
    for token in plain:
        span = places[start : start + len(token)]
        kept = [place for place, same in span if same]
        numbers.append(owner[kept[0] if kept else span[0][0]])
        start += len(token)
    return list(accumulate(numbers, max))


def _plain(token: str) -> str:
    """Undo Moses' escapes of single characters and its mark ``@-@`` for a split hyphen."""
    return _ENTITY.sub(lambda match: _CHARACTERS[match.group(1)], token.replace("@-@", "-"))


def _places(before: str, after: str) -> List[Tuple[int, bool]]:
    """Return, for each character of ``after``, its place in ``before`` and whether the same character is there."""
    if before == after:
        return [(place, True) for place in range(len(after))]
    places: List[Tuple[int, bool]] = []
    for kind, i, i_end, j, j_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        for step in range(j_end - j):
            if kind == "insert":
                places.append((max(i - 1, 0), False))
            else:
                places.append((i + step * (i_end - i) // (j_end - j), kind == "equal"))
    return places


def _refuse_unequal(source: Path, target: Path) -> None:
    """Refuse two files without lines, or with another number of them.

    Raises:
        InputError: the files have unequal numbers of lines or no lines, or are not UTF-8.
    """
    if not sum(1 for _ in read_parallel(source, target)):
        raise InputError(f"{source}: no lines; give a sentence a line")


def _segment(path: Path, lang: str, data: DataFolder, tokenised: bool, output: Path) -> Side:
    """Write the BPE pieces of a file to ``output``, and return the words of the file."""
    preprocess = data.preprocessor(lang, "none" if tokenised else None)
    recase = str if tokenised else data.truecaser(lang)
    segmenter, known = data.segmenter(lang), set(data.pieces(lang))
    words: List[Words] = []
    unknown: Dict[str, None] = {}  # in order of appearance
    lost = unknown_total = 0
    with write_whole(output) as file:
        for number, line in enumerate(read_lines(path), 1):
            tokens = preprocess(repair_tokens(line) if tokenised else line).split()
            pieces = [segmenter.segment_tokens([token]) for token in recase(" ".join(tokens)).split()]
            length = sum(map(len, pieces))
            if length >= MAX_POSITIONS:
                raise InputError(f"{path}, line {number}: {length} pieces; shorten or split the sentence")
            file.write(" ".join(piece for some in pieces for piece in some) + "\n")
            given = line.split()
            numbers = number_tokens(line, tokens)
            words.append(Words(len(given), numbers))
            lost += len(given) - len(set(numbers))
            odd = _unknown_words(numbers, pieces, known)
            unknown_total += len(odd)
            unknown.update(dict.fromkeys(given[word] for word in sorted(odd)))
    return Side(words, sum(line.total for line in words), unknown_total, lost, list(unknown)[:_SHOWN])


def _unknown_words(numbers: Sequence[int], pieces: Sequence[Sequence[str]], known: Set[str]) -> Set[int]:
    """Return the numbers of the words with a piece that is not in ``known``."""
    return {number for number, some in zip(numbers, pieces) if not known.issuperset(some)}
