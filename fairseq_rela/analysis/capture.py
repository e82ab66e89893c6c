"""The attention weights of a model, teacher-forced on a test set: all layers, heads and sites, batch by batch."""

from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, NamedTuple, Tuple

import torch
from torch import Tensor, nn
from tqdm import tqdm

from ..attention import attention_name
from ..errors import InputError
from ..evaluation import refuse_other_dictionaries
from ..models.transformer_rela import attention_modules


class Captured(NamedTuple):
    """The weights of one attention module on one batch.

    Attributes:
        site: ``encoder``, ``decoder`` or ``cross``.
        name: of the module, such as ``decoder.layers.1.encoder_attn``.
        variant: what the module computes.
        weights: (B, H, T, S), float32, before dropout.
        allowed: (B, T, S), False at padding and in the future. Ends of sentences count as words do.
    """

    site: str
    name: str
    variant: str
    weights: Tensor
    allowed: Tensor


def load_model(checkpoint: Path, data: Path) -> Tuple[nn.Module, Any]:
    """A model in evaluation mode and its task, whose data lie in ``data``; the file is loaded as data only.

    Raises:
        InputError: as :func:`fairseq_rela.checkpoints.load`, or a dictionary of another corpus.
    """
    from fairseq import checkpoint_utils

    from .. import checkpoints

    checkpoints.load(checkpoint)  # refuses what is not a checkpoint, in one line
    refuse_other_dictionaries(checkpoint, data)
    try:
        models, _, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(checkpoint)], arg_overrides={"data": str(data)}
        )
    except Exception as error:  # fairseq raises bare ones
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{checkpoint} does not fit the data folder {data}: {reason}") from error
    return models[0].eval(), task


def capture(model: nn.Module, task: Any, subset: str, max_tokens: int = 4096) -> Iterator[Captured]:
    """Weights of every attention module on every sentence of ``subset``, in batches, so that memory is bounded.

    Raises:
        InputError: no such subset.
        RuntimeError: a module did not run exactly once in a batch, or gave no weights for each of its heads.
    """
    from fairseq import utils

    try:
        task.load_dataset(subset)
    except (FileNotFoundError, OSError) as error:
        raise InputError(f"no subset {subset!r} in the data folder ({error})") from error
    batches = task.get_batch_iterator(
        task.dataset(subset),
        max_tokens=max_tokens,
        max_positions=utils.resolve_max_positions(task.max_positions(), model.max_positions()),
        required_batch_size_multiple=1,
    ).next_epoch_itr(shuffle=False)
    pad = task.target_dictionary.pad()
    sites = attention_modules(model)
    seen = 0
    for batch in tqdm(batches, desc=f"attention on {subset}", unit=" batches", disable=None):
        inputs = batch["net_input"]
        source = inputs["src_tokens"] != task.source_dictionary.pad()
        target = inputs["prev_output_tokens"] != pad
        allowed = {
            "encoder": source[:, :, None] & source[:, None, :],
            "decoder": (target[:, :, None] & target[:, None, :]).tril(),
            "cross": target[:, :, None] & source[:, None, :],
        }
        with torch.no_grad(), recorded_weights(sites) as weights:
            model(**inputs)
        for site, modules in sites.items():
            for name, module in modules.items():
                yield Captured(site, name, attention_name(module), weights[name], allowed[site])
        seen += len(batch["id"])
    if seen != len(task.dataset(subset)):
        raise RuntimeError(f"{seen} of the {len(task.dataset(subset))} sentences of {subset} were batched")


@contextmanager
def recorded_weights(sites: Dict[str, Dict[str, nn.Module]]) -> Iterator[Dict[str, Tensor]]:
    """While it lasts, every forward pass leaves its weights (B, H, T, S) under the name of its module.

    fairseq's layers ask for no weights in self-attention, and its fast path averages them over the heads; so
    the modules are made to take the explicit path, which computes the same.
    """
    recorded: Dict[str, Tensor] = {}
    modules = {name: module for group in sites.values() for name, module in group.items()}
    restore = [(module, module.skip_embed_dim_check) for module in modules.values()]

    def wrap(name: str, module: nn.Module) -> Any:
        forward = module.forward

        def recording(*args: Any, **kwargs: Any) -> Tuple[Tensor, Any]:
            wanted = kwargs.get("need_weights", True), kwargs.get("need_head_weights", False)
            output, weights = forward(*args, **{**kwargs, "need_weights": True, "need_head_weights": True})
            if weights is None or weights.dim() != 4 or weights.size(0) != module.num_heads or name in recorded:
                raise RuntimeError(f"{name} did not give the weights of its {module.num_heads} heads, once")
            recorded[name] = weights.transpose(0, 1)
            if wanted[1]:
                return output, weights
            return output, weights.mean(dim=0) if wanted[0] else None

        return recording

    try:
        for name, module in modules.items():
            module.skip_embed_dim_check = True
            module.forward = wrap(name, module)
        yield recorded
        absent = [name for name in modules if name not in recorded]
        if absent:
            raise RuntimeError(f"{absent[0]} did not run")
    finally:
        for module, flag in restore:
            module.skip_embed_dim_check = flag
            del module.forward


def summarise(checkpoint: Path, data: Path, subset: str) -> Dict[str, Any]:
    """Which attention ran at each site, and its sparsity and null rate, per layer and over layers."""
    from .sparsity import SparsityCounts, count_sparsity

    model, task = load_model(checkpoint, data)
    counts: Dict[Tuple[str, str, str], SparsityCounts] = {}
    for item in capture(model, task, subset):
        key = (item.site, item.name, item.variant)
        batch = count_sparsity(item.weights, item.allowed)
        counts[key] = counts[key] + batch if key in counts else batch
    sites: Dict[str, Any] = {}
    for (site, name, variant), total in counts.items():
        entry = sites.setdefault(site, {"variants": [], "layers": {}})
        if variant not in entry["variants"]:
            entry["variants"].append(variant)
        entry["layers"][name] = {
            "sparsity": total.sparsity,
            "null_rate": total.null_rate,
            "null_rate_by_head": total.null_rate_by_head,
        }
    for entry in sites.values():
        for key in ("sparsity", "null_rate"):
            values = [layer[key] for layer in entry["layers"].values()]
            entry[key] = sum(values) / len(values)
    return {
        "checkpoint": str(checkpoint),
        "subset": subset,
        "parameters": sum(p.numel() for p in model.parameters()),
        "sites": sites,
    }
