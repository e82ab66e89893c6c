"""Figures of a benchmark, with the colours of the report."""

from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..files.outputs import write_whole
from ..report import paper, plots
from ..report.figures import speed_figure
from ..report.operator_figure import operator_figure
from ..report.speed import speeds_of

# name in the benchmark to the model whose colour its line has, and whether the line is dashed
_LINES = {
    "softmax": ("softmax", False),
    "sdpa": ("softmax", True),
    "rela_g": ("rela_g", False),
    "rela_g_plain": ("rela_g", True),
    "sparsemax": ("sparsemax", False),
    "entmax15": ("entmax15", False),
}
_SOLID, _DASHED = "bmm, fused", "SDPA, plain"  # legend of softmax and ReLA-g


def draw(result: Dict[str, Any], folder: Path) -> List[Path]:
    """Draw ``core.png``, ``memory.png``, and the figures of the other parts that ``result`` has.

    Args:
        result: the result of :func:`fairseq_rela.benchmark.run.run`.
        folder: where the files are written.

    Returns:
        the files that were written.

    Raises:
        InputError: matplotlib is not installed, or a file cannot be written.
    """
    drawn = []
    for name, make in _FIGURES.items():
        if result.get("core" if name == "memory" else name):
            with write_whole(folder / f"{name}.png", "wb") as file:
                file.write(plots.render(make(result), "png"))
            drawn.append(folder / f"{name}.png")
    return drawn


def _bare(result: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Return the cells without masks and dropout, sorted by length; all cells if there are none."""
    cells = [cell for cell in result["core"] if not (cell["causal"] or cell["padded"] or cell["dropout"])]
    return sorted(cells or result["core"], key=lambda cell: cell["length"])


def _lengths(cells: List[Dict[str, Any]]) -> List[int]:
    return [cell["length"] for cell in cells]


def _lines(cells: List[Dict[str, Any]], value: Callable[[Dict[str, Any], str], Optional[float]]) -> List[plots.Line]:
    """Return a line for each name that has a value in some cell, with a gap where it has none."""
    lines = []
    for name, (model, dashed) in _LINES.items():
        values = [value(cell, name) for cell in cells]
        if any(one is not None for one in values):
            lines.append(plots.Line(paper.NAMES[model], values, dashed))
    return lines


def _styles(panels: List[plots.Panel]) -> Dict[str, plots.Style]:
    there = {line.label for panel in panels for line in panel.lines}
    return plots.choose_styles([(paper.NAMES[m], m) for m in paper.COMPARED if paper.NAMES[m] in there])


def _core(result: Dict[str, Any]) -> Any:
    cells = _bare(result)

    def ratio_in(passes: str) -> Callable[[Dict[str, Any], str], Optional[float]]:
        def ratio(cell: Dict[str, Any], name: str) -> Optional[float]:
            found = cell["passes"][passes]["ratio"] if cell["baseline"] == "softmax" else {}
            return found[name]["median"] if name in found else None

        return ratio

    cells = [cell for cell in cells if cell["baseline"] == "softmax"] or cells
    titles: Tuple[Tuple[str, str], ...] = (("forward", "forward"), ("forward_backward", "forward and backward"))
    panels = [
        plots.Panel(title, "time over softmax's", _lines(cells, ratio_in(passes)), log=True, places=_lengths(cells))
        for passes, title in titles
    ]
    return plots.draw_layer_lines([panels], _styles(panels), _SOLID, _DASHED, "length T")


def _memory(result: Dict[str, Any]) -> Any:
    cells = _bare(result)

    def kept(cell: Dict[str, Any], name: str) -> Optional[float]:
        sizes = cell.get("saved_bytes", {})
        return sizes[name] / (cell["batch"] * cell["length"]) / 1024 if name in sizes else None

    panels = [
        plots.Panel("kept for the gradient", "KiB a token", _lines(cells, kept), log=True, places=_lengths(cells))
    ]
    return plots.draw_layer_lines([panels], _styles(panels), _SOLID, _DASHED, "length T")


def _decoding(result: Dict[str, Any]) -> Any:
    figure = speed_figure(speeds_of(result))
    assert figure is not None  # the part is there
    return figure.draw()


def _lm(result: Dict[str, Any]) -> Any:
    cells = result["lm"]

    def value(key: str, scale: float) -> Callable[[Dict[str, Any], str], Optional[float]]:
        def one(cell: Dict[str, Any], name: str) -> Optional[float]:
            found = cell[key].get(name)
            found = found["median"] if isinstance(found, dict) else found
            return None if found is None else scale * found

        return one

    panels = [
        plots.Panel(title, unit, _lines(cells, value(key, scale)), log=True, places=_lengths(cells))
        for key, title, unit, scale in (
            ("seconds", "training update", "seconds", 1.0),
            ("peak_bytes", "peak memory of an update", "MiB", 2.0**-20),
        )
    ]
    return plots.draw_layer_lines([[panel] for panel in panels], _styles(panels), axis_name="length of a context")


def _flops(result: Dict[str, Any]) -> Any:
    rows = result["flops"]
    lines = [plots.Line(paper.NAMES[name], [row[name] for row in rows]) for name in ("softmax", "rela_g")]
    panels = [
        plots.Panel("weights and norm of a sublayer (Table 4)", "operations", lines, log=True, places=_lengths(rows))
    ]
    return plots.draw_layer_lines([panels], _styles(panels), axis_name="length T")


def _operator(result: Dict[str, Any]) -> Any:
    speeds = speeds_of(result)
    figure = operator_figure(speeds.operator, speeds.device, speeds.command)
    assert figure is not None  # the part is there
    return figure.draw()


_FIGURES: Dict[str, Callable[[Dict[str, Any]], Any]] = {
    "core": _core,
    "memory": _memory,
    "decoding": _decoding,
    "flops": _flops,
    "lm": _lm,
    "op": _operator,
}
