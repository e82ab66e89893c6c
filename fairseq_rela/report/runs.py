"""Read and check the run folders of a report, and group the runs that were measured on the same test set."""

import math
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy

from ..analysis.levels import LEVELS, levels_of
from ..errors import InputError
from ..experiment.naming import SEED_KEY, SITES_KEYS, changes_the_model, split_override
from ..files.lines import read_record
from ..variants import SITES
from .characters import writable
from .paper import TASK_NAMES, Ablation, find_row

FORMAT = 1
FILES = ("score", "train", "translate", "attention", "analysis", "examples", "rank", "benchmark")
_WITH_FORMAT = ("analysis", "examples", "rank")
_MADE_BY = {
    "analysis": "rela analyze",
    "examples": "rela analyze",
    "rank": "rela rank --damage",
    "attention": "rela attention",
}


class Layer(NamedTuple):
    """The measurements of one attention module; rates are shares from 0 to 1.

    Attributes:
        variant: name of the attention, such as ``rela_g``.
        sparsity: share of weights that are exactly 0.
        null_rate: share of null queries, averaged over heads.
        null_rate_by_head: share of null queries of each head.
        null_rate_variance: sample variance of the null rates of the heads; None for one head or if not measured.
        shuffled: null rate and its variance with shuffled targets; None if not measured.
        diversity: temperature to head diversity in nats.
        layer_null_rate: null rate of the mean over heads; None if not measured.
    """

    variant: str
    sparsity: float
    null_rate: float
    null_rate_by_head: Sequence[float]
    null_rate_variance: Optional[float] = None
    shuffled: Optional[Tuple[float, Optional[float]]] = None
    diversity: Dict[str, float] = {}
    layer_null_rate: Optional[float] = None


class Example(NamedTuple):
    """An example sentence with all its weights.

    Attributes:
        number: number of the sentence in the subset, from 0.
        source, target: pieces, with the ends of sentences.
        weights: site to one array (H, T, S) for each layer.
    """

    number: int
    source: List[str]
    target: List[str]
    weights: Dict[str, List[numpy.ndarray]]

    def sides(self, site: str) -> Tuple[List[str], List[str]]:
        """Return the pieces of the queries and the pieces of the keys at a site."""
        return (
            self.source if site == "encoder" else self.target,
            self.target if site == "decoder" else self.source,
        )


class Run(NamedTuple):
    """A trained model with its results, as one run folder holds them.

    Attributes:
        folder: the run folder.
        label: name of the run, unique in its group.
        attention: name of the attention, such as ``rela_g``; None if unknown.
        attention_sites: sites with this attention.
        task: name of the task in ``configs/``; None if unknown.
        languages: source and target language; empty if unknown.
        subset: subset on which the run was measured; None if unknown.
        layers: site to its layers, first layer first.
        examples: example sentences with their weights.
        files: name of a JSON file, without ``.json``, to its content.
        level: level of ``layers``, ``pieces`` or ``words``; None without layers.
        by_level: ``layers`` at each level that was measured.
    """

    folder: Path
    label: str
    attention: Optional[str]
    attention_sites: Tuple[str, ...]
    task: Optional[str]
    languages: Tuple[str, ...]
    subset: Optional[str]
    layers: Dict[str, List[Layer]]
    examples: List[Example]
    files: Dict[str, Any]
    level: Optional[str] = None
    by_level: Dict[str, Dict[str, List[Layer]]] = {}

    @property
    def parameters(self) -> Optional[int]:
        return self.files.get("analysis", self.files.get("attention", {})).get("parameters")

    @property
    def overrides(self) -> List[str]:
        """The overrides of the training: settings that differ from ``configs/``, which has the published settings."""
        return list(self.files.get("train", {}).get("overrides", []))

    @property
    def changed(self) -> List[str]:
        """The overrides that change the model, without the seed and the attention sites (see the rows of Table 1)."""
        kept = (SEED_KEY, *SITES_KEYS)
        return [text for text in self.overrides if split_override(text)[0] not in kept and changes_the_model(text)]

    @property
    def seed(self) -> Optional[str]:
        """The seed of the training; None for the seed of ``configs/``."""
        settings = map(split_override, reversed(self.overrides))
        return next((value for key, value in settings if key == SEED_KEY), None)

    @property
    def row(self) -> Optional[Ablation]:
        """The row of Table 1 with this attention at these sites, or None."""
        return find_row(self.attention, self.attention_sites) if self.attention else None

    @property
    def alignment(self) -> Optional[Dict[str, Any]]:
        return self.files.get("analysis", {}).get("alignment")

    @property
    def null_possible(self) -> bool:
        """Whether the run has null queries."""
        return any(layer.null_rate > 0 for layers in self.layers.values() for layer in layers)


class Group(NamedTuple):
    """Runs that were measured on the same test set, so that their numbers can be compared."""

    task: Optional[str]
    subset: Optional[str]
    sentences: Optional[int]
    languages: Tuple[str, ...]
    runs: List[Run]

    @property
    def title(self) -> str:
        name = TASK_NAMES.get(self.task or "", self.task)
        pair = "-".join(self.languages) or "unknown languages"
        parts = [name or f"{pair} (task not recorded)", f"subset {self.subset}" if self.subset else ""]
        return ", ".join(part for part in (*parts, f"{self.sentences:,} sentences" if self.sentences else "") if part)

    @property
    def key(self) -> str:
        """The prefix of file names: the task, or the languages, and the subset."""
        text = "-".join(part for part in (self.task or "-".join(self.languages), self.subset) if part) or "runs"
        return "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in text)


def load_runs(folders: Sequence[Path]) -> List[Run]:
    """Read the runs of folders.

    Raises:
        InputError: no folder is given, a folder does not exist, is given twice or has no results, or a file in it
            cannot be used.
    """
    if not folders:
        raise InputError("no run given; give one or more folders, such as experiments/TASK/ATTENTION")
    seen: Dict[Path, Path] = {}
    for folder in folders:
        if folder.resolve() in seen:
            raise InputError(f"{folder} is given twice")
        seen[folder.resolve()] = folder
    return [_load_run(folder) for folder in folders]


def _with_unique_labels(runs: List[Run]) -> List[Run]:
    """Return the runs with unique labels: runs with equal labels get the end of their folder's path in brackets."""
    labels = [run.label for run in runs]
    for depth in (1, 2, 3, 64):
        repeated = {label for label in labels if labels.count(label) > 1}
        if not repeated:
            break
        parts = ["/".join(run.folder.resolve().parts[-depth:]) for run in runs]
        labels = [
            f"{run.label} ({part})" if run.label in repeated or label in repeated else label
            for run, label, part in zip(runs, labels, parts)
        ]
    return [run._replace(label=label) for run, label in zip(runs, labels)]


def _load_run(folder: Path) -> Run:
    if not folder.is_dir():
        raise InputError(f"{folder}: no such run folder; give a folder such as experiments/TASK/ATTENTION")
    files = {name: read_record(folder / f"{name}.json") for name in FILES if (folder / f"{name}.json").is_file()}
    if not any(name in files for name in ("score", "attention", "analysis", "rank", "train")):
        raise InputError(
            f"{folder}: nothing to report, neither score.json nor analysis.json; "
            "make them by `rela reproduce` and `rela analyze`"
        )
    for name in _WITH_FORMAT:
        if name in files and files[name].get("format") != FORMAT:
            raise InputError(
                f"{folder / name}.json: format {files[name].get('format')!r}, this version reads {FORMAT}; "
                f"make it again by `{_MADE_BY[name]}`"
            )
    _refuse_other_checkpoints(folder, files)
    by_level, examples = _layers(folder, files), _examples(folder, files)
    level = next((level for level in reversed(LEVELS) if level in by_level), None)  # words first, as in the paper
    layers = by_level.get(level, {})
    with _readable(folder / "score.json", "rela score"):
        _check_score(files.get("score"))
    with _readable(folder / "rank.json", _MADE_BY["rank"]):
        _check_rank(files.get("rank"))
    with _readable(folder / "analysis.json", _MADE_BY["analysis"]):
        _check_wake(files.get("analysis", {}))
        _check_alignment(files.get("analysis", {}).get("alignment"))
    attention, sites = _attention(folder, files, layers)
    analysis = files.get("analysis", {})
    label = analysis.get("label") or (attention and _label(attention, sites)) or folder.name
    return Run(
        folder=folder,
        label=writable(label),
        attention=attention,
        attention_sites=sites,
        task=files.get("train", {}).get("task"),
        languages=tuple(map(str, analysis.get("languages", ()))),
        subset=analysis.get("subset")
        or files.get("attention", {}).get("subset")
        or ("test" if "score" in files else None),
        layers=layers,
        examples=examples,
        files=files,
        level=level,
        by_level=by_level,
    )


def run_label(run: Run) -> str:
    """Return the label of a run without its folder, which is the same for runs that differ only in their seed."""
    return writable(run.files.get("analysis", {}).get("label") or _label(run.attention or "", run.attention_sites))


def _label(attention: str, sites: Sequence[str]) -> str:
    return attention if len(sites) == len(SITES) else f"{attention} ({','.join(sites)})"


@contextmanager
def _readable(path: Path, command: str) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(f"{path}: not as `{command}` writes it ({reason}); make it again") from error


def _refuse_other_checkpoints(folder: Path, files: Dict[str, Any]) -> None:
    """Check that translate.json, attention.json and analysis.json of a folder are of the same checkpoint.

    Raises:
        InputError: they are not.
    """
    keys = {"translate": "checkpoint", "attention": "sha256", "analysis": "sha256"}
    found = {name: files[name][key] for name, key in keys.items() if files.get(name, {}).get(key)}
    if len(set(found.values())) > 1:
        *others, last = found
        odd = last if found[last] != found[others[0]] else others[-1]
        raise InputError(
            f"{folder / odd}.json is of another checkpoint than {others[0]}.json beside it; make both of the same one"
        )


def _attention(
    folder: Path, files: Dict[str, Any], layers: Dict[str, List[Layer]]
) -> Tuple[Optional[str], Tuple[str, ...]]:
    trained, analysis = files.get("train", {}).get("attention"), files.get("analysis", {})
    analysed = analysis.get("attention")
    if trained and analysed and trained != analysed:
        raise InputError(
            f"{folder}: train.json says attention {trained}, analysis.json {analysed}; are they of one run?"
        )
    name = trained or analysed
    if name is None:
        others = {layer.variant for entries in layers.values() for layer in entries} - {"softmax"}
        name = "/".join(sorted(others)) or ("softmax" if layers else None)
    if analysis.get("attention_sites"):
        return name, tuple(map(str, analysis["attention_sites"]))
    settings = map(split_override, files.get("train", {}).get("overrides", []))
    given = [value for key, value in settings if key in SITES_KEYS]
    if layers and name != "softmax":
        return name, tuple(site for site, entries in layers.items() if any(e.variant != "softmax" for e in entries))
    return name, _sites(given[-1]) if given else SITES


def _sites(value: str) -> Tuple[str, ...]:
    """Parse sites: ``encoder,cross``, ``[encoder,cross]``, or a name in ``configs/sites`` such as ``encoder_cross``."""
    names = value.strip("'\"[]").replace(" ", "").replace("_", ",").split(",")
    return SITES if names == ["all"] else tuple(names)


def _layers(folder: Path, files: Dict[str, Any]) -> Dict[str, Dict[str, List[Layer]]]:
    """Return the layers by level and site from analysis.json, else sparsity and null rates from attention.json."""
    if "analysis" in files:
        with _readable(folder / "analysis.json", _MADE_BY["analysis"]):
            sample = files["analysis"].get("variance") == "sample"
            levels = levels_of(files["analysis"])
            if not levels.keys() <= set(LEVELS):
                raise ValueError(f"level {files['analysis']['level']!r}")
            return {level: _analysed_layers(measured, sample) for level, measured in levels.items()}
    if "attention" in files:
        with _readable(folder / "attention.json", _MADE_BY["attention"]):
            layers = {
                site: [
                    Layer(
                        "/".join(entry["variants"]),
                        _rate(layer["sparsity"]),
                        _rate(layer["null_rate"]),
                        [_rate(rate) for rate in layer["null_rate_by_head"]],
                    )
                    for layer in entry["layers"].values()
                ]
                for site, entry in files["attention"]["sites"].items()
            }
            return {files["attention"].get("level", "pieces"): layers}
    return {}


def _analysed_layers(measured: Dict[str, Any], sample: bool) -> Dict[str, List[Layer]]:
    """Return the layers of each site.

    Args:
        measured: a value of :func:`levels_of`.
        sample: whether the variances are sample variances; earlier versions wrote population variances.

    Raises:
        ValueError: a value is out of range, or the shuffled targets have another number of layers.
    """
    sites: Dict[str, List[Layer]] = {}
    for site in (site for site in SITES if site in measured["sites"]):
        layers = measured["sites"][site]["layers"]
        shuffled = [None] * len(layers)  # a single sentence has no shuffled targets
        if measured["shuffled"] is not None:
            shuffled = measured["shuffled"]["sites"][site]["layers"]
        if len(shuffled) != len(layers):
            raise ValueError(f"{len(shuffled)} layers with shuffled targets, {len(layers)} without")
        sites[site] = [
            Layer(
                variant=str(layer["variant"]),
                sparsity=_rate(layer["sparsity"]),
                null_rate=_rate(layer["null_rate"]),
                null_rate_by_head=[_rate(rate) for rate in layer["null_rate_by_head"]],
                null_rate_variance=_variance(layer, len(layer["null_rate_by_head"]), sample),
                shuffled=None if other is None else _shuffled(other, len(layer["null_rate_by_head"]), sample),
                diversity={str(tau): _number(value) for tau, value in layer["diversity"].items()},
                layer_null_rate=_rate(layer["layer_null_rate"]) if "layer_null_rate" in layer else None,
            )
            for layer, other in zip(layers, shuffled)
        ]
    return sites


def _shuffled(layer: Dict[str, Any], heads: int, sample: bool) -> Tuple[float, Optional[float]]:
    return _rate(layer["null_rate"]), _variance(layer, heads, sample)


def _variance(layer: Dict[str, Any], heads: int, sample: bool) -> Optional[float]:
    """Return the sample variance over the heads, or None for one head."""
    if heads < 2:
        return None
    variance = _number(layer["null_rate_variance"])
    return variance if sample else variance * heads / (heads - 1)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def _rate(value: Any) -> float:
    if not 0 <= _number(value) <= 1:
        raise ValueError(f"{value!r} is not a share from 0 to 1")
    return float(value)


def _examples(folder: Path, files: Dict[str, Any]) -> List[Example]:
    if "examples" not in files:
        return []
    with _readable(folder / "examples.json", _MADE_BY["examples"]):
        return [read_example(sentence) for sentence in files["examples"]["sentences"]]


def read_example(sentence: Dict[str, Any]) -> Example:
    """Read a sentence of ``examples.json``.

    Raises:
        ValueError: the weights do not match the numbers of pieces, or are not finite.
    """
    example = Example(
        int(sentence["id"]),
        list(map(writable, sentence["source"])),
        list(map(writable, sentence["target"])),
        {
            site: [numpy.asarray(layer, dtype=numpy.float64) for layer in sentence["weights"][site]]
            for site in SITES
            if site in sentence["weights"]
        },
    )
    for site, layers in example.weights.items():
        shape = tuple(map(len, example.sides(site)))
        for layer in layers:
            if layer.ndim != 3 or not len(layer) or layer.shape[1:] != shape:
                raise ValueError(f"weights {layer.shape} of site {site} are not of {shape[0]} by {shape[1]} pieces")
            if not numpy.isfinite(layer).all():
                raise ValueError(f"weights of site {site} that are not finite")
    return example


def _check_score(score: Optional[Dict[str, Any]]) -> None:
    if score is not None:
        for one in (score, *score.get("subsets", {}).values()):
            _number(one["bleu"])
            _number(one.get("tokenised_bleu", 0))
            one["signature"]


def _check_rank(rank: Optional[Dict[str, Any]]) -> None:
    if rank is not None:
        int(rank["pairs"])
        for areas in rank["kinds"].values():
            _rate(areas["null_rate_auc"])
            _rate(areas["logprob_auc"])


def _check_wake(analysis: Dict[str, Any]) -> None:
    for heads in analysis.get("wake", {}).values():
        for head in heads:
            int(head["layer"]), int(head["head"]), _rate(head["null_rate"])
            for word in head["words"]:
                str(word["word"]), int(word["count"]), _rate(word["share"])
            for share in head["tags"].values():
                _rate(share)


def _check_alignment(alignment: Optional[Dict[str, Any]]) -> None:
    if alignment is not None:
        for kind in ("normal", "shifted"):
            _rate(alignment[kind]["aol"]), _rate(alignment[kind]["aoh"]), _rate(alignment[kind]["best"]["aer"])
            for layer in alignment[kind]["layers"]:
                _rate(layer["layer_attention"]["aer"])
                _rate(layer["heads"][layer["best_head"]]["aer"])


def group_runs(runs: Sequence[Run]) -> List[Group]:
    """Group runs by task (or by languages if the task is unknown) and subset, and keep the order of the runs.

    Raises:
        InputError: two runs of a group have different test sets.
    """
    groups: Dict[Tuple[Any, ...], List[Run]] = {}
    for run in runs:
        groups.setdefault((run.task, run.task is None and run.languages, run.subset), []).append(run)
    for members in groups.values():
        for first, other in combinations(members, 2):
            _refuse_other_data(first, other)
    return [
        Group(
            members[0].task,
            members[0].subset,
            next((n for n in map(_sentences, members) if n), None),
            next((run.languages for run in members if run.languages), ()),
            _with_unique_labels(_at_one_level(members)),
        )
        for members in groups.values()
    ]


def _at_one_level(runs: List[Run]) -> List[Run]:
    """Return the runs at a level that all measured runs have, preferably words; without one, each keeps its level."""
    measured = [run for run in runs if run.by_level]
    for level in reversed(LEVELS):
        if all(level in run.by_level for run in measured):
            return [run._replace(level=level, layers=run.by_level[level]) if run.by_level else run for run in runs]
    return runs


def _sentences(run: Run) -> Optional[int]:
    for name in ("analysis", "score"):
        if run.files.get(name, {}).get("sentences"):
            return int(run.files[name]["sentences"])
    return None


def _refuse_other_data(first: Run, other: Run) -> None:
    what = None
    for name in ("analysis", "score"):
        numbers = [run.files.get(name, {}).get("sentences") for run in (first, other)]
        if None not in numbers and numbers[0] != numbers[1]:
            what = f"{numbers[0]} and {numbers[1]} sentences in {name}.json"
    for name in ("train", "analysis"):
        sums = [run.files.get(name, {}).get("data") for run in (first, other)]
        if not all(isinstance(some, dict) for some in sums):
            continue
        tests = [key for key in sums[0] if name == "analysis" or key.startswith("raw/test.")]
        differing = [key for key in tests if key in sums[1] and sums[0][key] != sums[1][key]]
        what = f"other checksums of {differing[0]} in {name}.json" if differing else what
    if what:
        raise InputError(
            f"{first.folder} and {other.folder} are of different data ({what}), so they cannot be compared; "
            "report them on pages of their own"
        )
