"""Figures of a benchmark; the only module of the package that needs matplotlib."""

import logging
from pathlib import Path
from typing import Any, Dict, List

from ..errors import InputError

_COLOURS = {
    "softmax": "#555555",
    "sdpa": "#999999",
    "rela_g": "#c0392b",
    "rela_g_plain": "#e59866",
    "sparsemax": "#2471a3",
    "entmax15": "#1e8449",
}
_LABELS = {"softmax": "softmax", "sdpa": "softmax, SDPA", "rela_g": "ReLA-g", "rela_g_plain": "ReLA-g, plain"}


def draw(result: Dict[str, Any], folder: Path) -> List[Path]:
    """Draw what was measured into ``folder``: core, memory, training, decoding, flops.

    Raises:
        InputError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise InputError("figures need matplotlib: pip install matplotlib, or give --no-figures") from error
    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # it tells of each font where others log all
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawn = []
    for name, draw_one in (
        ("core", _core),
        ("memory", _memory),
        ("training", _training),
        ("decoding", _decoding),
        ("flops", _flops),
    ):
        if not result.get("core" if name == "memory" else name):
            continue
        figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
        draw_one(result, axes)
        axes.spines[["top", "right"]].set_visible(False)
        drawn.append(folder / f"{name}.png")
        figure.savefig(drawn[-1], dpi=150)
        plt.close(figure)
    return drawn


def _line(axes: Any, name: str, points: List[Any], spread: bool = True) -> None:
    """(x, ratio) points, with the quartiles as a band."""
    x = [p[0] for p in points]
    colour, label = _COLOURS.get(name), _LABELS.get(name, name)
    axes.plot(x, [p[1]["median"] for p in points], marker="o", ms=4, color=colour, label=label)
    if spread:
        axes.fill_between(x, [p[1]["q1"] for p in points], [p[1]["q3"] for p in points], color=colour, alpha=0.15, lw=0)


def _plain_ticks(axes: Any, lengths: List[int]) -> None:
    """Numbers as people write them, not powers of ten."""
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.set_xticks([], minor=True)
    for which in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        which("{x:g}")


def _bare(result: Dict[str, Any]) -> List[Dict[str, Any]]:
    cells = [c for c in result["core"] if not (c["causal"] or c["padded"] or c["dropout"])]
    return cells or result["core"]


def _core(result: Dict[str, Any], axes: Any) -> None:
    series: Dict[str, List[Any]] = {}
    for cell in _bare(result):
        for name, ratio in cell["passes"]["forward_backward"]["ratio"].items():
            if cell["baseline"] == "softmax":
                series.setdefault(name, []).append((cell["length"], ratio))
    for name, points in series.items():
        _line(axes, name, points)
    axes.set(xscale="log", yscale="log", xlabel="length", ylabel="time over softmax's")
    _plain_ticks(axes, sorted({x for points in series.values() for x, _ in points}))
    axes.set_title("Attention core, forward and backward")
    axes.legend(frameon=False)


def _memory(result: Dict[str, Any], axes: Any) -> None:
    series: Dict[str, List[Any]] = {}
    for cell in _bare(result):
        for name, size in cell["saved_bytes"].items():
            series.setdefault(name, []).append((cell["length"], size / cell["tokens"] / 1024))
    for name, points in series.items():
        axes.plot(*zip(*points), marker="o", ms=4, color=_COLOURS.get(name), label=_LABELS.get(name, name))
    axes.set(xscale="log", yscale="log", xlabel="length", ylabel="kept for the gradient, KiB a token")
    _plain_ticks(axes, sorted({x for points in series.values() for x, _ in points}))
    axes.set_title("Memory of the attention core")
    axes.legend(frameon=False)


def _training(result: Dict[str, Any], axes: Any) -> None:
    ratios = result["training"]["ratio"]
    names = list(ratios)
    medians = [ratios[n]["median"] for n in names]
    low = [ratios[n]["median"] - ratios[n]["q1"] for n in names]
    high = [ratios[n]["q3"] - ratios[n]["median"] for n in names]
    colours = [_COLOURS.get(n) for n in names]
    axes.bar([_LABELS.get(n, n) for n in names], medians, yerr=[low, high], color=colours, capsize=3)
    axes.set(ylabel="time over softmax's")
    axes.set_title("A training step")


def _decoding(result: Dict[str, Any], axes: Any) -> None:
    batch = min(cell["batch"] for cell in result["decoding"])
    series: Dict[str, List[Any]] = {}
    for cell in result["decoding"]:
        if cell["batch"] == batch:
            for name, ratio in cell["ratio"].items():
                series.setdefault(name, []).append((cell["length"], ratio))
    for name, points in series.items():
        _line(axes, name, points)
    axes.set(xlabel="source length", ylabel="time over softmax's")
    axes.set_title(f"Beam search, {batch} sentence at a time" if batch == 1 else f"Beam search, batch {batch}")
    axes.legend(frameon=False)


def _flops(result: Dict[str, Any], axes: Any) -> None:
    lengths = [row["length"] for row in result["flops"]]
    for name in ("softmax", "rela_g"):
        axes.plot(lengths, [row[name] for row in result["flops"]], color=_COLOURS[name], label=_LABELS[name])
    axes.set(xscale="log", yscale="log", xlabel="length", ylabel="operations")
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.set_title("Weights and norm of a sublayer (the paper's Table 4)")
    axes.legend(frameon=False)
