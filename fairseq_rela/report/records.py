"""Read and check the records in the run folders of a report."""

import math
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy

from ..analysis.levels import LEVELS, levels_of
from ..errors import InputError
from ..experiment.naming import SITES_KEYS, split_override, split_sites
from ..files.records import read_record
from ..variants import SITES
from .characters import writable
from .run import Example, Layer, Run, attention_label

FORMAT = 1
_FILES = ("score", "train", "translate", "attention", "analysis", "examples", "rank")
_WITH_FORMAT = ("analysis", "examples", "rank")
_MADE_BY = {
    "score": "rela score",
    "analysis": "rela analyze",
    "examples": "rela analyze",
    "rank": "rela rank --damage",
    "attention": "rela attention",
}


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


def _load_run(folder: Path) -> Run:
    if not folder.is_dir():
        raise InputError(f"{folder}: no such run folder; give a folder such as experiments/TASK/ATTENTION")
    files = {name: read_record(folder / f"{name}.json") for name in _FILES if (folder / f"{name}.json").is_file()}
    if not any(name in files for name in ("score", "attention", "analysis", "rank", "train")):
        raise InputError(
            f"{folder}: nothing to report, because score.json and analysis.json are missing; "
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
    with _readable(folder, "score"):
        _check_score(files.get("score"))
    with _readable(folder, "rank"):
        _check_rank(files.get("rank"))
    with _readable(folder, "analysis"):
        _check_wake(files.get("analysis", {}))
        _check_positions(files.get("analysis", {}))
        _check_alignment(files.get("analysis", {}).get("alignment"))
    attention, sites = _attention(folder, files, by_level.get(level or "", {}))
    analysis = files.get("analysis", {})
    label = analysis.get("label") or (attention and attention_label(attention, sites)) or folder.name
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
        examples=examples,
        files=files,
        by_level=by_level,
        level=level,
    )


@contextmanager
def _readable(folder: Path, name: str) -> Iterator[None]:
    """Report errors in the context as a wrong format of the file ``name.json``.

    Raises:
        InputError: the context raises an error of a missing or wrong value.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        path, command = folder / f"{name}.json", _MADE_BY[name]
        raise InputError(f"{path}: not in the format of `{command}` ({reason}); make it again") from error


def _refuse_other_checkpoints(folder: Path, files: Dict[str, Any]) -> None:
    """Check that translate.json, attention.json and analysis.json of a folder were made from the same checkpoint.

    Raises:
        InputError: they are not.
    """
    keys = {"translate": "checkpoint", "attention": "sha256", "analysis": "sha256"}
    found = {name: files[name][key] for name, key in keys.items() if files.get(name, {}).get(key)}
    if len(set(found.values())) > 1:
        *others, last = found
        odd = last if found[last] != found[others[0]] else others[-1]
        raise InputError(
            f"{folder / odd}.json was made from another checkpoint than {others[0]}.json beside it; "
            "make both from the same one"
        )


def _attention(
    folder: Path, files: Dict[str, Any], layers: Dict[str, List[Layer]]
) -> Tuple[Optional[str], Tuple[str, ...]]:
    """Return the attention of a run, None if it is unknown, and the sites that have it.

    Raises:
        InputError: the records have different attentions.
    """
    trained, analysis = files.get("train", {}).get("attention"), files.get("analysis", {})
    analysed = analysis.get("attention")
    if trained and analysed and trained != analysed:
        raise InputError(
            f"{folder}: train.json has attention {trained}, but analysis.json {analysed}; make both from the same run"
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
    return name, tuple(split_sites(given[-1])) if given else SITES


def _layers(folder: Path, files: Dict[str, Any]) -> Dict[str, Dict[str, List[Layer]]]:
    """Return the layers by level and site from analysis.json, else sparsity and null rates from attention.json."""
    if "analysis" in files:
        with _readable(folder, "analysis"):
            if files["analysis"].get("variance") != "sample":
                raise ValueError("the variances over heads are not sample variances; run `rela analyze` again")
            levels = levels_of(files["analysis"])
            if not levels.keys() <= set(LEVELS):
                raise ValueError(f"level {files['analysis']['level']!r}")
            return {level: _analysed_layers(measured) for level, measured in levels.items()}
    if "attention" in files:
        with _readable(folder, "attention"):
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


def _analysed_layers(measured: Dict[str, Any]) -> Dict[str, List[Layer]]:
    """Return the layers of each site.

    Args:
        measured: a value of :func:`levels_of`.

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
        sites[site] = [_analysed_layer(layer, other) for layer, other in zip(layers, shuffled)]
    return sites


def _analysed_layer(layer: Dict[str, Any], shuffled: Optional[Dict[str, Any]]) -> Layer:
    def variance(of: Dict[str, Any]) -> Optional[float]:  # over heads, so that one head has none
        return None if len(layer["null_rate_by_head"]) < 2 else _number(of["null_rate_variance"])

    return Layer(
        variant=str(layer["variant"]),
        sparsity=_rate(layer["sparsity"]),
        null_rate=_rate(layer["null_rate"]),
        null_rate_by_head=[_rate(rate) for rate in layer["null_rate_by_head"]],
        null_rate_variance=variance(layer),
        shuffled=(_rate(shuffled["null_rate"]), variance(shuffled)) if shuffled is not None else None,
        diversity={str(tau): _number(value) for tau, value in layer["diversity"].items()},
        layer_null_rate=_rate(layer["layer_null_rate"]) if "layer_null_rate" in layer else None,
    )


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
    with _readable(folder, "examples"):
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


def _check_positions(analysis: Dict[str, Any]) -> None:
    for part in analysis.get("positions", ()):
        int(part["first"]), int(part["last"]), int(part["queries"])
        for entry in (part["sites"]["decoder"], *part["sites"]["decoder"]["layers"]):
            _rate(entry["sparsity"]), _rate(entry["null_rate"]), _number(entry["diversity"]["1.0"])


def _check_alignment(alignment: Optional[Dict[str, Any]]) -> None:
    if alignment is not None:
        for kind in ("normal", "shifted"):
            _rate(alignment[kind]["aol"]), _rate(alignment[kind]["aoh"]), _rate(alignment[kind]["best"]["aer"])
            for layer in alignment[kind]["layers"]:
                _rate(layer["layer_attention"]["aer"])
                _rate(layer["heads"][layer["best_head"]]["aer"])
