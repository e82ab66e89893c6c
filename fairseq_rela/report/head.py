"""A head of a model, or the mean over the heads of a layer, and its heat map."""

from typing import NamedTuple, Optional

import numpy

from .plots import HeatMap
from .run import Example

AXES = {  # site to the labels of the keys and the queries
    "cross": ("source (key)", "target (query)"),
    "encoder": ("attended piece (key)", "piece (query)"),
    "decoder": ("attended piece (key)", "piece (query)"),
}


class Head(NamedTuple):
    """A head of a layer, or the mean over its heads if ``head`` is None; layers and heads count from 0."""

    site: str
    layer: int
    head: Optional[int]

    def __str__(self) -> str:
        return f"{self.site}.layer{self.layer}." + ("mean" if self.head is None else f"head{self.head}")

    def weights(self, example: Example) -> numpy.ndarray:
        """Return the weights (T, S) of an example sentence, queries by keys."""
        layer = example.weights[self.site][self.layer]
        return layer.mean(axis=0) if self.head is None else layer[self.head]

    def heat_map(self, example: Example, title: str) -> HeatMap:
        """Return the heat map of an example sentence."""
        return HeatMap(title, self.weights(example), *example.sides(self.site), causal=self.site == "decoder")
