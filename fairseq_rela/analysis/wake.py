"""Which words wake a head: the share of queries, by word, that attend to anything at all; pure functions on arrays.

A ReLA head is off where all weights of a query are 0 (section 5.2). Which words turn it on says what it is for.
"""

from typing import Dict, List, NamedTuple, Sequence

import torch
from torch import Tensor


def awake_words(awake: Tensor, words: Sequence[int]) -> Tensor:
    """A word wakes a head if any of its pieces does.

    Args:
        awake: (..., T), of pieces.
        words: the word of each piece, as :func:`fairseq_rela.analysis.alignment.word_ids`.

    Returns:
        (..., words).
    """
    if awake.size(-1) != len(words):
        raise ValueError(f"{awake.size(-1)} queries are not of {len(words)} pieces")
    index = torch.tensor(list(words), dtype=torch.long)
    pieces = torch.zeros(*awake.shape[:-1], int(index[-1]) + 1 if len(words) else 0, dtype=torch.long)
    return pieces.index_add_(-1, index, awake.long()) > 0


class Woken(NamedTuple):
    """A key, which is a word or a tag, at one head: how often it occurs, and the share that woke the head."""

    key: str
    count: int  # type: ignore[assignment]  # hides tuple.count
    share: float


class WakeCounts:
    """Occurrences of keys, and how many of them woke each of ``heads`` heads; statistics first, ratios last."""

    def __init__(self, heads: int) -> None:
        self._places: Dict[str, int] = {}
        self._count = torch.zeros(0, dtype=torch.long)  # (keys,)
        self._woken = torch.zeros(heads, 0, dtype=torch.long)  # (heads, keys)

    def add(self, keys: Sequence[str], awake: Tensor) -> None:
        """Count some occurrences: ``awake`` (heads, occurrences) says which heads each one woke."""
        if awake.shape != (self._woken.size(0), len(keys)):
            raise ValueError(f"{tuple(awake.shape)} are not {self._woken.size(0)} heads by {len(keys)} words")
        index = torch.tensor([self._places.setdefault(key, len(self._places)) for key in keys], dtype=torch.long)
        new = len(self._places) - len(self._count)
        if new:
            self._count = torch.cat((self._count, self._count.new_zeros(new)))
            self._woken = torch.cat((self._woken, self._woken.new_zeros(len(self._woken), new)), dim=1)
        self._count.index_add_(0, index, torch.ones_like(index))
        self._woken.index_add_(1, index, awake.long())

    def by_share(self, head: int, minimum: int = 1) -> List[Woken]:
        """Keys of at least ``minimum`` occurrences, those that wake the head most often first, then the commonest."""
        woken = [
            Woken(key, count, awake / count)
            for key, count, awake in zip(self._places, self._count.tolist(), self._woken[head].tolist())
            if count >= minimum
        ]
        return sorted(woken, key=lambda item: (-item.share, -item.count, item.key))
