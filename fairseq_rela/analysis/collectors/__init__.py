"""Collectors: each takes the batches of a pass over a subset, and returns its part of the record of an analysis."""

from typing import Any, Protocol

from ..capture import Batch


class Collector(Protocol):
    """The interface of all collectors."""

    def add(self, batch: Batch) -> None:
        """Count the weights of one batch."""

    def result(self) -> Any:
        """Return the part of the record, for JSON."""
