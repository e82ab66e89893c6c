"""Collect the word alignments of all cross-attention heads, and compare them with gold alignments."""

from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...alignment import as_pharaoh, links_of, merge_subwords, normal_rows, shifted_rows, strongest_sources, word_ids
from ...data.pairs import Words
from ...errors import InputError
from ..aer import Counts, Gold
from ..capture import Batch
from ..merging import layer_attention, sum_to_one
from ..sentences import Sentence
from .sites import mean

ROWS = {"normal": normal_rows, "shifted": shifted_rows}


class Links:
    """Collect the word alignments of each cross-attention head, and of the mean over the heads of each layer.

    Args:
        sentences: all sentences of the subset.
        words: the words of the original files, see :func:`fairseq_rela.analysis.analyze.analyze`.
        mean_of: mean over heads that is aligned, ``raw`` or ``normalised``, see
            :class:`fairseq_rela.analysis.options.Options`.

    Attributes:
        positions: sentence number to the source word of each target word, -1 for none: (kinds, N, target words). The
            kinds are those of :data:`ROWS`. N counts the heads of all layers, each layer's followed by their mean.
        sizes: number of entries of each layer, its heads and their mean; pruned layers have fewer heads.
    """

    def __init__(
        self, sentences: Sequence[Sentence], words: Optional[Sequence[Tuple[Words, Words]]] = None, mean_of: str = "raw"
    ) -> None:
        self.positions: Dict[int, Tensor] = {}
        self.sizes: List[int] = []
        self._sentences = sentences
        self._words = words
        self._normalised = mean_of == "normalised"

    def add(self, batch: Batch) -> None:
        """Align the sentences of one batch.

        Raises:
            InputError: a layer has no heads in its cross-attention, because they were pruned.
        """
        cross = [item for item in batch.modules if item.site == "cross"]
        layers = []
        for item in cross:
            heads = item.weights.masked_fill(~item.allowed.unsqueeze(1), 0)  # (B, H, T, S)
            if not heads.size(1):
                raise InputError("a layer has no heads in its cross-attention; an alignment needs a head in each layer")
            together = layer_attention(sum_to_one(heads) if self._normalised else heads)
            layers.append(torch.cat((heads, together), dim=1))
        self.sizes = [layer.size(1) for layer in layers]
        weights = torch.cat(layers, dim=1)  # (B, N, T, S)
        for row, index in enumerate(batch.ids):
            source, target = self._sentences[index]
            cells = weights[row, :, : len(target), : len(source)]  # (N, T, S)
            words: Tuple[List[int], ...] = (word_ids(source[:-1]), word_ids(target[:-1]))
            length = self._sentences[index].lengths[1]
            if self._words is not None:
                words = tuple([line.of_tokens[i] for i in ids] for line, ids in zip(self._words[index], words))
                length = self._words[index][1].total
            found = torch.stack([strongest_sources(merge_subwords(rows(cells), *words)) for rows in ROWS.values()])
            self.positions[index] = pad(found, (0, length - found.size(-1)), value=-1)

    @property
    def names(self) -> List[str]:
        """The names of all heads, such as ``normal.layer1.head3`` or ``shifted.layer0.mean``."""
        return [
            f"{kind}.layer{layer}.{part}"
            for kind in ROWS
            for layer, size in enumerate(self.sizes)
            for part in [*(f"head{head}" for head in range(size - 1)), "mean"]
        ]

    @property
    def by_sentence(self) -> List[Tensor]:
        """The positions of each sentence in order: (heads, target words), in the order of :attr:`names`."""
        return [self.positions[index].flatten(0, 1) for index in range(len(self.positions))]

    def result(self) -> Dict[str, List[str]]:
        """Return the alignments in Pharaoh format: name of a head to one line for each sentence."""
        files: Dict[str, List[str]] = {name: [] for name in self.names}
        for sentence in self.by_sentence:
            for lines, positions in zip(files.values(), sentence.tolist()):
                lines.append(as_pharaoh(links_of(positions)))
        return files

    def error_rates(self, path: str, gold: Sequence[Gold]) -> Dict[str, Any]:
        """Return the entry ``alignment`` of an analysis.

        Args:
            path: file of the gold links.
            gold: the gold links of each sentence.
        """
        rates = dict(zip(ROWS, map(_error_rates, self._counts(gold))))
        return {"gold": path, "sentences": len(gold), **rates}

    def _counts(self, gold: Sequence[Gold]) -> List[List[List[Counts]]]:
        """Return the counts of :func:`fairseq_rela.analysis.aer.count` by kind, layer and head."""
        total: Any = 0
        for index, positions in self.positions.items():
            words = positions.size(-1)
            columns = 1 + max([-1, *(s for s, _ in gold[index].possible), int(positions.max()) if words else -1])
            hits = [positions >= 0]
            for links in gold[index]:
                matrix = torch.zeros(words, columns + 1, dtype=torch.bool)  # the last column, index -1, is for no link
                for s, t in links:
                    matrix[t, s] = True
                hits.append(matrix[torch.arange(words), positions])
            total = total + torch.stack(hits).sum(dim=-1)  # (3, kinds, N)
        sure = sum(len(sentence.sure) for sentence in gold)
        return [
            [[Counts(links, sure, *right) for links, *right in layer.tolist()] for layer in kind.split(self.sizes)]
            for kind in total.permute(1, 2, 0)
        ]


def _aer(counts: Counts) -> float:
    """Return the AER, which is set to 1 if there are neither links nor sure gold links."""
    return counts.aer if counts.links + counts.sure else 1.0


def _error_rates(counts: List[List[Counts]]) -> Dict[str, Any]:
    """Return the AER of each head and layer, and the means over layers of Table 5.

    ``aol`` is the mean AER of the layer attention, ``aoh`` the mean AER of the best head of each layer.
    """
    layers: List[Dict[str, Any]] = []
    candidates: List[Tuple[float, int, Optional[int]]] = []
    for number, (*heads, together) in enumerate(counts):
        errors = [_aer(head) for head in heads]
        best = errors.index(min(errors))
        layers.append(
            {
                "layer_attention": {
                    "aer": _aer(together),
                    "precision": together.precision or 0.0,
                    "recall": together.recall or 0.0,
                },
                "heads": [{"aer": error} for error in errors],
                "best_head": best,
            }
        )
        candidates += [(_aer(together), number, None), (errors[best], number, best)]
    error, layer, head = min(candidates, key=lambda candidate: candidate[0])
    return {
        "layers": layers,
        "aol": mean(layer["layer_attention"]["aer"] for layer in layers),
        "aoh": mean(layer["heads"][layer["best_head"]]["aer"] for layer in layers),
        "best": {"layer": layer, "head": head, "aer": error},
    }
