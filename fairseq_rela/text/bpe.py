"""Byte pair encoding as in subword-nmt: joint codes, one vocabulary per language (Sennrich et al. 2016)."""

import io
import re
from collections import Counter, defaultdict
from copy import copy
from itertools import chain
from typing import Any, DefaultDict, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

from subword_nmt import apply_bpe

from ..errors import InputError
from ..files.lines import PathLike, read_line_blocks, read_lines
from ..files.outputs import write_whole
from .learn_bpe import END

_SEPARATOR = re.compile(r"(@@ )|(@@ ?$)")
MAX_CACHED = 1 << 19  # words, about 100 MB per Segmenter; every worker process has one Segmenter per language
_BLOCK = 1000  # lines counted at once
_EDGES = "\r\n "  # subword-nmt strips these from a line and puts them back


def undo(line: str) -> str:
    """Return a line with its pieces joined to words: ``"low er"`` for ``"lo@@ w er"``."""
    return _SEPARATOR.sub("", line)


class Segmenter(Dict[str, str]):
    """Dictionary from a word to its pieces, joined by spaces; subword-nmt's ``BPE`` splits each word once.

    A full dictionary is emptied instead of refusing new words: frequent words are soon in it again, and a corpus whose
    parts differ from each other stays fast. Pickling drops the words.

    Args:
        bpe: subword-nmt's segmenter.
    """

    # a dictionary, because a lookup runs no Python code

    def __init__(self, bpe: apply_bpe.BPE) -> None:
        super().__init__()
        self._bpe = bpe

    def __reduce__(self) -> Tuple[Any, ...]:
        return Segmenter, (self._bpe,)

    def __missing__(self, word: str) -> str:
        """Split a word.

        Raises:
            InputError: joining the pieces does not return the word, as for ``a@@``, or subword-nmt recurses forever,
                which can happen if the word or the words of the codes contain ``</w>``.
        """
        try:
            pieces = " ".join(self._bpe.segment_tokens([word]))
        except RecursionError as error:
            raise InputError(
                f"the word {word!r} cannot be split; remove {END} from it and from the text of the codes"
            ) from error
        self._bpe.cache.clear()  # grows without limit
        if undo(pieces) != word:
            raise InputError(f"the BPE pieces {pieces!r} of {word!r} do not join to this word; remove @@ from the text")
        if len(self) >= MAX_CACHED:
            self.clear()
        self[word] = pieces
        return pieces

    def process_line(self, line: str) -> str:
        """Return a line split into pieces; several spaces between words become one.

        Raises:
            InputError: a word cannot be split, see :meth:`__missing__`.
        """
        words = line.strip(_EDGES)
        if "  " in words or len(words) != len(line):
            start = line[: len(line) - len(line.lstrip(_EDGES))]
            end = line[len(start) + len(words) :]
            return start + " ".join(self.segment_tokens(words.split(" "))) + end
        return " ".join(map(self.__getitem__, words.split(" ")))

    def segment_tokens(self, words: Iterable[str]) -> List[str]:
        """Return the pieces of all words in one list.

        Raises:
            InputError: a word cannot be split, see :meth:`__missing__`.
        """
        return [piece for word in words if word for piece in self[word].split(" ")]

    def limit(self, vocabulary: Mapping[str, int], threshold: int) -> "Segmenter":
        """Return a segmenter with the same codes that splits pieces further until they are in a vocabulary.

        Args:
            vocabulary: pieces and their frequencies.
            threshold: minimum frequency of a piece that may be produced.

        Raises:
            InputError: no piece reaches the threshold.
        """
        allowed = {piece for piece, count in vocabulary.items() if count >= threshold}
        if not allowed:  # subword-nmt treats an empty vocabulary as no vocabulary
            raise InputError(f"no piece occurs {threshold} times; lower --vocabulary-threshold")
        bpe = copy(self._bpe)
        bpe.vocab, bpe.cache = allowed, {}
        limited = Segmenter(bpe)
        limited.update({word: pieces for word, pieces in self.items() if allowed.issuperset(pieces.split(" "))})
        return limited


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
    """Write the pieces and their frequencies, the most frequent piece first and then in the order of code points."""
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


def count_pieces(words: Iterable[Tuple[str, int]]) -> Dict[str, int]:
    """Return the frequency of each piece, from the pieces of each word, joined by spaces, and its frequency."""
    frequencies: DefaultDict[str, int] = defaultdict(int)
    for pieces, count in words:
        for piece in pieces.split(" "):
            frequencies[piece] += count
    return frequencies
