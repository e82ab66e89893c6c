"""Remove heads from a checkpoint, and record which and why.

The new checkpoint has the configuration of the old one with ``rela_heads`` added, and smaller parameters. Beside it,
``OUTPUT.json`` holds

- ``format``, ``checkpoint``, ``sha256`` (of the checkpoint that was pruned), ``data`` (checksums), ``subset``;
- ``by``, ``remove``, ``null_rate``, ``seed``: the request;
- ``rela_heads``: heads of each layer that are left;
- ``parameters`` and ``loss``: each ``before`` and ``after``; the loss is that of :mod:`.importance`;
- ``heads``: of each head ``site``, ``layer``, ``head`` (from 0), ``null_rate`` (None if the attention has no null
  queries), ``loss_rise`` (None unless the heads were chosen by it), and ``removed``: the place in the order of removal,
  from 1, or None.
"""

import argparse
from pathlib import Path
from typing import Any, Dict, List, Union

from torch import nn

from .. import checkpoints
from ..analysis.capture import load_transformer
from ..analysis.sentences import data_checksums
from ..attention import attention_name
from ..data.folder import DataFolder
from ..errors import InputError
from ..files.records import sha256, write_json
from ..models.kept_heads import describe_heads
from ..models.transformer_rela import TransformerRelaModel, attention_modules, count_parameters
from ..variants import find_variant
from .choice import Choice, choose
from .heads import Head, list_heads, remove_heads
from .importance import losses, null_rates

FORMAT = 1


def prune(checkpoint: Path, data: Path, output: Path, choice: Choice, subset: str = "valid") -> Dict[str, Any]:
    """Write a checkpoint with fewer heads, and its record beside it.

    Args:
        checkpoint: a checkpoint of ``transformer_rela``, pruned before or not.
        data: its data folder, of ``rela prepare`` or fairseq-preprocess.
        output: the checkpoint to write.
        choice: which heads to remove.
        subset: the subset on which heads are measured.

    Returns:
        the record.

    Raises:
        InputError: the checkpoint is of another model or does not fit the data, no head is to be removed, or the
            output cannot be written.
    """
    record_path = output.with_name(output.name + ".json")
    if not output.name:
        raise InputError(f"--output {output}: give the name of a file to write")
    for path in (output, record_path):
        checkpoints.refuse_output(path, [checkpoint], "a pruned model")
    state = checkpoints.load(checkpoint)
    checksums = data_checksums(data, subset)
    model, task = load_rela_transformer(checkpoint, data)
    heads, before = list_heads(model), count_parameters(model)
    rates = null_rates(model, task, subset) if can_be_null(model) else {}
    loss, rises = losses(model, task, subset, heads if choice.by == "loss" else ())
    removed = choose(heads, choice, rates, rises)
    remove_heads(model, removed)
    left = describe_heads(attention_modules(model))
    record = {
        **{"format": FORMAT, "checkpoint": str(checkpoint), "sha256": sha256(checkpoint)},
        **{"data": checksums, "subset": subset},
        **{
            "by": choice.by,
            "remove": choice.remove,
            "null_rate": choice.threshold if choice.remove is None else None,
            "seed": choice.seed,
        },
        "rela_heads": left,
        "parameters": {"before": before, "after": count_parameters(model)},
        "loss": {"before": loss, "after": losses(model, task, subset)[0]},
        "heads": [_entry(head, rates, rises, removed) for head in heads],
    }
    checkpoints.save(pruned_state(state, model, left, checkpoint), output)
    write_json(record_path, record)
    return record


def load_rela_transformer(checkpoint: Path, data: Union[Path, DataFolder]) -> Any:
    """Return the model of a checkpoint and its task.

    Raises:
        InputError: as :func:`fairseq_rela.analysis.capture.load_transformer`, or the model is not
            ``transformer_rela``, whose checkpoints alone say how many heads each layer has.
    """
    model, task = load_transformer(checkpoint, data)
    if not isinstance(model, TransformerRelaModel):
        raise InputError(
            f"{checkpoint}: its model is {type(model).__name__}; give one of transformer_rela, with any attention"
        )
    return model, task


def can_be_null(model: nn.Module) -> bool:
    """Return whether a query of some head of a model can have weights that are all exactly 0."""
    modules = [module for modules in attention_modules(model).values() for module in modules.values()]
    return any(find_variant(attention_name(module)).can_be_null for module in modules)


def _entry(head: Head, rates: Dict[Head, float], rises: Dict[Head, float], removed: List[Head]) -> Dict[str, Any]:
    return {
        **{"site": head.site, "layer": head.layer, "head": head.number},
        **{"null_rate": rates.get(head), "loss_rise": rises.get(head)},
        "removed": removed.index(head) + 1 if head in removed else None,
    }


def pruned_state(state: Dict[str, Any], model: nn.Module, heads: str, origin: Path) -> Dict[str, Any]:
    """Return the checkpoint of a pruned model, without the optimizer's state, whose sizes no longer fit.

    Args:
        state: the checkpoint of the whole model; its configuration is changed in place.
        model: the pruned model.
        heads: its option ``rela_heads``.
        origin: file of the whole model.
    """
    for config in (state.get("args"), (state.get("cfg") or {}).get("model")):
        if isinstance(config, argparse.Namespace):
            config.rela_heads = heads
        elif config is not None:
            config["rela_heads"] = heads
    old = state["model"]
    parameters = {key: value.to(old[key].dtype) if key in old else value for key, value in model.state_dict().items()}
    averaged = {key: value for key, value in (state.get("extra_state") or {}).items() if key == "averaged_from"}
    return checkpoints.without_optimizer(state, parameters, **averaged, pruned_from=str(origin))


def describe(record: Dict[str, Any], output: Path) -> str:
    """Return the summary for the terminal: what was removed, and parameters and loss before and after."""
    heads = record["heads"]
    removed = sorted((one for one in heads if one["removed"]), key=lambda one: one["removed"])
    lines = [f"{output}: {len(removed)} of {len(heads)} heads removed, left: {record['rela_heads']}"]
    for one in removed:
        values = [f"null rate {one['null_rate']:.4f}"] if one["null_rate"] is not None else []
        values += [f"loss {one['loss_rise']:+.4f} without it"] if one["loss_rise"] is not None else []
        name = str(Head(one["site"], one["layer"], one["head"]))
        lines.append(f"  {name:24}{', '.join(values)}".rstrip())
    parameters, loss = record["parameters"], record["loss"]
    lines.append(f"parameters: {parameters['before']:,} -> {parameters['after']:,}")
    lines.append(f"loss on {record['subset']}: {loss['before']:.4f} -> {loss['after']:.4f} nats a piece")
    return "\n".join(lines)
