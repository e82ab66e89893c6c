"""Byte pair encoding as subword-nmt's: joint codes, separate vocabularies with a threshold (Sennrich et al. 2016)."""

import io
import re
from collections import Counter, defaultdict
from copy import copy
from itertools import chain
from typing import Any, DefaultDict, Dict, Iterable, Iterator, List, Optional, Tuple

from subword_nmt import apply_bpe

from ..errors import InputError
from .learn_bpe import END, INSIDE
from .lines import PathLike, read_line_blocks, read_lines, write_whole

_SEPARATOR = re.compile(r"(@@ )|(@@ ?$)")
MAX_CACHED = 1 << 19  # words; some 100 MB a Segmenter, of which every worker process has one a language
_BLOCK = 1000  # lines that are counted at once
_EDGES = "\r\n "  # what subword-nmt strips from a line, and puts back


def undo(line: str) -> str:
    """Pieces to words: ``"lo@@ w er"`` to ``"low er"``."""
    return _SEPARATOR.sub("", line)


class Segmenter:
    """Splits words into pieces as subword-nmt's ``BPE``, but each word type once only.

    Pickled, it leaves the words behind that it has split before.
    """

    def __init__(self, bpe: apply_bpe.BPE) -> None:
        self._bpe = bpe
        self._cache = _Cache(self)

    def __reduce__(self) -> Tuple[Any, ...]:
        return Segmenter, (self._bpe,)

    def process_line(self, line: str) -> str:
        """The pieces of a line of words; of several spaces between words, one is left.

        Raises:
            InputError: as :meth:`split_word`.
        """
        words = line.strip(_EDGES)
        if "  " in words or len(words) != len(line):
            start = line[: len(line) - len(line.lstrip(_EDGES))]
            end = line[len(start) + len(words) :]
            return start + " ".join(self.segment_tokens(words.split(" "))) + end
        return " ".join(map(self._cache.__getitem__, words.split(" ")))

    def segment_tokens(self, words: Iterable[str]) -> List[str]:
        """The pieces of words.

        Raises:
            InputError: as :meth:`split_word`.
        """
        return [piece for word in words if word for piece in self._cache[word].split(" ")]

    def split_word(self, word: str) -> str:
        """The pieces of one word with spaces between, without regard to what was split before.

        Raises:
            InputError: undoing does not give the word back, as of ``a@@``; or subword-nmt finds no end, as it may where
                words, or those that the codes were learnt from, have ``</w>`` in them.
        """
        try:
            pieces = " ".join(self._bpe.segment_tokens([word]))
        except RecursionError as error:
            raise InputError(
                f"the word {word!r} cannot be split; has it, or the text of the codes, a {END}?"
            ) from error
        self._bpe.cache.clear()  # grows without bound, and ours is there already
        return _undoable(pieces, word)

    def limit(self, vocabulary: Dict[str, int], threshold: int, merged: Optional[Dict[str, str]] = None) -> "Segmenter":
        """What splits pieces further until they are in a vocabulary, by the same codes.

        Args:
            vocabulary: pieces and their frequencies.
            threshold: the least frequency of a piece that may be produced.
            merged: words with what this one makes of them; the limited one then knows them from the beginning.

        Raises:
            InputError: no piece is as frequent.
        """
        allowed = {piece for piece, count in vocabulary.items() if count >= threshold}
        if not allowed:  # subword-nmt would take an empty vocabulary for none at all
            raise InputError(f"no piece occurs {threshold} times; lower --vocabulary-threshold")
        bpe = copy(self._bpe)
        bpe.vocab, bpe.cache = allowed, {}
        limited = Segmenter(bpe)
        if merged is not None:
            limited._cache.update(_limit(bpe, merged))
        return limited


def _limit(bpe: apply_bpe.BPE, merged: Dict[str, str]) -> Dict[str, str]:
    """Words with their pieces, from what the codes make of them without the vocabulary.

    Words are missing of which that does not say enough: of one letter and with ``@@``; and all, where ``</w>`` was in
    the words that the codes were learnt from, so that merges can be taken for others.
    """
    for merge, (_, right) in bpe.bpe_codes_reverse.items():
        if END in merge and not (merge.index(END) == len(merge) - len(END) and len(right) > len(END)):
            return {}
    limit = _Limited(bpe).__getitem__
    return {
        word: " ".join(map(limit, pieces.split(" ")))
        for word, pieces in merged.items()
        if len(word) > 1 and INSIDE not in word
    }


class _Limited(Dict[str, str]):
    """Pieces to those of a vocabulary that they are split into, by undoing merges; as subword-nmt's recursive_split.

    Each piece once, and what merges were made of as well: the pieces of words have most of it in common.
    """

    def __init__(self, bpe: apply_bpe.BPE) -> None:
        super().__init__(zip(bpe.vocab, bpe.vocab))
        self._merges = bpe.bpe_codes_reverse

    def __missing__(self, piece: str) -> str:
        inside = piece.endswith(INSIDE)
        merge = self._merges.get(piece[: -len(INSIDE)] if inside else piece + END)
        if merge is None:
            self[piece] = piece
        else:
            left, right = merge
            self[piece] = f"{self[left + INSIDE]} {self[right + INSIDE if inside else right[: -len(END)]]}"
        return self[piece]


def _undoable(pieces: str, word: str) -> str:
    """The pieces.

    Raises:
        InputError: undoing does not give the word back.
    """
    if undo(pieces) != word:
        raise InputError(f"the word {word!r} is not what is left of its BPE pieces {pieces!r} when they are joined")
    return pieces


class _Cache(Dict[str, str]):
    """Words to their pieces; a dictionary, for looking up a word then runs no Python code.

    When full it begins anew rather than refuse new words: the frequent ones are back at once, and a corpus whose
    parts differ, one after the other, stays fast.
    """

    def __init__(self, segmenter: Segmenter) -> None:
        super().__init__()
        self._segmenter = segmenter

    def __missing__(self, word: str) -> str:
        if len(self) >= MAX_CACHED:
            self.clear()
        pieces = self[word] = self._segmenter.split_word(word)
        return pieces


def load_segmenter(codes: PathLike, vocabulary: Optional[PathLike] = None, threshold: int = 1) -> Segmenter:
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
    if len(lines) == 1:
        raise InputError(f"{codes}: holds no BPE merges; make it again")
    for number, line in enumerate(lines[1:], 2):  # subword-nmt would end the process
        if len(line.split(" ")) != 2:
            raise InputError(f"{codes}, line {number}: not two symbols with a space between; is the file damaged?")
    segmenter = Segmenter(apply_bpe.BPE(io.StringIO("\n".join(lines) + "\n")))
    return segmenter if vocabulary is None else segmenter.limit(dict(read_vocabulary(vocabulary)), threshold)


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


def write_vocabulary(path: PathLike, pieces: Dict[str, int]) -> None:
    with write_whole(path) as file:
        for piece, count in sorted(pieces.items(), key=lambda item: (-item[1], item[0])):
            file.write(f"{piece} {count}\n")


def count_words(lines: Iterable[str]) -> "Counter[str]":
    """Frequencies of what spaces, and nothing else, separate."""
    counts = Counter(chain.from_iterable(line.split(" ") for line in lines))
    del counts[""]  # of an empty line and between two spaces
    return counts


def count_words_of(path: PathLike) -> "Counter[str]":
    """The same of a file."""
    return count_words(" ".join(block.decode()) for block in read_line_blocks(path, _BLOCK))


def count_pieces(pieces: Iterable[str], counts: Iterable[int]) -> Dict[str, int]:
    """Frequencies of pieces, from the pieces of words and how often each word occurs."""
    frequencies: DefaultDict[str, int] = defaultdict(int)
    for word, count in zip(pieces, counts):
        for piece in word.split(" "):
            frequencies[piece] += count
    return frequencies
