"""Sparsity and null rates of attention weights (Zhang et al. 2021, section 5.2); pure functions on tensors.

The weights can be between pieces or between words, see :mod:`fairseq_rela.analysis.merging`.
"""

from dataclasses import dataclass
from typing import List, Optional

import torch
from torch import Tensor


@dataclass
class SparsityCounts:
    """Counts of zero weights and null queries of one attention module with H heads; counts of batches can be added.

    Attributes:
        cells: number of weights per head that may be different from 0: not padding and not in the future.
        zeros: (H,), number of these weights that are exactly 0.
        queries: number of queries that are not padding.
        nulls: (H,), number of these queries all of whose weights are exactly 0.
    """

    cells: int
    zeros: Tensor
    queries: int
    nulls: Tensor

    def __add__(self, other: "SparsityCounts") -> "SparsityCounts":
        return SparsityCounts(
            self.cells + other.cells,
            self.zeros + other.zeros,
            self.queries + other.queries,
            self.nulls + other.nulls,
        )

    @property
    def sparsity(self) -> float:
        """The share of weights that are exactly 0, from 0 to 1, averaged over heads (Figure 3)."""
        return float(self.zeros.double().mean() / self.cells)

    @property
    def null_rate(self) -> float:
        """The share of null queries, from 0 to 1, averaged over heads (Figure 6)."""
        return float(self.nulls.double().mean() / self.queries)

    @property
    def sparsity_by_head(self) -> List[float]:
        """The share of weights that are exactly 0, for each head."""
        return (self.zeros.double() / self.cells).tolist()

    @property
    def null_rate_by_head(self) -> List[float]:
        """The share of null queries, for each head."""
        return (self.nulls.double() / self.queries).tolist()

    @property
    def null_rate_variance(self) -> Optional[float]:
        r"""The sample variance of the null rates r of n heads (Figure 6), or None for a single head.

        .. math:: \frac{1}{n - 1} \sum_h (r_h - \bar r)^2

        The paper reports 0.256, which must be a sample variance: the population variance, which divides by n, is at
        most 0.25 for rates from 0 to 1.
        """
        rates = self.nulls.double() / self.queries
        return float(rates.var(unbiased=True)) if len(rates) > 1 else None


def awake_queries(weights: Tensor, allowed: Tensor) -> Tensor:
    """Return which queries have at least one weight that is not 0.

    Args:
        weights: (B, H, T, S).
        allowed: (B, T, S), True where a query may attend to a key.

    Returns:
        (B, H, T), False for null queries and for padded queries.
    """
    return ((weights != 0) & allowed.unsqueeze(1)).any(dim=-1)


def null_queries(weights: Tensor, allowed: Tensor) -> Tensor:
    """Return which queries are null: all of their weights are exactly 0.

    Args:
        weights: (B, H, T, S), float32 or float64: in float16, small weights underflow to 0.
        allowed: (B, T, S), True where a query may attend to a key; rows of padded queries are all False.

    Returns:
        (B, H, T), False for padded queries.

    Raises:
        ValueError: the shapes do not match, or the weights are neither float32 nor float64.
    """
    if weights.dim() != 4 or allowed.shape != (weights.shape[0], *weights.shape[2:]):
        raise ValueError(f"weights {tuple(weights.shape)} are not (B, H, T, S) for {tuple(allowed.shape)} allowed")
    if weights.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"weights in {weights.dtype}: count in float32")
    return ~awake_queries(weights, allowed) & allowed.any(dim=-1).unsqueeze(1)


def count_nulls(weights: Tensor, allowed: Tensor) -> Tensor:
    """Return, for each sentence, the number of (head, query) pairs all of whose weights are exactly 0.

    With L layers, H heads and T queries, the null rate of a sentence is the sum of these numbers over the layers,
    divided by ``L * H * T``. Section 5.2 ranks sentence pairs by it, low = good.

    Args:
        weights, allowed: as for :func:`null_queries`.

    Returns:
        (B,) integers.

    Raises:
        ValueError: as :func:`null_queries`.
    """
    return null_queries(weights, allowed).sum(dim=(1, 2))


def count_sparsity(weights: Tensor, allowed: Tensor) -> SparsityCounts:
    """Count the zero weights and null queries of one batch.

    Args:
        weights: (B, H, T, S), float32 or float64: in float16, even softmax underflows to 0.
        allowed: (B, T, S), True where a query may attend to a key; rows of padded queries are all False.

    Raises:
        ValueError: as :func:`null_queries`.
    """
    nulls = null_queries(weights, allowed)
    cells = allowed.unsqueeze(1)
    return SparsityCounts(
        cells=int(cells.sum()),
        zeros=((weights == 0) & cells).sum(dim=(0, 2, 3)),
        queries=int(allowed.any(dim=-1).sum()),
        nulls=nulls.sum(dim=(0, 2)),
    )
