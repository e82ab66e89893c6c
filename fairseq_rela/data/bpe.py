"""Byte pair encoding by subword-nmt: joint codes, separate vocabularies with a threshold (Sennrich et al. 2016)."""

import io
import re
from collections import Counter
from contextlib import redirect_stderr
from typing import Dict, Iterable, Iterator, List, Optional, Tuple

from subword_nmt import apply_bpe, learn_bpe

from ..errors import InputError
from .lines import PathLike, read_lines, write_whole

_SEPARATOR = re.compile(r"(@@ )|(@@ ?$)")


def undo(line: str) -> str:
    """Pieces to words: ``"lo@@ w er"`` to ``"low er"``."""
    return _SEPARATOR.sub("", line)


def learn(counts: Dict[str, int], merges: int) -> List[str]:
    """The lines of a codes file.

    Args:
        counts: frequency of every word, of both languages together for joint codes.
        merges: how many merge operations to learn; fewer come out where nothing is left to merge.

    Raises:
        InputError: there is nothing to merge at all.
    """
    vocabulary = [f"{word} {count}" for word, count in sorted(counts.items())]
    output = io.StringIO()
    with redirect_stderr(io.StringIO()):  # its progress bar prints a line a percent where there is no terminal
        try:
            learn_bpe.learn_bpe(vocabulary, output, merges, is_dict=True)
        except ValueError as error:  # no word of two characters
            raise InputError("the training text has no word of two letters, so there is no BPE to learn") from error
    return output.getvalue().splitlines()


def load_segmenter(codes: PathLike, vocabulary: Optional[PathLike] = None, threshold: int = 1) -> apply_bpe.BPE:
    """What splits words into pieces.

    Args:
        codes: the codes file.
        vocabulary: a file of pieces with frequencies; others are split further until they are in it.
        threshold: the least frequency of a piece that may be produced.

    Raises:
        InputError: no such file, a vocabulary given as codes and the reverse, or no piece reaches the threshold.
    """
    lines = list(read_lines(codes))
    if not lines or not lines[0].startswith("#version:"):
        raise InputError(f"{codes}: not a BPE codes file, whose first line begins with #version:")
    allowed = None
    if vocabulary is not None:
        allowed = {piece for piece, count in read_vocabulary(vocabulary) if count >= threshold}
        if not allowed:  # subword-nmt would take an empty vocabulary for none at all
            raise InputError(f"{vocabulary}: no piece occurs {threshold} times; lower --vocabulary-threshold")
    return apply_bpe.BPE(io.StringIO("\n".join(lines) + "\n"), vocab=allowed)


def read_vocabulary(path: PathLike) -> Iterator[Tuple[str, int]]:
    """Pieces and frequencies of a vocabulary file.

    Raises:
        InputError: a line that is not a piece and a number.
    """
    for number, line in enumerate(read_lines(path), 1):
        piece, _, count = line.rpartition(" ")
        if not piece or not count.isdecimal():
            raise InputError(f"{path}, line {number}: not a piece and its frequency; is this a BPE vocabulary?")
        yield piece, int(count)


def write_vocabulary(path: PathLike, pieces: "Counter[str]") -> None:
    with write_whole(path) as file:
        for piece, count in sorted(pieces.items(), key=lambda item: (-item[1], item[0])):
            file.write(f"{piece} {count}\n")


def count_words(lines: Iterable[str]) -> "Counter[str]":
    counts: "Counter[str]" = Counter()
    for line in lines:
        counts.update(line.split(" ") if line else ())
    return counts


def count_pieces(segmenter: apply_bpe.BPE, words: Dict[str, int]) -> "Counter[str]":
    """Frequencies of pieces, from those of words: each word is split once."""
    pieces: "Counter[str]" = Counter()
    for word, count in words.items():
        for piece in segmenter.segment_tokens([word]):
            pieces[piece] += count
    return pieces
