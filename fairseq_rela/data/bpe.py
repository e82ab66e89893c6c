"""Byte pair encoding as subword-nmt's: joint codes, separate vocabularies with a threshold (Sennrich et al. 2016).

:func:`learn` is our own, because subword-nmt's does not scale to the millions of words of a WMT corpus.
"""

import gc
import heapq
import io
import re
from array import array
from collections import Counter, defaultdict
from contextlib import contextmanager
from copy import copy
from itertools import chain
from typing import Any, DefaultDict, Dict, Iterable, Iterator, List, Optional, Tuple

from subword_nmt import apply_bpe
from tqdm import tqdm

from ..errors import InputError
from .lines import PathLike, read_lines, write_whole

_SEPARATOR = re.compile(r"(@@ )|(@@ ?$)")
_HEADER = "#version: 0.2"  # of subword-nmt's codes: the end of a word belongs to its last symbol
_END = "</w>"
_MIN_FREQUENCY = 2  # of a pair that is merged; subword-nmt's default
_MAX_MERGES = 1_000_000  # each needs a code point, of which there are 1,114,112
MAX_CACHED = 1 << 19  # words; some 100 MB a Segmenter, of which every worker process has one a language
_EDGES = "\r\n "  # what subword-nmt strips from a line, and puts back


def undo(line: str) -> str:
    """Pieces to words: ``"lo@@ w er"`` to ``"low er"``."""
    return _SEPARATOR.sub("", line)


def learn(counts: Dict[str, int], merges: int) -> List[str]:
    """The lines of a codes file, those of subword-nmt's ``learn_bpe(..., is_dict=True)``.

    ``merges`` times, the most frequent pair of neighbouring symbols becomes one symbol in all words; of equally
    frequent pairs it is the lexicographically greatest. It ends before where no pair occurs twice. Pairs that
    overlap, as in ``a a a``, count each.

    The codes may differ from subword-nmt's for words with ``</w>`` before their last letter: there two merges can
    spell one symbol, and subword-nmt then miscounts the pairs around it.

    Args:
        counts: frequency of every word, of both languages together for joint codes. No word holds whitespace.
        merges: how many merge operations to learn.

    Raises:
        InputError: there is nothing to merge at all, or there are more merges than symbols can be told apart.
    """
    if merges > _MAX_MERGES:
        raise InputError(f"{merges:,} BPE merges are too many; ask for at most {_MAX_MERGES:,}")
    with _without_garbage_collection():
        learner = _Learner(counts)
        if not learner.words:
            raise InputError("the training text has no word of two letters, so there is no BPE to learn")
        codes = [_HEADER]
        for _ in tqdm(range(merges), desc="learn BPE", unit=" merges", unit_scale=True, disable=None):
            pair = learner.most_frequent()
            if pair is None:
                break
            codes.append(" ".join(learner.spell(pair)))
            learner.merge(pair)
    if len(codes) == 1:
        raise InputError("in the training text no two letters occur together twice, so there is no BPE to learn")
    return codes


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """The search for cycles, of which the learner makes none, takes an eighth of its time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Learner:
    """The words of a text as symbols, and the frequency of every pair of neighbouring symbols.

    A symbol is a code point that stands for its spelling; a pair is a string of two symbols and a word the string
    of all of its own. So strings are searched and split at the speed of C, and a word takes a hundred bytes.

    Attributes:
        words, frequencies: the word types of two or more letters, as symbols, and how often each occurs.
        pairs: the frequency of every pair there is.
        where: the indices of the words that have a pair. A word stays listed after it has lost the pair.
        queue: a heap of the pairs of at least ``threshold``, the next to merge first. A pair's frequency in it may
            be out of date, but only too high: it is put in again when it becomes more frequent.
    """

    def __init__(self, counts: Dict[str, int]) -> None:
        self.spellings: List[str] = []
        self.descending: List[Tuple[int, ...]] = []  # sort keys of the spellings, the lexicographically greatest first
        self.symbols: Dict[str, str] = {}
        self.words: List[str] = []
        self.frequencies = array("q")
        self.pairs: DefaultDict[str, int] = defaultdict(int)
        self.where: DefaultDict[str, Any] = defaultdict(lambda: array("i"))
        self.queue: List[Tuple[int, Tuple[int, ...], Tuple[int, ...], str]] = []
        self.threshold = 0
        words = tqdm(counts.items(), desc="index words", unit=" words", unit_scale=True, disable=None)
        for letters, frequency in words:
            if len(letters) < 2:
                continue
            word = "".join(map(self.symbol, [*letters[:-1], letters[-1] + _END]))
            for pair in map("".join, zip(word, word[1:])):
                self.pairs[pair] += frequency
                self.where[pair].append(len(self.words))
            self.words.append(word)
            self.frequencies.append(frequency)

    def symbol(self, spelling: str) -> str:
        if spelling not in self.symbols:
            self.symbols[spelling] = chr(len(self.spellings))
            self.spellings.append(spelling)
            self.descending.append((*(-ord(letter) for letter in spelling), 1))  # the 1 puts "ab" before "a"
        return self.symbols[spelling]

    def spell(self, pair: str) -> Tuple[str, str]:
        return self.spellings[ord(pair[0])], self.spellings[ord(pair[1])]

    def enqueue(self, pair: str) -> None:
        keys = self.descending[ord(pair[0])], self.descending[ord(pair[1])]
        heapq.heappush(self.queue, (-self.pairs[pair], *keys, pair))  # negated: a heap has its least entry first

    def most_frequent(self) -> Optional[str]:
        """Takes the pair to merge next out of the queue; None where no pair is frequent enough."""
        while True:
            while self.queue:
                negated, _, _, pair = heapq.heappop(self.queue)
                frequency = self.pairs.get(pair, 0)
                if frequency == -negated:
                    return pair
                if frequency >= self.threshold:
                    self.enqueue(pair)
            highest = max(self.pairs.values(), default=0)
            if highest < _MIN_FREQUENCY:
                return None
            # most pairs are rare and never merged, so only those that are next in line take room in the queue
            self.threshold = max(_MIN_FREQUENCY, highest // 2)
            for pair, frequency in self.pairs.items():
                if frequency >= self.threshold:
                    self.enqueue(pair)

    def merge(self, pair: str) -> None:
        """Makes one symbol of the pair in all words, beginning at the left where it overlaps with itself."""
        first, second = pair
        merged = self.symbol("".join(self.spell(pair)))
        lost: DefaultDict[str, int] = defaultdict(int)
        gained: DefaultDict[str, int] = defaultdict(int)
        before: DefaultDict[str, int] = defaultdict(int)  # what was and is now at the left of the pair, how often
        after: DefaultDict[str, int] = defaultdict(int)
        words, frequencies, where = self.words, self.frequencies, self.where
        for index in where.pop(pair):
            parts = words[index].split(pair)
            if len(parts) == 1:  # lost the pair to an earlier merge, or was listed twice
                continue
            words[index] = merged.join(parts)
            frequency = frequencies[index]
            if len(parts) == 2:  # once in the word, as nearly always
                left, right = parts
                if left:
                    before[left[-1]] += frequency
                    where[left[-1] + merged].append(index)
                if right:
                    after[right[0]] += frequency
                    where[merged + right[0]].append(index)
                continue
            was = now = parts[0][-1:]  # the left neighbour before this merge and after it
            for part in parts[1:]:
                if now:
                    lost[was + first] += frequency
                    gained[now + merged] += frequency
                    where[now + merged].append(index)
                if part:
                    lost[second + part[0]] += frequency
                    gained[merged + part[0]] += frequency
                    where[merged + part[0]].append(index)
                    was = now = part[-1]
                else:
                    was, now = second, merged
        for neighbour, frequency in before.items():
            lost[neighbour + first] += frequency
            gained[neighbour + merged] += frequency
        for neighbour, frequency in after.items():
            lost[second + neighbour] += frequency
            gained[merged + neighbour] += frequency
        for other, frequency in gained.items():
            self.pairs[other] += frequency
        lost[pair] = self.pairs[pair]  # all of it, whatever overlaps were counted above
        for other, frequency in lost.items():
            self.pairs[other] -= frequency
            if not self.pairs[other]:
                del self.pairs[other]
                self.where.pop(other, None)
        for other in gained:
            if self.pairs.get(other, 0) >= self.threshold:
                self.enqueue(other)


class Segmenter:
    """Splits words into pieces as subword-nmt's ``BPE``, but each word type once only.

    Pickled, it leaves the words behind that it has split before.
    """

    def __init__(self, bpe: apply_bpe.BPE) -> None:
        self._bpe = bpe
        self._cache = _Cache(self)

    def __reduce__(self) -> Tuple[Any, ...]:
        return Segmenter, (self._bpe,)

    def know(self, words: Dict[str, str]) -> None:
        """Take over words with their pieces, so that these need not be split again."""
        self._cache.update(words)

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
            InputError: undoing does not give the word back, as of ``a@@``.
        """
        pieces = " ".join(self._bpe.segment_tokens([word]))
        self._bpe.cache.clear()  # grows without bound, and ours is there already
        if undo(pieces) != word:
            raise InputError(f"the word {word!r} is not what is left of its BPE pieces {pieces!r} when they are joined")
        return pieces

    def limit(self, vocabulary: PathLike, threshold: int) -> "Segmenter":
        """What splits pieces further until they are in a vocabulary, by the same codes; see :func:`load_segmenter`."""
        allowed = {piece for piece, count in read_vocabulary(vocabulary) if count >= threshold}
        if not allowed:  # subword-nmt would take an empty vocabulary for none at all
            raise InputError(f"{vocabulary}: no piece occurs {threshold} times; lower --vocabulary-threshold")
        bpe = copy(self._bpe)
        bpe.vocab, bpe.cache = allowed, {}
        return Segmenter(bpe)

    def limit_word(self, word: str, pieces: str) -> str:
        """:meth:`split_word`, given what the codes make of the word without a vocabulary: mostly that is in it.

        Raises:
            InputError: as :meth:`split_word`.
        """
        return pieces if self._bpe.vocab.issuperset(pieces.split(" ")) else self.split_word(word)


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
    return segmenter if vocabulary is None else segmenter.limit(vocabulary, threshold)


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
    """Frequencies of what spaces, and nothing else, separate."""
    counts = Counter(chain.from_iterable(line.split(" ") for line in lines))
    del counts[""]  # of an empty line and between two spaces
    return counts


def count_words_of(path: PathLike) -> "Counter[str]":
    """The same of a file."""
    return count_words(read_lines(path))


def count_pieces(pieces: Iterable[str], counts: Iterable[int]) -> "Counter[str]":
    """Frequencies of pieces, from the pieces of words and how often each word occurs."""
    frequencies: "Counter[str]" = Counter()
    for word, count in zip(pieces, counts):
        for piece in word.split(" "):
            frequencies[piece] += count
    return frequencies
