"""Word alignments from attention weights; pure functions on arrays.

Each target word is aligned to its strongest source word. A null row, a query all of whose weights are 0, aligns
nothing: the argmax of zeros would be a false link to the first word.
"""

from typing import Iterable, List, Sequence, Tuple

import torch
from torch import Tensor

Link = Tuple[int, int]  # (source position, target position), from 0


def strongest_sources(weights: Tensor) -> Tensor:
    """The source position that each target position attends to most, -1 where it attends to nothing.

    Only weights above 0 count, which matters where GeLU or leaky ReLU make negative ones.

    Args:
        weights: (..., T, S); the first of equal maxima wins. No row or column for padding or ends of sentences.

    Returns:
        (..., T) positions.
    """
    if weights.numel() == 0:
        return torch.full(weights.shape[:-1], -1, dtype=torch.long)
    values, positions = weights.max(dim=-1)
    return positions.masked_fill(values <= 0, -1)


def strongest_links(weights: Tensor) -> List[Link]:
    """One link for each target position that attends to anything; ``weights`` (T, S), see :func:`strongest_sources`."""
    return [(s, t) for t, s in enumerate(strongest_sources(weights).tolist()) if s >= 0]


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
        weights: (..., T, S), of pieces.
        source_words, target_words: as :func:`word_ids`; words without pieces may be left out between others, and
            get no weight.

    Returns:
        (..., target words, source words): summed over the pieces of a source word, averaged over those of a target
        word.
    """
    source, target = (torch.tensor(list(ids), dtype=torch.long) for ids in (source_words, target_words))
    if weights.shape[-2:] != (len(target), len(source)):
        raise ValueError(f"weights {tuple(weights.shape)} are not of {len(target)} by {len(source)} pieces")
    heads = weights.shape[:-2]
    if not len(source) or not len(target):
        return weights.new_zeros(*heads, len(set(target_words)), len(set(source_words)))
    summed = weights.new_zeros(*heads, len(target), int(source[-1]) + 1).index_add_(-1, source, weights)
    merged = weights.new_zeros(*heads, int(target[-1]) + 1, summed.size(-1)).index_add_(-2, target, summed)
    return merged / torch.bincount(target).clamp(min=1).to(weights).unsqueeze(-1)


def normal_rows(weights: Tensor) -> Tensor:
    """Step i belongs to target piece i, which it predicts: (..., T, S) to (..., T - 1, S - 1).

    Args:
        weights: of cross-attention; row and column of the ends of sentences come last, and are left out.
    """
    return weights[..., :-1, :-1]


def shifted_rows(weights: Tensor) -> Tensor:
    """Step i belongs to target piece i - 1, which it consumes (section 5.2): (..., T, S) to (..., T - 1, S - 1).

    fairseq feeds the end of sentence first, so row 0 has no word, and the row that predicts the end of sentence is
    that of the last piece.
    """
    return weights[..., 1:, :-1]


def as_pharaoh(links: Iterable[Link]) -> str:
    """``i-j`` from 0, source first, in order; :func:`fairseq_rela.analysis.aer.read_links` reads them back."""
    return " ".join(f"{i}-{j}" for i, j in sorted(links))
