"""Learning BPE merges, the same as subword-nmt's, which does not scale to the millions of words of a WMT corpus."""

import gc
import heapq
import sys
from array import array
from bisect import insort
from collections import defaultdict
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, Callable, DefaultDict, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

import numpy
from tqdm import tqdm

from ..errors import InputError

END = "</w>"  # of a word; it belongs to the last symbol
INSIDE = "@@"  # at the end of a piece: the word goes on
_HEADER = "#version: 0.2"  # of codes where the end of a word belongs to its last symbol
_MIN_FREQUENCY = 2  # of a pair that is merged; subword-nmt's default
_MAX_MERGES = 1_000_000  # each needs a code point, of which there are 1,114,112
_IN_ARRAYS = 1000  # merges, the first, of pairs in so many words that arrays are faster than strings


class Learned(NamedTuple):
    """What :func:`learn` has learnt.

    Attributes:
        codes: the lines of a codes file, those of subword-nmt's ``learn_bpe(..., is_dict=True)``.
        pieces: the words with their pieces by these codes, as of :meth:`.bpe.Segmenter.split_word`. Words with ``@@``
            are missing, which it may refuse; and all, where any word has ``</w>``.
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


# a pair, what it becomes in a merge, how often, and the indices at which it does
_Change = Tuple[str, str, int, Any]


class _Pair:
    """What is known of two neighbouring symbols.

    Attributes:
        frequency: how often they occur.
        where: the indices of the words that have them; of the first of the two, while the words are in arrays. Also
            where they no longer are.
    """

    __slots__ = ("frequency", "where")

    def __init__(self, frequency: int, where: Any) -> None:
        self.frequency, self.where = frequency, where


class _Letters:
    """The words of a text in arrays, one after the other.

    Attributes:
        frequencies: how often each word occurs.
        words: for each letter, the index of the word that it is in.
        symbols: the symbol of each letter, a code point. That of a merged pair stands where the first was, ``_GONE``
            where the second was; at index -1 stands ``_NONE``.
        before, after: the index of the symbol at the left and at the right in the same word, -1 where there is none.
    """

    _NONE, _GONE = -1, -2

    def __init__(self, words: List[str], frequencies: "array[int]", symbols: _Symbols) -> None:
        lengths = numpy.fromiter(map(len, words), numpy.int32, len(words))
        ends = numpy.cumsum(lengths) - 1
        letters = 2 * numpy.frombuffer("".join(words).encode("utf-32-le", "surrogatepass"), numpy.int32)
        letters[ends] += 1  # the last of a word is another symbol
        occurs = numpy.zeros(2 * (sys.maxunicode + 1), bool)
        occurs[letters] = True
        for letter in numpy.flatnonzero(occurs).tolist():  # which makes their symbols, in this order
            symbols[chr(letter // 2) + END * (letter % 2)]
        self.frequencies = numpy.asarray(frequencies)
        self.words = numpy.repeat(numpy.arange(len(words), dtype=numpy.int32), lengths)
        self.symbols = numpy.append((numpy.cumsum(occurs, dtype=numpy.int32) - 1)[letters], numpy.int32(self._NONE))
        self.before = numpy.arange(-1, len(letters), dtype=numpy.int32)
        self.after = numpy.arange(1, len(letters) + 1, dtype=numpy.int32)
        self.before[ends + 1] = self.after[ends] = -1

    def pairs(self) -> Iterator[Tuple[str, int, Any]]:
        """All pairs, how often each occurs, and the indices of its first symbol."""
        at = numpy.flatnonzero(self.after >= 0).astype(numpy.int32)
        for symbol, _, firsts in self._group(at, at):
            for other, frequency, indices in self._group(self.after[firsts], firsts):
                yield symbol + other, frequency, indices

    def merge(self, pair: str, merged: str, at: Any) -> Iterator[_Change]:
        """Makes one symbol of a pair, which is to be found at some of these indices, in ascending order."""
        first, second = pair
        at = at[(self.symbols[at] == ord(first)) & (self.symbols[self.after[at]] == ord(second))]
        if first == second:
            at = self._apart(at)
        removed, left = self.after[at], self.before[at]
        right = self.after[removed]
        self.symbols[at], self.symbols[removed] = ord(merged), self._GONE
        self.after[at], self.before[right] = right, at
        # but where the same pair was at the left: that one finds this one at its right
        for other, frequency, indices in self._group(left, left):
            yield other + first, other + merged, frequency, indices
        for other, frequency, indices in self._group(right, at):
            yield second + (first if other == merged else other), merged + other, frequency, indices

    def _apart(self, at: Any) -> Any:
        """The indices without those to the right of one that is kept."""
        kept, removed = [], -1
        for index, after in zip(at.tolist(), self.after[at].tolist()):
            if index != removed:
                kept.append(index)
                removed = after
        return numpy.array(kept, at.dtype)

    def _group(self, at: Any, indices: Any) -> Iterator[Tuple[str, int, Any]]:
        """The symbols at some indices, each once; how often its words occur, and its part of the ``indices`` beside."""
        symbols = self.symbols[at]
        order = numpy.argsort(symbols, kind="stable")
        symbols, indices = symbols[order], indices[order]
        starts = numpy.flatnonzero(numpy.append(True, symbols[1:] != symbols[:-1]))
        frequencies = numpy.add.reduceat(self.frequencies[self.words[indices]], starts)
        bounds = [*starts.tolist(), len(at)]
        for symbol, frequency, start, end in zip(symbols[starts].tolist(), frequencies.tolist(), bounds, bounds[1:]):
            if symbol >= 0:
                yield chr(symbol), frequency, indices[start:end]

    def strings(self) -> List[str]:
        """The words, each the string of its symbols."""
        kept = self.symbols[:-1] >= 0
        text = self.symbols[:-1][kept].tobytes().decode("utf-32-le", "surrogatepass")
        ends = numpy.cumsum(numpy.bincount(self.words[kept])).tolist()
        return [text[start:end] for start, end in zip([0, *ends], ends)]


class _Learner:
    """The words of a text as symbols, and the frequency of every pair of neighbouring symbols.

    A symbol is a code point that stands for its spelling; a pair is a string of two symbols. The first merges are made
    in arrays, for each pair is in very many words; then a word is the string of all of its symbols, which is searched
    and split at the speed of C, and takes a hundred bytes.

    Attributes:
        frequencies: how often each word of two or more letters occurs.
        in_arrays: how many merges are left to be made in arrays.
        letters: these words in arrays; None when they are in strings.
        words: these words in strings, once they are.
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
        self.ambiguous = any(END in word for word in counts)
        words = [word for word in counts if len(word) > 1]
        if not words:
            raise InputError("the training text has no word of two letters, so there is no BPE to learn")
        self.frequencies = array("q", map(counts.__getitem__, words))
        self.words: List[str] = []
        self.in_arrays = 0 if self.ambiguous else _IN_ARRAYS  # there the pairs that a merge makes must be new
        self.letters: Optional[_Letters] = _Letters(words, self.frequencies, self.symbols)
        self.least = 1 if self.ambiguous else self._least_frequency(merges)
        self.pairs: Dict[str, _Pair] = {}
        self.waiting: DefaultDict[int, List[str]] = defaultdict(list)
        self.queue: List[int] = []
        self.highest = 0
        self.next: List[Tuple[str, str, str]] = []
        for pair, frequency, indices in self.letters.pairs():
            if frequency >= self.least:
                self.pairs[pair] = _Pair(frequency, indices)
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
        merged = self.symbols["".join(self.spell(pair))]
        if not self.in_arrays:
            self.leave_arrays()
        where = self.pairs.pop(pair).where
        if self.letters is None:
            self._merge_in_strings(pair, merged, where)
        else:
            self.in_arrays -= 1
            self._change(list(self.letters.merge(pair, merged, where)), self.least, lambda indices: indices)

    def _merge_in_strings(self, pair: str, merged: str, where: "array[int]") -> None:
        first, second = pair
        before: DefaultDict[str, List[int]] = defaultdict(list)  # the words by what is at the left of the pair there
        after: DefaultDict[str, List[int]] = defaultdict(list)
        twice: List[int] = []
        words = self.words
        for index in where:
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
        changed = [(other + first, other + merged, self.count(indices), indices) for other, indices in before.items()]
        changed += [(second + other, merged + other, self.count(indices), indices) for other, indices in after.items()]
        for index in twice:
            changed += self._merge_in_word(index, pair, merged)
        self._change(changed, 0 if twice else self.least, partial(array, "i"))

    def _merge_in_word(self, index: int, pair: str, merged: str) -> Iterator[_Change]:
        """In a word that has the pair more than once."""
        first, second = pair
        parts = self.words[index].split(pair)
        self.words[index] = merged.join(parts)
        was = now = parts[0][-1:]  # the left neighbour before this merge and after it
        for part in parts[1:]:
            if now:
                yield was + first, now + merged, self.frequencies[index], [index]
            if part:
                yield second + part[0], merged + part[0], self.frequencies[index], [index]
                was = now = part[-1]
            else:
                was, now = second, merged

    def _change(self, changed: List[_Change], least: int, keep: Callable[[Any], Any]) -> None:
        """What a merge changes. New pairs below a frequency are not kept; of others, the indices as told."""
        pairs = self.pairs
        for old, new, frequency, indices in changed:
            loses, gains = pairs.get(old), pairs.get(new)
            if loses is not None:  # as does the pair itself where it overlaps, as in a a a
                loses.frequency -= frequency
                if loses.frequency < self.least:
                    del pairs[old]
            if gains is not None:
                gains.frequency += frequency
                gains.where.extend(indices)
            elif frequency >= least:
                pairs[new] = _Pair(frequency, keep(indices))
        for _, new, *_ in changed:
            self.enqueue(new)

    def leave_arrays(self) -> None:
        """Go on with words as strings."""
        if self.letters is None:
            return
        self.words = self.letters.strings()
        for pair in self.pairs.values():
            pair.where = array("i", self.letters.words[pair.where].tobytes())
        self.letters = None

    def pieces(self, counts: Iterable[str]) -> Dict[str, str]:
        """The words with their pieces, as of :class:`Learned`.

        Codes are applied to a word in the order in which they were learnt, and so were they here: a pair that has been
        merged does not come up again, since a symbol is always made by the merge that made it first. Only ``</w>`` in
        a word can bring a symbol about in two ways.
        """
        if self.ambiguous:
            return {}
        self.leave_arrays()
        marked = {
            ord(symbol): spelling[: -len(END)] if spelling.endswith(END) else f"{spelling}{INSIDE} "
            for spelling, symbol in self.symbols.items()
        }
        symbols = iter(self.words)
        pieces = {word: next(symbols).translate(marked) if len(word) > 1 else word for word in counts}
        return {word: split for word, split in pieces.items() if INSIDE not in word}
