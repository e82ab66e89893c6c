"""The options of an analysis."""

from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Sequence

from ..errors import InputError
from .levels import LEVELS

TAUS = (1.0, 0.5, 0.25, 0.1)  # the temperatures of Table 6
LAYER_ATTENTIONS = ("raw", "normalised")


@dataclass(frozen=True)
class Options:
    """The options of an analysis, checked when they are made.

    Attributes:
        gold: file of gold word alignments of the subset, which counts the words of the prepared text.
        gold_base: number of the first word in ``gold``, 0 or 1.
        gold_reversed: whether the target word comes first in the links of ``gold``.
        gold_sentences: the source and target text of ``gold``, whose numbers of words must be those of the prepared
            text. By default, files with the name of ``gold`` and the languages as endings are used if both exist.
        tags: file with one line for each sentence and one tag for each target word.
        source_tags: like ``tags``, with tags of the source words, for the heads of the encoder.
        seed: seed of the shuffled targets in the hallucination test.
        examples: number of sentences whose weights are all kept.
        examples_of: numbers, from 0, of the sentences whose weights are all kept; replaces ``examples``.
        taus: temperatures of the head diversity, for weights that do not sum to 1.
        links: keep the alignments of all heads even without ``gold``.
        max_tokens: as for :func:`fairseq_rela.analysis.capture.capture`.
        level: level of the entries ``sites`` and ``shuffled``, ``pieces`` or ``words``. None measures both: pieces
            there, and words in the entry ``words``.
        layer_attention: the mean over heads from which the layer attention is aligned: ``raw`` takes the weights as
            they are, ``normalised`` first divides each row of each head by its sum.

    Raises:
        InputError: an option has a bad value.
    """

    gold: Optional[Path] = None
    gold_base: int = 0
    gold_reversed: bool = False
    gold_sentences: Sequence[Path] = ()
    tags: Optional[Path] = None
    source_tags: Optional[Path] = None
    seed: int = 1
    examples: int = 6
    examples_of: Optional[Sequence[int]] = None
    taus: Sequence[float] = TAUS
    links: bool = False
    max_tokens: Optional[int] = None
    level: Optional[str] = None
    layer_attention: str = "raw"

    def __post_init__(self) -> None:
        if self.examples < 0:
            raise InputError(f"--examples {self.examples}: give a number of at least 0")
        if not self.taus or any(not 0 < tau <= 1 for tau in self.taus):
            raise InputError(
                "temperatures of head diversity are above 0 and at most 1; give some, such as 1 0.5 0.25 0.1"
            )
        if self.level is not None and self.level not in LEVELS:
            raise InputError(f"level {self.level!r}: give one of {', '.join(LEVELS)}, or none for both")
        if self.layer_attention not in LAYER_ATTENTIONS:
            raise InputError(f"layer attention {self.layer_attention!r}: give one of {', '.join(LAYER_ATTENTIONS)}")

    def refuse_for_language_models(self) -> None:
        """Raise an error if an option needs a source, a gold alignment, or the words of whole sentences.

        Raises:
            InputError: there is such an option.
        """
        given = {
            "--gold": self.gold,
            "--tags": self.tags,
            "--source-tags": self.source_tags,
            "--examples-of": self.examples_of,
            "--level words": self.level == "words",
        }
        for name, value in given.items():
            if value:
                raise InputError(f"{name} is of translation models; leave it out for a language model")
