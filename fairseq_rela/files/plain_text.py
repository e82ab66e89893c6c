"""Detect numbered lines of fairseq-generate and subword pieces in what should be plain text."""

import re
from itertools import islice
from typing import Dict, Iterable, List, Sequence

from ..errors import InputError
from .lines import PathLike, read_lines

# lines of fairseq-generate, in order of length: source, target, hypothesis, detokenised, scores, alignment, steps
_NUMBERED = re.compile(r"^([STHDPAEI])-([0-9]{1,9})(?:_[0-9]+)?\t")
_COLUMNS = {"H": "H-NUMBER, score, hypothesis", "D": "D-NUMBER, score, hypothesis", "A": "A-NUMBER, links"}
# The patterns below match most lines of pieces, but only one in many thousands of text. Input is refused if at least
# one in _SHARE lines matches; refuse_not_text reads the first _SAMPLE lines.
_SHARE = 10
_SAMPLE = 1000
_PIECES = {
    "SentencePiece pieces (\u2581)": re.compile(r"(?:^| )\u2581\w"),
    "byte-level BPE pieces (\u0120)": re.compile(r"(?:^| )\u0120\S+ \u0120\S+ \u0120"),
    "WordPiece pieces (##)": re.compile(r"\w ##(?!AT##)\w"),
}
_BPE = {"BPE pieces (@@)": re.compile(r"\w@@ \w")}


def in_order(lines: Sequence[str], name: PathLike, letters: str = "HD") -> List[str]:
    """Return the lines of a file in the order of its input.

    Lines without numbers are returned unchanged. fairseq-generate prints lines ``H-NUMBER``, score, hypothesis in
    the order of length; these are sorted by their numbers, from 0, and only their last column is returned.

    Args:
        lines: all lines of the file.
        name: file name, for messages.
        letters: the kinds of numbered lines that are accepted: H and D (hypotheses), or A (alignments).

    Raises:
        InputError: numbered lines of another kind or of several kinds, lines without a number among numbered ones,
            or a number that is missing or occurs twice.
    """
    matches = [_NUMBERED.match(line) for line in lines]
    first = next((match for match in matches if match), None)
    if first is None:
        return list(lines)
    kinds = {match.group(1) for match in matches if match}
    letter = first.group(1) if len(kinds) == 1 else next((kind for kind in letters if kind in kinds), letters[0])
    columns = _COLUMNS[letter if letter in letters else letters[0]]
    width = columns.count(",") + 1
    found: Dict[int, str] = {}
    for number, (line, match) in enumerate(zip(lines, matches), 1):
        if match is None or match.group(1) != letter or letter not in letters:
            what = f"a line {match.group(1)}-" if match else "a line without a number"
            keep = letter if letter in letters else letters[0]
            raise InputError(
                f"{name}, line {number}: {what} of fairseq-generate's output; give its {keep}- lines alone: "
                f"grep ^{keep}- {name}"
            )
        fields = line.split("\t", width - 1)
        if len(fields) != width:
            raise InputError(f"{name}, line {number}: not `{columns}` in {width} columns")
        index = int(match.group(2))
        if index in found:
            raise InputError(f"{name}, line {number}: a second line {letter}-{index}; give one for each sentence")
        found[index] = fields[-1]
    missing = next((index for index in range(len(found)) if index not in found), None)
    if missing is not None:
        raise InputError(f"{name}: no line {letter}-{missing}; numbers run from 0, and {len(found)} lines are there")
    return [found[index] for index in range(len(found))]


def refuse_numbers(lines: Sequence[str], name: PathLike, advice: str) -> None:
    """Raise if lines of text are numbered lines of fairseq-generate.

    Args:
        lines: lines of text.
        name: file name, for messages.
        advice: what the user should give instead.

    Raises:
        InputError: at least 1 in 10 non-empty lines is numbered.
    """
    _refuse(lines, name, {"numbered lines of fairseq-generate": _NUMBERED}, advice)


def refuse_pieces(lines: Sequence[str], name: PathLike, advice: str, bpe: bool = True) -> None:
    """Raise if lines of text hold subword pieces.

    Args:
        lines: lines of text.
        name: file name, for messages.
        advice: what the user should give instead.
        bpe: whether subword-nmt's pieces, with ``@@``, are refused too; a model's output has them.

    Raises:
        InputError: at least 1 in 10 non-empty lines holds pieces.
    """
    _refuse(lines, name, {**_PIECES, **(_BPE if bpe else {})}, advice)


def refuse_not_text(
    path: PathLike, advice: str = "give text as a person writes it, one sentence a line in the order of its pair"
) -> None:
    """Raise if a file holds numbered lines of fairseq-generate or subword pieces.

    Args:
        path: a text file; only its first 1,000 lines are read.
        advice: what the user should give instead.

    Raises:
        InputError: at least 1 in 10 non-empty lines is numbered or holds pieces, or as for
            :func:`fairseq_rela.files.lines.read_lines`.
    """
    lines = list(islice(read_lines(path), _SAMPLE))
    refuse_numbers(lines, path, advice)
    refuse_pieces(lines, path, advice)


def _refuse(lines: Iterable[str], name: PathLike, patterns: Dict[str, "re.Pattern[str]"], advice: str) -> None:
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    for what, pattern in patterns.items():
        hits = [number for number, line in numbered if pattern.search(line)]
        if hits and _SHARE * len(hits) >= len(numbered):
            raise InputError(f"{name}, line {hits[0]}: {what}; {advice}")
