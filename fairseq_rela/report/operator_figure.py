"""The times and the memory of the operator and of other implementations of attention, by length."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from . import paper, plots
from .figure import Figure

# name in the benchmark to the attention whose colour its line has, and whether the line is dashed
_LINES = {
    "softmax": ("softmax", False),
    "sdpa": ("softmax", True),
    "rela": ("relu", False),
    "relu_compiled": ("relu", True),
    "rela_g": ("rela_g", False),
    "sparsemax": ("sparsemax", False),
    "entmax15": ("entmax15", False),
}


class Measured(NamedTuple):
    """One implementation in one setting of the operator's benchmark; a row of its table.

    Attributes:
        length: T, the number of queries and keys.
        causal, padding, dropout: masks, and the probability of dropping a weight.
        passes: ``forward`` or ``forward_backward``.
        implementation: name in the benchmark.
        seconds: median time.
        time_over_sdpa: median of the time divided by SDPA's; below 1 is faster.
        peak_mib: peak memory of both passes in MiB, None if not measured.
    """

    length: int
    causal: bool
    padding: bool
    dropout: float
    passes: str
    implementation: str
    seconds: float
    time_over_sdpa: float
    peak_mib: Optional[float]


def read_operator(cells: Sequence[Dict[str, Any]]) -> List[Measured]:
    """Return the measurements of the part ``op`` of a benchmark, in its order.

    Raises:
        KeyError, TypeError, ValueError: the record has another form.
    """
    return [
        Measured(
            int(cell["length"]),
            bool(cell["causal"]),
            bool(cell["padded"]),
            float(cell["dropout"]),
            passes,
            name,
            float(measured["seconds"][name]["median"]),
            float(ratio["median"]),
            cell["peak_bytes"][name] / 2**20 if name in cell["peak_bytes"] else None,
        )
        for cell in cells
        for passes, measured in cell["passes"].items()
        for name, ratio in measured["ratio_to_sdpa"].items()
    ]


def operator_figure(measured: Sequence[Measured], device: str, command: str) -> Optional[Figure]:
    """Return the figure of the operator, or None without measurements; masks are in its table only."""
    if not measured:
        return None
    drawn = [row for row in measured if not (row.causal or row.padding) and row.passes == "forward_backward"]
    drawn = drawn or [row for row in measured if row.passes == "forward_backward"]
    settings = sorted({row.dropout for row in drawn})
    lengths = sorted({row.length for row in drawn})
    names = {name: line for name, line in _LINES.items() if any(row.implementation == name for row in drawn)}
    styles = plots.choose_styles([(paper.NAMES[attention], attention) for attention, _ in names.values()])

    def panel(title: str, unit: str, dropout: float, field: str) -> plots.Panel:
        values = {(r.implementation, r.length): getattr(r, field) for r in drawn if r.dropout == dropout}
        lines = [
            plots.Line(paper.NAMES[attention], [values.get((name, length)) for length in lengths], dashed)
            for name, (attention, dashed) in names.items()
            if any(values.get((name, length)) is not None for length in lengths)
        ]
        return plots.Panel(title, unit, lines, log=True, places=lengths)

    titles = {dropout: f"dropout {dropout:g}" if dropout else "no dropout" for dropout in settings}
    panels = [
        [panel(titles[dropout], "time over SDPA's", dropout, "time_over_sdpa") for dropout in settings],
        [panel(titles[dropout], "peak memory (MiB)", dropout, "peak_mib") for dropout in settings],
    ]
    return Figure(
        "operator",
        "Operator",
        "Time and memory of the operator by length",
        "Forward and backward, without masks, the same number of tokens at each length; lower is better. ReLU is "
        "rela_attention, and ReLA-g the same with its norm; the dashed lines are torch's fused softmax attention "
        f"(SDPA) and ReLU in plain PyTorch by torch.compile. {device}; {command}.",
        [row._asdict() for row in measured],
        lambda: plots.draw_layer_lines(panels, styles, "operator, products", "SDPA, compiled", axis_name="length T"),
    )
