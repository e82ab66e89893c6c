"""Word alignments from attention weights; pure functions on tensors.

Each target word is aligned to the source word with the largest weight. A null query, all of whose weights are 0, gets
no link: the argmax of zeros would be a false link to the first word.
"""

from typing import Iterable, List, Sequence, Tuple

import torch
from torch import Tensor

Link = Tuple[int, int]  # (source position, target position), from 0


def strongest_sources(weights: Tensor) -> Tensor:
    """Return the source position with the largest weight for each target position, or -1 if no weight is above 0.

    GeLU and leaky ReLU can give negative weights; these make no links.

    Args:
        weights: (..., T, S), without rows and columns for padding and ends of sentences.

    Returns:
        (..., T) positions.
    """
    if weights.numel() == 0:
        return torch.full(weights.shape[:-1], -1, dtype=torch.long)
    values, positions = weights.max(dim=-1)
    return positions.masked_fill(values <= 0, -1)


def strongest_links(weights: Tensor) -> List[Link]:
    """Return the links (source, target) of weights (T, S), at most one for each target position.

    See :func:`strongest_sources`.
    """
    return links_of(strongest_sources(weights).tolist())


def links_of(sources: Iterable[int]) -> List[Link]:
    """Return links (source, target) from the source position of each target position, -1 for none."""
    return [(source, target) for target, source in enumerate(sources) if source >= 0]


def word_ids(pieces: Sequence[str]) -> List[int]:
    """Return the number of the word of each BPE piece: ``["lo@@", "w", "er"]`` gives ``[0, 0, 1]``."""
    ids, word = [], 0
    for piece in pieces:
        ids.append(word)
        word += not piece.endswith("@@")
    return ids


def merge_subwords(weights: Tensor, source_words: Sequence[int], target_words: Sequence[int]) -> Tensor:
    """Merge weights between pieces into weights between words (Zenkel et al. 2019).

    Weights are summed over the pieces of a source word and averaged over the pieces of a target word.

    Args:
        weights: (..., T, S), between pieces.
        source_words, target_words: the word of each piece, from 0 and in ascending order, as :func:`word_ids` returns
            it. A number that is skipped is a word without pieces; its weights are 0.

    Returns:
        (..., target words, source words).

    Raises:
        ValueError: the shape of the weights does not match the numbers of pieces.
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
    """Return the weights in which row i belongs to target piece i, which step i predicts.

    Args:
        weights: (..., T, S), cross-attention; the last row and the last column are those of the ends of sentences.

    Returns:
        (..., T - 1, S - 1), without the ends of sentences.
    """
    return weights[..., :-1, :-1]


def shifted_rows(weights: Tensor) -> Tensor:
    """Return the weights in which row i belongs to target piece i, which step i + 1 consumes (section 5.2).

    fairseq's decoder gets the end of sentence as its first input. So row 0 of the argument belongs to no piece, and its
    last row, which predicts the end of sentence, belongs to the last piece.

    Args:
        weights: (..., T, S), cross-attention; the last row and the last column are those of the ends of sentences.

    Returns:
        (..., T - 1, S - 1), without row 0 and without the end of the source sentence.
    """
    return weights[..., 1:, :-1]


def as_pharaoh(links: Iterable[Link]) -> str:
    """Return the sorted links in Pharaoh format: ``source-target``, from 0.

    :func:`fairseq_rela.analysis.aer.read_links` reads them.
    """
    return " ".join(f"{i}-{j}" for i, j in sorted(links))
