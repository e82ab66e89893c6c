"""Score sentence pairs by the null rate of cross-attention and by log-probability."""

import math
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
from fairseq import utils
from fairseq.data.data_utils import collate_tokens
from torch import nn

from ..attention import attention_name
from ..data.folder import DataFolder
from ..errors import InputError
from ..files.configs import load_defaults
from ..models.transformer_rela import attention_modules
from ..variants import find_variant
from .capture import load_model, recorded_weights
from .pair_encoder import Encoded, PairEncoder
from .sparsity import count_nulls

CELLS = 1 << 20  # most weights of one head in a batch: 200 MB with 8 heads and 6 layers
LOGITS = 1 << 24  # most logits in memory at a time: 64 MB


class Score(NamedTuple):
    """The scores of one sentence pair.

    Attributes:
        null_rate: share (0 to 1) of (layer, head, target query) triples whose cross-attention weights are all 0;
            low = good. The query that predicts the end of sentence counts.
        log_probability: natural logarithm of the probability of the target given the source, divided by the number of
            target pieces including the end of sentence.
        source_pieces, target_pieces: numbers of pieces without the ends of sentences.
        reason: why the pair has no score, in which case both scores are nan; else empty.
    """

    null_rate: float
    log_probability: float
    source_pieces: int
    target_pieces: int
    reason: str = ""


class PairScorer:
    """Compute the null rate and log-probability of sentence pairs with a model.

    Attributes:
        encode: the encoder from raw text to ids.
        variants: the variants that its cross-attention computes.

    Args:
        model: a Transformer of this plugin or of fairseq, in evaluation mode.
        task: its translation task, which has the dictionaries.
        data: the data folder it was trained on.
        device: device to compute on.
        max_tokens: most padded pieces in a batch, counted on the longer side; a single pair may have more.
    """

    def __init__(self, model: nn.Module, task: Any, data: DataFolder, device: torch.device, max_tokens: int) -> None:
        self.device = device
        self.max_tokens = max_tokens
        self._model = model.to(device)
        self._cross = attention_modules(model)["cross"]
        self._pads = task.source_dictionary.pad(), task.target_dictionary.pad()
        self._eos = task.target_dictionary.eos()
        self._left_pad_source = bool(getattr(task.cfg, "left_pad_source", True))
        names = sorted({attention_name(module) for module in self._cross.values()})
        self.variants = [find_variant(name) for name in names]
        longest = utils.resolve_max_positions(task.max_positions(), model.max_positions())
        self.encode = PairEncoder(data, (task.source_dictionary, task.target_dictionary), longest)

    @property
    def label(self) -> str:
        """The name of the cross-attention, such as ``rela_g``; several names are joined by ``+``."""
        return "+".join(variant.name for variant in self.variants)

    @property
    def has_nulls(self) -> bool:
        """Whether queries of the model can be null."""
        return any(variant.can_be_null for variant in self.variants)

    def score(self, pairs: Sequence[Tuple[str, str]]) -> List[Score]:
        """Return the scores of pairs of raw text, in order."""
        return self.score_encoded(self.encode([pair[0] for pair in pairs], [pair[1] for pair in pairs]))

    def score_encoded(self, pairs: Sequence[Encoded]) -> List[Score]:
        """Return the scores in order; they are computed in batches of pairs with similar lengths."""
        scores: Dict[int, Tuple[float, float]] = {}
        for batch in self._batches(pairs):
            scores.update(zip(batch, self._score_batch([pairs[index] for index in batch])))
        return [self._score(pair, *scores.get(index, (math.nan, math.nan))) for index, pair in enumerate(pairs)]

    @staticmethod
    def _score(pair: Encoded, null_rate: float, log_probability: float) -> Score:
        reason = pair.reason
        if not reason and not math.isfinite(log_probability):  # the training of the model has diverged
            reason, null_rate, log_probability = "not finite", math.nan, math.nan
        source, target = (max(len(ids) - 1, 0) for ids in (pair.source, pair.target))
        return Score(null_rate, log_probability, source, target, reason)

    def _batches(self, pairs: Sequence[Encoded]) -> Iterator[List[int]]:
        """Yield batches as indices of pairs with similar lengths, limited by ``max_tokens`` and by the weights."""
        batch: List[int] = []
        longest = (0, 0)
        lengths = [(len(pair.target), len(pair.source)) for pair in pairs]
        for index in sorted((i for i, pair in enumerate(pairs) if not pair.reason), key=lengths.__getitem__):
            target, source = map(max, longest, lengths[index])
            size = len(batch) + 1
            if batch and (size * max(target, source) > self.max_tokens or size * target * source > CELLS):
                yield batch
                batch, (target, source) = [], lengths[index]
            batch.append(index)
            longest = target, source
        if batch:
            yield batch

    @torch.no_grad()
    def _score_batch(self, pairs: Sequence[Encoded]) -> List[Tuple[float, float]]:
        sources = [torch.tensor(pair.source) for pair in pairs]
        targets = [torch.tensor(pair.target) for pair in pairs]
        source = collate_tokens(sources, self._pads[0], left_pad=self._left_pad_source).to(self.device)  # (B, S)
        target = collate_tokens(targets, self._pads[1]).to(self.device)  # (B, T)
        previous = collate_tokens(targets, self._pads[1], self._eos, move_eos_to_beginning=True).to(self.device)
        lengths = torch.tensor([len(ids) for ids in sources], device=self.device)
        # only cross-attention, because the weights of the other sites take memory
        with recorded_weights({"cross": self._cross}) as weights:
            features, _ = self._model(source, lengths, previous, features_only=True)
        words = target != self._pads[1]
        allowed = words[:, :, None] & (source != self._pads[0])[:, None, :]  # (B, T, S)
        nulls = sum(count_nulls(weights[name], allowed) for name in self._cross)  # (B,)
        queries = words.sum(dim=1) * sum(module.num_heads for module in self._cross.values())
        log_probabilities = self._log_probabilities(features, target).double().masked_fill(~words, 0.0).sum(dim=1)
        null_rates = (nulls.double() / queries).tolist()
        return list(zip(null_rates, (log_probabilities / words.sum(dim=1)).tolist()))

    def _log_probabilities(self, features: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return the log-probabilities of the target, (B, T), from features (B, T, d).

        The logits are computed for a part of the batch at a time, to limit memory.
        """
        size = max(1, LOGITS // (target.size(1) * len(self._model.decoder.dictionary)))
        parts = []
        for some, wanted in zip(features.split(size), target.split(size)):
            logits = self._model.decoder.output_layer(some)  # (b, T, V)
            log_probabilities = self._model.get_normalized_probs((logits, None), log_probs=True)
            parts.append(log_probabilities.gather(-1, wanted.unsqueeze(-1)).squeeze(-1))
        return torch.cat(parts)


def load_scorer(
    checkpoint: Path, data: DataFolder, device: Optional[str] = None, max_tokens: Optional[int] = None
) -> PairScorer:
    """Load a model with its data folder for scoring.

    Args:
        checkpoint, data: a model and the data folder it was trained on.
        device: ``cpu`` or ``cuda``; by default a GPU if there is one.
        max_tokens: see :class:`PairScorer`; by default that of ``configs/defaults/decoding.yaml``.

    Raises:
        InputError: the checkpoint or the device cannot be used, the data folder is not that of the model, or its files
            have changed.
    """
    most = load_defaults("decoding")["max_tokens"] if max_tokens is None else max_tokens
    if most < 1:
        raise InputError(f"--max-tokens {most}: give a number of at least 1")
    where = _find_device(device)
    data.refuse_changed(data.text_files())
    model, task = load_model(checkpoint, data)
    return PairScorer(model, task, data, where, most)


def _find_device(name: Optional[str]) -> torch.device:
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"--device {name}: cannot be used; give cpu, or cuda where there is a GPU") from error
    return device
