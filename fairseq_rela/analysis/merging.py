"""Merge weights of pieces into weights of words, and heads into one layer attention; pure functions on tensors.

Zhang et al. 2021, section 5.2, analyse words: the weights are summed over the pieces of an attended word and averaged
over the pieces of the word that attends (Zenkel et al. 2019). Ends of sentences are not words.
"""

from typing import Sequence, Tuple

import torch
from torch import Tensor


def memberships(words: Sequence[Sequence[int]], positions: int) -> Tensor:
    """Return which position belongs to which word.

    Args:
        words: for each of B sentences, the word of each position, from 0; -1 for a position that belongs to no word.
            Positions after the end of the list belong to no word.
        positions: number P of positions, including padding.

    Returns:
        (B, W, P), float64, 1 where position p belongs to word w, else 0; W is the number of words of the longest
        sentence.
    """
    longest = max([0, *(word + 1 for sentence in words for word in sentence)])
    members = torch.zeros(len(words), longest + 1, positions, dtype=torch.float64)  # the last row for -1
    for row, sentence in enumerate(words):
        members[row, torch.tensor(list(sentence), dtype=torch.long), torch.arange(len(sentence))] = 1
    return members[:, :longest]


def merge_words(weights: Tensor, allowed: Tensor, queries: Tensor, keys: Tensor) -> Tuple[Tensor, Tensor]:
    """Merge weights of pieces into weights of words.

    .. math:: W_{ij} = \\frac{1}{|i|} \\sum_{t \\in i} \\sum_{s \\in j} A_{ts}

    where t runs over the pieces of word i, s over the pieces of word j, and weights that are not allowed count as 0.
    Word i may attend to word j if any piece of i may attend to any piece of j.

    Args:
        weights: (B, H, T, S).
        allowed: (B, T, S), True where a query may attend to a key.
        queries, keys: (B, U, T) and (B, V, S), from :func:`memberships`.

    Returns:
        weights (B, H, U, V), and which of them are allowed, (B, U, V). The weights are float64, so that a mean of tiny
        float32 weights does not underflow to 0.
    """
    queries, keys = queries.to(weights.device), keys.to(weights.device).transpose(1, 2)
    cells = weights.double().masked_fill(~allowed.unsqueeze(1), 0)
    summed = cells @ keys.unsqueeze(1)  # (B, H, T, V)
    mean = queries / queries.sum(dim=-1, keepdim=True).clamp(min=1)
    return mean.unsqueeze(1) @ summed, queries @ allowed.double() @ keys > 0


def layer_attention(weights: Tensor) -> Tensor:
    """Return the mean over the heads of one layer: (..., H, T, S) to (..., 1, T, S).

    Where weights do not sum to 1, heads with larger weights count more; :func:`sum_to_one` avoids this.
    """
    return weights.mean(dim=-3, keepdim=True)


def sum_to_one(weights: Tensor) -> Tensor:
    """Divide each row by the sum of its absolute values; a row of zeros stays 0.

    Args:
        weights: (..., S), 0 where a query may not attend to a key.
    """
    return weights / weights.abs().sum(dim=-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
