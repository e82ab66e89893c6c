"""A trained model with its results, as the report reads them from a run folder."""

from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy

from ..analysis.contexts import TASK as LANGUAGE_MODELLING
from ..experiment.naming import SEED_KEY, SITES_KEYS, changes_the_model, split_override
from ..variants import SITES
from .characters import writable
from .paper import Ablation, find_row


class Layer(NamedTuple):
    """The measurements of one attention module; rates are shares from 0 to 1.

    Attributes:
        variant: name of the attention, such as ``rela_g``.
        sparsity: share of weights that are exactly 0.
        null_rate: share of null queries, averaged over heads.
        null_rate_by_head: share of null queries of each head.
        null_rate_variance: sample variance of the null rates of the heads; None for one head or if not measured.
        shuffled: null rate and its variance with shuffled targets; None if not measured.
        diversity: temperature to head diversity in nats.
        layer_null_rate: null rate of the mean over heads; None if not measured.
    """

    variant: str
    sparsity: float
    null_rate: float
    null_rate_by_head: Sequence[float]
    null_rate_variance: Optional[float] = None
    shuffled: Optional[Tuple[float, Optional[float]]] = None
    diversity: Dict[str, float] = {}
    layer_null_rate: Optional[float] = None

    def nulls(self, targets: str) -> Tuple[Optional[float], Optional[float]]:
        """Return null rate and variance with ``true`` or ``shuffled`` targets, None where they are not measured."""
        return (self.null_rate, self.null_rate_variance) if targets == "true" else self.shuffled or (None, None)


class Example(NamedTuple):
    """An example sentence with all its weights.

    Attributes:
        number: number of the sentence in the subset, from 0.
        source, target: pieces, with the ends of sentences.
        weights: site to one array (H, T, S) for each layer.
    """

    number: int
    source: List[str]
    target: List[str]
    weights: Dict[str, List[numpy.ndarray]]

    def sides(self, site: str) -> Tuple[List[str], List[str]]:
        """Return the pieces of the queries and the pieces of the keys at a site."""
        return (
            self.source if site == "encoder" else self.target,
            self.target if site == "decoder" else self.source,
        )


class Run(NamedTuple):
    """A trained model with its results, as one run folder holds them.

    Attributes:
        folder: the run folder.
        label: name of the run, unique in its group.
        attention: name of the attention, such as ``rela_g``; None if unknown.
        attention_sites: sites with this attention.
        task: name of the task in ``configs/``; None if unknown.
        languages: source and target language; empty if unknown.
        subset: subset on which the run was measured; None if unknown.
        examples: example sentences with their weights.
        files: name of a JSON file, without ``.json``, to its content.
        by_level: level, ``pieces`` or ``words``, to site to its layers, first layer first.
        level: the level that the report shows; None without layers.
    """

    folder: Path
    label: str
    attention: Optional[str]
    attention_sites: Tuple[str, ...]
    task: Optional[str]
    languages: Tuple[str, ...]
    subset: Optional[str]
    examples: List[Example]
    files: Dict[str, Any]
    by_level: Dict[str, Dict[str, List[Layer]]]
    level: Optional[str]

    @property
    def layers(self) -> Dict[str, List[Layer]]:
        """Site to its layers at the level that the report shows."""
        return self.by_level.get(self.level or "", {})

    @property
    def is_language_model(self) -> bool:
        """Whether the run is of fairseq's task ``language_modeling``: a decoder alone, without a source."""
        return any(file.get("task") == LANGUAGE_MODELLING for file in self.files.values())

    @property
    def parameters(self) -> Optional[int]:
        """The number of parameters of the model; None if it was not recorded."""
        return self.files.get("analysis", self.files.get("attention", {})).get("parameters")

    @property
    def overrides(self) -> List[str]:
        """The overrides of the training: settings that differ from ``configs/``, which has the published settings."""
        return list(self.files.get("train", {}).get("overrides", []))

    @property
    def changed(self) -> List[str]:
        """The overrides that change the model, without the seed and the attention sites (see the rows of Table 1)."""
        kept = (SEED_KEY, *SITES_KEYS)
        return [text for text in self.overrides if split_override(text)[0] not in kept and changes_the_model(text)]

    @property
    def seed(self) -> Optional[str]:
        """The seed of the training; None for the seed of ``configs/``."""
        settings = map(split_override, reversed(self.overrides))
        return next((value for key, value in settings if key == SEED_KEY), None)

    @property
    def row(self) -> Optional[Ablation]:
        """The row of Table 1 with this attention at these sites; None without one, and for language models."""
        if self.attention is None or self.is_language_model:
            return None
        return find_row(self.attention, self.attention_sites)

    def is_everywhere(self, attention: str) -> bool:
        """Whether the run is the row of Table 1 that has this attention at all sites."""
        return self.row is not None and self.row.attention == attention and len(self.row.sites) == len(SITES)

    @property
    def alignment(self) -> Optional[Dict[str, Any]]:
        """The alignment error rates of analysis.json; None if there is no gold alignment."""
        return self.files.get("analysis", {}).get("alignment")

    @property
    def null_possible(self) -> bool:
        """Whether the run has null queries."""
        return any(layer.null_rate > 0 for layers in self.layers.values() for layer in layers)


def settings_label(run: Run) -> str:
    """Return the label of a run without the name of its folder: that of all runs which differ only in their seed."""
    return writable(
        run.files.get("analysis", {}).get("label") or attention_label(run.attention or "", run.attention_sites)
    )


def attention_label(attention: str, sites: Sequence[str]) -> str:
    """Return the label of an attention at these sites, such as ``rela_g`` or ``rela_g (cross)``."""
    return attention if len(sites) == len(SITES) else f"{attention} ({','.join(sites)})"
