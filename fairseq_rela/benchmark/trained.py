"""Decoding speed of trained models on a test set, in groups by source length (the paper's Figure 2)."""

import math
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import numpy
import torch
from fairseq import utils
from fairseq.dataclass.configs import GenerationConfig
from torch import nn
from tqdm import tqdm

from ..analysis.capture import load_transformer
from ..attention import attention_name
from ..data.lines import sha256
from ..data.prepare import load_record, settings_of
from ..errors import InputError
from ..evaluation import Decoding
from ..models.transformer_rela import attention_modules
from ..tasks.translation_rela import TranslationRelaConfig, TranslationRelaTask
from .models import BASELINE
from .timing import compare, interleave, summary

GROUPS = 10


class Request(NamedTuple):
    """What to decode.

    Attributes:
        checkpoints: of models, one of which has softmax attention everywhere.
        data: the data folder they were trained on.
        subset: of the data folder.
        batches: numbers of sentences at a time.
        rounds: how often each model decodes each group; once more before, untimed.
        sentences: of each group, at equal distances in the order of their lengths; all of them where None.
        decoding: how to search; ``max_tokens`` is not used.
    """

    checkpoints: Sequence[Path]
    data: Path
    subset: str = "test"
    batches: Sequence[int] = (1, 16)
    rounds: int = 3
    sentences: Optional[int] = None
    decoding: Decoding = Decoding()


class Trained(NamedTuple):
    """A model with its label, which is unique, and what its attention computes."""

    label: str
    attention: str
    checkpoint: Path
    model: nn.Module


def load_task(data: Path, gnmt_lenpen: Optional[float] = None) -> TranslationRelaTask:
    """Return the plugin's task on a data folder.

    Raises:
        InputError: not a data folder.
    """
    source, target = settings_of(load_record(data)).languages
    return TranslationRelaTask.setup_task(
        TranslationRelaConfig(
            data=str(data),
            source_lang=source,
            target_lang=target,
            gnmt_lenpen=gnmt_lenpen,
            # what Hydra would fill in
            train_subset="train",
            dataset_impl=None,
            required_seq_len_multiple=1,
        )
    )


def load(request: Request, device: torch.device, dtype: str) -> List[Trained]:
    """Load the models, the baseline first.

    Labels are attentions, such as ``rela_g``, or ``cross rela_g`` where other sites have softmax; models that share
    one are told apart by the names of their folders.

    Raises:
        InputError: a file that is no checkpoint of these data, a model given twice, or none with softmax alone.
    """
    if len({path.resolve() for path in request.checkpoints}) < len(request.checkpoints):
        raise InputError("--checkpoints: a file is given twice; give each model once")
    found = []
    for checkpoint in request.checkpoints:
        model, _ = load_transformer(checkpoint, request.data)
        model.make_generation_fast_(need_attn=False)  # as fairseq-generate does
        model = model.to(device, getattr(torch, dtype))
        found.append(Trained(_attention_label(model), "", checkpoint, model))
    if all(one.label != BASELINE for one in found):
        there = ", ".join(f"{one.checkpoint} ({one.label})" for one in found)
        raise InputError(f"--checkpoints {there}: none has softmax attention, which others are compared with; add one")
    return _with_own_labels(sorted(found, key=lambda one: one.label != BASELINE))


def _attention_label(model: nn.Module) -> str:
    names = {
        site: "+".join(sorted({attention_name(module) for module in modules.values()}))
        for site, modules in attention_modules(model).items()
    }
    if len(set(names.values())) == 1:
        return next(iter(names.values()))
    return ", ".join(f"{site} {name}" for site, name in names.items() if name != BASELINE)


def _with_own_labels(models: List[Trained]) -> List[Trained]:
    """Give the first softmax model the baseline's name; of others with the same attention each its folder's name."""
    labels = [one.label for one in models]
    own: List[Trained] = []
    for one in models:
        label = one.label
        if own and labels.count(label) > 1:
            label = f"{one.label} ({one.checkpoint.resolve().parent.name})"
        if label in [other.label for other in own]:
            label = f"{one.label} ({one.checkpoint})"
        own.append(one._replace(label=label, attention=one.label))
    return own


def length_groups(lengths: Sequence[int], number: int = GROUPS, most: Optional[int] = None) -> List[List[int]]:
    """Return the indices of sentences in groups of equal size, within one, the shortest sentences first.

    Args:
        lengths: of the sentences.
        most: how many sentences to take of each group, at equal distances; all where None.

    Raises:
        ValueError: fewer sentences than groups.
    """
    if len(lengths) < number:
        raise ValueError(f"{len(lengths)} sentences do not make {number} groups")
    order = numpy.argsort(numpy.asarray(lengths), kind="stable")
    groups = []
    for group in numpy.array_split(order, number):
        if most is not None and most < len(group):
            group = group[numpy.linspace(0, len(group) - 1, most).round().astype(int)]
        groups.append(group.tolist())
    return groups


def decode(
    models: Sequence[Trained],
    request: Request,
    device: torch.device,
    dtype: str,
    synchronise: Callable[[], Any] = lambda: None,
) -> List[Dict[str, Any]]:
    """Time fairseq's beam search of every model on every group, models in turn, for each batch size.

    Returns:
        a cell for each batch size and group: ``length``, the mean of the sources in pieces without the end,
        ``shortest``, ``longest``, ``sentences``, ``pieces`` (label to pieces written, without ends), ``batch``,
        ``beam``, ``seconds`` (of the whole group) and ``ratio`` to the baseline, see :mod:`.timing`.

    Raises:
        InputError: no such subset, or one with too few sentences.
    """
    task = load_task(request.data, request.decoding.gnmt_lenpen)
    task.load_dataset(request.subset)
    dataset = task.dataset(request.subset)
    lengths = [int(size) - 1 for size in dataset.src_sizes]
    try:
        groups = length_groups(lengths, most=request.sentences)
    except ValueError as error:
        raise InputError(f"{request.data}, subset {request.subset}: {error}; give a larger one") from error
    search = GenerationConfig(
        beam=request.decoding.beam,
        lenpen=request.decoding.lenpen,
        max_len_a=request.decoding.max_len_a,
        max_len_b=request.decoding.max_len_b,
    )
    generators = {one.label: (task.build_generator([one.model], search), one.model) for one in models}
    cells = []
    work = [(batch, group) for batch in request.batches for group in groups]
    for batch, group in tqdm(work, desc="decode", unit=" groups", disable=None, leave=False):
        samples = [_sample(dataset, group[start : start + batch], device) for start in range(0, len(group), batch)]
        pieces: Dict[str, int] = {}
        runs = {
            label: partial(_decode_group, task, *both, samples, pieces, label) for label, both in generators.items()
        }
        times, _ = interleave(runs, math.inf, (request.rounds, request.rounds), synchronise)
        of_group = [lengths[index] for index in group]
        cells.append(
            {
                **{"length": round(sum(of_group) / len(group), 1), "shortest": min(of_group), "longest": max(of_group)},
                **{"sentences": len(group), "pieces": pieces, "batch": batch, "beam": request.decoding.beam},
                **{"dtype": dtype, "baseline": BASELINE, "skipped": {}},
                "seconds": {label: summary(values) for label, values in times.items()},
                "ratio": compare(times, BASELINE),
            }
        )
    return cells


def _sample(dataset: Any, indices: Sequence[int], device: torch.device) -> Dict[str, Any]:
    batch = dataset.collater([dataset[index] for index in indices])
    return utils.apply_to_sample(lambda tensor: tensor.to(device), batch)


def _decode_group(
    task: Any, generator: Any, model: nn.Module, samples: Sequence[Any], pieces: Dict[str, int], label: str
) -> None:
    """Decode and count the pieces of the best hypotheses, without their ends."""
    hypotheses = [best[0] for sample in samples for best in task.inference_step(generator, [model], sample)]
    pieces[label] = sum(len(one["tokens"]) - 1 for one in hypotheses)


def describe(request: Request, models: Sequence[Trained]) -> Dict[str, Any]:
    """Return what was decoded, for the record."""
    return {
        **{"data": str(request.data), "subset": request.subset, "rounds": request.rounds, "groups": GROUPS},
        "sentences_of_a_group": request.sentences,
        "search": {name: value for name, value in request.decoding._asdict().items() if name != "max_tokens"},
        "models": [
            {
                **{"label": one.label, "attention": one.attention, "checkpoint": str(one.checkpoint)},
                "sha256": sha256(one.checkpoint),
                "parameters": sum(parameter.numel() for parameter in one.model.parameters()),
            }
            for one in models
        ],
    }
