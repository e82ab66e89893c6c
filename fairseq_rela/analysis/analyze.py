"""Run the whole analysis of one model on one test set, in two passes over the test set, and write its results."""

import json
import sys
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ..alignment import as_pharaoh, merge_subwords, normal_rows, shifted_rows, strongest_sources, word_ids
from ..attention import attention_name
from ..data.folder import DataFolder
from ..data.pairs import Words
from ..errors import InputError
from ..files.lines import PathLike, read_lines, read_parallel
from ..files.outputs import write_whole
from ..files.records import sha256, write_json
from ..models.transformer_rela import attention_modules
from ..variants import SITES, find_variant
from .aer import Counts, Gold, read_links
from .capture import Batch, Captured, Sentence, capture, derangement, load_model, read_sentences
from .diversity import DiversityCount, count_diversity, normalised, tempered
from .levels import LEVELS, levels_of
from .merging import layer_attention as mean_of_heads
from .merging import memberships, merge_words, sum_to_one
from .sparsity import SparsityCounts, awake_queries, count_sparsity
from .wake import WakeCounts, awake_words

FORMAT = 1
TAUS = (1.0, 0.5, 0.25, 0.1)  # the temperatures of Table 6
ROWS = {"normal": normal_rows, "shifted": shifted_rows}
WAKE_WORDS = 20  # number of words listed for each head
WAKE_MINIMUM = 5  # the share is unreliable for words with fewer occurrences
LAYER_ATTENTIONS = ("raw", "normalised")  # weights of the heads before the mean over heads
EXAMPLE_PIECES = (8, 20)  # fewest and most pieces of an example sentence, so that a heat map is readable
_SEPARATE = ("examples", "links")  # parts of an analysis that are written to separate files


def analyze(
    checkpoint: Path,
    data: Path,
    subset: str = "test",
    gold: Optional[Path] = None,
    gold_base: int = 0,
    gold_reversed: bool = False,
    tags: Optional[Path] = None,
    seed: int = 1,
    examples: int = 6,
    taus: Sequence[float] = TAUS,
    *,
    source_tags: Optional[Path] = None,
    gold_sentences: Sequence[Path] = (),
    links: bool = False,
    max_tokens: int = 4096,
    level: Optional[str] = None,
    layer_attention: str = "raw",
    words: Optional[Sequence[Tuple[Words, Words]]] = None,
    examples_of: Optional[Sequence[int]] = None,
) -> Dict[str, Any]:
    """Measure sparsity, null rates, head diversity and AER, run the hallucination test, and find what wakes heads.

    Args:
        checkpoint: checkpoint of this plugin or of a fairseq Transformer.
        data: the data folder of the model.
        subset: the subset of the data folder to analyse.
        gold: file of gold word alignments of the subset, which counts the words of the prepared text.
        gold_base: number of the first word in ``gold``, 0 or 1.
        gold_reversed: whether the target word comes first in the links of ``gold``.
        tags: file with one line for each sentence and one tag for each target word.
        seed: seed of the shuffled targets in the hallucination test.
        examples: number of sentences whose weights are all kept.
        taus: temperatures of the head diversity, for weights that do not sum to 1.
        source_tags: like ``tags``, with tags of the source words, for the heads of the encoder.
        gold_sentences: the source and target text of ``gold``, whose numbers of words must be those of the prepared
            text. By default, files with the name of ``gold`` and the languages as endings are used if both exist.
        links: keep the alignments of all heads even without ``gold``.
        max_tokens: most padded pieces in a batch.
        level: level of ``sites`` and ``shuffled``, ``pieces`` or ``words``. None measures both: pieces there, and
            words in ``words``.
        layer_attention: the mean over heads from which the layer attention is aligned: ``raw`` takes the weights as
            they are, ``normalised`` first divides each row of each head by its sum.
        words: the words of both sides of each pair in the original files of the subset, see
            :func:`fairseq_rela.data.pairs.binarised_pairs`. Alignments and ``gold`` then count these words instead of
            the words of the prepared text.
        examples_of: numbers, from 0, of the sentences whose weights are all kept; replaces ``examples``.

    Returns:
        a dictionary with

        - ``format``, ``label``, ``checkpoint``, ``sha256``, ``data`` (checksums), ``subset``, ``sentences``,
          ``parameters``, ``attention``, ``attention_sites``, ``languages``, ``gold`` (file and checksum, or None);
        - ``level``: the level of ``sites`` and ``shuffled``;
        - ``sites``: sparsity, null rates and diversity by layer;
        - ``shuffled``: null rates where each source has the target of another one (Figure 6, dashed lines), or None
          for a single sentence;
        - ``variance``: ``sample``, the kind of the variance of the null rates;
        - ``words``: ``sites`` and ``shuffled`` at the level of words, only if ``level`` is None;
        - ``layer_attention``, and ``alignment``: AER by layer and head (Table 5), or None;
        - ``wake``: the words and tags that wake each head;
        - ``examples``, and ``links`` or None, which :func:`write` writes to separate files.

        Rates are shares from 0 to 1; layers count from 0.

    Raises:
        InputError: an option has a bad value, a file cannot be used or does not belong to the subset, or the weights
            are not finite.
    """
    _refuse_bad_numbers(examples, taus)
    _refuse_bad_choices(level, layer_attention)
    fingerprint = data_checksums(data, subset)
    model, task = load_model(checkpoint, data)
    sentences = read_sentences(task, data, subset)
    _refuse_hidden_words(sentences, task, data, subset, gold is not None)
    lengths = [(_words(s.source), _words(s.target)) for s in sentences]
    given = lengths if words is None else [(source.total, target.total) for source, target in words]
    languages = [task.cfg.source_lang, task.cfg.target_lang]
    expected = None
    if gold is not None:
        _refuse_other_words(gold, gold_sentences, languages, given)
        expected = read_links(read_lines(gold), str(gold), gold_base, gold_reversed, given)
    target_tags = _read_tags(tags, [target for _, target in lengths])
    encoder_tags = _read_tags(source_tags, [source for source, _ in lengths])

    waker, pictures = _Waker(sentences, target_tags, encoder_tags), _Examples(sentences, examples, examples_of)
    aligner = _Aligner(sentences, words, layer_attention) if gold is not None or links else None
    order = derangement(len(sentences), seed) if len(sentences) > 1 else None
    levels = _make_levels(level, sentences, order, taus, subset)
    parts: List[Any] = [part for part in (*levels.values(), waker, pictures, aligner) if part is not None]
    for batch in capture(model, task, subset, max_tokens):
        _refuse_diverged(batch, checkpoint)
        for part in parts:
            part.add(batch)
    if order is not None:
        for batch in capture(model, task, subset, max_tokens, shuffle_seed=seed):
            for one in levels.values():
                one.add_shuffled(batch)

    first, *others = levels
    attention, sites = _attention_of(model)
    label = attention if len(sites) == len(SITES) else f"{attention} ({','.join(sites)})"
    return {
        "format": FORMAT,
        "label": label,
        "checkpoint": str(checkpoint),
        "sha256": sha256(checkpoint),
        "data": fingerprint,
        "subset": subset,
        "sentences": len(sentences),
        "parameters": sum(p.numel() for p in model.parameters()),
        "attention": attention,
        "attention_sites": sites,
        "languages": languages,
        "gold": {"file": gold.name, "sha256": sha256(gold)} if gold is not None else None,
        "level": first,
        "variance": "sample",
        **levels[first].result(None if order is None else seed),
        **{name: levels[name].result(None if order is None else seed) for name in others},
        "layer_attention": layer_attention,
        "alignment": None if expected is None else aligner.error_rates(gold, expected),
        "wake": waker.result(levels[first].sparsity),
        "examples": {"format": FORMAT, "label": label, "sentences": pictures.result()},
        "links": None if aligner is None else aligner.lines(),
    }


def align_subset(
    checkpoint: Path,
    data: Path,
    subset: str,
    words: Optional[Sequence[Tuple[Words, Words]]] = None,
    max_tokens: int = 4096,
) -> "_Aligner":
    """Return the alignments of all heads and layers, normal and shifted, in one pass over the subset.

    Args:
        checkpoint, data, subset, words, max_tokens: as for :func:`analyze`.

    Raises:
        InputError: as :func:`analyze`.
    """
    model, task = load_model(checkpoint, data)
    aligner = _Aligner(read_sentences(task, data, subset), words)
    for batch in capture(model, task, subset, max_tokens):
        _refuse_diverged(batch, checkpoint)
        aligner.add(batch)
    return aligner


def summarise(checkpoint: Path, data: Path, subset: str) -> Dict[str, Any]:
    """Return the attention, sparsity and null rates of each site and layer at the level of pieces, in one pass."""
    model, task = load_model(checkpoint, data)
    sparsity = _Sparsity()
    for batch in capture(model, task, subset):
        sparsity.add(batch)
    sites: Dict[str, Any] = {}
    for site, modules in sparsity.modules.items():
        counts = {module.name: sparsity.counts[site, layer] for layer, module in modules.items()}
        sites[site] = {
            "variants": list(dict.fromkeys(module.variant for module in modules.values())),
            "layers": {
                name: {key: getattr(count, key) for key in ("sparsity", "null_rate", "null_rate_by_head")}
                for name, count in counts.items()
            },
            "sparsity": _mean(count.sparsity for count in counts.values()),
            "null_rate": _mean(count.null_rate for count in counts.values()),
        }
    return {
        "checkpoint": str(checkpoint),
        "subset": subset,
        "parameters": sum(p.numel() for p in model.parameters()),
        "level": "pieces",
        "sites": sites,
    }


def write(analysis: Dict[str, Any], folder: Path) -> None:
    """Write ``examples.json``, ``alignments/`` and, last, ``analysis.json`` with the rest of the analysis.

    The files of ``alignments/`` are in Pharaoh format, with words from 0 and one line for each sentence:
    ``{normal,shifted}.layerL.headH.pharaoh`` for a head, ``{normal,shifted}.layerL.mean.pharaoh`` for the mean over
    the heads of a layer. Alignment files of an earlier analysis that are not written again are removed.

    Args:
        analysis: result of :func:`analyze`.
        folder: output folder.
    """
    with write_whole(folder / "examples.json") as file:
        json.dump(analysis["examples"], file, ensure_ascii=False)
    links = analysis["links"] or {}
    for stale in (folder / "alignments").glob("*.layer*.pharaoh"):
        if stale.stem not in links:
            stale.unlink()
    for name, lines in links.items():
        with write_whole(folder / "alignments" / f"{name}.pharaoh") as file:
            file.writelines(line + "\n" for line in lines)
    write_json(folder / "analysis.json", {key: value for key, value in analysis.items() if key not in _SEPARATE})


def data_checksums(data: Path, subset: str) -> Dict[str, str]:
    """Return the checksums of the files of a subset: name to SHA-256.

    In a folder of ``rela prepare``, these are the recorded checksums, and the files must match them.

    Raises:
        InputError: the subset does not exist, or a file has changed since it was prepared.
    """
    files = sorted(path for path in data.glob(f"{subset}.*-*.*") if path.suffix in (".bin", ".idx"))
    if not files:
        raise InputError(f"no subset {subset!r} in {data}; give a folder of `rela prepare` or fairseq-preprocess")
    if DataFolder.is_one(data):
        folder = DataFolder(data)
        names = [name for name in folder.outputs if name.startswith(f"{subset}.")]
        folder.refuse_changed(names)
        return {name: folder.outputs[name] for name in names}
    return {path.name: sha256(path) for path in files}


def _refuse_hidden_words(sentences: Sequence[Sentence], task: Any, data: Path, subset: str, has_gold: bool) -> None:
    """Check that the ends of unknown words are known; print a warning if not.

    An unknown piece is ``<unk>`` in binary data, with or without the mark ``@@``, after which a word continues. Without
    the pieces in ``bpe/SUBSET.LANG``, one such word can count as several, and the numbers of later words are wrong.

    Raises:
        InputError: they are not, and there is a gold alignment.
    """
    hidden = 0
    for lang, side, dictionary in (
        (task.cfg.source_lang, 0, task.source_dictionary),
        (task.cfg.target_lang, 1, task.target_dictionary),
    ):
        if not (data / "bpe" / f"{subset}.{lang}").is_file():
            hidden += sum(dictionary.unk_word in pair[side] for pair in sentences)
    if not hidden:
        return
    what = (
        f"{data}: {hidden} sentences of {subset} have unknown pieces, and without bpe/{subset}.LANG beside the binary "
        "data their words cannot be told apart"
    )
    if has_gold:
        raise InputError(f"{what}; put the BPE text there, or give the text by --source and --target")
    print(f"warning: {what}; numbers at the level of words are off by them", file=sys.stderr)


def _refuse_bad_numbers(examples: int, taus: Sequence[float]) -> None:
    if examples < 0:
        raise InputError(f"{examples} examples: give a number of at least 0")
    if not taus or any(not 0 < tau <= 1 for tau in taus):
        raise InputError("temperatures of head diversity are above 0 and at most 1; give some, such as 1 0.5 0.25 0.1")


def _refuse_bad_choices(level: Optional[str], layer_attention: str) -> None:
    if level is not None and level not in LEVELS:
        raise InputError(f"level {level!r}: give one of {', '.join(LEVELS)}, or none for both")
    if layer_attention not in LAYER_ATTENTIONS:
        raise InputError(f"layer attention {layer_attention!r}: give one of {', '.join(LAYER_ATTENTIONS)}")


def _refuse_diverged(batch: Batch, checkpoint: Path) -> None:
    for item in batch.modules:
        if not torch.isfinite(item.weights.masked_fill(~item.allowed.unsqueeze(1), 0)).all():
            raise InputError(
                f"{checkpoint}: the weights of {item.name} are not finite, so its training has diverged; "
                "give an earlier checkpoint"
            )


def _attention_of(model: nn.Module) -> Tuple[str, List[str]]:
    """Return the names of the variants other than softmax, joined by ``/``, and the sites that have them.

    A model that has only softmax gives ``softmax`` and all sites.
    """
    variants = {
        site: sorted({attention_name(module) for module in modules.values()})
        for site, modules in attention_modules(model).items()
    }
    others = {name for names in variants.values() for name in names} - {"softmax"}
    if not others:
        return "softmax", list(SITES)
    return "/".join(sorted(others)), [site for site in SITES if variants[site] != ["softmax"]]


def _words(pieces: Sequence[str]) -> int:
    ids = word_ids(pieces[:-1])
    return ids[-1] + 1 if ids else 0


def _joined(pieces: Sequence[str]) -> List[str]:
    """Return the words of a sentence; a word whose last piece is missing ends at the end of the sentence."""
    words = [""] * _words(pieces)
    for word, piece in zip(word_ids(pieces[:-1]), pieces):
        words[word] += piece[:-2] if piece.endswith("@@") else piece
    return words


def _refuse_other_words(
    gold: Path, given: Sequence[Path], languages: Sequence[str], lengths: Sequence[Tuple[int, int]]
) -> None:
    """Check that the text of a gold alignment has the words of the prepared text.

    Raises:
        InputError: the numbers of sentences or of words differ.
    """
    files = list(given) or [gold.with_suffix(f".{lang}") for lang in languages]
    if len(files) != 2:
        raise InputError("give the sentences of the gold alignment as two files, source and target")
    if not given and not all(path.is_file() for path in files):
        return
    counted = list(zip(*([_word_counts(line) for line in lines] for lines in zip(*read_parallel(*files)))))
    if len(counted) != len(lengths):
        raise InputError(
            f"{files[0]} has {len(counted)} sentences, the subset {len(lengths)}; give those of the subset"
        )
    for number, (counts, prepared) in enumerate(zip(counted, lengths), 1):
        for path, possible, words in zip(files, counts, prepared):
            if words not in possible:
                raise InputError(
                    f"{path}, line {number}: {possible[0]} words, {words} in the prepared text, so the gold alignment "
                    "is of other words; prepare the subset from the gold's own tokens (rela prepare --tokenised)"
                )


def _word_counts(line: str) -> Tuple[int, ...]:
    """Return the possible numbers of words of a line: two if a full stop is joined to the last word, else one."""
    words = line.split()
    together = bool(words) and len(words[-1]) > 1 and words[-1].endswith(".")
    return (len(words), len(words) + 1) if together else (len(words),)


def _read_tags(path: Optional[PathLike], words: Sequence[int]) -> Optional[List[List[str]]]:
    """Return the tags of the words of each sentence, or None without a file.

    Raises:
        InputError: the number of lines is not that of the sentences, or a line does not have one tag for each word.
    """
    if path is None:
        return None
    tags = [line.split() for line in read_lines(path)]
    if len(tags) != len(words):
        raise InputError(f"{path} has {len(tags)} lines for {len(words)} sentences; give a line of tags for each")
    for number, (line, expected) in enumerate(zip(tags, words), 1):
        if len(line) != expected:
            raise InputError(f"{path}, line {number}: {len(line)} tags for {expected} words; give a tag for each word")
    return tags


def _mean(values: Iterable[float]) -> float:
    values = list(values)
    return sum(values) / len(values)


class _Sparsity:
    """Collect the sparsity and null rates of every module, and the null rates of its layer attention."""

    def __init__(self) -> None:
        self.modules: Dict[str, Dict[int, Captured]] = {site: {} for site in SITES}  # without weights
        self.counts: Dict[Tuple[str, int], SparsityCounts] = {}
        self.together: Dict[Tuple[str, int], SparsityCounts] = {}  # counts of the layer attention

    def add(self, batch: Batch) -> None:
        for item in batch.modules:
            mean = mean_of_heads(item.weights.double())  # in float32, the mean of tiny weights could be 0
            for counts, weights in ((self.counts, item.weights), (self.together, mean)):
                key, new = (item.site, item.layer), count_sparsity(weights, item.allowed)
                counts[key] = counts[key] + new if key in counts else new
            self.modules[item.site][item.layer] = item._replace(weights=None, allowed=None)

    def null_rates(self) -> Dict[str, Any]:
        sites: Dict[str, Any] = {}
        for site, modules in self.modules.items():
            counts = [self.counts[site, layer] for layer in modules]
            layers = [{"null_rate": c.null_rate, "null_rate_variance": c.null_rate_variance} for c in counts]
            sites[site] = {"layers": layers, "null_rate": _mean(c.null_rate for c in counts)}
        return sites


class _Diversity:
    """Collect the head diversity of every module, at each temperature if its weights do not sum to 1."""

    def __init__(self, taus: Sequence[float]) -> None:
        self.taus = taus
        self.counts: Dict[Tuple[str, int], Dict[str, DiversityCount]] = {}

    def add(self, batch: Batch) -> None:
        for item in batch.modules:
            total = self.counts.setdefault((item.site, item.layer), {})
            for tau, distributions in self._distributions(item):
                new = count_diversity(distributions, item.allowed)
                total[tau] = total[tau] + new if tau in total else new

    def _distributions(self, item: Captured) -> Iterator[Tuple[str, Tensor]]:
        if find_variant(item.variant).sums_to_one:
            yield "1.0", normalised(item.weights, item.allowed)
            return
        for tau in self.taus:
            yield str(float(tau)), tempered(item.weights, item.allowed, tau)

    def means(self, site: str, layer: int) -> Dict[str, float]:
        return {tau: count.mean for tau, count in self.counts[site, layer].items()}


def _sites(sparsity: _Sparsity, diversity: _Diversity) -> Dict[str, Any]:
    sites: Dict[str, Any] = {}
    for site, modules in sparsity.modules.items():
        layers: List[Dict[str, Any]] = []
        for layer, module in modules.items():
            counts = sparsity.counts[site, layer]
            layers.append(
                {
                    "name": module.name,
                    "variant": module.variant,
                    "heads": len(counts.nulls),
                    "sparsity": counts.sparsity,
                    "sparsity_by_head": counts.sparsity_by_head,
                    "null_rate": counts.null_rate,
                    "null_rate_by_head": counts.null_rate_by_head,
                    "null_rate_variance": counts.null_rate_variance,
                    "layer_null_rate": sparsity.together[site, layer].null_rate,
                    "diversity": diversity.means(site, layer),
                }
            )
        sites[site] = {
            "layers": layers,
            "sparsity": _mean(layer["sparsity"] for layer in layers),
            "null_rate": _mean(layer["null_rate"] for layer in layers),
            "layer_null_rate": _mean(layer["layer_null_rate"] for layer in layers),
            "diversity": {tau: _mean(layer["diversity"][tau] for layer in layers) for tau in layers[0]["diversity"]},
        }
    return sites


class _Level:
    """Collect sparsity, null rates and head diversity at the level of pieces."""

    def __init__(self, taus: Sequence[float]) -> None:
        self.sparsity, self.diversity, self.shuffled = _Sparsity(), _Diversity(taus), _Sparsity()

    def add(self, batch: Batch) -> None:
        self.sparsity.add(batch)
        self.diversity.add(batch)

    def add_shuffled(self, batch: Batch) -> None:
        self.shuffled.add(batch)

    def result(self, seed: Optional[int]) -> Dict[str, Any]:
        """Return the results; ``seed`` is the seed of the shuffled targets, None if nothing was shuffled."""
        return {
            "sites": _sites(self.sparsity, self.diversity),
            "shuffled": None if seed is None else {"seed": seed, "sites": self.shuffled.null_rates()},
        }


class _Words(_Level):
    """Collect sparsity, null rates and head diversity at the level of words."""

    def __init__(self, taus: Sequence[float], sentences: Sequence[Sentence], shuffled: Sequence[Sentence]) -> None:
        super().__init__(taus)
        self.sentences, self.shuffled_sentences = sentences, shuffled

    def add(self, batch: Batch) -> None:
        super().add(_at_words(batch, self.sentences))

    def add_shuffled(self, batch: Batch) -> None:
        super().add_shuffled(_at_words(batch, self.shuffled_sentences))


def _make_levels(
    level: Optional[str],
    sentences: Sequence[Sentence],
    order: Optional[Sequence[int]],
    taus: Sequence[float],
    subset: str,
) -> Dict[str, _Level]:
    """Return the collectors of the levels to measure, pieces first.

    Args:
        order: permutation of the shuffled targets, None for no shuffling.
    """
    levels: Dict[str, _Level] = {}
    if level != "words":
        levels["pieces"] = _Level(taus)
    if level != "pieces":
        shuffled = [Sentence(pair.source, sentences[other].target) for pair, other in zip(sentences, order or ())]
        checked = [(sentences, "")] + ([(shuffled, ", once targets are shuffled")] if order is not None else [])
        for pairs, what in checked:
            if not any(_words(pair.source) and _words(pair.target) for pair in pairs):
                raise InputError(f"{subset}: no sentence has words on both sides{what}; give --level pieces")
        levels["words"] = _Words(taus, sentences, shuffled)
    return levels


def _at_words(batch: Batch, sentences: Sequence[Sentence]) -> Batch:
    """Merge the weights of pieces into weights of words; the ends of sentences are left out.

    A row of cross-attention belongs to the target word that its step predicts. In decoder self-attention, rows and
    columns belong to the target word that the step consumes; step 0 consumes the end of sentence.
    """
    source = [word_ids(sentences[index].source[:-1]) for index in batch.ids]
    target = [word_ids(sentences[index].target[:-1]) for index in batch.ids]
    inputs = [[-1, *words] for words in target]
    sides = {"encoder": (source, source), "decoder": (inputs, inputs), "cross": (target, source)}
    members: Dict[str, Tuple[Tensor, ...]] = {}
    modules = []
    for item in batch.modules:
        if item.site not in members:
            sizes = item.weights.shape[2:]
            members[item.site] = tuple(memberships(words, size) for words, size in zip(sides[item.site], sizes))
        weights, allowed = merge_words(item.weights, item.allowed, *members[item.site])
        modules.append(item._replace(weights=weights, allowed=allowed))
    return batch._replace(modules=modules)


class _Aligner:
    """Collect the word alignments of each cross-attention head, and of the mean over the heads of each layer.

    Args:
        sentences: all sentences of the subset.
        words: the words of the original files, see :func:`analyze`.
        layer_attention: ``raw`` or ``normalised``, see :func:`analyze`.

    Attributes:
        positions: ``normal`` and ``shifted`` to sentence number to (layers, heads + 1, target words): the source word
            of each target word, -1 for none; the last entry of each layer is the mean over heads.
    """

    def __init__(
        self,
        sentences: Sequence[Sentence],
        words: Optional[Sequence[Tuple[Words, Words]]] = None,
        layer_attention: str = "raw",
    ) -> None:
        self.sentences = sentences
        self.words = words
        self.prepare = {"raw": lambda weights: weights, "normalised": sum_to_one}[layer_attention]
        self.positions: Dict[str, Dict[int, Tensor]] = {kind: {} for kind in ROWS}  # (layers, heads + 1, words)

    def add(self, batch: Batch) -> None:
        cross = [item for item in batch.modules if item.site == "cross"]
        heads = torch.stack([item.weights.masked_fill(~item.allowed.unsqueeze(1), 0) for item in cross])
        weights = torch.cat((heads, mean_of_heads(self.prepare(heads))), dim=2)  # (L, B, H + 1, T, S)
        for row, index in enumerate(batch.ids):
            source, target = self.sentences[index]
            cells = weights[:, row, :, : len(target), : len(source)]  # (L, H + 1, T, S)
            words: Tuple[List[int], ...] = (word_ids(source[:-1]), word_ids(target[:-1]))
            length = _words(target)
            if self.words is not None:
                words = tuple([line.of_tokens[i] for i in ids] for line, ids in zip(self.words[index], words))
                length = self.words[index][1].total
            for kind, rows in ROWS.items():
                positions = strongest_sources(merge_subwords(rows(cells), *words))
                self.positions[kind][index] = pad(positions, (0, length - positions.size(-1)), value=-1)

    def lines(self) -> Dict[str, List[str]]:
        """Return the alignments in Pharaoh format: name to one line for each sentence."""
        files: Dict[str, List[str]] = {}
        for kind, sentences in self.positions.items():
            for index in range(len(sentences)):
                for layer, heads in enumerate(sentences[index].tolist()):
                    for head, positions in enumerate(heads):
                        name = f"head{head}" if head < len(heads) - 1 else "mean"
                        links = as_pharaoh((s, t) for t, s in enumerate(positions) if s >= 0)
                        files.setdefault(f"{kind}.layer{layer}.{name}", []).append(links)
        return files

    def error_rates(self, path: Path, gold: Sequence[Gold]) -> Dict[str, Any]:
        rates = {kind: _error_rates(self._counts(kind, gold)) for kind in ROWS}
        return {"gold": str(path), "sentences": len(gold), **rates}

    def _counts(self, kind: str, gold: Sequence[Gold]) -> List[List[Counts]]:
        """Return counts by layer and head, as :func:`fairseq_rela.analysis.aer.count` gives, for all heads at once."""
        total: Any = 0
        for index, positions in self.positions[kind].items():
            words = positions.size(-1)
            columns = 1 + max([-1, *(s for s, _ in gold[index].possible), int(positions.max()) if words else -1])
            hits = [positions >= 0]
            for links in gold[index]:
                matrix = torch.zeros(words, columns + 1, dtype=torch.bool)  # the last column, index -1, is for no link
                for s, t in links:
                    matrix[t, s] = True
                hits.append(matrix[torch.arange(words), positions])
            total = total + torch.stack(hits).sum(dim=-1)  # (3, L, H + 1)
        sure = sum(len(sentence.sure) for sentence in gold)
        return [
            [Counts(links, sure, right_sure, right_possible) for links, right_sure, right_possible in layer]
            for layer in total.permute(1, 2, 0).tolist()
        ]


def _aer(counts: Counts) -> float:
    """Return the AER, which is set to 1 if there are neither links nor sure gold links."""
    return counts.aer if counts.links + counts.sure else 1.0


def _error_rates(counts: List[List[Counts]]) -> Dict[str, Any]:
    """Return the AER of each head and layer, and the means over layers of Table 5.

    ``aol`` is the mean AER of the layer attention, ``aoh`` the mean AER of the best head of each layer.
    """
    layers: List[Dict[str, Any]] = []
    candidates: List[Tuple[float, int, Optional[int]]] = []
    for number, (*heads, together) in enumerate(counts):
        errors = [_aer(head) for head in heads]
        best = errors.index(min(errors))
        layers.append(
            {
                "layer_attention": {
                    "aer": _aer(together),
                    "precision": together.precision or 0.0,
                    "recall": together.recall or 0.0,
                },
                "heads": [{"aer": error} for error in errors],
                "best_head": best,
            }
        )
        candidates += [(_aer(together), number, None), (errors[best], number, best)]
    error, layer, head = min(candidates, key=lambda candidate: candidate[0])
    return {
        "layers": layers,
        "aol": _mean(layer["layer_attention"]["aer"] for layer in layers),
        "aoh": _mean(layer["heads"][layer["best_head"]]["aer"] for layer in layers),
        "best": {"layer": layer, "head": head, "aer": error},
    }


class _Waker:
    """Count which words and tags wake each head, without the ends of sentences.

    A query belongs to a source word in the encoder. In the decoder and in cross-attention it belongs to the target word
    that its step consumes, which stands before the word that the step predicts.
    """

    def __init__(
        self,
        sentences: Sequence[Sentence],
        target_tags: Optional[List[List[str]]],
        source_tags: Optional[List[List[str]]],
    ) -> None:
        self.sentences = sentences
        self.tags = {"encoder": source_tags, "decoder": target_tags, "cross": target_tags}
        self.words: Dict[Tuple[str, int], WakeCounts] = {}
        self.by_tag: Dict[Tuple[str, int], WakeCounts] = {}

    def add(self, batch: Batch) -> None:
        for item in batch.modules:
            awake = awake_queries(item.weights, item.allowed)  # (B, H, T)
            tags = self.tags[item.site]
            words: List[str] = []
            labels: List[str] = []
            woken = []
            for row, index in enumerate(batch.ids):
                first, pieces = 0, self.sentences[index].source
                if item.site != "encoder":
                    first, pieces = 1, self.sentences[index].target  # step 0 consumes the end of sentence
                queries = awake[row, :, first : first + len(pieces) - 1]
                woken.append(awake_words(queries, word_ids(pieces[:-1])))
                words += _joined(pieces)
                labels += tags[index] if tags is not None else []
            heads, key = torch.cat(woken, dim=1), (item.site, item.layer)
            self.words.setdefault(key, WakeCounts(len(heads))).add(words, heads)
            if tags is not None:
                self.by_tag.setdefault(key, WakeCounts(len(heads))).add(labels, heads)

    def result(self, sparsity: _Sparsity) -> Dict[str, Any]:
        result: Dict[str, Any] = {site: [] for site in SITES}
        for (site, layer), counts in self.words.items():
            for head, null_rate in enumerate(sparsity.counts[site, layer].null_rate_by_head):
                words = counts.by_share(head, WAKE_MINIMUM)[:WAKE_WORDS]
                tags = self.by_tag[site, layer].by_share(head) if (site, layer) in self.by_tag else []
                result[site].append(
                    {
                        "layer": layer,
                        "head": head,
                        "null_rate": null_rate,
                        "words": [{"word": word.key, "count": word.count, "share": word.share} for word in words],
                        "tags": {tag.key: tag.share for tag in tags},
                    }
                )
        return result


class _Examples:
    """Collect all weights of a few sentences, which are the same for all models on the same data.

    Args:
        sentences: all sentences of the subset.
        number: how many sentences :func:`choose_examples` chooses if ``chosen`` is None.
        chosen: numbers of the sentences, from 0.

    Raises:
        InputError: a number in ``chosen`` is not that of a sentence.
    """

    def __init__(self, sentences: Sequence[Sentence], number: int, chosen: Optional[Sequence[int]] = None) -> None:
        self.sentences = sentences
        for index in chosen or ():
            if not 0 <= index < len(sentences):
                raise InputError(f"--examples-of {index}: there are sentences 0 to {len(sentences) - 1}")
        numbers = choose_examples(sentences, number) if chosen is None else chosen
        self.weights: Dict[int, Dict[str, List[Any]]] = {i: {} for i in numbers}

    def add(self, batch: Batch) -> None:
        for row, index in enumerate(batch.ids):
            if index not in self.weights:
                continue
            source, target = map(len, self.sentences[index])
            for item in batch.modules:
                rows, columns = (
                    source if item.site == "encoder" else target,
                    target if item.site == "decoder" else source,
                )
                cells = item.weights[row].masked_fill(~item.allowed[row], 0)[:, :rows, :columns]
                self.weights[index].setdefault(item.site, []).append(_rounded(cells.tolist()))

    def result(self) -> List[Dict[str, Any]]:
        return [
            {"id": index, **self.sentences[index]._asdict(), "weights": weights}
            for index, weights in self.weights.items()
        ]


def choose_examples(sentences: Sequence[Sentence], number: int) -> List[int]:
    """Return the numbers of sentences with 8 to 20 pieces on both sides, spread evenly over the subset.

    The end of sentence counts as a piece. If there are fewer than ``number`` such sentences, those whose lengths are
    closest to this range are returned.
    """
    shortest, longest = EXAMPLE_PIECES

    def excess(pieces: Sequence[str]) -> int:
        return max(shortest - len(pieces), len(pieces) - longest, 0)

    distances = [(excess(sentence.target), excess(sentence.source)) for sentence in sentences]
    moderate = [index for index, distance in enumerate(distances) if distance == (0, 0)]
    if len(moderate) >= number:
        return [moderate[i * len(moderate) // number] for i in range(number)]
    return sorted(sorted(range(len(sentences)), key=distances.__getitem__)[:number])


def _rounded(values: Any) -> Any:
    """Round the numbers of nested lists to 4 significant digits."""
    return [_rounded(value) for value in values] if isinstance(values, list) else float(f"{values:.4g}")


def describe(analysis: Dict[str, Any]) -> str:
    """Return a summary with one line for each level and site, and the AER (Table 5) if there is a gold alignment."""
    lines = [f"{analysis['label']}: {analysis['sentences']:,} sentences of {analysis['subset']}"]
    for level, measured in levels_of(analysis).items():
        lines += [_describe_site(level, site, measured) for site in measured["sites"]]
    for kind in ("normal", "shifted") if analysis["alignment"] else ():
        rates = analysis["alignment"][kind]
        best = rates["best"]
        where = "mean of heads" if best["head"] is None else f"head {best['head']}"
        lines.append(
            f"AER {kind:8} AoL {100 * rates['aol']:.1f}   AoH {100 * rates['aoh']:.1f}   "
            f"best {100 * best['aer']:.1f}, layer {best['layer']}, {where} (from 0)"
        )
    return "\n".join(lines)


def _describe_site(level: str, site: str, measured: Dict[str, Any]) -> str:
    entry, shuffled = measured["sites"][site], measured["shuffled"]
    diversity = ", ".join(f"{value:.2f} at {tau}" for tau, value in entry["diversity"].items())
    with_shuffled = "" if shuffled is None else f"{shuffled['sites'][site]['null_rate']:.1%} with shuffled targets, "
    return (
        f"{level:6} {site:8} exact zeros {entry['sparsity']:6.1%}   null queries {entry['null_rate']:6.1%}, "
        f"{with_shuffled}{entry['layer_null_rate']:.1%} in the mean of heads   "
        f"head diversity {diversity}"
    )
