"""Read the speeds that ``rela bench`` measured, relative to softmax as in the paper; higher is faster."""

import math
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Union

from ..errors import InputError
from ..files.records import read_json
from ..variants import BASELINE, VARIANTS
from . import paper
from .operator_figure import Measured, read_operator

# attentions of models with random weights: those of the paper's tables come first
COMPARED = tuple(dict.fromkeys([*paper.COMPARED, *VARIANTS]))


class Decoding(NamedTuple):
    """Decoding speeds at one batch size, relative to softmax.

    Attributes:
        batch: number of sentences in a batch.
        lengths: source lengths in pieces; the mean length for a group of sentences.
        speeds: label to the speed at each length.
        overall: label to the speed computed from the sum of the times at all lengths.
    """

    batch: int
    lengths: List[Union[int, float]]
    speeds: Dict[str, List[float]]
    overall: Dict[str, float]


class Speeds(NamedTuple):
    """The speeds of one benchmark, relative to softmax.

    Attributes:
        device: device, with threads and the version of torch.
        command: command and date of the benchmark.
        training: attention to its training speed.
        decoding: decoding speeds, smallest batch size first.
        models: label to attention of trained models; None for models with random weights.
        about_training, about_decoding: captions that describe what was trained and decoded.
        operator: times and memory of the operator.
    """

    device: str
    command: str
    training: Dict[str, float]
    decoding: List[Decoding]
    models: Optional[Dict[str, str]] = None
    about_training: str = ""
    about_decoding: str = ""
    operator: Sequence[Measured] = ()


def load_speeds(path: Path) -> Speeds:
    """Read the speeds of a ``benchmark.json``.

    Raises:
        InputError: the file does not exist or was not written by ``rela bench``.
    """
    record = read_json(path)
    try:
        return speeds_of(record)
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise InputError(f"{path}: not in the format of `rela bench` ({error!r}); measure again") from error


def speeds_of(record: Dict[str, Any]) -> Speeds:
    """Return the speeds of a benchmark, from the content of a ``benchmark.json``.

    Raises:
        KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError: the record has another form.
    """
    device = record["device"]
    where = device["name"]
    if device["type"] == "cpu":
        where += f", {device['threads']} threads of {device['cores']} cores"
    models = None
    if "trained" in record:
        models = {str(one["label"]): str(one["attention"]) for one in record["trained"]["models"]}
    return Speeds(
        f"{where}, torch {record['versions']['torch']}",
        f"{record['command']}, {record['date']}",
        _training(record["training"]) if "training" in record else {},
        _decoding(record.get("decoding", []), list(models or COMPARED)),
        models,
        _about_training(record),
        _about_decoding(record),
        read_operator(record.get("op", [])),
    )


def _about_training(record: Dict[str, Any]) -> str:
    training = record.get("training", {})
    if "steps" not in training:
        return ""
    return f"Training: {int(training['steps']):,} updates on the training text of {training['data']}."


def _about_decoding(record: Dict[str, Any]) -> str:
    trained = record.get("trained")
    if trained is None:
        return "Beam search of models with random weights; all hypotheses are as long as the source; medians."
    first = record["decoding"][0]["batch"]
    sentences = sum(int(cell["sentences"]) for cell in record["decoding"] if cell["batch"] == first)
    return (
        f"Beam search of trained models on {sentences:,} sentences of the subset {trained['subset']} of "
        f"{trained['data']}, in {int(trained['groups'])} groups by source length; each model decides where its "
        "outputs end; medians."
    )


def _training(cell: Dict[str, Any]) -> Dict[str, float]:
    if "total_seconds" not in cell:
        return {name: _speed(cell, name) for name in COMPARED if name in cell["ratio"]}
    seconds = {name: _positive(value) for name, value in cell["total_seconds"].items()}
    return {name: seconds[BASELINE] / seconds[name] for name in COMPARED if name in seconds}


def _speed(cell: Dict[str, Any], name: str) -> float:
    """Return the speed of an attention relative to softmax; the ratio of a cell is one of times."""
    return 1 / _positive(cell["ratio"][name]["median"])


def _decoding(cells: List[Dict[str, Any]], labels: Sequence[str]) -> List[Decoding]:
    groups: Dict[int, List[Dict[str, Any]]] = {}
    for cell in cells:
        groups.setdefault(int(cell["batch"]), []).append(cell)
    return [
        _by_length(batch, sorted(groups[batch], key=lambda cell: cell["length"]), labels) for batch in sorted(groups)
    ]


def _by_length(batch: int, cells: List[Dict[str, Any]], labels: Sequence[str]) -> Decoding:
    names = [name for name in labels if all(name in cell["ratio"] for cell in cells)]
    speeds = {name: [_speed(cell, name) for cell in cells] for name in names}
    seconds = {name: sum(_positive(cell["seconds"][name]["median"]) for cell in cells) for name in names}
    overall = {name: seconds[BASELINE] / seconds[name] for name in names}
    return Decoding(batch, [_length(cell["length"]) for cell in cells], speeds, overall)


def _length(value: Any) -> Union[int, float]:
    return int(value) if float(value) == int(value) else round(float(value), 1)


def _positive(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ValueError(f"{value!r} is not a time")
    return float(value)


def rows(decoding: List[Decoding]) -> List[Dict[str, Any]]:
    """Return the rows of a table: one for each batch size, attention and source length."""
    return [
        {"batch": one.batch, "attention": name, "source_length": length, "speed_over_softmax": speed}
        for one in decoding
        for name, speeds in one.speeds.items()
        for length, speed in zip(one.lengths, speeds)
    ]
