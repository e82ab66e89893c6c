"""Collect the measurements of all attention modules at the level of pieces or of words."""

from typing import Any, Dict, Optional, Sequence, Tuple

from torch import Tensor

from ...alignment import word_ids
from ...errors import InputError
from ..capture import Batch, derangement
from ..merging import memberships, merge_words
from ..options import Options
from ..sentences import Sentence
from .sites import Sites, Sparsity


class PieceLevel:
    """Collect sparsity, null rates and head diversity of pieces, and the null rates with shuffled targets.

    Args:
        taus: temperatures of the head diversity.
        seed: seed of the shuffled targets; None if there are none.
    """

    def __init__(self, taus: Sequence[float], seed: Optional[int]) -> None:
        self.sites, self.shuffled, self.seed = Sites(taus), Sparsity(), seed

    def add(self, batch: Batch) -> None:
        """Count the weights of one batch."""
        self.sites.add(batch)

    def add_shuffled(self, batch: Batch) -> None:
        """Count the weights of one batch of sources with the targets of other sentences."""
        self.shuffled.add(batch)

    def result(self) -> Dict[str, Any]:
        """Return the entries ``sites`` and ``shuffled`` of an analysis."""
        shuffled = None if self.seed is None else {"seed": self.seed, "sites": self.shuffled.result()}
        return {"sites": self.sites.result(), "shuffled": shuffled}


class WordLevel(PieceLevel):
    """Collect sparsity, null rates and head diversity of words, and the null rates with shuffled targets.

    Args:
        taus, seed: as for :class:`PieceLevel`.
        sentences: all sentences of the subset.
        shuffled: the same sources with their shuffled targets.
    """

    def __init__(
        self,
        taus: Sequence[float],
        seed: Optional[int],
        sentences: Sequence[Sentence],
        shuffled: Sequence[Sentence],
    ) -> None:
        super().__init__(taus, seed)
        self._sentences, self._shuffled_sentences = sentences, shuffled

    def add(self, batch: Batch) -> None:
        """Merge the weights of one batch into weights of words, and count them."""
        super().add(_at_words(batch, self._sentences))

    def add_shuffled(self, batch: Batch) -> None:
        """Do the same for one batch with shuffled targets."""
        super().add_shuffled(_at_words(batch, self._shuffled_sentences))


def make_levels(options: Options, sentences: Sequence[Sentence], subset: str) -> Dict[str, PieceLevel]:
    """Return the collectors of the levels to measure, pieces first.

    Args:
        options: those of the analysis.
        sentences: all sentences of the subset; the targets of a single sentence are not shuffled.
        subset: name of the subset, for messages.

    Raises:
        InputError: words are measured, but no sentence has words on both sides.
    """
    order = derangement(len(sentences), options.seed) if len(sentences) > 1 else ()
    seed = options.seed if order else None
    levels: Dict[str, PieceLevel] = {}
    if options.level != "words":
        levels["pieces"] = PieceLevel(options.taus, seed)
    if options.level != "pieces":
        shuffled = [Sentence(pair.source, sentences[other].target) for pair, other in zip(sentences, order)]
        for pairs, what in ((sentences, ""), (shuffled, " after shuffling the targets")):
            if pairs and not any(all(pair.lengths) for pair in pairs):
                raise InputError(f"{subset}: no sentence has words on both sides{what}; give --level pieces")
        levels["words"] = WordLevel(options.taus, seed, sentences, shuffled)
    return levels


def _at_words(batch: Batch, sentences: Sequence[Sentence]) -> Batch:
    """Merge the weights of pieces into weights of words; the ends of sentences are left out.

    A row of cross-attention belongs to the target word that its step predicts. In decoder self-attention, rows and
    columns belong to the target word that the step consumes; step 0 consumes the end of sentence.
    """
    source = [word_ids(sentences[index].source[:-1]) for index in batch.ids]
    target = [word_ids(sentences[index].target[:-1]) for index in batch.ids]
    inputs = [[-1, *words] for words in target]
    sides = {"encoder": (source, source), "decoder": (inputs, inputs), "cross": (target, source)}
    members: Dict[str, Tuple[Tensor, ...]] = {}
    modules = []
    for item in batch.modules:
        if item.site not in members:
            sizes = item.weights.shape[2:]
            members[item.site] = tuple(memberships(words, size) for words, size in zip(sides[item.site], sizes))
        weights, allowed = merge_words(item.weights, item.allowed, *members[item.site])
        modules.append(item._replace(weights=weights, allowed=allowed))
    return batch._replace(modules=modules)
