"""Whole models: a training step, decoding, parameters."""

import argparse
from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from fairseq.sequence_generator import SequenceGenerator

from ..models.transformer_rela import MODEL_NAME, TransformerRelaConfig, TransformerRelaModel, apply_architecture
from .timing import Times, compare, interleave, summary

BASELINE = "softmax"
# name to attention and backend
VARIANTS = {
    "softmax": ("softmax", "auto"),
    "rela_g_plain": ("rela_g", "plain"),
    "rela_g": ("rela_g", "auto"),
    "sparsemax": ("sparsemax", "auto"),
    "entmax15": ("entmax15", "auto"),
}


class Size(NamedTuple):
    """Of a Transformer: layers of each side, d, FFN, H, words of each vocabulary."""

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
    """A model with fresh weights, of the paper's recipe but for its size; of ``size.words`` without dictionaries."""
    if dictionaries is None:
        dictionaries = (_make_dictionary(size.words),) * 2
    sides = dict(layers=size.layers, embed_dim=size.dim, ffn_embed_dim=size.ffn, attention_heads=size.heads)
    config = TransformerRelaConfig(
        attention=attention,
        rela_backend=backend,
        share_decoder_input_output_embed=True,
        **{f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in sides.items()},
        **{"dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1, **options},
    )
    apply_architecture(config, MODEL_NAME)
    torch.manual_seed(1)
    task = argparse.Namespace(source_dictionary=dictionaries[0], target_dictionary=dictionaries[1])
    return TransformerRelaModel.build_model(config, task)


def _make_dictionary(words: int) -> Dictionary:
    dictionary = Dictionary()
    for word in range(words - len(dictionary)):
        dictionary.add_symbol(f"w{word}")
    return dictionary


def parameters(size: Size, names: Sequence[str] = ("softmax", "rela_g")) -> Dict[str, Dict[str, int]]:
    """Counted: in all, and without embeddings."""
    counts = {}
    for name in names:
        model = build(VARIANTS[name][0], size)
        total = sum(p.numel() for p in model.parameters())
        embeddings = sum(p.numel() for key, p in model.named_parameters() if "embed_tokens" in key)
        counts[name] = {"total": total, "without_embeddings": total - embeddings}
    return counts


def make_batch(words: int, tokens: int, mean_length: int, device: torch.device) -> Tuple[torch.Tensor, ...]:
    """Random source (left-padded), its lengths, decoder input and target, of sentences of nearly equal length.

    fairseq makes its batches of such: lengths lie within a tenth of the longest.
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
    budget: float,
    rounds: Tuple[int, int],
    synchronise: Callable[[], Any],
) -> Dict[str, Any]:
    """One update with Adam, label smoothing and dropout, of each variant in turn."""
    batch = make_batch(size.words, tokens, mean_length, device)
    steps = {}
    for name, (attention, backend) in VARIANTS.items():
        model = build(attention, size, backend).to(device, getattr(torch, dtype)).train()
        steps[name] = partial(update, model, torch.optim.Adam(model.parameters(), lr=1e-4), batch)
    times, skipped = interleave(steps, budget, rounds, synchronise)
    tokens = int((batch[3] != 1).sum())
    return {**_record(size, dtype, times, skipped), "tokens": tokens, "length": mean_length}


def update(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: Tuple[torch.Tensor, ...]) -> None:
    """Update a model once; the batch is that of :func:`make_batch`."""
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
    budget: float,
    rounds: Tuple[int, int],
    synchronise: Callable[[], Any],
) -> List[Dict[str, Any]]:
    """fairseq's beam search for sentences of each length, hypotheses of the same length (Figure 2).

    Fresh weights end a hypothesis anywhere, so that its length is set: all variants take the same number of steps.
    """
    models = {
        name: build(attention, size, backend).to(device, getattr(torch, dtype))
        for name, (attention, backend) in VARIANTS.items()
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
        times, skipped = interleave(runs, budget / len(lengths), rounds, synchronise)
        cells.append({**_record(size, dtype, times, skipped), "length": length, "batch": batch, "beam": beam})
    return cells


def _record(size: Size, dtype: str, times: Times, skipped: Dict[str, str]) -> Dict[str, Any]:
    """What a benchmark says of one comparison."""
    return {
        "size": size._asdict(),
        "dtype": dtype,
        "baseline": BASELINE,
        "seconds": {key: summary(values) for key, values in times.items()},
        "ratio": compare(times, BASELINE),
        "skipped": skipped,
    }
