"""Measure many pruned models, and collect what was measured."""

from pathlib import Path
from typing import Any, Dict, Sequence

import torch
from tqdm import tqdm

from ..data.folder import DataFolder
from ..errors import InputError
from ..experiment.decoding import load_decoding
from ..files.machine import processor, versions
from ..files.outputs import write_whole
from ..files.records import read_json, write_json
from ..report.plots import draw_layer_lines, render
from .points import FORMAT, measure_model, measure_point, plan
from .text import STYLES, markdown, panels


def measure(
    checkpoints: Sequence[Path], data: Path, output: Path, shares: Sequence[float], draws: int, **search: Any
) -> None:
    """Measure the pruned models of all checkpoints, which are in ``output/points``; those that are there stay.

    One thread computes, so that CPU times can be compared. The points that matter most come first, for all models.

    Args:
        checkpoints: the trained models.
        data: their data folder.
        output: folder of the results.
        shares: shares of the heads to remove.
        draws: number of random draws for each model and share.
        search: settings of the beam search, as for :func:`fairseq_rela.experiment.decoding.load_decoding`.

    Raises:
        InputError: a checkpoint is of another model or does not fit the data.
    """
    torch.set_num_threads(1)
    folder, decoding, points = DataFolder(data), load_decoding(**search), output / "points"
    models = [measure_model(checkpoint, folder, points) for checkpoint in checkpoints]
    plans = [list(plan(shares, draws, ("null", "loss") if one.rates else ("loss",))) for one in models]
    longest = max(map(len, plans))
    work = [(one, mine[i]) for i in range(longest) for one, mine in zip(models, plans) if i < len(mine)]
    for one, point in tqdm(work, desc="pruned models", unit=" models", disable=None):
        measure_point(one, point, folder, decoding, points)


def collect(folder: Path) -> Dict[str, Any]:
    """Return what was measured: ``format``, ``models`` (their heads) and ``points``, by attention and seed.

    Args:
        folder: the folder ``points`` of the results.

    Raises:
        InputError: nothing was measured there, or a file is damaged.
    """
    models = [read_json(path) for path in sorted(folder.glob("*.json"))]
    points = [read_json(path) for path in sorted(folder.glob("*/*.json"))]
    if not points:
        raise InputError(f"{folder}: no measurements; give checkpoints and --data")
    points.sort(key=lambda point: (point["attention"], point["seed"], point["by"], point["share"], point["draw"]))
    packages = ("torch", "ve-fairseq", "fairseq-fixed", "fairseq", "sacrebleu")
    return {
        **{"format": FORMAT, "processor": processor(), "versions": versions(packages)},
        **{"models": models, "points": points},
    }


def write_results(output: Path) -> None:
    """Write ``pruning.json``, ``pruning.md`` and ``pruning.png`` from what was measured in ``output/points``.

    Raises:
        InputError: as :func:`collect`, or matplotlib is missing.
    """
    results = collect(output / "points")
    write_json(output / "pruning.json", results)
    with write_whole(output / "pruning.md") as file:
        file.write(markdown(results))
    with write_whole(output / "pruning.png", "wb") as file:
        file.write(render(draw_layer_lines([panels(results)], STYLES, axis_name="heads removed"), "png"))
