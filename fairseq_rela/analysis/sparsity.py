"""Sparsity and null rates of attention weights (Zhang et al. 2021, section 5.2); pure functions on arrays.

The weights may be those of pieces or of words, see :mod:`fairseq_rela.analysis.merging`.
"""

from dataclasses import dataclass
from typing import List, Optional

import torch
from torch import Tensor


@dataclass
class SparsityCounts:
    """Counts over a corpus; statistics first, ratios last.

    Attributes:
        cells: weights that could be more than 0: neither padding nor the future.
        zeros: those that are exactly 0, for each head.
        queries: queries that are not padding.
        nulls: those all of whose weights are exactly 0, for each head.
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
        """Share of weights that are exactly 0, averaged over heads (Figure 3)."""
        return float(self.zeros.double().mean() / self.cells)

    @property
    def null_rate(self) -> float:
        """Share of queries that attend to nothing, averaged over heads (Figure 6)."""
        return float(self.nulls.double().mean() / self.queries)

    @property
    def sparsity_by_head(self) -> List[float]:
        return (self.zeros.double() / self.cells).tolist()

    @property
    def null_rate_by_head(self) -> List[float]:
        return (self.nulls.double() / self.queries).tolist()

    @property
    def null_rate_variance(self) -> Optional[float]:
        r"""Sample variance of the null rates r of n heads (Figure 6), None where there is one head.

        .. math:: \frac{1}{n - 1} \sum_h (r_h - \bar r)^2

        The paper prints 0.256. The population variance of rates from 0 to 1, which divides by n, is at most 0.25.
        """
        rates = self.nulls.double() / self.queries
        return float(rates.var(unbiased=True)) if len(rates) > 1 else None


def awake_queries(weights: Tensor, allowed: Tensor) -> Tensor:
    """Queries that attend to anything; the others are null, or padding.

    Args:
        weights: (B, H, T, S).
        allowed: (B, T, S), True where a query may attend to a key.

    Returns:
        (B, H, T), False for padded queries.
    """
    return ((weights != 0) & allowed.unsqueeze(1)).any(dim=-1)


def null_queries(weights: Tensor, allowed: Tensor) -> Tensor:
    """Queries all of whose weights are exactly 0: (B, H, T), False for padded queries.

    Args:
        weights: (B, H, T, S), at least float32: in float16 small weights become zeros.
        allowed: (B, T, S), True where a query may attend to a key; rows of padded queries are all False.

    Raises:
        ValueError: shapes or precision that would make counts wrong without a sign.
    """
    if weights.dim() != 4 or allowed.shape != (weights.shape[0], *weights.shape[2:]):
        raise ValueError(f"weights {tuple(weights.shape)} are not (B, H, T, S) for {tuple(allowed.shape)} allowed")
    if weights.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"weights in {weights.dtype}: count in float32")
    return ~awake_queries(weights, allowed) & allowed.any(dim=-1).unsqueeze(1)


def count_sparsity(weights: Tensor, allowed: Tensor) -> SparsityCounts:
    """Counts of one batch.

    Args:
        weights: (B, H, T, S), at least float32: in float16 even softmax underflows to zeros.
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
