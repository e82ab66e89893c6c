"""Weights of pieces to weights of words, and weights of heads to one layer attention; pure functions on arrays.

The analysis of Zhang et al. 2021, section 5.2, is on words: the weights are summed over the pieces of an attended word
and averaged over the pieces of the word that attends (Zenkel et al. 2019). Ends of sentences are no words.
"""

from typing import Sequence, Tuple

import torch
from torch import Tensor


def memberships(words: Sequence[Sequence[int]], positions: int) -> Tensor:
    """Return which position belongs to which word.

    Args:
        words: for each sentence the word of each position, from 0; -1 where a position belongs to no word, as those
            past the end of the list do.
        positions: P, padding included.

    Returns:
        (B, W, P), float64, 1 where position p is of word w, else 0; W words in the longest sentence.
    """
    longest = max([0, *(word + 1 for sentence in words for word in sentence)])
    members = torch.zeros(len(words), longest + 1, positions, dtype=torch.float64)  # the last row for -1
    for row, sentence in enumerate(words):
        members[row, torch.tensor(list(sentence), dtype=torch.long), torch.arange(len(sentence))] = 1
    return members[:, :longest]


def merge_words(weights: Tensor, allowed: Tensor, queries: Tensor, keys: Tensor) -> Tuple[Tensor, Tensor]:
    """Merge weights of pieces into weights of words.

    .. math:: W_{ij} = \\frac{1}{|i|} \\sum_{t \\in i} \\sum_{s \\in j} A_{ts}

    for the pieces t of word i and s of word j; a weight where t may not attend to s is 0. Word i may attend to word j
    where any of its pieces may attend to any piece of j.

    Args:
        weights: (B, H, T, S).
        allowed: (B, T, S), True where a query may attend to a key.
        queries, keys: (B, U, T) and (B, V, S), of :func:`memberships`.

    Returns:
        Weights (B, H, U, V) in float64, in which a mean of float32 numbers is 0 only where their sum is, and which of
        them are allowed, (B, U, V).
    """
    queries, keys = queries.to(weights.device), keys.to(weights.device).transpose(1, 2)
    cells = weights.double().masked_fill(~allowed.unsqueeze(1), 0)
    summed = cells @ keys.unsqueeze(1)  # (B, H, T, V)
    mean = queries / queries.sum(dim=-1, keepdim=True).clamp(min=1)
    return mean.unsqueeze(1) @ summed, queries @ allowed.double() @ keys > 0


def layer_attention(weights: Tensor) -> Tensor:
    """Return the mean over the heads of one layer: (..., H, T, S) to (..., 1, T, S).

    Heads whose weights do not sum to 1 count as much as their weights are large: see :func:`sum_to_one`.
    """
    return weights.mean(dim=-3, keepdim=True)


def sum_to_one(weights: Tensor) -> Tensor:
    """Divide each row by the sum of its absolute values; a null row stays 0.

    Args:
        weights: (..., S), 0 where a query may not attend.
    """
    return weights / weights.abs().sum(dim=-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
