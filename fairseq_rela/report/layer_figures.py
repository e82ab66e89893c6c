"""Figures 3 to 6 of the paper: sparsity, alignment, head diversity and null rates of every layer."""

from typing import Any, Callable, Dict, List, Optional, Sequence

from ..variants import SITES
from . import plots
from .figure import SITE_NAMES, Figure, level_text
from .groups import Group
from .run import Layer, Run


def layer_figures(group: Group, styles: Dict[str, plots.Style]) -> List[Figure]:
    """Return those of Figures 3 to 6 for which the runs have numbers."""
    made = (_sparsity(group, styles), _alignment(group, styles), _diversity(group, styles), _null_rates(group, styles))
    return [figure for figure in made if figure is not None]


def _with_level(rows: List[Dict[str, Any]], runs: Sequence[Run]) -> List[Dict[str, Any]]:
    levels = {run.label: run.level for run in runs}
    return [{**row, "level": levels[row["run"]]} for row in rows]


def _layered(runs: Sequence[Run], value: Callable[[Layer], Optional[float]]) -> Dict[str, List[plots.Line]]:
    """Return site to one line for each run, with the value of each layer."""
    return {
        site: [
            plots.Line(run.label, [value(layer) for layer in run.layers[site]]) for run in runs if site in run.layers
        ]
        for site in SITES
    }


def _long(lines: Dict[str, List[plots.Line]], key: str, **more: Any) -> List[Dict[str, Any]]:
    return [
        {"run": line.label, "site": site, **more, "layer": layer, key: value}
        for site, entries in lines.items()
        for line in entries
        for layer, value in enumerate(line.values, 1)
    ]


def _percent(line: plots.Line) -> plots.Line:
    return line._replace(values=[None if value is None else 100 * value for value in line.values])


def _sparsity(group: Group, styles: Dict[str, plots.Style]) -> Optional[Figure]:
    runs = [run for run in group.runs if run.layers]
    if not runs:
        return None
    lines = _layered(runs, lambda layer: layer.sparsity)
    panels = [
        plots.Panel(SITE_NAMES[site], "weights exactly 0 (%)", list(map(_percent, lines[site])), 100) for site in SITES
    ]
    return Figure(
        f"{group.key}-figure-3-sparsity",
        "Figure 3",
        "Sparsity by layer",
        "Share of attention weights that are exactly 0, averaged over the heads of a layer. Padding and future "
        f"positions are not counted. {level_text(runs)}",
        _with_level(_long(lines, "sparsity"), runs),
        lambda: plots.draw_layer_lines([panels], styles),
    )


def _alignment(group: Group, styles: Dict[str, plots.Style]) -> Optional[Figure]:
    runs = [run for run in group.runs if run.alignment]
    if not runs:
        return None
    rows, panels = [], []
    for kind, title in (
        ("normal", "normal: step i with target word i"),
        ("shifted", "shifted: step i with target word i \u2212 1"),
    ):
        lines = []
        for run in runs:
            layers = run.alignment[kind]["layers"]
            best = [layer["heads"][layer["best_head"]]["aer"] for layer in layers]
            mean = [layer["layer_attention"]["aer"] for layer in layers]
            for name, values, dashed in (("best head", best, False), ("layer attention", mean, True)):
                lines.append(_percent(plots.Line(run.label, values, dashed)))
                rows += [
                    {"run": run.label, "rows": kind, "weights": name, "layer": layer, "aer": value}
                    for layer, value in enumerate(values, 1)
                ]
        panels.append(plots.Panel(title, "AER (%), lower is better", lines, 100))
    return Figure(
        f"{group.key}-figure-4-aer",
        "Figure 4",
        "Alignment error rate by layer",
        "Of cross-attention against the gold word alignment; a null query aligns nothing. Solid: the best head of a "
        "layer. Dashed: its layer attention, the mean over heads.",
        rows,
        lambda: plots.draw_layer_lines([panels], styles, "best head", "layer attention"),
    )


def _diversity(group: Group, styles: Dict[str, plots.Style]) -> Optional[Figure]:
    runs = [run for run in group.runs if any(layer.diversity for layers in run.layers.values() for layer in layers)]
    if not runs:
        return None
    lines = _layered(runs, lambda layer: layer.diversity.get("1.0"))
    panels = [plots.Panel(SITE_NAMES[site], "head diversity (nats)", lines[site]) for site in SITES]
    return Figure(
        f"{group.key}-figure-5-diversity",
        "Figure 5",
        "Head diversity by layer",
        "How much the heads of a layer differ: entropy of their mean less the mean of their entropies, averaged over "
        "queries; 0 where all heads are equal. ReLA weights are made probabilities by a softmax at \u03c4 = 1; "
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
    parts = (("true", 0), ("shuffled", 1))
    rates = {kind: _layered(runs, lambda layer, kind=kind: _null_rate(layer, kind, 0)) for kind, _ in parts}
    variances = {kind: _layered(runs, lambda layer, kind=kind: _null_rate(layer, kind, 1)) for kind, _ in parts}

    def both(values: Dict[str, Dict[str, List[plots.Line]]], site: str, percent: bool) -> List[plots.Line]:
        lines = [line._replace(dashed=bool(dashed)) for kind, dashed in parts for line in values[kind][site]]
        lines = [line for line in lines if any(value is not None for value in line.values)]
        return list(map(_percent, lines)) if percent else lines

    drawn = [[plots.Panel(SITE_NAMES[s], "null queries (%)", both(rates, s, True)) for s in SITES]]
    if any(layer.null_rate_variance is not None for run in runs for ls in run.layers.values() for layer in ls):
        drawn.append([plots.Panel("", "variance over heads", both(variances, s, False)) for s in SITES])
    rows = [
        {**rate, "null_rate_variance": variance["null_rate_variance"]}
        for kind, _ in parts
        for rate, variance in zip(
            _long(rates[kind], "null_rate", targets=kind), _long(variances[kind], "null_rate_variance", targets=kind)
        )
        if rate["null_rate"] is not None
    ]
    return Figure(
        f"{group.key}-figure-6-null-rate",
        "Figure 6",
        "Null rate by layer, on true and on shuffled targets",
        "Share of queries all of whose weights are 0, averaged over heads, and its sample variance over the heads of a "
        "layer (at most 0.29 for eight heads). Solid: true targets. Dashed: each source with the target of another, "
        "which should raise the null rate of cross-attention; the encoder sees no target, so there the lines coincide. "
        f"{level_text(runs)}",
        _with_level(rows, runs),
        lambda: plots.draw_layer_lines(drawn, styles, "true targets", "shuffled targets"),
    )


def _null_rate(layer: Layer, kind: str, place: int) -> Optional[float]:
    if kind == "true":
        return (layer.null_rate, layer.null_rate_variance)[place]
    return None if layer.shuffled is None else layer.shuffled[place]
