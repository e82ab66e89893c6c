"""The attention weights of a model, teacher-forced on a test set: all layers, heads and sites, batch by batch."""

import copy
import random
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy
import torch
from torch import Tensor, nn
from tqdm import tqdm

from ..attention import attention_name
from ..data.lines import read_lines
from ..errors import InputError
from ..evaluation import refuse_other_dictionaries
from ..models.transformer_rela import attention_modules

END = "</s>"


class Captured(NamedTuple):
    """The weights of one attention module on one batch; every sentence begins at position 0, padding comes after.

    Attributes:
        site: ``encoder``, ``decoder`` or ``cross``.
        layer: its number, from 0.
        name: of the module, such as ``decoder.layers.1.encoder_attn``.
        variant: what the module computes.
        weights: (B, H, T, S), float32, before dropout.
        allowed: (B, T, S), False at padding and in the future. Ends of sentences count as words do.
    """

    site: str
    layer: int
    name: str
    variant: str
    weights: Tensor
    allowed: Tensor


class Batch(NamedTuple):
    """What one forward pass gave: B sentences, in the order of the rows of the weights.

    fairseq's decoder is fed the end of sentence first, so its step t, which is row t of the weights of the decoder
    and of cross-attention, predicts target piece t and consumes target piece t - 1; keys of the decoder are inputs.

    Attributes:
        ids: line numbers of the (source) sentences in the subset, from 0; see :func:`read_sentences`.
        modules: every attention module.
    """

    ids: List[int]
    modules: List[Captured]


class Sentence(NamedTuple):
    """Pieces of both sides; the last of each is ``</s>``."""

    source: List[str]
    target: List[str]


def load_model(checkpoint: Path, data: Path) -> Tuple[nn.Module, Any]:
    """Load as :func:`load_transformer` does, and switch off fused layers, whose weights cannot be recorded."""
    model, task = load_transformer(checkpoint, data)
    for module in model.modules():
        if hasattr(module, "can_use_fastpath"):  # fairseq 0.12.2 fuses its own encoder layer, whose weights nobody sees
            module.can_use_fastpath = False
    return model, task


def load_transformer(checkpoint: Path, data: Path) -> Tuple[nn.Module, Any]:
    """A model in evaluation mode and its task, whose data lie in ``data``; the file is loaded as data only.

    Raises:
        InputError: as :func:`fairseq_rela.checkpoints.load`, a dictionary of another corpus, or a model whose decoder
            does not attend to the source by itself, or of another task than translation.
    """
    from fairseq import checkpoint_utils
    from fairseq.tasks.translation import TranslationTask

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
    if not isinstance(task, TranslationTask):  # others add tokens to sentences, and tell subsets in another way
        raise InputError(f"{checkpoint}: of the task {type(task).__name__}; only models of `translation` are analysed")
    model = models[0].eval()
    for layer in getattr(getattr(model, "decoder", None), "layers", ()):
        if getattr(layer, "encoder_attn", None) is None or getattr(layer, "cross_self_attention", False):
            raise InputError(
                f"{checkpoint}: its decoder has no cross-attention to the source alone; such models are not analysed"
            )
    return model, task


def capture(
    model: nn.Module, task: Any, subset: str, max_tokens: int = 4096, shuffle_seed: Optional[int] = None
) -> Iterator[Batch]:
    """Weights of every attention module on every sentence of ``subset``, in batches, so that memory is bounded.

    Args:
        max_tokens: padded pieces of the longer side in a batch; a longer sentence is a batch by itself.
        shuffle_seed: give every source sentence the target of another one, see :func:`derangement`.

    Raises:
        InputError: no such subset, no target side, or sentences that the model cannot take.
        RuntimeError: a module did not run exactly once in a batch, or gave no weights for each of its heads.
    """
    dataset = _load_dataset(task, subset)
    if shuffle_seed is not None:
        dataset = _with_targets_in_order(dataset, derangement(len(dataset), shuffle_seed))
    batches = task.get_batch_iterator(
        dataset,
        max_tokens=max(max_tokens, _longest(dataset, model, subset)),
        required_batch_size_multiple=1,  # or fairseq leaves the last batch out
    ).next_epoch_itr(shuffle=False)
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


def _load_dataset(task: Any, subset: str) -> Any:
    from fairseq.data import LanguagePairDataset

    try:
        task.load_dataset(subset)
    except (FileNotFoundError, OSError) as error:
        raise InputError(f"no subset {subset!r} in the data folder ({error})") from error
    dataset = task.dataset(subset)
    if not isinstance(dataset, LanguagePairDataset) or dataset.tgt is None:
        raise InputError(f"subset {subset!r} is not of sentences with their translations, which the analysis needs")
    if not len(dataset):
        raise InputError(f"subset {subset!r} is empty; give another one")
    dataset = copy.copy(dataset)
    dataset.left_pad_source = False  # positions of pieces are then those of the weights
    return dataset


def _longest(dataset: Any, model: nn.Module, subset: str) -> int:
    """Pieces of the longest sentence, either side.

    Raises:
        InputError: one that has more than the model has positions.
    """
    for side, sizes, limit in zip(("source", "target"), (dataset.src_sizes, dataset.tgt_sizes), model.max_positions()):
        worst = int(sizes.argmax())
        if sizes[worst] > limit:
            raise InputError(
                f"{subset}, sentence {worst + 1}: {sizes[worst]} {side} pieces, the model takes {limit}; shorten it"
            )
    return int(max(dataset.src_sizes.max(), dataset.tgt_sizes.max()))


def derangement(number: int, seed: int) -> List[int]:
    """An order of 0 ... number - 1 in which nothing keeps its place: one random cycle (Sattolo 1986).

    Raises:
        InputError: fewer than two.
    """
    if number < 2:
        raise InputError("targets cannot be shuffled among fewer than two sentences; give a larger subset")
    generator, order = random.Random(seed), list(range(number))
    for i in range(number - 1, 0, -1):
        j = generator.randrange(i)
        order[i], order[j] = order[j], order[i]
    return order


class _InOrder:
    """Sentences of a dataset in another order."""

    def __init__(self, sentences: Any, order: List[int]) -> None:
        self.sentences, self.order = sentences, order

    def __getitem__(self, index: int) -> Tensor:
        return self.sentences[self.order[index]]

    def __len__(self) -> int:
        return len(self.order)


def _with_targets_in_order(dataset: Any, order: List[int]) -> Any:
    shuffled = copy.copy(dataset)
    shuffled.tgt = _InOrder(dataset.tgt, order)
    shuffled.tgt_sizes = dataset.tgt_sizes[order]
    shuffled.sizes = numpy.vstack((shuffled.src_sizes, shuffled.tgt_sizes)).T
    return shuffled


def _as_batch(
    batch: Dict[str, Any], weights: Dict[str, Tensor], sites: Dict[str, Dict[str, nn.Module]], task: Any
) -> Batch:
    source_tokens, target_tokens = batch["net_input"]["src_tokens"], batch["target"]
    source, target = source_tokens != task.source_dictionary.pad(), target_tokens != task.target_dictionary.pad()
    allowed = {
        "encoder": source[:, :, None] & source[:, None, :],
        "decoder": (target[:, :, None] & target[:, None, :]).tril(),
        "cross": target[:, :, None] & source[:, None, :],
    }
    return Batch(
        ids=batch["id"].tolist(),
        modules=[
            Captured(site, layer, name, attention_name(module), weights[name], allowed[site])
            for site, modules in sites.items()
            for layer, (name, module) in enumerate(modules.items())
        ],
    )


def read_sentences(task: Any, data: Path, subset: str) -> List[Sentence]:
    """All sentences of ``subset``, in its order.

    An unknown piece is ``<unk>`` in the binarised data, which does not say whether its word goes on after it; so
    the pieces come from ``bpe/SUBSET.LANG`` where the data folder has that, as those of ``rela prepare`` do.

    Raises:
        InputError: as :func:`capture`, or text that is not what was binarised.
    """
    dataset = _load_dataset(task, subset)
    sides = []
    for lang, sentences, dictionary in (
        (task.cfg.source_lang, dataset.src, task.source_dictionary),
        (task.cfg.target_lang, dataset.tgt, task.target_dictionary),
    ):
        pieces = [[dictionary[int(token)] for token in tokens] for tokens in sentences]
        text = data / "bpe" / f"{subset}.{lang}"
        sides.append(_with_unknown_pieces(pieces, text, dictionary.unk_word) if text.is_file() else pieces)
    return [Sentence(source, target) for source, target in zip(*sides)]


def _with_unknown_pieces(pieces: List[List[str]], text: Path, unknown: str) -> List[List[str]]:
    lines = [[*line.split(), END] for line in read_lines(text)]
    same = len(lines) == len(pieces) and all(
        len(line) == len(sentence) and all(a in (b, unknown) for a, b in zip(sentence, line))
        for sentence, line in zip(pieces, lines)
    )
    if not same:
        raise InputError(f"{text} is not the text of the binary data beside it; prepare the data again")
    return lines


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
