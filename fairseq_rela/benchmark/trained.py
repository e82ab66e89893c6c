"""Benchmark of decoding with trained models on a test set, in groups by source length (Figure 2 of the paper)."""

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
from ..data.folder import DataFolder
from ..errors import InputError
from ..experiment.decoding import Decoding
from ..files.records import sha256
from ..models.transformer_rela import attention_modules, count_parameters
from ..tasks.translation_rela import TranslationRelaConfig, TranslationRelaTask
from ..variants import BASELINE
from .timing import Timing, compare, summary

GROUPS = 10  # groups by source length, as in Figure 2


class Request(NamedTuple):
    """Models and data of a decoding benchmark.

    Attributes:
        checkpoints: checkpoints of the models, one of which has softmax attention at all sites.
        data: the data folder that they were trained on.
        decoding: settings of the search; ``max_tokens`` is not used.
        subset: subset of the data folder to decode.
        batches: batch sizes in sentences.
        rounds: number of times that each model decodes each group; the first, additional time is not counted.
        sentences: number of sentences to take of each group, evenly spaced by length; None for all.
    """

    checkpoints: Sequence[Path]
    data: Path
    decoding: Decoding
    subset: str
    batches: Sequence[int]
    rounds: int
    sentences: Optional[int] = None


class Trained(NamedTuple):
    """A trained model.

    Attributes:
        label: unique name of the model.
        attention: description of its attention, such as ``rela_g``.
        checkpoint: its file.
        model: the model.
    """

    label: str
    attention: str
    checkpoint: Path
    model: nn.Module


def load_task(data: Path, gnmt_lenpen: Optional[float] = None) -> TranslationRelaTask:
    """Return the task ``translation_rela`` for a data folder.

    Args:
        data: a data folder of ``rela prepare``.
        gnmt_lenpen: exponent of the GNMT length penalty, or None for fairseq's length penalty.

    Raises:
        InputError: ``data`` is not a data folder.
    """
    source, target = DataFolder(data).languages
    return TranslationRelaTask.setup_task(
        TranslationRelaConfig(
            data=str(data),
            source_lang=source,
            target_lang=target,
            gnmt_lenpen=gnmt_lenpen,
            # interpolated values, which Hydra would resolve
            train_subset="train",
            dataset_impl=None,
            required_seq_len_multiple=1,
        )
    )


def load(request: Request, device: torch.device, dtype: str) -> List[Trained]:
    """Load the models, the baseline first.

    A label is the attention, such as ``rela_g``, or ``cross rela_g`` if the other sites have softmax. If several
    models have the same attention, the names of their folders are added.

    Raises:
        InputError: a file is not a checkpoint for these data, a file is given twice, or no model has only softmax.
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
        raise InputError(
            f"--checkpoints {there}: none has softmax attention, with which the others are compared; add one"
        )
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
    """Make labels unique: add the name of folder or file if models share one, except to the first (the baseline)."""
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
    """Return the indices of sentences in groups by length, the shortest sentences first.

    The sizes of the groups differ by at most one.

    Args:
        lengths: lengths of the sentences.
        number: number of groups.
        most: number of sentences to take of each group, evenly spaced; None for all.

    Raises:
        ValueError: there are fewer sentences than groups.
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
    """Time fairseq's beam search for each batch size and group of sentences, with the models in turn.

    Args:
        models: the models, the baseline first.
        request: data and settings.
        device: where to compute.
        dtype: precision of the models, for the record.
        synchronise: waits until the device has finished its work.

    Returns:
        a cell for each batch size and group: ``length``, the mean source length in pieces, ``shortest`` and
        ``longest``, ``sentences``, ``pieces`` (number of generated pieces by label), ``batch``, ``beam``, ``seconds``
        for the whole group, and ``ratio`` to the baseline, see :mod:`.timing`. Pieces do not include ends of
        sentences.

    Raises:
        InputError: the data have no such subset, or it has fewer sentences than groups.
    """
    task = load_task(request.data, request.decoding.gnmt_lenpen)
    task.load_dataset(request.subset)
    dataset = task.dataset(request.subset)
    lengths = [int(size) - 1 for size in dataset.src_sizes]
    try:
        groups = length_groups(lengths, most=request.sentences)
    except ValueError as error:
        raise InputError(f"{request.data}, subset {request.subset}: {error}; give a larger one") from error
    generators = {one.label: (make_generator(task, one.model, request.decoding), one.model) for one in models}
    timing = Timing(math.inf, (request.rounds, request.rounds), synchronise)
    cells = []
    work = [(batch, group) for batch in request.batches for group in groups]
    for batch, group in tqdm(work, desc="decode", unit=" groups", disable=None, leave=False):
        samples = [make_sample(dataset, group[start : start + batch], device) for start in range(0, len(group), batch)]
        pieces: Dict[str, int] = {}
        runs = {
            label: partial(_decode_group, task, *both, samples, pieces, label) for label, both in generators.items()
        }
        times, _ = timing.interleave(runs)
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


def make_generator(task: TranslationRelaTask, model: nn.Module, decoding: Decoding, min_len: int = 1) -> Any:
    """Return fairseq's beam search for one model; an output has at least ``min_len`` pieces."""
    search = GenerationConfig(
        beam=decoding.beam,
        lenpen=decoding.lenpen,
        max_len_a=decoding.max_len_a,
        max_len_b=decoding.max_len_b,
        min_len=min_len,
    )
    return task.build_generator([model], search)


def make_sample(dataset: Any, indices: Sequence[int], device: torch.device) -> Dict[str, Any]:
    """Return the batch of the sentences of these numbers."""
    batch = dataset.collater([dataset[index] for index in indices])
    return utils.apply_to_sample(lambda tensor: tensor.to(device), batch)


def _decode_group(
    task: Any, generator: Any, model: nn.Module, samples: Sequence[Any], pieces: Dict[str, int], label: str
) -> None:
    """Decode the batches, and set ``pieces[label]`` to the number of pieces of the best hypotheses without ends."""
    hypotheses = [best[0] for sample in samples for best in task.inference_step(generator, [model], sample)]
    pieces[label] = sum(len(one["tokens"]) - 1 for one in hypotheses)


def describe(request: Request, models: Sequence[Trained]) -> Dict[str, Any]:
    """Return the data, the settings and the models of a decoding benchmark, for the record."""
    return {
        **{"data": str(request.data), "subset": request.subset, "rounds": request.rounds, "groups": GROUPS},
        "sentences_of_a_group": request.sentences,
        "search": {name: value for name, value in request.decoding._asdict().items() if name != "max_tokens"},
        "models": [
            {
                **{"label": one.label, "attention": one.attention, "checkpoint": str(one.checkpoint)},
                "sha256": sha256(one.checkpoint),
                "parameters": count_parameters(one.model),
            }
            for one in models
        ],
    }
