"""Figures 3 to 6 of the paper: sparsity, alignment, head diversity and null rates of every layer."""

from operator import attrgetter
from typing import Any, Callable, Dict, List, Optional, Sequence

from ..variants import SITES
from . import plots
from .figure import SITE_NAMES, Figure, level_text
from .groups import Group
from .run import Layer, Run

_Value = Callable[[Layer], Optional[float]]


def layer_figures(group: Group, styles: Dict[str, plots.Style]) -> List[Figure]:
    """Return those of Figures 3 to 6 for which the runs have numbers."""
    made = (_sparsity(group, styles), _alignment(group, styles), _diversity(group, styles), _null_rates(group, styles))
    return [figure for figure in made if figure is not None]


def _rows(runs: Sequence[Run], more: Optional[Dict[str, Any]] = None, **values: _Value) -> List[Dict[str, Any]]:
    """Return a table row with these values for each layer, by site; ``more`` has further columns."""
    return [
        {
            **{"run": run.label, "site": site, **(more or {}), "layer": number},
            **{key: value(layer) for key, value in values.items()},
            "level": run.level,
        }
        for site in SITES
        for run in runs
        for number, layer in enumerate(run.layers.get(site, []), 1)
    ]


def _sites_of(runs: Sequence[Run]) -> List[str]:
    """Return the sites that some run has; a language model has the decoder alone."""
    return [site for site in SITES if any(run.layers.get(site) for run in runs)]


def _lines(runs: Sequence[Run], site: str, value: _Value, scale: float = 1.0, dashed: bool = False) -> List[plots.Line]:
    """Return a line over the layers of a site for each run that has the value."""
    lines = []
    for run in runs:
        values = [value(layer) for layer in run.layers.get(site, [])]
        if any(one is not None for one in values):
            lines.append(plots.Line(run.label, [None if one is None else scale * one for one in values], dashed))
    return lines


def _sparsity(group: Group, styles: Dict[str, plots.Style]) -> Optional[Figure]:
    runs = [run for run in group.runs if run.layers]
    if not runs:
        return None
    panels = [
        plots.Panel(SITE_NAMES[site], "weights exactly 0 (%)", _lines(runs, site, attrgetter("sparsity"), 100), 100)
        for site in _sites_of(runs)
    ]
    return Figure(
        f"{group.key}-figure-3-sparsity",
        "Figure 3",
        "Sparsity by layer",
        "Share of attention weights that are exactly 0, averaged over the heads of a layer. Padding and future "
        f"positions are not counted. {level_text(runs)}",
        _rows(runs, sparsity=attrgetter("sparsity")),
        lambda: plots.draw_layer_lines([panels], styles),
    )


def _alignment(group: Group, styles: Dict[str, plots.Style]) -> Optional[Figure]:
    aligned = [(run, run.alignment) for run in group.runs if run.alignment]
    if not aligned:
        return None
    rows, panels = [], []
    for kind, title in (
        ("normal", "normal: step i with target word i"),
        ("shifted", "shifted: step i with target word i \u2212 1"),
    ):
        lines = []
        for run, alignment in aligned:
            layers = alignment[kind]["layers"]
            best = [layer["heads"][layer["best_head"]]["aer"] for layer in layers]
            mean = [layer["layer_attention"]["aer"] for layer in layers]
            for name, values, dashed in (("best head", best, False), ("layer attention", mean, True)):
                lines.append(plots.Line(run.label, [100 * value for value in values], dashed))
                rows += [
                    {"run": run.label, "rows": kind, "weights": name, "layer": layer, "aer": value}
                    for layer, value in enumerate(values, 1)
                ]
        panels.append(plots.Panel(title, "AER (%), lower is better", lines, 100))
    return Figure(
        f"{group.key}-figure-4-aer",
        "Figure 4",
        "Alignment error rate by layer",
        "AER of cross-attention against the gold word alignment; a null query has no link. Solid: the best head of a "
        "layer. Dashed: its layer attention, the mean over heads.",
        rows,
        lambda: plots.draw_layer_lines([panels], styles, "best head", "layer attention"),
    )


def _diversity(group: Group, styles: Dict[str, plots.Style]) -> Optional[Figure]:
    runs = [run for run in group.runs if any(layer.diversity for layers in run.layers.values() for layer in layers)]
    if not runs:
        return None
    panels = [
        plots.Panel(
            SITE_NAMES[site], "head diversity (nats)", _lines(runs, site, lambda layer: layer.diversity.get("1.0"))
        )
        for site in _sites_of(runs)
    ]
    return Figure(
        f"{group.key}-figure-5-diversity",
        "Figure 5",
        "Head diversity by layer",
        "How much the heads of a layer differ: the entropy of their mean minus the mean of their entropies, averaged "
        "over queries; 0 if all heads are equal. A softmax at \u03c4 = 1 turns ReLA weights into probabilities; "
        f"Table 6 has the other temperatures. {level_text(runs)}",
        [
            {"run": run.label, "site": site, "tau": tau, "layer": number, "diversity": value, "level": run.level}
            for run in runs
            for site, layers in run.layers.items()
            for number, layer in enumerate(layers, 1)
            for tau, value in layer.diversity.items()
        ],
        lambda: plots.draw_layer_lines([panels], styles),
    )


def _null_rates(group: Group, styles: Dict[str, plots.Style]) -> Optional[Figure]:
    runs = [run for run in group.runs if run.layers]
    if not runs:
        return None

    def lines(site: str, place: int, scale: float) -> List[plots.Line]:
        return [
            line
            for targets in ("true", "shuffled")
            for line in _lines(
                runs, site, lambda layer, targets=targets: layer.nulls(targets)[place], scale, targets == "shuffled"
            )
        ]

    drawn = [[plots.Panel(SITE_NAMES[site], "null queries (%)", lines(site, 0, 100)) for site in _sites_of(runs)]]
    if any(layer.null_rate_variance is not None for run in runs for ls in run.layers.values() for layer in ls):
        drawn.append([plots.Panel("", "variance over heads", lines(site, 1, 1)) for site in _sites_of(runs)])
    rows = [
        row
        for targets in ("true", "shuffled")
        for row in _rows(
            runs,
            {"targets": targets},
            null_rate=lambda layer, targets=targets: layer.nulls(targets)[0],
            null_rate_variance=lambda layer, targets=targets: layer.nulls(targets)[1],
        )
        if row["null_rate"] is not None
    ]
    return Figure(
        f"{group.key}-figure-6-null-rate",
        "Figure 6",
        "Null rate by layer, on true and on shuffled targets",
        "Share of queries all of whose weights are 0, averaged over heads, and its sample variance over the heads of a "
        "layer (at most 0.29 for eight heads). Solid: true targets. Dashed: each source with the target of another, "
        "which should raise the null rate of cross-attention; the encoder sees no target, so there the lines coincide. "
        f"{level_text(runs)}",
        rows,
        lambda: plots.draw_layer_lines(drawn, styles, "true targets", "shuffled targets"),
    )
