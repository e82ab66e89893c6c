"""Learn the BPE merges that subword-nmt would learn, with an index of the words that hold each pair of symbols."""

import heapq
from collections import defaultdict
from typing import DefaultDict, Dict, List, Optional, Tuple

from tqdm import tqdm

from ..errors import InputError

END = "</w>"  # end of a word; part of its last symbol
_HEADER = "#version: 0.2"  # codes in which the end of a word is part of its last symbol
_MIN_FREQUENCY = 2  # minimum frequency of a merged pair; subword-nmt's default
Pair = Tuple[str, str]


def learn(counts: Dict[str, int], merges: int) -> List[str]:
    """Return the lines of a BPE codes file, the same as from subword-nmt's ``learn_bpe(..., is_dict=True)``.

    Each of the ``merges`` steps turns the most frequent pair of neighbouring symbols into one symbol in all words.
    Among equally frequent pairs it takes the lexicographically greatest. Learning stops early if no pair occurs at
    least twice. Overlapping pairs are all counted: ``a a a`` has two pairs.

    The codes may differ from subword-nmt's for words with ``</w>`` before their last letter: two merges can then
    give the same symbol, and subword-nmt miscounts the pairs around it.

    Args:
        counts: frequency of every word, for joint codes of both languages together. Words contain no white space.
        merges: number of merge operations to learn.

    Raises:
        InputError: there is no pair to merge.
    """
    words = {word: count for word, count in counts.items() if len(word) > 1}
    if not words:
        raise InputError("the training text has no word of two letters, so there is no BPE to learn")
    pairs = _Pairs(words, merges)
    codes = [_HEADER]
    for _ in tqdm(range(merges), desc="learn BPE", unit=" merges", unit_scale=True, disable=None):
        pair = pairs.most_frequent()
        if pair is None:
            break
        codes.append(" ".join(pair))
        pairs.merge(pair)
    if len(codes) == 1:
        raise InputError("in the training text no two letters occur together twice, so there is no BPE to learn")
    return codes


class _Pairs:
    """The pairs of neighbouring symbols in the words of a text.

    Attributes:
        words: the symbols of each word.
        counts: the frequency of each word.
        least: pairs below this frequency are dropped, because they will never be merged.
        frequency: how often each pair occurs.
        where: indices of the words with each pair; the pair may have left some of them.
        queue: heap of pairs with their negative frequencies, because ``heapq`` returns the smallest entry first. A
            pair may have become less frequent since it was added, but not more frequent: then it is added again.
    """

    def __init__(self, words: Dict[str, int], merges: int) -> None:
        self.words = [[*word[:-1], word[-1] + END] for word in words]
        self.counts = list(words.values())
        self.least = _least_frequency(words, merges)
        self.frequency: Dict[Pair, int] = {}
        self.where: Dict[Pair, List[int]] = {}
        self.queue: List[Tuple[int, List[int], Pair]] = []
        frequency: DefaultDict[Pair, int] = defaultdict(int)
        where: DefaultDict[Pair, List[int]] = defaultdict(list)
        for index, (word, count) in enumerate(zip(self.words, self.counts)):
            for pair in zip(word, word[1:]):
                frequency[pair] += count
                where[pair].append(index)
        self._change(frequency, where)

    def most_frequent(self) -> Optional[Pair]:
        """Return the next pair to merge, or None if no pair is frequent enough."""
        while self.queue:
            negative, order, pair = self.queue[0]
            frequency = self.frequency.get(pair, 0)
            if frequency < max(self.least, _MIN_FREQUENCY):
                heapq.heappop(self.queue)
            elif frequency == -negative:
                return pair
            else:
                heapq.heapreplace(self.queue, (-frequency, order, pair))
        return None

    def merge(self, pair: Pair) -> None:
        """Replace the pair by one symbol in all words, from left to right if it overlaps with itself."""
        first, second = pair
        merged = first + second
        change: DefaultDict[Pair, int] = defaultdict(int)
        where: DefaultDict[Pair, List[int]] = defaultdict(list)
        del self.frequency[pair]
        for index in self.where.pop(pair):
            word, count, at = self.words[index], self.counts[index], 0
            while first in word[at:-1]:
                at = word.index(first, at) + 1
                if word[at] != second:
                    continue
                word[at - 1 : at + 1] = [merged]
                if at > 1:
                    left = word[at - 2]
                    change[left, first] -= count
                    change[left, merged] += count
                    where[left, merged].append(index)
                if at < len(word):
                    right = word[at]
                    change[second, right] -= count
                    change[merged, right] += count
                    where[merged, right].append(index)
        self._change(change, where)

    def _change(self, change: Dict[Pair, int], where: Dict[Pair, List[int]]) -> None:
        """Add to the frequencies of the pairs; ``where`` has the words of the pairs that a merge creates."""
        for pair, difference in change.items():
            old = self.frequency.get(pair, 0)
            if old + difference < self.least:
                self.frequency.pop(pair, None)
                self.where.pop(pair, None)
                continue
            self.frequency[pair] = old + difference
            if pair in where:
                self.where.setdefault(pair, []).extend(where[pair])
            if difference > 0:
                heapq.heappush(self.queue, (-old - difference, _descending(pair), pair))


def _least_frequency(words: Dict[str, int], merges: int) -> int:
    """Return a lower bound of the frequency of every merged pair: the frequency of the word of rank ``merges``.

    Each word needs a merge of its own to become one symbol. So before each merge, one of the ``merges`` most
    frequent words is not yet one symbol, and its pairs are at least as frequent as this word. Only the merge that
    creates a pair makes it more frequent; ``</w>`` in a word is an exception, because two merges may then give the
    same symbol.
    """
    if merges > len(words) or any(END in word for word in words):
        return 1
    return heapq.nlargest(merges, words.values())[-1]


def _descending(pair: Pair) -> List[int]:
    """Return a sort key by which the lexicographically greatest pair is the first."""
    return [number for symbol in pair for number in (*(-ord(letter) for letter in symbol), 1)]
