"""Collect sparsity, null rates and head diversity of every attention module."""

from typing import Any, Dict, Iterable, Iterator, List, Sequence, Tuple

from torch import Tensor

from ..capture import Batch, Captured
from ..diversity import DiversityCount, count_diversity, normalised, tempered
from ..merging import layer_attention
from ..sparsity import SparsityCounts, count_sparsity


def mean(values: Iterable[float]) -> float:
    """Return the arithmetic mean of at least one value."""
    values = list(values)
    return sum(values) / len(values)


class Sparsity:
    """Collect the zero weights and null queries of every module.

    Attributes:
        modules: site to layer to the module, without its weights.
        counts: site and layer to the counts of the module.
    """

    def __init__(self) -> None:
        self.modules: Dict[str, Dict[int, Captured]] = {}
        self.counts: Dict[Tuple[str, int], SparsityCounts] = {}

    def add(self, batch: Batch) -> None:
        """Count the weights of one batch."""
        for item in batch.modules:
            key, new = (item.site, item.layer), count_sparsity(item.weights, item.allowed)
            self.counts[key] = self.counts[key] + new if key in self.counts else new
            self.modules.setdefault(item.site, {})[item.layer] = item._replace(weights=None, allowed=None)

    def result(self) -> Dict[str, Any]:
        """Return the null rates by site and layer."""
        sites: Dict[str, Any] = {}
        for site, modules in self.modules.items():
            counts = [self.counts[site, layer] for layer in modules]
            layers = [{"null_rate": c.null_rate, "null_rate_variance": c.null_rate_variance} for c in counts]
            sites[site] = {"layers": layers, "null_rate": mean(c.null_rate for c in counts)}
        return sites


class Diversity:
    """Collect the head diversity of every module.

    Args:
        taus: the temperatures, for weights that do not sum to 1.
    """

    def __init__(self, taus: Sequence[float]) -> None:
        self.taus = taus
        self.counts: Dict[Tuple[str, int], Dict[str, DiversityCount]] = {}

    def add(self, batch: Batch) -> None:
        """Count the weights of one batch."""
        for item in batch.modules:
            total = self.counts.setdefault((item.site, item.layer), {})
            for tau, distributions in self._distributions(item):
                new = count_diversity(distributions, item.allowed)
                total[tau] = total[tau] + new if tau in total else new

    def _distributions(self, item: Captured) -> Iterator[Tuple[str, Tensor]]:
        if item.variant.sums_to_one:
            yield "1.0", normalised(item.weights, item.allowed)
            return
        for tau in self.taus:
            yield str(float(tau)), tempered(item.weights, item.allowed, tau)

    def result(self) -> Dict[Tuple[str, int], Dict[str, float]]:
        """Return the head diversity in nats: site and layer to temperature to the mean over queries."""
        return {key: {tau: count.mean for tau, count in counts.items()} for key, counts in self.counts.items()}


class Sites:
    """Collect sparsity, null rates and head diversity of every module, and the null rates of its mean over heads.

    Args:
        taus: see :class:`Diversity`.
    """

    def __init__(self, taus: Sequence[float]) -> None:
        self.sparsity, self.diversity, self.mean_of_heads = Sparsity(), Diversity(taus), Sparsity()

    def add(self, batch: Batch) -> None:
        """Count the weights of one batch."""
        self.sparsity.add(batch)
        self.diversity.add(batch)
        for item in batch.modules:
            weights = layer_attention(item.weights.double())  # in float32, the mean of tiny weights could be 0
            self.mean_of_heads.add(batch._replace(modules=[item._replace(weights=weights)]))

    def result(self) -> Dict[str, Any]:
        """Return the entry ``sites`` of an analysis."""
        sites: Dict[str, Any] = {}
        diversity = self.diversity.result()
        for site, modules in self.sparsity.modules.items():
            layers: List[Dict[str, Any]] = []
            for layer, module in modules.items():
                counts = self.sparsity.counts[site, layer]
                layers.append(
                    {
                        "name": module.name,
                        "variant": module.variant.name,
                        "heads": len(counts.nulls),
                        "sparsity": counts.sparsity,
                        "sparsity_by_head": counts.sparsity_by_head,
                        "null_rate": counts.null_rate,
                        "null_rate_by_head": counts.null_rate_by_head,
                        "null_rate_variance": counts.null_rate_variance,
                        "layer_null_rate": self.mean_of_heads.counts[site, layer].null_rate,
                        "diversity": diversity[site, layer],
                    }
                )
            means = {key: mean(layer[key] for layer in layers) for key in ("sparsity", "null_rate", "layer_null_rate")}
            taus = layers[0]["diversity"]
            sites[site] = {
                "layers": layers,
                **means,
                "diversity": {tau: mean(layer["diversity"][tau] for layer in layers) for tau in taus},
            }
        return sites
