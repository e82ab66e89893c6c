"""Word alignments from attention weights; pure functions on arrays.

Each target word is aligned to its strongest source word. A null row, a query all of whose weights are 0, aligns
nothing: the argmax of zeros would be a false link to the first word.
"""

from typing import List, Sequence, Tuple

import torch
from torch import Tensor

Link = Tuple[int, int]  # (source position, target position), from 0


def strongest_links(weights: Tensor) -> List[Link]:
    """One link for each target position that attends to anything.

    Args:
        weights: (T, S); the first of equal maxima wins. No row or column for padding or ends of sentences.
    """
    if weights.numel() == 0:
        return []
    values, positions = weights.max(dim=-1)
    return [(int(s), t) for t, (value, s) in enumerate(zip(values, positions)) if value > 0]


def word_ids(pieces: Sequence[str]) -> List[int]:
    """The word each BPE piece belongs to: ``["lo@@", "w", "er"]`` to ``[0, 0, 1]``."""
    ids, word = [], 0
    for piece in pieces:
        ids.append(word)
        word += not piece.endswith("@@")
    return ids


def merge_subwords(weights: Tensor, source_words: Sequence[int], target_words: Sequence[int]) -> Tensor:
    """Weights of pieces to weights of words (Zenkel et al. 2019).

    Args:
        weights: (T, S), of pieces.
        source_words, target_words: as :func:`word_ids`.

    Returns:
        (target words, source words): summed over the pieces of a source word, averaged over those of a target word.
    """
    source, target = (torch.tensor(list(ids), dtype=torch.long) for ids in (source_words, target_words))
    if weights.shape != (len(target), len(source)):
        raise ValueError(f"weights {tuple(weights.shape)} are not of {len(target)} by {len(source)} pieces")
    summed = weights.new_zeros(len(target), int(source.max()) + 1).index_add_(1, source, weights)
    merged = weights.new_zeros(int(target.max()) + 1, summed.size(1)).index_add_(0, target, summed)
    return merged / torch.bincount(target).to(weights).unsqueeze(1)
