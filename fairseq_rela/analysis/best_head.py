"""Estimate which head of a model aligns best, without a gold alignment; pure functions on tensors and words.

A head aligns each target word to one source word or to none, see :func:`~.alignment.strongest_sources`.
"""

from collections import Counter
from typing import Counter as Counts
from typing import Sequence, Tuple

import torch
from torch import Tensor

WordPair = Tuple[Sequence[str], Sequence[str]]  # the words of a source and a target sentence


def count_common(forward: Tensor, backward: Tensor) -> Tensor:
    """Count the links that heads of a forward model and heads of a reverse model have in common in a sentence pair.

    Args:
        forward: (F, T), the source word of each target word for each of F heads, -1 for none.
        backward: (B, S), the target word of each source word for each of the B heads of a model from target to source,
            -1 for none.

    Returns:
        (F, B) counts.
    """
    if not forward.size(1) or not backward.size(1):
        return torch.zeros(forward.size(0), backward.size(0), dtype=torch.long)
    back = backward[:, forward.clamp(min=0)]  # (B, F, T): the target word of the source word
    same = (back == torch.arange(forward.size(1))) & (forward >= 0)
    return same.sum(dim=-1).t()


def agreement(forward: Sequence[Tensor], backward: Sequence[Tensor]) -> Tensor:
    """Return :math:`2 |A \\cap B| / (|A| + |B|)` for the links A of each forward and B of each reverse head.

    Links are counted over all sentence pairs.

    Args:
        forward, backward: for each sentence pair, the tensors that :func:`count_common` takes.

    Returns:
        (F, B) values from 0 to 1; 0 where neither head has a link.
    """
    common = sum(count_common(*both) for both in zip(forward, backward))
    sizes = [sum((positions >= 0).sum(dim=-1) for positions in side) for side in (forward, backward)]
    total = sizes[0][:, None] + sizes[1][None, :]
    return 2 * common.double() / total.clamp(min=1)


def association(positions: Sequence[Tensor], pairs: Sequence[WordPair]) -> Tensor:
    """Return the mean Dice coefficient of the words that each head links.

    The Dice coefficient of source word s and target word t is :math:`2 c(s, t) / (c(s) + c(t))`, where c is the number
    of sentence pairs with the word or with both words. A target word without a link counts as 0. Translations of each
    other often occur in the same pairs, so a head that links translations has a high mean.

    Args:
        positions: for each sentence pair (heads, T), the source word of each target word, -1 for none.
        pairs: the source and target words of each sentence pair.

    Returns:
        (heads,) means over all target words.
    """
    sources: Counts[str] = Counter()
    targets: Counts[str] = Counter()
    both: Counts[Tuple[str, str]] = Counter()
    for source, target in pairs:
        sources.update(set(source))
        targets.update(set(target))
        both.update((s, t) for s in set(source) for t in set(target))
    total = torch.zeros(positions[0].size(0), dtype=torch.double)
    words = 0
    for heads, (source, target) in zip(positions, pairs):
        words += len(target)
        if not source or not target:
            continue
        dice = [[2 * both[s, t] / (sources[s] + targets[t]) for s in source] + [0.0] for t in target]
        total += torch.tensor(dice, dtype=torch.double)[torch.arange(len(target)), heads].sum(dim=-1)
    return total / max(words, 1)
