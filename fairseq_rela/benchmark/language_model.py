"""Benchmark of language models with random weights: time and memory of a training update by the length of contexts."""

import argparse
from functools import partial
from typing import Any, Dict, List, Sequence

import torch
import torch.nn.functional as F

from ..models.lm_config import MODEL_NAME, TransformerLMRelaConfig, complete_config
from ..models.transformer_lm_rela import TransformerLMRelaModel
from .memory import peak_bytes
from .models import BASELINE, Size, make_dictionary
from .timing import Timing, compare, summary

NAMES = ("softmax", "rela_g")


def build(attention: str, size: Size, length: int) -> TransformerLMRelaModel:
    """Return a language model with random weights (seed 1) and fairseq's settings, apart from its size.

    Args:
        attention: a key of :data:`fairseq_rela.variants.VARIANTS`.
        size: the size of the model.
        length: the longest context, in tokens.
    """
    config = TransformerLMRelaConfig(
        attention=attention,
        decoder_layers=size.layers,
        decoder_embed_dim=size.dim,
        decoder_ffn_embed_dim=size.ffn,
        decoder_attention_heads=size.heads,
        share_decoder_input_output_embed=True,
    )
    complete_config(config, MODEL_NAME, argparse.Namespace(tokens_per_sample=length))
    dictionary = make_dictionary(size.words)
    torch.manual_seed(1)
    return TransformerLMRelaModel.build_model(
        config, argparse.Namespace(source_dictionary=dictionary, target_dictionary=dictionary)
    )


def update(model: torch.nn.Module, optimizer: torch.optim.Optimizer, tokens: torch.Tensor) -> None:
    """Update a model once, to predict each of ``tokens`` (B, T + 1) but the first of each row."""
    logits, _ = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


def training(
    size: Size, tokens: int, lengths: Sequence[int], device: torch.device, dtype: str, timing: Timing
) -> List[Dict[str, Any]]:
    """Time one update with Adam and dropout of softmax and ReLA-g in turn, and measure its peak memory.

    Args:
        size: the size of the models.
        tokens: tokens of a batch, in contexts of equal length; at least one context.
        lengths: numbers of tokens of a context, a cell for each.
        device: where to compute.
        dtype: precision of the models.
        timing: how long to time the variants at each length.

    Returns:
        a record for each length: ``seconds`` and ``ratio`` as in the other parts, and ``peak_bytes``, the peak memory
        of an update in bytes beyond parameters and batch, see :func:`fairseq_rela.benchmark.memory.peak_bytes`.
    """
    cells = []
    for length in lengths:
        batch = max(tokens // length, 1)
        generator = torch.Generator().manual_seed(1)
        text = torch.randint(4, size.words, (batch, length + 1), generator=generator).to(device)
        steps = {}
        for name in NAMES:
            model = build(name, size, length).to(device, getattr(torch, dtype)).train()
            steps[name] = partial(update, model, torch.optim.Adam(model.parameters(), lr=1e-4), text)
        times, skipped = timing.interleave(steps)
        cells.append(
            {
                "size": size._asdict(),
                "dtype": dtype,
                "baseline": BASELINE,
                "length": length,
                "batch": batch,
                "seconds": {key: summary(values) for key, values in times.items()},
                "ratio": compare(times, BASELINE),
                "peak_bytes": {name: peak_bytes(steps[name], device) for name in times},
                "skipped": skipped,
            }
        )
    return cells
