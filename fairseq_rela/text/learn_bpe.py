"""Learn the BPE merges that subword-nmt would learn, fast enough for the millions of word types of a WMT corpus."""

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

END = "</w>"  # end of a word; part of its last symbol
INSIDE = "@@"  # end of a piece that is not the last one of a word
_HEADER = "#version: 0.2"  # codes in which the end of a word is part of its last symbol
_MIN_FREQUENCY = 2  # minimum frequency of a merged pair; subword-nmt's default
_MAX_MERGES = 1_000_000  # each needs a code point; there are 1,114,112
_IN_ARRAYS = 1000  # the first merges; their pairs are in so many words that arrays are faster than strings


class Learned(NamedTuple):
    """Result of :func:`learn`.

    Attributes:
        codes: the lines of a codes file, the same as from subword-nmt's ``learn_bpe(..., is_dict=True)``.
        pieces: each word with its pieces by these codes, as from :meth:`.bpe.Segmenter.split_word`. Words with ``@@``
            are left out, because that method may refuse them. Empty if any word contains ``</w>``.
    """

    codes: List[str]
    pieces: Dict[str, str]


def learn(counts: Dict[str, int], merges: int) -> Learned:
    """Return the BPE codes of the words of a text, and the words split by them.

    Each of the ``merges`` steps turns the most frequent pair of neighbouring symbols into one symbol in all words.
    Among equally frequent pairs it takes the lexicographically greatest. Learning stops early if no pair occurs at
    least twice. Overlapping pairs are all counted: ``a a a`` has two pairs.

    The codes may differ from subword-nmt's for words with ``</w>`` before their last letter: two merges can then
    give the same symbol, and subword-nmt miscounts the pairs around it.

    Args:
        counts: frequency of every word, for joint codes of both languages together. Words contain no white space.
        merges: number of merge operations to learn.

    Raises:
        InputError: there is no pair to merge, or more than 1,000,000 merges are requested.
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
    """Disable garbage collection within the context; the learner makes no cycles, and it would take 1/8 of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Symbols(Dict[str, str]):
    """Maps spellings to symbols; a symbol is created when its spelling is looked up first.

    Attributes:
        spellings: the spelling of each symbol, at the index of the symbol's code point.
    """

    def __init__(self) -> None:
        super().__init__()
        self.spellings: List[str] = []

    def __missing__(self, spelling: str) -> str:
        symbol = self[spelling] = chr(len(self.spellings))
        self.spellings.append(spelling)
        return symbol


# a pair, the pair that a merge turns it into, how often, and the indices where this happens
_Change = Tuple[str, str, int, Any]


class _Pair:
    """Frequency and places of a pair of neighbouring symbols.

    Attributes:
        frequency: how often the pair occurs.
        where: indices of the words with this pair; while the words are in arrays, indices of its first symbol. It
            may also have places where the pair is no longer.
    """

    __slots__ = ("frequency", "where")

    def __init__(self, frequency: int, where: Any) -> None:
        self.frequency, self.where = frequency, where


class _Letters:
    """The words of a text in NumPy arrays, one after the other.

    Attributes:
        frequencies: frequency of each word.
        words: for each letter, the index of its word.
        symbols: for each letter, its symbol as a code point. A merge stores the new symbol at the first letter of the
            pair and ``_GONE`` at the second. Index -1 holds ``_NONE``.
        before, after: for each letter, the index of the left and of the right symbol in its word, -1 if there is none.
    """

    _NONE, _GONE = -1, -2

    def __init__(self, words: List[str], frequencies: "array[int]", symbols: _Symbols) -> None:
        lengths = numpy.fromiter(map(len, words), numpy.int32, len(words))
        ends = numpy.cumsum(lengths) - 1
        letters = 2 * numpy.frombuffer("".join(words).encode("utf-32-le", "surrogatepass"), numpy.int32)
        letters[ends] += 1  # a letter at the end of a word is another symbol
        occurs = numpy.zeros(2 * (sys.maxunicode + 1), bool)
        occurs[letters] = True
        for letter in numpy.flatnonzero(occurs).tolist():  # creates the symbols in this order
            symbols[chr(letter // 2) + END * (letter % 2)]
        self.frequencies = numpy.asarray(frequencies)
        self.words = numpy.repeat(numpy.arange(len(words), dtype=numpy.int32), lengths)
        self.symbols = numpy.append((numpy.cumsum(occurs, dtype=numpy.int32) - 1)[letters], numpy.int32(self._NONE))
        self.before = numpy.arange(-1, len(letters), dtype=numpy.int32)
        self.after = numpy.arange(1, len(letters) + 1, dtype=numpy.int32)
        self.before[ends + 1] = self.after[ends] = -1

    def pairs(self) -> Iterator[Tuple[str, int, Any]]:
        """Yield each pair, its frequency, and the indices of its first symbol."""
        at = numpy.flatnonzero(self.after >= 0).astype(numpy.int32)
        for symbol, _, firsts in self._group(at, at):
            for other, frequency, indices in self._group(self.after[firsts], firsts):
                yield symbol + other, frequency, indices

    def merge(self, pair: str, merged: str, at: Any) -> Iterator[_Change]:
        """Replace a pair by one symbol and yield the changes of the pairs beside it.

        Args:
            pair: the two symbols.
            merged: the new symbol.
            at: indices of the first symbol, ascending; those where the pair is no longer are ignored.
        """
        first, second = pair
        at = at[(self.symbols[at] == ord(first)) & (self.symbols[self.after[at]] == ord(second))]
        if first == second:
            at = self._apart(at)
        removed, left = self.after[at], self.before[at]
        right = self.after[removed]
        self.symbols[at], self.symbols[removed] = ord(merged), self._GONE
        self.after[at], self.before[right] = right, at
        # between two neighbouring merged pairs, the left one is _GONE here; the second loop yields this change
        for other, frequency, indices in self._group(left, left):
            yield other + first, other + merged, frequency, indices
        for other, frequency, indices in self._group(right, at):
            yield second + (first if other == merged else other), merged + other, frequency, indices

    def _apart(self, at: Any) -> Any:
        """Return the indices without those whose first symbol is the second symbol of a pair that is kept."""
        kept, removed = [], -1
        for index, after in zip(at.tolist(), self.after[at].tolist()):
            if index != removed:
                kept.append(index)
                removed = after
        return numpy.array(kept, at.dtype)

    def _group(self, at: Any, indices: Any) -> Iterator[Tuple[str, int, Any]]:
        """Yield each symbol at the indices ``at`` once, with its frequency and the entries of ``indices`` beside it."""
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
        """Return each word as the string of its symbols."""
        kept = self.symbols[:-1] >= 0
        text = self.symbols[:-1][kept].tobytes().decode("utf-32-le", "surrogatepass")
        ends = numpy.cumsum(numpy.bincount(self.words[kept])).tolist()
        return [text[start:end] for start, end in zip([0, *ends], ends)]


class _Learner:
    """The words of a text as symbols, and the frequency of every pair of neighbouring symbols.

    A symbol is a code point that stands for its spelling; a pair is a string of two symbols. The first merges are
    done in arrays, because each pair is in very many words. After that a word is the string of its symbols, which
    Python searches and splits at the speed of C and which takes about 100 bytes.

    Attributes:
        frequencies: frequency of each word of two or more letters.
        in_arrays: number of merges that are still to be done in arrays.
        letters: these words in arrays; None when they are in strings.
        words: these words in strings; empty while they are in arrays.
        ambiguous: whether some word contains ``</w>``, so that two merges may give the same symbol.
        least: pairs below this frequency are dropped, because they will never be merged. Only the merge that creates
            a pair makes it more frequent, unless another merge gives the same symbol.
        pairs: the pairs of at least this frequency.
        waiting: frequency to pairs. A pair may have become less frequent since it was added, but not more frequent:
            then it is added again.
        queue: heap of these frequencies, negated, because ``heapq`` returns the smallest entry first.
        highest, next: the current frequency, and its pairs with their spellings, sorted; the last is merged next.
    """

    def __init__(self, counts: Dict[str, int], merges: int) -> None:
        self.symbols = _Symbols()
        self.ambiguous = any(END in word for word in counts)
        words = [word for word in counts if len(word) > 1]
        if not words:
            raise InputError("the training text has no word of two letters, so there is no BPE to learn")
        self.frequencies = array("q", map(counts.__getitem__, words))
        self.words: List[str] = []
        self.in_arrays = 0 if self.ambiguous else _IN_ARRAYS  # in arrays, a merge must create new pairs only
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
        """Return a lower bound of the frequency of every merged pair: the frequency of the word of rank ``merges``.

        Each word needs a merge of its own to become one symbol. So before each merge, one of the ``merges`` most
        frequent words is not yet one symbol, and its pairs are at least as frequent as this word.
        """
        return sorted(self.frequencies, reverse=True)[merges - 1] if merges <= len(self.frequencies) else 1

    def count(self, indices: Iterable[int]) -> int:
        """Return the sum of the frequencies of some words."""
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
        """Remove the next pair to merge from the queue and return it, or None if no pair is frequent enough."""
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
        left, self.next = self.next, []  # pairs are left if a new pair is more frequent
        self.highest = -heapq.heappop(self.queue)
        for pair in chain(self.waiting.pop(self.highest), (pair for *_, pair in left)):
            if self.frequency(pair) == self.highest:
                self.next.append((*self.spell(pair), pair))
            else:
                self.enqueue(pair)
        self.next.sort()

    def merge(self, pair: str) -> None:
        """Replace the pair by one symbol in all words, from left to right if it overlaps with itself."""
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
        before: DefaultDict[str, List[int]] = defaultdict(list)  # words by the symbol on the left of the pair
        after: DefaultDict[str, List[int]] = defaultdict(list)
        twice: List[int] = []
        words = self.words
        for index in where:
            left, found, right = words[index].partition(pair)
            if not found:  # an earlier merge removed the pair, or the word is listed twice
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
        """Replace a pair in a word that has it more than once, and yield the changes of the pairs beside it."""
        first, second = pair
        parts = self.words[index].split(pair)
        self.words[index] = merged.join(parts)
        was = now = parts[0][-1:]  # the left neighbour, before and after this merge
        for part in parts[1:]:
            if now:
                yield was + first, now + merged, self.frequencies[index], [index]
            if part:
                yield second + part[0], merged + part[0], self.frequencies[index], [index]
                was = now = part[-1]
            else:
                was, now = second, merged

    def _change(self, changed: List[_Change], least: int, keep: Callable[[Any], Any]) -> None:
        """Apply the changes of a merge to the frequencies and places of the pairs.

        Args:
            changed: the changes.
            least: new pairs below this frequency are dropped.
            keep: function that converts the indices of a new pair to the form that is stored.
        """
        pairs = self.pairs
        for old, new, frequency, indices in changed:
            loses, gains = pairs.get(old), pairs.get(new)
            if loses is not None:  # None for dropped pairs and, as in a a a, for the merged pair itself
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
        """Convert the words from arrays to strings."""
        if self.letters is None:
            return
        self.words = self.letters.strings()
        for pair in self.pairs.values():
            pair.where = array("i", self.letters.words[pair.where].tobytes())
        self.letters = None

    def pieces(self, counts: Iterable[str]) -> Dict[str, str]:
        """Return the words with their pieces, see :class:`Learned`.

        The symbols of a word after learning are its pieces: codes are applied in the order in which they were learnt,
        and a merged pair does not occur again, because each symbol is created by one merge only. The exception is
        ``</w>`` in a word, which allows two merges to create the same symbol.
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
