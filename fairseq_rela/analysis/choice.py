"""Which head of a model aligns best, without a gold alignment; pure functions on arrays and words.

A head aligns each target word to one source word or to none, as :func:`~.alignment.strongest_sources` gives it.
"""

from collections import Counter
from typing import Counter as Counts
from typing import Sequence, Tuple

import torch
from torch import Tensor

Pair = Tuple[Sequence[str], Sequence[str]]  # words of source and target


def count_common(forward: Tensor, backward: Tensor) -> Tensor:
    """Count the links that the heads of two opposite models have in common in one sentence pair.

    Args:
        forward: (F, T), for each head and target word the source word, -1 for none.
        backward: (B, S), of a model from target to source: for each head and source word the target word.

    Returns:
        (F, B) counts.
    """
    if not forward.size(1) or not backward.size(1):
        return torch.zeros(forward.size(0), backward.size(0), dtype=torch.long)
    back = backward[:, forward.clamp(min=0)]  # (B, F, T): what the source word is aligned to
    same = (back == torch.arange(forward.size(1))) & (forward >= 0)
    return same.sum(dim=-1).t()


def agreement(forward: Sequence[Tensor], backward: Sequence[Tensor]) -> Tensor:
    """Return :math:`2 |A \\cap B| / (|A| + |B|)` of the links A and B of every two heads, over all sentence pairs.

    Args:
        forward, backward: of each pair, as :func:`count_common`.

    Returns:
        (F, B) shares; 0 where neither head has a link.
    """
    common = sum(count_common(*both) for both in zip(forward, backward))
    sizes = [sum((positions >= 0).sum(dim=-1) for positions in side) for side in (forward, backward)]
    total = sizes[0][:, None] + sizes[1][None, :]
    return 2 * common.double() / total.clamp(min=1)


def association(positions: Sequence[Tensor], pairs: Sequence[Pair]) -> Tensor:
    """Return the mean Dice coefficient of the words that each head links.

    The coefficient of a source and a target word is :math:`2 c(s, t) / (c(s) + c(t))`, where c counts the sentence
    pairs with both words, or with one of them; a target word without link counts as 0. Words that are translations of
    each other occur in the same pairs, so a head that links translations has a high mean.

    Args:
        positions: (heads, T) of each pair, -1 for no link.
        pairs: the words of each pair.

    Returns:
        (heads,) means over the target words.
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
