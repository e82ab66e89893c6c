"""Collect the measurements of a language model by position in the context."""

from typing import Any, Dict, List, Sequence

from ..capture import Batch
from .sites import Sites


class Positions:
    """Collect sparsity, null rates and head diversity of queries with 1, 2, 3 to 4, 5 to 8, ... keys to attend to.

    The query at position t of a context, from 1, may attend to t keys, itself included.

    Args:
        taus: see :class:`fairseq_rela.analysis.collectors.sites.Diversity`.
    """

    def __init__(self, taus: Sequence[float]) -> None:
        self._taus = taus
        self._bins: Dict[int, Sites] = {}  # the first position of a bin to its measurements
        self._queries: Dict[int, int] = {}
        self._longest = 0

    def add(self, batch: Batch) -> None:
        for number, item in enumerate(batch.modules):
            first = last = 1
            length = item.weights.size(2)
            self._longest = max(self._longest, length)
            while first <= length:
                rows = slice(first - 1, last)
                part = item._replace(weights=item.weights[:, :, rows], allowed=item.allowed[:, rows])
                self._bins.setdefault(first, Sites(self._taus)).add(batch._replace(modules=[part]))
                if number == 0:
                    queries = int(part.allowed.any(dim=-1).sum())
                    self._queries[first] = self._queries.get(first, 0) + queries
                first, last = last + 1, 2 * last

    def result(self) -> List[Dict[str, Any]]:
        """Return the entry ``positions`` of an analysis: a dictionary for each bin, in order.

        ``first`` and ``last`` are its positions, from 1, ``queries`` is their number over all contexts, and ``sites``
        is as in the analysis.
        """
        return [
            {
                "first": first,
                "last": min(max(2 * (first - 1), 1), self._longest),
                "queries": self._queries[first],
                "sites": sites.result(),
            }
            for first, sites in sorted(self._bins.items())
        ]
