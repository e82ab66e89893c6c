"""Analyse one model on one subset of its data: load it, capture its weights, collect measurements, make the record."""

from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
from torch import nn

from .. import checkpoints
from ..attention import attention_name, sparsity_target
from ..data.folder import DataFolder
from ..data.pairs import SUBSET, Words, binarised_pairs
from ..errors import InputError
from ..files.records import sha256
from ..models.transformer_rela import attention_modules, count_parameters
from ..variants import BASELINE, SITES
from .capture import Batch, capture, load_model
from .collectors import Collector
from .collectors.examples import Examples
from .collectors.level import PieceLevel, make_levels
from .collectors.links import Links
from .collectors.positions import Positions
from .collectors.sites import Sparsity, mean
from .collectors.wake import Wake
from .contexts import TASK, is_language_model, read_contexts
from .goldset import read_gold
from .options import Options
from .record import FORMAT
from .sentences import data_checksums, read_sentences, read_tags, refuse_hidden_words


def analyze(
    checkpoint: Path,
    data: Path,
    subset: str = "test",
    *,
    words: Optional[Sequence[Tuple[Words, Words]]] = None,
    **options: Any,
) -> Dict[str, Any]:
    """Measure sparsity, null rates, head diversity and AER, run the hallucination test, and find what wakes heads.

    Args:
        checkpoint: checkpoint of this plugin or of a fairseq Transformer.
        data: the data folder of the model, of ``rela prepare`` or of fairseq-preprocess.
        subset: the subset of the data folder to analyse.
        words: the words of both sides of each pair in the original files of the subset, see
            :func:`fairseq_rela.data.pairs.binarised_pairs`. Alignments and the gold alignment then count these words
            instead of the words of the prepared text.
        options: the fields of :class:`fairseq_rela.analysis.options.Options`.

    Returns:
        the analysis, see :mod:`fairseq_rela.analysis.record`.

    Raises:
        InputError: an option has a bad value, a file cannot be used or does not belong to the subset, or the weights
            are not finite.
    """
    chosen = Options(**options)
    checksums = data_checksums(data, subset)
    model, task = load_model(checkpoint, data)
    about = {"checkpoint": str(checkpoint), "sha256": sha256(checkpoint), "data": checksums, "subset": subset}
    if is_language_model(task):
        return _analyze_contexts(model, task, chosen, about)
    sentences = read_sentences(task, data, subset)
    refuse_hidden_words(sentences, task, data, subset, chosen.gold is not None)
    lengths = [sentence.lengths for sentence in sentences]
    counted = lengths if words is None else [(source.total, target.total) for source, target in words]
    gold = read_gold(chosen, (task.cfg.source_lang, task.cfg.target_lang), counted)
    target_tags = read_tags(chosen.tags, [target for _, target in lengths])
    source_tags = read_tags(chosen.source_tags, [source for source, _ in lengths])

    examples = Examples(sentences, chosen.examples, chosen.examples_of)
    links = None if gold is None and not chosen.links else Links(sentences, words, chosen.layer_attention)
    levels = make_levels(chosen, sentences, subset)
    first, *others = levels
    wake = Wake(sentences, target_tags, source_tags, levels[first].sites.sparsity)
    collectors: List[Collector] = [*levels.values(), wake, examples, *([] if links is None else [links])]
    for batch in _finite(capture(model, task, subset, chosen.max_tokens), checkpoint):
        for collector in collectors:
            collector.add(batch)
    if len(sentences) > 1:
        for batch in capture(model, task, subset, chosen.max_tokens, shuffle_seed=chosen.seed):
            for level in levels.values():
                level.add_shuffled(batch)

    record = _describe_model(model, task, {**about, "sentences": len(sentences)})
    return {
        **record,
        "gold": None if chosen.gold is None else {"file": chosen.gold.name, "sha256": sha256(chosen.gold)},
        "level": first,
        "variance": "sample",
        **levels[first].result(),
        **{name: levels[name].result() for name in others},
        "layer_attention": chosen.layer_attention,
        "alignment": None if gold is None or links is None else links.error_rates(str(chosen.gold), gold),
        "wake": wake.result(),
        "examples": {"format": FORMAT, "label": record["label"], "sentences": examples.result()},
        "links": None if links is None else links.result(),
    }


def _analyze_contexts(model: nn.Module, task: Any, chosen: Options, about: Dict[str, Any]) -> Dict[str, Any]:
    """Return the analysis of a language model; ``about`` holds the entries that do not come from the model.

    Raises:
        InputError: an option that needs a source or the words of sentences, or the weights are not finite.
    """
    chosen.refuse_for_language_models()
    contexts = read_contexts(task, about["subset"])
    pieces, positions = PieceLevel(chosen.taus, None), Positions(chosen.taus)
    wake = Wake(contexts, None, None, pieces.sites.sparsity)
    collectors: List[Collector] = [pieces, positions, wake]
    for batch in _finite(capture(model, task, about["subset"], chosen.max_tokens), about["checkpoint"]):
        for collector in collectors:
            collector.add(batch)
    record = _describe_model(model, task, {**about, "sentences": len(contexts)})
    return {
        **record,
        "task": TASK,
        "gold": None,
        "level": "pieces",
        "variance": "sample",
        **pieces.result(),
        "positions": positions.result(),
        "layer_attention": chosen.layer_attention,
        "alignment": None,
        "wake": wake.result(),
        "examples": {"format": FORMAT, "label": record["label"], "sentences": []},
        "links": None,
    }


def analyze_text(
    checkpoint: Path, data: DataFolder, source: Path, target: Path, tokenised: bool = False, **options: Any
) -> Dict[str, Any]:
    """Analyse a model on two text files instead of a prepared subset.

    Args:
        checkpoint, data: a model and its data folder.
        source, target, tokenised: see :func:`fairseq_rela.data.pairs.binarised_pairs`.
        options: as for :func:`analyze`; a gold alignment counts the words of the two files.

    Returns:
        the analysis. Its ``subset`` is the name of the source file, and ``text`` holds the files, their checksums and
        the numbers of unknown words.
    """
    data.refuse_model(checkpoint, checkpoints.load(checkpoint))
    with binarised_pairs(source, target, data, tokenised) as pairs:
        analysis = analyze(checkpoint, pairs.folder, SUBSET, words=pairs.words, **options)
    analysis["subset"] = source.name
    analysis["text"] = pairs.record
    return analysis


def collect_links(
    checkpoint: Path,
    data: Path,
    subset: str,
    words: Optional[Sequence[Tuple[Words, Words]]] = None,
) -> Links:
    """Return the alignments of all heads and layers, normal and shifted, in one pass over the subset.

    Args:
        checkpoint, data, subset, words: as for :func:`analyze`.

    Raises:
        InputError: as :func:`analyze`.
    """
    model, task = load_model(checkpoint, data)
    links = Links(read_sentences(task, data, subset), words)
    for batch in _finite(capture(model, task, subset), checkpoint):
        links.add(batch)
    return links


def summarise(checkpoint: Path, data: Path, subset: str) -> Dict[str, Any]:
    """Return the attention, sparsity and null rates of each site and layer at the level of pieces, in one pass."""
    model, task = load_model(checkpoint, data)
    sparsity = Sparsity()
    for batch in capture(model, task, subset):
        sparsity.add(batch)
    sites: Dict[str, Any] = {}
    for site, modules in sparsity.modules.items():
        counts = {module.name: sparsity.counts[site, layer] for layer, module in modules.items()}
        sites[site] = {
            "variants": list(dict.fromkeys(module.variant.name for module in modules.values())),
            "layers": {
                name: {key: getattr(count, key) for key in ("sparsity", "null_rate", "null_rate_by_head")}
                for name, count in counts.items()
            },
            "sparsity": mean(count.sparsity for count in counts.values()),
            "null_rate": mean(count.null_rate for count in counts.values()),
        }
    return {
        "checkpoint": str(checkpoint),
        **({"task": TASK} if is_language_model(task) else {}),
        **_target(model),
        "subset": subset,
        "parameters": count_parameters(model),
        "level": "pieces",
        "sites": sites,
    }


def _finite(batches: Iterator[Batch], checkpoint: Any) -> Iterator[Batch]:
    """Yield the batches.

    Raises:
        InputError: their weights are not finite.
    """
    for batch in batches:
        for item in batch.modules:
            if not torch.isfinite(item.weights.masked_fill(~item.allowed.unsqueeze(1), 0)).all():
                raise InputError(
                    f"{checkpoint}: the weights of {item.name} are not finite, so its training has diverged; "
                    "give an earlier checkpoint"
                )
        yield batch


def _target(model: nn.Module) -> Dict[str, float]:
    """Return the entry ``sparsity_target`` of a model that was trained with one, otherwise an empty dictionary."""
    modules = [module for of_site in attention_modules(model).values() for module in of_site.values()]
    targets = [target for target in map(sparsity_target, modules) if target is not None]
    return {"sparsity_target": targets[0]} if targets else {}


def _describe_model(model: nn.Module, task: Any, about: Dict[str, Any]) -> Dict[str, Any]:
    """Return the first entries of the record; ``about`` holds those that do not come from the model.

    ``attention`` names the variants other than softmax, joined by ``/``, and ``attention_sites`` the sites that have
    them. A model that has only softmax gives ``softmax`` and all sites. A language model has only the site
    ``decoder``.
    """
    variants = {
        site: {attention_name(module) for module in modules.values()}
        for site, modules in attention_modules(model).items()
        if modules
    }
    names = sorted(set().union(*variants.values()) - {BASELINE}) or [BASELINE]
    sites = [site for site in SITES if site in variants and (names == [BASELINE] or variants[site] != {BASELINE})]
    attention = "/".join(names)
    return {
        "format": FORMAT,
        "label": attention if len(sites) == len(variants) else f"{attention} ({','.join(sites)})",
        **about,
        "parameters": count_parameters(model),
        "attention": attention,
        "attention_sites": sites,
        **_target(model),
        "languages": [] if is_language_model(task) else [task.cfg.source_lang, task.cfg.target_lang],
    }
