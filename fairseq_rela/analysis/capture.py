"""Record the attention weights of a model on a subset with teacher forcing: all layers, heads and sites."""

import copy
import random
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

import numpy
import torch
from fairseq import checkpoint_utils
from fairseq.tasks.translation import TranslationTask
from torch import Tensor, nn
from tqdm import tqdm

from .. import checkpoints
from ..attention import attention_name
from ..data.folder import DataFolder
from ..errors import InputError
from ..files.configs import load_defaults
from ..models.transformer_rela import attention_modules
from ..variants import Variant, find_variant
from .contexts import is_language_model, load_contexts
from .sentences import load_dataset


class Captured(NamedTuple):
    """The weights of one attention module on one batch; each sentence starts at position 0, padding is on the right.

    Attributes:
        site: ``encoder``, ``decoder`` or ``cross``.
        layer: number of the layer, from 0.
        name: name of the module, such as ``decoder.layers.1.encoder_attn``.
        variant: the attention that the module computes.
        weights: (B, H, T, S), float32, before dropout.
        allowed: (B, T, S), False at padding and at future positions. The ends of sentences are True.
    """

    site: str
    layer: int
    name: str
    variant: Variant
    weights: Tensor
    allowed: Tensor


class Batch(NamedTuple):
    """The weights from one forward pass over B sentences.

    fairseq's decoder gets the end of sentence as its first input. Step t is row t of the weights of decoder
    self-attention and cross-attention; it consumes target piece t - 1 and predicts target piece t. The keys of decoder
    self-attention are the inputs of the steps.

    Attributes:
        ids: line numbers of the source sentences in the subset, from 0, in the order of the rows of the weights; see
            :func:`fairseq_rela.analysis.sentences.read_sentences`. For a language model, the numbers of the contexts,
            see :func:`fairseq_rela.analysis.contexts.read_contexts`.
        modules: one entry for each attention module.
    """

    ids: List[int]
    modules: List[Captured]


def load_model(checkpoint: Path, data: Union[Path, DataFolder]) -> Tuple[nn.Module, Any]:
    """Load a translation model or a language model, and turn off fused layers, whose weights cannot be recorded.

    Args:
        checkpoint, data: as for :func:`load_transformer`; for a language model, ``data`` is a folder of
            ``fairseq-preprocess --only-source``.

    Raises:
        InputError: as :func:`load_transformer`, but language models are not refused.
    """
    model, task = _load(checkpoint, data)
    if not is_language_model(task):
        _refuse_other_models(checkpoint, model, task)
    for module in model.modules():
        if hasattr(module, "can_use_fastpath"):  # the fused encoder layer of fairseq 0.12.2 returns no weights
            module.can_use_fastpath = False
    return model, task


def load_transformer(checkpoint: Path, data: Union[Path, DataFolder]) -> Tuple[nn.Module, Any]:
    """Load a translation model in evaluation mode, and its task with a data folder.

    The checkpoint is first loaded with :func:`fairseq_rela.checkpoints.load`, which runs no code from the file.

    Args:
        checkpoint: the checkpoint file.
        data: an opened folder of ``rela prepare``, or the path of such a folder or of one of fairseq-preprocess.

    Raises:
        InputError: the file is not a checkpoint, its dictionaries or data do not fit ``data``, its task is not
            translation, or a decoder layer has no cross-attention to the source alone.
    """
    model, task = _load(checkpoint, data)
    _refuse_other_models(checkpoint, model, task)
    return model, task


def _load(checkpoint: Path, data: Union[Path, DataFolder]) -> Tuple[nn.Module, Any]:
    checkpoints.load(checkpoint)  # raises an InputError of one line for any other file
    if isinstance(data, Path) and DataFolder.is_prepared(data):
        data = DataFolder(data)
    if isinstance(data, DataFolder):
        data.refuse_model(checkpoint)
    try:
        models, _, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(checkpoint)], arg_overrides={"data": str(data)}
        )
    except Exception as error:  # fairseq raises plain Exception
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{checkpoint} does not fit the data folder {data}: {reason}") from error
    return models[0].eval(), task


def _refuse_other_models(checkpoint: Path, model: nn.Module, task: Any) -> None:
    if not isinstance(task, TranslationTask):  # other tasks add tokens to sentences and name subsets in other ways
        raise InputError(f"{checkpoint}: its task is {type(task).__name__}; give a model of the task translation")
    for layer in getattr(getattr(model, "decoder", None), "layers", ()):
        if getattr(layer, "encoder_attn", None) is None or getattr(layer, "cross_self_attention", False):
            raise InputError(
                f"{checkpoint}: its decoder has no cross-attention to the source alone; give another model"
            )


def capture(
    model: nn.Module, task: Any, subset: str, max_tokens: Optional[int] = None, shuffle_seed: Optional[int] = None
) -> Iterator[Batch]:
    """Yield the weights of all attention modules for all sentences of ``subset``, one batch at a time.

    Args:
        model: Transformer in evaluation mode.
        task: its task, of translation or of language modelling.
        subset: name of a subset of the data folder, such as ``test``.
        max_tokens: most padded pieces in a batch, counted on the longer side, by default that of
            ``configs/defaults/decoding.yaml``. Where the longest sentence has more pieces, its length is the limit.
        shuffle_seed: if given, each source sentence gets the target of another one, see :func:`derangement`. Not for
            language models.

    Raises:
        InputError: the subset does not exist, is empty or has no target side, or a sentence is too long for the model.
        RuntimeError: a module did not run exactly once in a batch, or did not return the weights of all its heads.
    """
    dataset = load_contexts(task, subset) if is_language_model(task) else load_dataset(task, subset)
    if shuffle_seed is not None:
        dataset = _with_targets_in_order(dataset, derangement(len(dataset), shuffle_seed))
    batches = make_batches(model, task, dataset, subset, max_tokens)
    sites = attention_modules(model)
    seen = 0
    what = "attention" if shuffle_seed is None else "attention, targets shuffled,"
    for batch in tqdm(batches, desc=f"{what} on {subset}", unit=" batches", disable=None):
        with torch.no_grad(), recorded_weights(sites) as weights:
            model(**batch["net_input"])
        yield _as_batch(batch, weights, sites, task)
        seen += len(batch["id"])
    if seen != len(dataset):
        raise RuntimeError(f"{seen} of the {len(dataset)} sentences of {subset} were batched")


def make_batches(model: nn.Module, task: Any, dataset: Any, subset: str, max_tokens: Optional[int]) -> Any:
    """Return an iterator over the batches of a dataset, which has a length.

    Args:
        model, task, subset, max_tokens: as for :func:`capture`.
        dataset: the subset of this name, loaded.

    Raises:
        InputError: a sentence is too long for the model.
    """
    most = max_tokens or load_defaults("decoding")["max_tokens"]
    return task.get_batch_iterator(
        dataset,
        max_tokens=max(most, _longest(dataset, model, subset)),
        required_batch_size_multiple=1,  # with fairseq's default, some versions drop the last batch
    ).next_epoch_itr(shuffle=False)


def _longest(dataset: Any, model: nn.Module, subset: str) -> int:
    """Return the number of pieces of the longest sentence of either side, or of the longest context.

    Raises:
        InputError: a sentence has more pieces than the model has positions.
    """
    if not hasattr(dataset, "src_sizes"):
        longest, limit = int(dataset.sizes.max()), model.max_positions()
        if longest > limit:
            raise InputError(f"{subset}: a context of {longest} pieces, the model takes {limit}; shorten it")
        return longest
    for side, sizes, limit in zip(("source", "target"), (dataset.src_sizes, dataset.tgt_sizes), model.max_positions()):
        worst = int(sizes.argmax())
        if sizes[worst] > limit:
            raise InputError(
                f"{subset}, sentence {worst + 1}: {sizes[worst]} {side} pieces, but the model takes {limit}; shorten it"
            )
    return int(max(dataset.src_sizes.max(), dataset.tgt_sizes.max()))


def derangement(number: int, seed: int) -> List[int]:
    """Return a random permutation of 0 ... number - 1 in which no element keeps its place: one cycle (Sattolo 1986).

    Raises:
        InputError: ``number`` is less than 2.
    """
    if number < 2:
        raise InputError("targets cannot be shuffled among fewer than two sentences; give a larger subset")
    generator, order = random.Random(seed), list(range(number))
    for i in range(number - 1, 0, -1):
        j = generator.randrange(i)
        order[i], order[j] = order[j], order[i]
    return order


def _with_targets_in_order(dataset: Any, order: List[int]) -> Any:
    shuffled = copy.copy(dataset)
    shuffled.tgt = [dataset.tgt[index] for index in order]
    shuffled.tgt_sizes = dataset.tgt_sizes[order]
    shuffled.sizes = numpy.vstack((shuffled.src_sizes, shuffled.tgt_sizes)).T
    return shuffled


def _as_batch(
    batch: Dict[str, Any], weights: Dict[str, Tensor], sites: Dict[str, Dict[str, nn.Module]], task: Any
) -> Batch:
    source = batch["net_input"]["src_tokens"] != task.source_dictionary.pad()
    target = source if is_language_model(task) else batch["target"] != task.target_dictionary.pad()
    allowed = {
        "encoder": source[:, :, None] & source[:, None, :],
        "decoder": (target[:, :, None] & target[:, None, :]).tril(),
        "cross": target[:, :, None] & source[:, None, :],
    }
    return Batch(
        ids=batch["id"].tolist(),
        modules=[
            Captured(site, layer, name, find_variant(attention_name(module)), weights[name], allowed[site])
            for site, modules in sites.items()
            for layer, (name, module) in enumerate(modules.items())
        ],
    )


@contextmanager
def recorded_weights(sites: Dict[str, Dict[str, nn.Module]]) -> Iterator[Dict[str, Tensor]]:
    """Record the weights of one forward pass of the model.

    fairseq's layers do not request weights in self-attention, and its fast path averages them over the heads.
    Therefore the modules take the explicit path inside the context, which computes the same function.

    Args:
        sites: site to module name to module, as ``attention_modules`` returns it.

    Yields:
        a dictionary from module name to weights (B, H, T, S), which the forward pass fills.

    Raises:
        RuntimeError: a module did not run exactly once, or did not return the weights of all its heads.
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
