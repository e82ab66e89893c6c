r"""How much the heads of one attention module differ (Correia et al. 2019; Table 6); pure functions on arrays.

.. math:: D = H\Big(\frac{1}{n}\sum_h p_h\Big) - \frac{1}{n}\sum_h H(p_h), \quad 0 \le D \le \log n

the Jensen-Shannon divergence of the heads' distributions over the keys, with H the Shannon entropy in nats.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from .merging import sum_to_one
from .sparsity import awake_queries


@dataclass(frozen=True)
class DiversityCount:
    """Sum over queries; statistics first, ratio last.

    Attributes:
        total: sum of the diversity of the heads at each query, in nats.
        queries: how many.
    """

    total: float
    queries: int

    def __add__(self, other: "DiversityCount") -> "DiversityCount":
        return DiversityCount(self.total + other.total, self.queries + other.queries)

    @property
    def mean(self) -> float:
        """Head diversity, averaged over queries (Table 6)."""
        return self.total / self.queries


def normalised(weights: Tensor, allowed: Tensor) -> Tensor:
    """Return the distributions of softmax, sparsemax and entmax: weights divided by the sum of their row.

    Weights of pieces sum to 1 already. Those of words do not, because the end of the sentence is left out; a word that
    attends to nothing else is a one-hot on a dummy key, as in :func:`tempered`.

    Args:
        weights: (B, H, T, S), none below 0.
        allowed: (B, T, S), True where a query may attend to a key.

    Returns:
        (B, H, T, S + 1), the dummy key last, 0 where not allowed.
    """
    cells = weights.masked_fill(~allowed.unsqueeze(1), 0)
    null = ~awake_queries(weights, allowed).unsqueeze(-1)
    return torch.cat((sum_to_one(cells), null.to(cells)), dim=-1)


def tempered(weights: Tensor, allowed: Tensor, tau: float) -> Tensor:
    r"""Distributions made of weights that do not sum to 1: :math:`p = softmax(A^\tau)` over the allowed keys.

    A null row, all of whose weights are 0, is no choice among the keys; it becomes a one-hot on a dummy key, so that
    null heads agree with each other and differ from those that attend. Negative weights, which GeLU and leaky ReLU
    have, keep their sign: :math:`sign(A) |A|^\tau`.

    Args:
        weights: (B, H, T, S).
        allowed: (B, T, S), True where a query may attend to a key.
        tau: temperature of at most 1; a small one takes large weights apart less.

    Returns:
        (B, H, T, S + 1), the dummy key last, 0 where not allowed.
    """
    mask = allowed.unsqueeze(1)
    powers = weights.sign() * weights.abs() ** tau
    null = ~awake_queries(weights, allowed).unsqueeze(-1)  # also of padding, where the value does not matter
    scores = powers.masked_fill(~mask | null, -torch.inf)  # (B, H, T, S)
    dummy = torch.zeros_like(null, dtype=scores.dtype).masked_fill(~null, -torch.inf)
    return torch.softmax(torch.cat((scores, dummy), dim=-1), dim=-1)


def entropy(distributions: Tensor) -> Tensor:
    r""":math:`H(p) = -\sum_i p_i \log p_i` over the last dimension, with :math:`0 \log 0 = 0`."""
    return -torch.xlogy(distributions, distributions).sum(dim=-1)


def head_diversity(distributions: Tensor) -> Tensor:
    """D at each query: distributions (B, H, T, S) to (B, T), at least 0."""
    together = entropy(distributions.mean(dim=1))
    alone = entropy(distributions).mean(dim=1)
    return (together - alone).clamp(min=0)  # equal heads may come out at -1e-8


def count_diversity(distributions: Tensor, allowed: Tensor) -> DiversityCount:
    """Sum over the queries of a batch that are not padding.

    Args:
        distributions: (B, H, T, S), of :func:`normalised` or :func:`tempered`.
        allowed: (B, T, S); rows of padded queries are all False.
    """
    queries = allowed.any(dim=-1)
    return DiversityCount(float(head_diversity(distributions)[queries].double().sum()), int(queries.sum()))
