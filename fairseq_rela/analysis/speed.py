"""Speeds that ``rela bench`` measured, as the paper gives them: relative to softmax, more is faster."""

import math
from pathlib import Path
from typing import Any, Dict, List, NamedTuple

from ..data.lines import read_json
from ..errors import InputError
from . import paper

BASELINE = "softmax"


class Decoding(NamedTuple):
    """
    Attributes:
        batch: sentences at a time.
        lengths: of the sources, in pieces.
        speeds: attention to its speed at each length.
        overall: attention to its speed over one sentence of each length.
    """

    batch: int
    lengths: List[int]
    speeds: Dict[str, List[float]]
    overall: Dict[str, float]


class Speeds(NamedTuple):
    """
    Attributes:
        device: on what it ran, with threads and versions.
        command: what measured it, and when.
        training: attention to the speed of a training step.
        decoding: by batch size, the smallest first.
    """

    device: str
    command: str
    training: Dict[str, float]
    decoding: List[Decoding]


def load_speeds(path: Path) -> Speeds:
    """The speeds in a ``benchmark.json``.

    Raises:
        InputError: no such file, or not one of ``rela bench``.
    """
    record = read_json(path)
    try:
        return speeds_of(record)
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise InputError(f"{path}: not as `rela bench` writes it ({error!r}); measure again") from error


def speeds_of(record: Dict[str, Any]) -> Speeds:
    """The same of what is in such a file."""
    device = record["device"]
    where = device["name"]
    if device["type"] == "cpu":
        where += f", {device['threads']} threads of {device['cores']} cores"
    return Speeds(
        f"{where}, torch {record['versions']['torch']}",
        f"{record['command']}, {record['date']}",
        _relative(record["training"]["ratio"]) if "training" in record else {},
        _decoding(record.get("decoding", [])),
    )


def _relative(ratios: Dict[str, Any]) -> Dict[str, float]:
    """Times over softmax's to speeds over softmax's; only attentions of the paper's Table 2."""
    return {name: 1 / _positive(ratios[name]["median"]) for name in paper.COMPARED if name in ratios}


def _decoding(cells: List[Dict[str, Any]]) -> List[Decoding]:
    groups: Dict[int, List[Dict[str, Any]]] = {}
    for cell in cells:
        groups.setdefault(int(cell["batch"]), []).append(cell)
    return [_by_length(batch, sorted(groups[batch], key=lambda cell: cell["length"])) for batch in sorted(groups)]


def _by_length(batch: int, cells: List[Dict[str, Any]]) -> Decoding:
    names = [name for name in paper.COMPARED if all(name in cell["ratio"] for cell in cells)]
    speeds: Dict[str, List[float]] = {name: [] for name in names}
    for cell in cells:
        for name, speed in _relative(cell["ratio"]).items():
            if name in speeds:
                speeds[name].append(speed)
    seconds = {name: sum(_positive(cell["seconds"][name]["median"]) for cell in cells) for name in names}
    overall = {name: seconds[BASELINE] / seconds[name] for name in names}
    return Decoding(batch, [int(cell["length"]) for cell in cells], speeds, overall)


def _positive(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ValueError(f"{value!r} is not a time")
    return float(value)


def rows(decoding: List[Decoding]) -> List[Dict[str, Any]]:
    """A row for each batch size, attention and length."""
    return [
        {"batch": one.batch, "attention": name, "source_length": length, "speed_over_softmax": speed}
        for one in decoding
        for name, speeds in one.speeds.items()
        for length, speed in zip(one.lengths, speeds)
    ]
