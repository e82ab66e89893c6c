"""Byte pair encoding as subword-nmt's: joint codes, separate vocabularies with a threshold (Sennrich et al. 2016).

:func:`learn` is our own, because subword-nmt's does not scale to the millions of words of a WMT corpus.
"""

import gc
import heapq
import io
import re
from array import array
from bisect import insort
from collections import Counter, defaultdict
from contextlib import contextmanager
from copy import copy
from itertools import chain
from operator import add
from typing import Any, DefaultDict, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from subword_nmt import apply_bpe
from tqdm import tqdm

from ..errors import InputError
from .lines import PathLike, read_line_blocks, read_lines, write_whole

_SEPARATOR = re.compile(r"(@@ )|(@@ ?$)")
_HEADER = "#version: 0.2"  # of subword-nmt's codes: the end of a word belongs to its last symbol
_END = "</w>"
_INSIDE = "@@"  # at the end of a piece: the word goes on
_MIN_FREQUENCY = 2  # of a pair that is merged; subword-nmt's default
_MAX_MERGES = 1_000_000  # each needs a code point, of which there are 1,114,112
MAX_CACHED = 1 << 19  # words; some 100 MB a Segmenter, of which every worker process has one a language
_BLOCK = 1000  # lines that are counted at once
_EDGES = "\r\n "  # what subword-nmt strips from a line, and puts back


def undo(line: str) -> str:
    """Pieces to words: ``"lo@@ w er"`` to ``"low er"``."""
    return _SEPARATOR.sub("", line)


class Learned(NamedTuple):
    """What :func:`learn` has learnt.

    Attributes:
        codes: the lines of a codes file, those of subword-nmt's ``learn_bpe(..., is_dict=True)``.
        pieces: the words with their pieces by these codes, as of :meth:`Segmenter.split_word`. Words with ``@@`` are
            missing, which it may refuse; and all, where any word has ``</w>``.
    """

    codes: List[str]
    pieces: Dict[str, str]


def learn(counts: Dict[str, int], merges: int) -> Learned:
    """Joint codes of the words of a text, and the words split by them.

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
        learner = _Learner(counts, merges)
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
        return Learned(codes, learner.pieces(counts))


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


class _Symbols(Dict[str, str]):
    """Spellings to symbols, each made when it is asked for first.

    Attributes:
        spellings: of the symbols, whose code points are the indices.
    """

    def __init__(self) -> None:
        super().__init__()
        self.spellings: List[str] = []

    def __missing__(self, spelling: str) -> str:
        symbol = self[spelling] = chr(len(self.spellings))
        self.spellings.append(spelling)
        return symbol


class _Pair:
    """What is known of two neighbouring symbols.

    Attributes:
        frequency: how often they occur.
        where: the indices of the words that have them. A word stays listed after it has lost the pair.
    """

    __slots__ = ("frequency", "where")

    def __init__(self, frequency: int, where: "array[int]") -> None:
        self.frequency, self.where = frequency, where


class _Learner:
    """The words of a text as symbols, and the frequency of every pair of neighbouring symbols.

    A symbol is a code point that stands for its spelling; a pair is a string of two symbols and a word the string
    of all of its own. So strings are searched and split at the speed of C, and a word takes a hundred bytes.

    Attributes:
        words, frequencies: the word types of two or more letters, as symbols, and how often each occurs.
        ambiguous: some word has ``</w>``, so that two merges may spell one symbol.
        least: the frequency below which pairs are forgotten: they will not be merged. A pair becomes more frequent only
            in the merge that makes it, unless another spells it, too.
        pairs: those of at least this frequency.
        waiting: the pairs by their frequency. It may be out of date there, but only too high: a pair waits once more
            when it becomes more frequent.
        queue: a heap of these frequencies, negated, for a heap has its least entry first.
        highest, next: the frequency whose turn it is, and the pairs that have it with their spelling, in order: the
            last is merged next.
    """

    def __init__(self, counts: Dict[str, int], merges: int) -> None:
        self.symbols = _Symbols()
        self.ambiguous = any(_END in word for word in counts)
        self.words: List[str] = []
        self.frequencies = array("q")
        self.waiting: DefaultDict[int, List[str]] = defaultdict(list)
        self.queue: List[int] = []
        self.highest = 0
        self.next: List[Tuple[str, str, str]] = []
        words = tqdm(counts.items(), desc="index words", unit=" words", unit_scale=True, disable=None)
        where: DefaultDict[str, Any] = defaultdict(lambda: array("i"))
        for letters, frequency in words:
            if len(letters) < 2:
                continue
            word = "".join(map(self.symbols.__getitem__, letters[:-1])) + self.symbols[letters[-1] + _END]
            index = len(self.words)
            for pair in map(add, word, word[1:]):
                where[pair].append(index)
            self.words.append(word)
            self.frequencies.append(frequency)
        self.least = 1 if self.ambiguous else self._least_frequency(merges)
        self.pairs: Dict[str, _Pair] = {}
        for pair, indices in where.items():
            known = _Pair(self.count(indices), indices)
            if known.frequency >= self.least:
                self.pairs[pair] = known
                self.enqueue(pair)

    def _least_frequency(self, merges: int) -> int:
        """The least frequency that a pair may have when it is merged, or a bound: that of the word of rank ``merges``.

        For each word needs a merge of its own to be whole. So before any merge one of these words is not, and its pairs
        are as frequent as it is, at least.
        """
        return sorted(self.frequencies, reverse=True)[merges - 1] if merges <= len(self.frequencies) else 1

    def count(self, indices: Iterable[int]) -> int:
        """How often words occur together."""
        return sum(map(self.frequencies.__getitem__, indices))

    def spell(self, pair: str) -> Tuple[str, str]:
        return self.symbols.spellings[ord(pair[0])], self.symbols.spellings[ord(pair[1])]

    def frequency(self, pair: str) -> int:
        known = self.pairs.get(pair)
        return 0 if known is None else known.frequency

    def enqueue(self, pair: str) -> None:
        frequency = self.frequency(pair)
        if frequency == self.highest:
            insort(self.next, (*self.spell(pair), pair))
        elif frequency >= _MIN_FREQUENCY:
            others = self.waiting[frequency]
            if not others:
                heapq.heappush(self.queue, -frequency)
            others.append(pair)

    def most_frequent(self) -> Optional[str]:
        """Takes the pair to merge next out of the queue; None where no pair is frequent enough."""
        while self.queue or self.next:
            if not self.next or (self.queue and -self.queue[0] > self.highest):
                self._take_next_frequency()
                continue
            pair = self.next.pop()[-1]
            if self.frequency(pair) == self.highest:
                return pair
            self.enqueue(pair)
        return None

    def _take_next_frequency(self) -> None:
        left, self.next = self.next, []  # left, where a pair has become more frequent than these
        self.highest = -heapq.heappop(self.queue)
        for pair in chain(self.waiting.pop(self.highest), (pair for *_, pair in left)):
            if self.frequency(pair) == self.highest:
                self.next.append((*self.spell(pair), pair))
            else:
                self.enqueue(pair)
        self.next.sort()

    def merge(self, pair: str) -> None:
        """Makes one symbol of the pair in all words, beginning at the left where it overlaps with itself."""
        first, second = pair
        merged = self.symbols["".join(self.spell(pair))]
        before: DefaultDict[str, List[int]] = defaultdict(list)  # the words by what is at the left of the pair there
        after: DefaultDict[str, List[int]] = defaultdict(list)
        twice: List[int] = []
        words, frequencies, pairs, least = self.words, self.frequencies, self.pairs, self.least
        for index in pairs.pop(pair).where:
            left, found, right = words[index].partition(pair)
            if not found:  # lost the pair to an earlier merge, or was listed twice
                continue
            if pair in right:
                twice.append(index)
                continue
            words[index] = left + merged + right
            if left:
                before[left[-1]].append(index)
            if right:
                after[right[0]].append(index)
        changed = [(other + first, other + merged, indices) for other, indices in before.items()]
        changed += [(second + other, merged + other, indices) for other, indices in after.items()]
        for index in twice:
            changed += self._merge_in_word(index, pair, merged)
        for old, new, indices in changed:
            frequency = frequencies[indices[0]] if len(indices) == 1 else self.count(indices)
            loses, gains = pairs.get(old), pairs.get(new)
            if loses is not None:  # as does the pair itself where it overlaps, as in a a a
                loses.frequency -= frequency
                if loses.frequency < least:
                    del pairs[old]
            if gains is not None:
                gains.frequency += frequency
                gains.where.extend(indices)
            elif frequency >= least or twice:
                pairs[new] = _Pair(frequency, array("i", indices))
        for _, new, _ in changed:
            self.enqueue(new)

    def _merge_in_word(self, index: int, pair: str, merged: str) -> Iterator[Tuple[str, str, List[int]]]:
        """In a word that has the pair more than once; each pair around it, what that becomes, and the word's index."""
        first, second = pair
        parts = self.words[index].split(pair)
        self.words[index] = merged.join(parts)
        was = now = parts[0][-1:]  # the left neighbour before this merge and after it
        for part in parts[1:]:
            if now:
                yield was + first, now + merged, [index]
            if part:
                yield second + part[0], merged + part[0], [index]
                was = now = part[-1]
            else:
                was, now = second, merged

    def pieces(self, counts: Iterable[str]) -> Dict[str, str]:
        """The words with their pieces, as of :class:`Learned`.

        Codes are applied to a word in the order in which they were learnt, and so were they here: a pair that has been
        merged does not come up again, since a symbol is always made by the merge that made it first. Only ``</w>`` in
        a word can bring a symbol about in two ways.
        """
        if self.ambiguous:
            return {}
        marked = {
            ord(symbol): spelling[: -len(_END)] if spelling.endswith(_END) else f"{spelling}{_INSIDE} "
            for spelling, symbol in self.symbols.items()
        }
        symbols = iter(self.words)
        pieces = {word: next(symbols).translate(marked) if len(word) > 1 else word for word in counts}
        return {word: split for word, split in pieces.items() if _INSIDE not in word}


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
                f"the word {word!r} cannot be split; has it, or the text of the codes, a {_END}?"
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
        if _END in merge and not (merge.index(_END) == len(merge) - len(_END) and len(right) > len(_END)):
            return {}
    limit = _Limited(bpe).__getitem__
    return {
        word: " ".join(map(limit, pieces.split(" ")))
        for word, pieces in merged.items()
        if len(word) > 1 and _INSIDE not in word
    }


class _Limited(Dict[str, str]):
    """Pieces to those of a vocabulary that they are split into, by undoing merges; as subword-nmt's recursive_split.

    Each piece once, and what merges were made of as well: the pieces of words have most of it in common.
    """

    def __init__(self, bpe: apply_bpe.BPE) -> None:
        super().__init__(zip(bpe.vocab, bpe.vocab))
        self._merges = bpe.bpe_codes_reverse

    def __missing__(self, piece: str) -> str:
        inside = piece.endswith(_INSIDE)
        merge = self._merges.get(piece[: -len(_INSIDE)] if inside else piece + _END)
        if merge is None:
            self[piece] = piece
        else:
            left, right = merge
            self[piece] = f"{self[left + _INSIDE]} {self[right + _INSIDE if inside else right[: -len(_END)]]}"
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
