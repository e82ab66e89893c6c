r"""Diversity of the heads of one attention module (Correia et al. 2019; Table 6); pure functions on tensors.

.. math:: D = H\Big(\frac{1}{n}\sum_h p_h\Big) - \frac{1}{n}\sum_h H(p_h), \quad 0 \le D \le \log n

D is the Jensen-Shannon divergence of the distributions :math:`p_h` of the n heads over the keys; H is the Shannon
entropy in nats.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from .merging import sum_to_one
from .sparsity import awake_queries


@dataclass(frozen=True)
class DiversityCount:
    """The sum of the head diversity over queries; counts of batches can be added.

    Attributes:
        total: sum over queries, in nats.
        queries: number of queries.
    """

    total: float
    queries: int

    def __add__(self, other: "DiversityCount") -> "DiversityCount":
        return DiversityCount(self.total + other.total, self.queries + other.queries)

    @property
    def mean(self) -> float:
        """The head diversity in nats, averaged over queries (Table 6)."""
        return self.total / self.queries


def normalised(weights: Tensor, allowed: Tensor) -> Tensor:
    """Return the distributions of softmax, sparsemax and entmax: each row of weights divided by its sum.

    Weights between pieces sum to 1 already. Weights between words do not, because the end of the sentence is left out.
    A word that attends only to the end of the sentence gets a one-hot distribution on a dummy key, as in
    :func:`tempered`.

    Args:
        weights: (B, H, T, S), none below 0.
        allowed: (B, T, S), True where a query may attend to a key.

    Returns:
        (B, H, T, S + 1); the last key is the dummy key; 0 where not allowed.
    """
    cells = weights.masked_fill(~allowed.unsqueeze(1), 0)
    null = ~awake_queries(weights, allowed).unsqueeze(-1)
    return torch.cat((sum_to_one(cells), null.to(cells)), dim=-1)


def tempered(weights: Tensor, allowed: Tensor, tau: float) -> Tensor:
    r"""Return distributions from weights that do not sum to 1: :math:`p = softmax(A^\tau)` over the allowed keys.

    A null row, all of whose weights are 0, prefers no key. It becomes a one-hot distribution on a dummy key, so that
    null heads are equal to each other and different from heads that attend. Negative weights, which GeLU and leaky
    ReLU can give, keep their sign: :math:`sign(A) |A|^\tau`.

    Args:
        weights: (B, H, T, S).
        allowed: (B, T, S), True where a query may attend to a key.
        tau: temperature, at most 1; a smaller one reduces the differences between large weights.

    Returns:
        (B, H, T, S + 1); the last key is the dummy key; 0 where not allowed.
    """
    mask = allowed.unsqueeze(1)
    powers = weights.sign() * weights.abs() ** tau
    null = ~awake_queries(weights, allowed).unsqueeze(-1)  # includes padding, which count_diversity leaves out
    scores = powers.masked_fill(~mask | null, -torch.inf)  # (B, H, T, S)
    dummy = torch.zeros_like(null, dtype=scores.dtype).masked_fill(~null, -torch.inf)
    return torch.softmax(torch.cat((scores, dummy), dim=-1), dim=-1)


def entropy(distributions: Tensor) -> Tensor:
    r"""Return :math:`H(p) = -\sum_i p_i \log p_i` in nats over the last dimension, with :math:`0 \log 0 = 0`."""
    return -torch.xlogy(distributions, distributions).sum(dim=-1)


def head_diversity(distributions: Tensor) -> Tensor:
    """Return D for each query, in nats: distributions (B, H, T, S) to (B, T), at least 0."""
    together = entropy(distributions.mean(dim=1))
    alone = entropy(distributions).mean(dim=1)
    return (together - alone).clamp(min=0)  # rounding gives about -1e-8 for equal heads


def count_diversity(distributions: Tensor, allowed: Tensor) -> DiversityCount:
    """Sum the head diversity over the queries of a batch, without padded queries.

    Args:
        distributions: (B, H, T, S + 1), from :func:`normalised` or :func:`tempered`.
        allowed: (B, T, S); rows of padded queries are all False.
    """
    queries = allowed.any(dim=-1)
    return DiversityCount(float(head_diversity(distributions)[queries].double().sum()), int(queries.sum()))
