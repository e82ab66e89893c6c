"""Measure pruned models: BLEU, parameters, loss and decoding speed against the share of heads removed.

A folder holds ``MODEL.json`` with what every head of a model is worth, and ``MODEL/POINT.json`` for each pruned model;
a file that is there is not made again. MODEL is the attention and the seed, such as ``rela_g.seed-1``, and POINT is
``whole``, ``null-0.25``, ``loss-0.25`` or ``random-0.25-1``, with the draw last.
"""

import copy
import time
from functools import partial
from pathlib import Path
from typing import Any, Dict, Iterator, NamedTuple, Sequence

import torch
from torch import nn

from .. import checkpoints
from ..analysis.capture import make_batches
from ..attention import attention_name
from ..benchmark.timing import Timing, compare
from ..benchmark.trained import load_task, make_generator, make_sample
from ..data.folder import DataFolder
from ..errors import InputError
from ..experiment.decoding import Decoding
from ..experiment.scoring import score
from ..files.lines import read_lines
from ..files.records import is_done, read_json, sha256, write_json
from ..models.kept_heads import describe_heads
from ..models.transformer_rela import attention_modules, count_parameters
from .choice import in_order, number_of
from .heads import Head, list_heads, remove_heads
from .importance import losses, null_rates
from .prune import can_be_null, load_rela_transformer

FORMAT = 1
ROUNDS = 2  # timed rounds of the whole and the pruned model in turn, after one that is not counted
TIMED = 10  # every tenth test sentence by length is timed
STEPS = 20  # pieces of each hypothesis that is timed, so that both models do the same number of steps


class Point(NamedTuple):
    """One pruned model.

    Attributes:
        by: a key of :data:`fairseq_rela.pruning.choice.ORDERS`, or ``whole`` for the model as it was.
        share: share of the heads to remove.
        draw: seed of the random order; 1 by ``null`` and ``loss``. A draw is the same heads in all models of a size.
    """

    by: str
    share: float
    draw: int = 1

    @property
    def name(self) -> str:
        """The name of its file without ending."""
        if self.by == "whole":
            return self.by
        return f"{self.by}-{self.share:g}" + (f"-{self.draw}" if self.by == "random" else "")


class Trained(NamedTuple):
    """A trained model with its data, and what its heads are worth on the dev set.

    Attributes:
        name: attention and seed, such as ``rela_g.seed-1``.
        attention, seed: both of them.
        model: the model.
        rates: null rates of the heads; empty if no head can be null.
        rises: rises of the loss without each head.
        made_of: checksums of the checkpoint and of the record of the data.
    """

    name: str
    attention: str
    seed: int
    model: nn.Module
    rates: Dict[Head, float]
    rises: Dict[Head, float]
    made_of: Dict[str, Any]


def plan(shares: Sequence[float], draws: int, by: Sequence[str]) -> Iterator[Point]:
    """Yield the points of one model; further random draws come last."""
    yield Point("whole", 0.0)
    for share in shares:
        yield from (Point(one, share) for one in (*by, *(["random"] if draws else [])))
    for draw in range(2, draws + 1):
        yield from (Point("random", share, draw) for share in shares)


def measure_model(checkpoint: Path, data: DataFolder, folder: Path) -> Trained:
    """Load a model, and measure its heads on the dev set or read what was measured.

    Raises:
        InputError: the checkpoint is of another model or does not fit the data, or the measurements in ``folder`` are
            of another checkpoint, or the model has several attentions.
    """
    seed = int(checkpoints.load(checkpoint)["cfg"]["common"]["seed"])
    model, task = load_rela_transformer(checkpoint, data)
    names = {attention_name(one) for modules in attention_modules(model).values() for one in modules.values()}
    if len(names) > 1:
        raise InputError(f"{checkpoint}: has {' and '.join(sorted(names))}; give models with one attention")
    attention = names.pop()
    name = f"{attention}.seed-{seed}"
    path, heads = folder / f"{name}.json", list_heads(model)
    made_of = {"checkpoint": sha256(checkpoint), "data": sha256(data.path / "prepare.json")}
    if not is_done(path, made_of):
        rates = null_rates(model, task, "valid") if can_be_null(model) else {}
        loss, rises = losses(model, task, "valid", heads)
        rows = [{**h._asdict(), "null_rate": rates.get(h), "loss_rise": rises[h]} for h in heads]
        about = {"format": FORMAT, "attention": attention, "seed": seed, "made_of": made_of}
        write_json(path, {**about, "loss": loss, "heads": rows})
    rows = read_json(path)["heads"]
    rates = {h: row["null_rate"] for h, row in zip(heads, rows) if row["null_rate"] is not None}
    rises = {h: row["loss_rise"] for h, row in zip(heads, rows)}
    return Trained(name, attention, seed, model, rates, rises, made_of)


def measure_point(trained: Trained, point: Point, data: DataFolder, decoding: Decoding, folder: Path) -> None:
    """Prune a model, measure it, and write the record of the point, unless it is there.

    The record has ``by``, ``share``, ``draw``, ``removed`` (number of heads), ``heads`` (of the whole model),
    ``rela_heads``, ``parameters``, ``loss`` (dev set), ``decoding``, ``bleu`` and ``signature`` (test set), ``pieces``
    (best hypotheses of the test set, without ends), and by ``loss`` ``speed``: the CPU time for a tenth of the test set
    divided by that of the whole model, in ``ROUNDS`` rounds in turn, with ``STEPS`` pieces in each hypothesis.
    """
    path = folder / trained.name / f"{point.name}.json"
    made_of = {**trained.made_of, "decoding": decoding._asdict()}
    if is_done(path, made_of):
        return
    heads = list_heads(trained.model)
    worth = trained.rates if point.by == "null" else trained.rises
    removed = in_order(heads, point.by, point.draw, worth)[: number_of(point.share, len(heads))]
    model = copy.deepcopy(trained.model)
    remove_heads(model, removed)
    task = load_task(data.path, decoding.gnmt_lenpen)
    record = {
        **{"format": FORMAT, "attention": trained.attention, "seed": trained.seed, **point._asdict()},
        **{"removed": len(removed), "heads": len(heads), "rela_heads": describe_heads(attention_modules(model))},
        **{"parameters": count_parameters(model), "loss": losses(model, task, "valid")[0]},
        **{"decoding": decoding._asdict(), "made_of": made_of},
        **_translate(model, task, data, decoding),
        "speed": _speed(trained.model, model, task, decoding) if point.by == "loss" else None,
    }
    write_json(path, record)


def _translate(model: nn.Module, task: Any, data: DataFolder, decoding: Decoding) -> Dict[str, Any]:
    """Return BLEU of the test set with its signature, and the number of pieces."""
    task.load_dataset("test")
    dataset, target = task.dataset("test"), data.settings.target_lang
    generator = make_generator(task, model, decoding)
    hypotheses: Dict[int, str] = {}
    pieces = 0
    for batch in make_batches(model, task, dataset, "test", decoding.max_tokens):
        for index, found in zip(batch["id"].tolist(), task.inference_step(generator, [model], batch)):
            hypotheses[index] = task.target_dictionary.string(found[0]["tokens"])
            pieces += len(found[0]["tokens"]) - 1
    lines = [hypotheses[index] for index in range(len(dataset))]
    references = list(read_lines(data.path / "raw" / f"test.{target}"))
    scores = score(lines, references, target, data.settings.tokeniser, truecased=data.settings.truecase)
    return {"bleu": scores["bleu"], "signature": scores["signature"], "pieces": pieces, "sentences": len(lines)}


def _speed(whole: nn.Module, pruned: nn.Module, task: Any, decoding: Decoding) -> Dict[str, Any]:
    """Return the quartiles of the CPU time of the pruned model divided by that of the whole one, and the seconds."""
    dataset = task.dataset("test")
    order = sorted(range(len(dataset)), key=lambda index: int(dataset.src_sizes[index]))[::TIMED]
    sample = make_sample(dataset, order, torch.device("cpu"))
    equal = decoding._replace(max_len_a=0, max_len_b=STEPS)
    runs = {
        name: partial(task.inference_step, make_generator(task, model, equal, STEPS), [model], sample)
        for name, model in (("whole", whole), ("pruned", pruned))
    }
    times, _ = Timing(float("inf"), (ROUNDS, ROUNDS), clock=time.process_time).interleave(runs)
    return {**compare(times, "whole")["pruned"], "sentences": len(order), "seconds": times}
