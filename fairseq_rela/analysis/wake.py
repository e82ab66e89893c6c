"""Find the words that wake a head: how often the queries of a word have a weight that is not 0.

A ReLA head is off for a query if all weights of the query are 0 (section 5.2), and awake otherwise. The words that
wake a head suggest what the head does.
"""

from typing import Dict, List, NamedTuple, Sequence

import torch
from torch import Tensor


def awake_words(awake: Tensor, words: Sequence[int]) -> Tensor:
    """Return which words wake a head: a word does so if any of its pieces does.

    Args:
        awake: (..., T), True for the pieces that wake the head.
        words: the word of each piece, as :func:`fairseq_rela.alignment.word_ids` returns it.

    Returns:
        (..., words) booleans.

    Raises:
        ValueError: ``awake`` and ``words`` have different numbers of pieces.
    """
    if awake.size(-1) != len(words):
        raise ValueError(f"{awake.size(-1)} queries are not of {len(words)} pieces")
    index = torch.tensor(list(words), dtype=torch.long)
    pieces = torch.zeros(*awake.shape[:-1], int(index[-1]) + 1 if len(words) else 0, dtype=torch.long)
    return pieces.index_add_(-1, index, awake.long()) > 0


class Woken(NamedTuple):
    """A word or tag (``key``), its number of occurrences, and the share of them (0 to 1) that woke one head."""

    key: str
    count: int  # type: ignore[assignment]  # hides tuple.count
    share: float


class WakeCounts:
    """Counts of the occurrences of each key, and of those that woke each of ``heads`` heads."""

    def __init__(self, heads: int) -> None:
        self._places: Dict[str, int] = {}
        self._count = torch.zeros(0, dtype=torch.long)  # (keys,)
        self._woken = torch.zeros(heads, 0, dtype=torch.long)  # (heads, keys)

    def add(self, keys: Sequence[str], awake: Tensor) -> None:
        """Count more occurrences.

        Args:
            keys: the key of each occurrence.
            awake: (heads, occurrences), True where the occurrence woke the head.

        Raises:
            ValueError: ``awake`` has another shape.
        """
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
        """Return the keys with at least ``minimum`` occurrences, sorted by share and then by count, highest first."""
        woken = [
            Woken(key, count, awake / count)
            for key, count, awake in zip(self._places, self._count.tolist(), self._woken[head].tolist())
            if count >= minimum
        ]
        return sorted(woken, key=lambda item: (-item.share, -item.count, item.key))
