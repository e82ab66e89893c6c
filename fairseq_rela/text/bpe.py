"""Byte pair encoding as in subword-nmt: joint codes, one vocabulary per language (Sennrich et al. 2016)."""

import io
import re
from collections import Counter, defaultdict
from copy import copy
from itertools import chain
from typing import Any, DefaultDict, Dict, Iterable, Iterator, List, Optional, Tuple

from subword_nmt import apply_bpe

from ..errors import InputError
from ..files.lines import PathLike, read_line_blocks, read_lines
from ..files.outputs import write_whole
from .learn_bpe import END, INSIDE

_SEPARATOR = re.compile(r"(@@ )|(@@ ?$)")
MAX_CACHED = 1 << 19  # words, about 100 MB per Segmenter; every worker process has one Segmenter per language
_BLOCK = 1000  # lines counted at once
_EDGES = "\r\n "  # subword-nmt strips these from a line and puts them back


def undo(line: str) -> str:
    """Return a line with its pieces joined to words: ``"low er"`` for ``"lo@@ w er"``."""
    return _SEPARATOR.sub("", line)


class Segmenter:
    """Splits words into the same pieces as subword-nmt's ``BPE``, and caches them, so that a word is split once.

    Pickling drops the cache.
    """

    def __init__(self, bpe: apply_bpe.BPE) -> None:
        self._bpe = bpe
        self._cache = _Cache(self)

    def __reduce__(self) -> Tuple[Any, ...]:
        return Segmenter, (self._bpe,)

    def process_line(self, line: str) -> str:
        """Return a line split into pieces; several spaces between words become one.

        Raises:
            InputError: as for :meth:`split_word`.
        """
        words = line.strip(_EDGES)
        if "  " in words or len(words) != len(line):
            start = line[: len(line) - len(line.lstrip(_EDGES))]
            end = line[len(start) + len(words) :]
            return start + " ".join(self.segment_tokens(words.split(" "))) + end
        return " ".join(map(self._cache.__getitem__, words.split(" ")))

    def segment_tokens(self, words: Iterable[str]) -> List[str]:
        """Return the pieces of all words in one list.

        Raises:
            InputError: as for :meth:`split_word`.
        """
        return [piece for word in words if word for piece in self._cache[word].split(" ")]

    def split_word(self, word: str) -> str:
        """Return the pieces of one word, joined by spaces, without using the cache.

        Raises:
            InputError: joining the pieces does not return the word, as for ``a@@``, or subword-nmt recurses forever,
                which can happen if the word or the words of the codes contain ``</w>``.
        """
        try:
            pieces = " ".join(self._bpe.segment_tokens([word]))
        except RecursionError as error:
            raise InputError(
                f"the word {word!r} cannot be split; has it, or the text of the codes, a {END}?"
            ) from error
        self._bpe.cache.clear()  # grows without limit, and Segmenter has its own
        return _undoable(pieces, word)

    def limit(self, vocabulary: Dict[str, int], threshold: int, merged: Optional[Dict[str, str]] = None) -> "Segmenter":
        """Return a segmenter with the same codes that splits pieces further until they are in a vocabulary.

        Args:
            vocabulary: pieces and their frequencies.
            threshold: minimum frequency of a piece that may be produced.
            merged: words with their pieces from this segmenter, joined by spaces; fills the cache of the new one.

        Raises:
            InputError: no piece reaches the threshold.
        """
        allowed = {piece for piece, count in vocabulary.items() if count >= threshold}
        if not allowed:  # subword-nmt treats an empty vocabulary as no vocabulary
            raise InputError(f"no piece occurs {threshold} times; lower --vocabulary-threshold")
        bpe = copy(self._bpe)
        bpe.vocab, bpe.cache = allowed, {}
        limited = Segmenter(bpe)
        if merged is not None:
            limited._cache.update(_limit(bpe, merged))
        return limited


def _limit(bpe: apply_bpe.BPE, merged: Dict[str, str]) -> Dict[str, str]:
    """Return words with their pieces in the vocabulary, from their pieces without a vocabulary.

    Words that subword-nmt may split differently are left out: words of one letter and words with ``@@``. The result
    is empty if the codes were learnt from words with ``</w>``, because then two merges can look the same.
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
    """Maps a piece to its pieces in the vocabulary by undoing merges, as subword-nmt's ``recursive_split`` does.

    Every piece and every part of a merge is split once and cached, because words have most of them in common.
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
    """Return the pieces if joining them returns the word.

    Raises:
        InputError: joining the pieces returns another word.
    """
    if undo(pieces) != word:
        raise InputError(f"the word {word!r} is not what is left of its BPE pieces {pieces!r} when they are joined")
    return pieces


class _Cache(Dict[str, str]):
    """Maps words to their pieces; a dictionary, because a lookup in it runs no Python code.

    A full cache is emptied instead of refusing new words. Frequent words are soon in it again, and a corpus whose
    parts differ from each other stays fast.
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
    """Return the segmenter of a codes file.

    Args:
        codes: the codes file.
        vocabulary: a file of pieces with frequencies; pieces that are not in it are split further.
        threshold: minimum frequency of a piece that may be produced; used with a vocabulary only.

    Raises:
        InputError: a file is missing or invalid, such as a vocabulary in place of codes, or no piece reaches the
            threshold.
    """
    lines = list(read_lines(codes))
    if not lines or not lines[0].startswith("#version:"):
        raise InputError(f"{codes}: not a BPE codes file, whose first line begins with #version:")
    if len(lines) == 1:
        raise InputError(f"{codes}: holds no BPE merges; make it again")
    for number, line in enumerate(lines[1:], 2):  # subword-nmt would exit the process
        if len(line.split(" ")) != 2:
            raise InputError(f"{codes}, line {number}: not two symbols with a space between; is the file damaged?")
    segmenter = Segmenter(apply_bpe.BPE(io.StringIO("\n".join(lines) + "\n")))
    return segmenter if vocabulary is None else segmenter.limit(dict(read_vocabulary(vocabulary)), threshold)


def read_vocabulary(path: PathLike) -> Iterator[Tuple[str, int]]:
    """Yield the pieces and frequencies of a vocabulary file.

    Raises:
        InputError: a line is not a piece and a number.
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
    """Return the frequency of each word; words are separated by spaces only."""
    counts = Counter(chain.from_iterable(line.split(" ") for line in lines))
    del counts[""]  # from empty lines and double spaces
    return counts


def count_words_of(path: PathLike) -> "Counter[str]":
    """Return the frequency of each word in a file; words are separated by spaces and LF only."""
    return count_words(" ".join(block.decode()) for block in read_line_blocks(path, _BLOCK))


def count_pieces(pieces: Iterable[str], counts: Iterable[int]) -> Dict[str, int]:
    """Return the frequency of each piece.

    Args:
        pieces: the pieces of each word, joined by spaces.
        counts: the frequency of each word, in the same order.
    """
    frequencies: DefaultDict[str, int] = defaultdict(int)
    for word, count in zip(pieces, counts):
        for piece in word.split(" "):
            frequencies[piece] += count
    return frequencies
