"""Benchmark of whole models with random weights: training steps, decoding, and number of parameters."""

import argparse
from functools import partial
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from fairseq.sequence_generator import SequenceGenerator

from ..errors import InputError
from ..models.config import ARCHITECTURES, MODEL_NAME, TransformerRelaConfig
from ..models.shared_options import apply_architecture
from ..models.transformer_rela import TransformerRelaModel, count_parameters
from ..variants import BASELINE, VARIANTS
from .timing import Times, Timing, compare, summary

Variants = Mapping[str, Tuple[str, str]]  # name in the benchmark to the attention variant and the backend
CANDIDATES: Variants = {
    "softmax": ("softmax", "auto"),
    "rela_g_plain": ("rela_g", "plain"),
    "rela_g": ("rela_g", "auto"),
    "sparsemax": ("sparsemax", "auto"),
    "entmax15": ("entmax15", "auto"),
}


def choose_variants(names: Sequence[str]) -> Variants:
    """Return the variants to compare, with the baseline first.

    Args:
        names: keys of :data:`CANDIDATES` or :data:`fairseq_rela.variants.VARIANTS`.

    Raises:
        InputError: a name is unknown.
    """
    chosen = {BASELINE: CANDIDATES[BASELINE]}
    for name in names:
        if name not in CANDIDATES and name not in VARIANTS:
            there = ", ".join(dict.fromkeys([*CANDIDATES, *VARIANTS]))
            raise InputError(f"--attention {name}: no such variant; choose from {there}")
        chosen[name] = CANDIDATES.get(name, (name, "auto"))
    return chosen


class Size(NamedTuple):
    """Size of a Transformer.

    Attributes:
        layers: layers of the encoder, and of the decoder.
        dim: d, the model size.
        ffn: inner size of the feed-forward network.
        heads: H.
        words: size of each vocabulary.
    """

    layers: int = 6
    dim: int = 512
    ffn: int = 2048
    heads: int = 8
    words: int = 27510


def build(
    attention: str,
    size: Size,
    backend: str = "auto",
    dictionaries: Optional[Tuple[Dictionary, Dictionary]] = None,
    **options: Any,
) -> TransformerRelaModel:
    """Return a model with random weights (seed 1) and the paper's settings, apart from its size.

    Args:
        attention: a key of :data:`fairseq_rela.variants.VARIANTS`.
        size: the size of the model.
        backend: a key of :data:`fairseq_rela.kernels.backends.CHOICES`.
        dictionaries: source and target dictionary; None for dictionaries of ``size.words`` words.
        options: other options of the model.
    """
    if dictionaries is None:
        dictionaries = (make_dictionary(size.words),) * 2
    sides = dict(layers=size.layers, embed_dim=size.dim, ffn_embed_dim=size.ffn, attention_heads=size.heads)
    config = TransformerRelaConfig(
        attention=attention,
        rela_backend=backend,
        share_decoder_input_output_embed=True,
        **{f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in sides.items()},
        **{"dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1, **options},
    )
    apply_architecture(config, MODEL_NAME, ARCHITECTURES)
    torch.manual_seed(1)
    task = argparse.Namespace(source_dictionary=dictionaries[0], target_dictionary=dictionaries[1])
    return TransformerRelaModel.build_model(config, task)


def make_dictionary(words: int) -> Dictionary:
    """Return a dictionary of ``words`` entries, with the special symbols."""
    dictionary = Dictionary()
    for word in range(words - len(dictionary)):
        dictionary.add_symbol(f"w{word}")
    return dictionary


def parameters(size: Size, names: Sequence[str] = ("softmax", "rela_g")) -> Dict[str, Dict[str, int]]:
    """Return the number of parameters, ``total`` and ``without_embeddings``, of each named model.

    Args:
        size: the size of the models.
        names: keys of :data:`CANDIDATES`.
    """
    counts = {}
    for name in names:
        model = build(CANDIDATES[name][0], size)
        total = count_parameters(model)
        embeddings = sum(p.numel() for key, p in model.named_parameters() if "embed_tokens" in key)
        counts[name] = {"total": total, "without_embeddings": total - embeddings}
    return counts


def make_batch(words: int, tokens: int, mean_length: int, device: torch.device) -> Tuple[torch.Tensor, ...]:
    """Return a random batch: source (padded on the left), its lengths, decoder input, and target.

    As in fairseq's batches the lengths are similar, within a tenth of the longest.

    Args:
        words: size of the vocabulary.
        tokens: about B * T.
        mean_length: T, the longest sentence.
        device: device of the tensors.

    Returns:
        four tensors of shapes ``(B, T)``, ``(B,)``, ``(B, T)`` and ``(B, T)``.
    """
    generator = torch.Generator().manual_seed(1)
    batch, pad, eos = max(tokens // mean_length, 1), 1, 2

    def sentences(left: bool) -> Tuple[torch.Tensor, torch.Tensor]:
        lengths = torch.randint(max(mean_length * 9 // 10, 2), mean_length + 1, (batch,), generator=generator)
        lengths[0] = mean_length
        text = torch.randint(4, words, (batch, mean_length), generator=generator)
        places = torch.arange(mean_length).expand(batch, -1)
        if left:
            text[places < (mean_length - lengths)[:, None]] = pad
            text[:, -1] = eos
        else:
            text[places >= lengths[:, None]] = pad
            text[torch.arange(batch), lengths - 1] = eos
        return text, lengths

    source, lengths = sentences(left=True)
    target, _ = sentences(left=False)
    previous = target.roll(1, dims=1)
    previous[:, 0] = eos
    previous[target == pad] = pad
    return tuple(x.to(device) for x in (source, lengths, previous, target))


def training(
    size: Size,
    tokens: int,
    mean_length: int,
    device: torch.device,
    dtype: str,
    timing: Timing,
    variants: Variants = CANDIDATES,
) -> Dict[str, Any]:
    """Time one update with Adam, label smoothing and dropout, of each variant in turn.

    Args:
        size: the size of the models.
        tokens, mean_length: as for :func:`make_batch`.
        device: where to compute.
        dtype: precision of the models.
        timing: how long to time the variants.
        variants: what to time.
    """
    batch = make_batch(size.words, tokens, mean_length, device)
    steps = {}
    for name, (attention, backend) in variants.items():
        model = build(attention, size, backend).to(device, getattr(torch, dtype)).train()
        steps[name] = partial(update, model, torch.optim.Adam(model.parameters(), lr=1e-4), batch)
    times, skipped = timing.interleave(steps)
    tokens = int((batch[3] != 1).sum())
    return {**_record(size, dtype, times, skipped), "tokens": tokens, "length": mean_length}


def update(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: Tuple[torch.Tensor, ...]) -> None:
    """Update a model once, with a batch as from :func:`make_batch`."""
    source, lengths, previous, target = batch
    logits, _ = model(source, lengths, previous)
    loss = F.cross_entropy(logits.flatten(0, 1).float(), target.flatten(), ignore_index=1, label_smoothing=0.1)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


def decoding(
    size: Size,
    lengths: Sequence[int],
    batch: int,
    beam: int,
    device: torch.device,
    dtype: str,
    timing: Timing,
    variants: Variants = CANDIDATES,
) -> List[Dict[str, Any]]:
    """Time fairseq's beam search for sentences of each length (Figure 2 of the paper).

    Models with random weights end a hypothesis anywhere. Hypotheses are therefore forced to the length of the source,
    so that all variants take the same number of steps.

    Args:
        size: the size of the models.
        lengths: source lengths, a cell for each.
        batch: sentences in a batch.
        beam: size of the beam.
        device: where to compute.
        dtype: precision of the models.
        timing: how long to time the variants at each length.
        variants: what to time.
    """
    models = {
        name: build(attention, size, backend).to(device, getattr(torch, dtype))
        for name, (attention, backend) in variants.items()
    }
    for model in models.values():
        model.make_generation_fast_(need_attn=False)  # as fairseq-generate does
    cells = []
    for length in lengths:
        source, source_lengths, _, _ = make_batch(size.words, batch * length, length, device)
        sample = {"net_input": {"src_tokens": source, "src_lengths": source_lengths}}
        runs = {}
        for name, model in models.items():
            generator = SequenceGenerator(
                [model], model.decoder.dictionary, beam_size=beam, max_len_a=0, max_len_b=length, min_len=length
            )
            runs[name] = partial(generator.generate, [], sample)
        times, skipped = timing.interleave(runs)
        cells.append({**_record(size, dtype, times, skipped), "length": length, "batch": batch, "beam": beam})
    return cells


def _record(size: Size, dtype: str, times: Times, skipped: Dict[str, str]) -> Dict[str, Any]:
    """Return the record of one comparison."""
    return {
        "size": size._asdict(),
        "dtype": dtype,
        "baseline": BASELINE,
        "seconds": {key: summary(values) for key, values in times.items()},
        "ratio": compare(times, BASELINE),
        "skipped": skipped,
    }
