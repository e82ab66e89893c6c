"""Collect all weights of a few example sentences."""

from typing import Any, Dict, List, Optional, Sequence

from ...errors import InputError
from ..capture import Batch
from ..sentences import Sentence

PIECES = (8, 20)  # fewest and most pieces of an example sentence, so that a heat map is readable


class Examples:
    """Collect all weights of a few sentences, which are the same for all models on the same data.

    Args:
        sentences: all sentences of the subset.
        number: how many sentences :func:`choose_examples` chooses if ``chosen`` is None.
        chosen: numbers of the sentences, from 0.

    Raises:
        InputError: a number in ``chosen`` is not that of a sentence.
    """

    def __init__(self, sentences: Sequence[Sentence], number: int, chosen: Optional[Sequence[int]] = None) -> None:
        self._sentences = sentences
        for index in chosen or ():
            if not 0 <= index < len(sentences):
                raise InputError(f"--examples-of {index}: no such sentence; give 0 to {len(sentences) - 1}")
        numbers = choose_examples(sentences, number) if chosen is None else chosen
        self._weights: Dict[int, Dict[str, List[Any]]] = {index: {} for index in numbers}

    def add(self, batch: Batch) -> None:
        """Keep the weights of the chosen sentences in this batch."""
        for row, index in enumerate(batch.ids):
            if index not in self._weights:
                continue
            source, target = map(len, self._sentences[index])
            for item in batch.modules:
                rows = source if item.site == "encoder" else target
                columns = target if item.site == "decoder" else source
                cells = item.weights[row].masked_fill(~item.allowed[row], 0)[:, :rows, :columns]
                self._weights[index].setdefault(item.site, []).append(_rounded(cells.tolist()))

    def result(self) -> List[Dict[str, Any]]:
        """Return the sentences of ``examples.json``."""
        return [
            {"id": index, **self._sentences[index]._asdict(), "weights": weights}
            for index, weights in self._weights.items()
        ]


def choose_examples(sentences: Sequence[Sentence], number: int) -> List[int]:
    """Return the numbers of sentences with 8 to 20 pieces on both sides, spread evenly over the subset.

    The end of sentence counts as a piece. If there are fewer than ``number`` such sentences, those whose lengths are
    closest to this range are returned.
    """
    shortest, longest = PIECES

    def excess(pieces: Sequence[str]) -> int:
        return max(shortest - len(pieces), len(pieces) - longest, 0)

    distances = [excess(sentence.target) + excess(sentence.source) for sentence in sentences]
    moderate = [index for index, distance in enumerate(distances) if distance == 0]
    if len(moderate) >= number:
        return [moderate[i * len(moderate) // number] for i in range(number)]
    return sorted(sorted(range(len(sentences)), key=distances.__getitem__)[:number])


def _rounded(values: Any) -> Any:
    """Round the numbers of nested lists to 4 significant digits."""
    return [_rounded(value) for value in values] if isinstance(values, list) else float(f"{values:.4g}")
