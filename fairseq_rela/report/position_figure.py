"""The figure of language models: sparsity, null rate and head diversity by position in the context."""

from typing import Any, Dict, List, Optional

from . import plots
from .figure import Figure
from .groups import Group
from .run import Run

NUMBER = "Language models"
_MEASURES = {
    "sparsity": ("weights exactly 0 (%)", 100),
    "null_rate": ("null queries (%)", 100),
    "diversity": ("head diversity (nats)", 1),
}


def position_figure(group: Group, styles: Dict[str, plots.Style]) -> Optional[Figure]:
    """Return the figure of the runs whose analysis has positions, or None."""
    runs = [run for run in group.runs if _positions(run)]
    if not runs:
        return None
    rows = [row for run in runs for row in _rows(run)]
    longest = max((_positions(run) for run in runs), key=len)
    places = [
        f"{part['first']}\u2013{part['last']}" if part["last"] > part["first"] else str(part["first"])
        for part in longest
    ]

    def panel(key: str) -> plots.Panel:
        unit, scale = _MEASURES[key]
        means = [row for row in rows if row["layer"] == "all"]
        lines = [plots.Line(run.label, [scale * row[key] for row in means if row["run"] == run.label]) for run in runs]
        return plots.Panel("", unit, lines, 100 if scale == 100 else None, places=places)

    panels = [[panel(key)] for key in _MEASURES]
    return Figure(
        f"{group.key}-positions",
        NUMBER,
        "Attention by position in the context",
        "Mean over layers and heads for the queries at these positions of their context, from 1; a query at position t "
        "may attend to t pieces, itself included. Head diversity is at \u03c4 = 1. Measured at the level of pieces.",
        rows,
        lambda: plots.draw_layer_lines(panels, styles, axis_name="position in the context"),
    )


def _positions(run: Run) -> List[Dict[str, Any]]:
    return run.files.get("analysis", {}).get("positions", [])


def _rows(run: Run) -> List[Dict[str, Any]]:
    """Return a row for the mean over layers, called ``all``, and one for each layer, of each range of positions."""
    rows = []
    for part in _positions(run):
        measured = part["sites"]["decoder"]
        for layer, entry in [("all", measured), *enumerate(measured["layers"], 1)]:
            rates = {key: entry[key] for key in ("sparsity", "null_rate")}
            where = {"first": part["first"], "last": part["last"], "queries": part["queries"]}
            rows.append({"run": run.label, "layer": layer, **where, **rates, "diversity": entry["diversity"]["1.0"]})
    return rows
