"""Make the figures of the paper from our runs: each has its numbers as table rows and a function that draws it."""

import csv
import io
import json
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import numpy

from ..variants import SITES
from . import paper, plots, speed
from .runs import Example, Group, Layer, Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

SITE_NAMES = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
SCORES = {"null_rate_auc": "null rate", "logprob_auc": "log-probability"}
_HEATMAP_PIECES = 26  # sentences with more pieces are only in the interactive view
_MAPS = 4  # most cross-attention maps in a figure


class Figure(NamedTuple):
    """One figure of the report.

    Attributes:
        name: name of its files without ending.
        number: figure or section of the paper, such as ``Figure 3``.
        title, caption: title, and caption that explains how to read the figure.
        rows: the numbers of the figure; all rows have the same columns.
        draw: function that draws the figure.
    """

    name: str
    number: str
    title: str
    caption: str
    rows: List[Dict[str, Any]]
    draw: Callable[[], "Drawing"]

    def as_json(self, group: str) -> str:
        record = {"figure": self.number, "title": self.title, "measured_on": group, "rows": self.rows}
        return json.dumps(record, ensure_ascii=False, indent=1, allow_nan=False) + "\n"

    def as_csv(self) -> str:
        text = io.StringIO()
        writer = csv.DictWriter(text, list(self.rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()


def line_figures(group: Group, styles: Dict[str, plots.Style]) -> List[Figure]:
    """Return those of Figures 3 to 6 for which the runs have numbers."""
    made = (_sparsity(group, styles), _alignment(group, styles), _diversity(group, styles), _null_rates(group, styles))
    return [figure for figure in made if figure is not None]


def speed_figure(speeds: speed.Speeds) -> Optional[Figure]:
    """Return Figure 2 from a benchmark, or None without decoding speeds."""
    if not speeds.decoding:
        return None
    models = speeds.models or {name: name for name in paper.COMPARED}
    there = {name for one in speeds.decoding for name in one.speeds}
    names = {name: paper.NAMES.get(name, name) for name in models if name in there}
    styles = plots.choose_styles([(label, models[name]) for name, label in names.items()])
    panels = [
        plots.Panel(
            "one sentence at a time" if one.batch == 1 else f"{one.batch} sentences at a time",
            "speed over softmax",
            [plots.Line(names[name], values) for name, values in one.speeds.items()],
            places=one.lengths,
        )
        for one in speeds.decoding
    ]
    return Figure(
        "figure-2-decoding",
        "Figure 2",
        "Decoding speed-up by source length",
        f"More is faster, softmax is 1. {speeds.about_decoding} {speeds.device}; {speeds.command}.",
        speed.rows(speeds.decoding),
        lambda: plots.draw_layer_lines([panels], styles, axis_name="source length (pieces)"),
    )


def level_text(runs: Sequence[Run]) -> str:
    """Return a sentence with the level at which the runs were measured, pieces or words."""
    levels = {run.level for run in runs if run.level}
    if len(levels) == 1:
        return f"Measured at the level of {levels.pop()}."
    return "Measured at levels that differ: " + ", ".join(f"{r.label} of {r.level}" for r in runs if r.level) + "."


def _with_level(rows: List[Dict[str, Any]], runs: Sequence[Run]) -> List[Dict[str, Any]]:
    levels = {run.label: run.level for run in runs}
    return [{**row, "level": levels[row["run"]]} for row in rows]


def _name(group: Group, what: str) -> str:
    return f"{group.key}-{what}"


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
        _name(group, "figure-3-sparsity"),
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
        _name(group, "figure-4-aer"),
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
        _name(group, "figure-5-diversity"),
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
        _name(group, "figure-6-null-rate"),
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


def head_figures(group: Group) -> List[Figure]:
    """Return a figure with the null rates of all heads for each run that has null queries."""
    return [_head_figure(group, run) for run in group.runs if run.null_possible]


def _head_figure(group: Group, run: Run) -> Figure:
    panels = [
        (SITE_NAMES[site], [layer.null_rate_by_head for layer in run.layers[site]])
        for site in SITES
        if run.layers.get(site)
    ]
    return Figure(
        f"{_run_name(group, run)}-null-rate-by-head",
        "Figures 7\u201310, null rates",
        f"{run.label}: null rate of every head",
        f"In percent, darker is more often off. Layers and heads count from 1. {level_text([run])}",
        [
            {"run": run.label, "site": site, "layer": number, "head": head, "null_rate": rate, "level": run.level}
            for site, layers in run.layers.items()
            for number, layer in enumerate(layers, 1)
            for head, rate in enumerate(layer.null_rate_by_head, 1)
        ],
        lambda: plots.draw_head_grid(panels),
    )


def _run_name(group: Group, run: Run) -> str:
    label = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in run.label)
    return f"{group.key}-{group.runs.index(run) + 1}-{label[:60]}"


class _Chosen(NamedTuple):
    """A head to draw, or the mean over the heads of a layer if ``head`` is None, and the reason for its choice."""

    site: str
    layer: int
    head: Optional[int]
    why: str


def heat_maps(group: Group) -> List[Figure]:
    """Return Figures 7 to 10: for each run, cross-attention of two sentences and self-attention of the first of them.

    All runs show the same sentences, if they have them.
    """
    figures = []
    numbers = _choose_sentences(group)
    for run in group.runs:
        examples = {example.number: example for example in run.examples}
        shown = [examples[number] for number in numbers if number in examples]
        for place, example in enumerate(shown):
            if "cross" in example.weights:
                figures.append(_heat_map(group, run, example, "cross-attention", _choose_cross(run, example)))
            if place == 0 and example.weights.keys() & {"encoder", "decoder"}:
                chosen = [one for site in ("encoder", "decoder") for one in _choose_extremes(run, example, site)]
                figures.append(_heat_map(group, run, example, "self-attention", chosen))
    return figures


def _choose_sentences(group: Group, number: int = 2) -> List[int]:
    """Return the numbers of the sentences to draw: those that most runs have, among sentences that are not too long."""
    counts: Dict[int, int] = {}
    for run in group.runs:
        for example in run.examples:
            if max(len(example.source), len(example.target)) <= _HEATMAP_PIECES and example.source and example.target:
                counts[example.number] = counts.get(example.number, 0) + 1
    return sorted(counts, key=lambda sentence: (-counts[sentence], sentence))[:number]


def _choose_cross(run: Run, example: Example) -> List[_Chosen]:
    """Choose the layer attention, the head with the lowest AER, and heads with the highest and lowest null rates."""
    layers = example.weights["cross"]
    layer = len(layers) - 1
    chosen = []
    if run.alignment:
        kind = min(("normal", "shifted"), key=lambda kind: run.alignment[kind]["best"]["aer"])
        entries = run.alignment[kind]["layers"]
        layer = min(range(len(entries)), key=lambda i: entries[i]["heads"][entries[i]["best_head"]]["aer"])
        layer = min(layer, len(layers) - 1)
        head = entries[layer]["best_head"]
        if head < len(layers[layer]):
            error = entries[layer]["heads"][head]["aer"]
            chosen.append(_Chosen("cross", layer, head, f"lowest AER, {error:.0%} {kind}"))
    chosen.insert(0, _Chosen("cross", layer, None, ""))
    taken = [(one.layer, one.head) for one in chosen]
    extremes = [one for one in _choose_extremes(run, example, "cross", 4) if (one.layer, one.head) not in taken]
    return [*chosen, *extremes[: _MAPS - len(chosen)]]


def _choose_extremes(run: Run, example: Example, site: str, number: int = 2) -> List[_Chosen]:
    """Choose the heads with the highest and lowest null rates on the test set.

    If no head is ever null, choose those with the highest and lowest mean of the row maxima of this sentence.
    """
    rates = {
        (number, head): rate
        for number, layer in enumerate(run.layers.get(site, []))
        for head, rate in enumerate(layer.null_rate_by_head)
    }
    places = [(layer, head) for layer, heads in enumerate(example.weights.get(site, [])) for head in range(len(heads))]
    if any(rates.get(place, 0) > 0 for place in places):
        ordered = sorted(places, key=lambda place: (-rates.get(place, 0), place))
        reasons = [f"null rate {rates.get(place, 0):.0%}" for place in ordered]
    else:
        sharp = {place: float(example.weights[site][place[0]][place[1]].max(axis=1).mean()) for place in places}
        ordered = sorted(places, key=lambda place: (-sharp[place], place))
        reasons = [f"mean maximum {sharp[place]:.2f}" for place in ordered]
    order = [index for pair in zip(range(len(ordered)), reversed(range(len(ordered)))) for index in pair]
    picked = list(dict.fromkeys(order))[:number]
    return [_Chosen(site, *ordered[index], reasons[index]) for index in picked]


def _heat_map(group: Group, run: Run, example: Example, what: str, chosen: Sequence[_Chosen]) -> Figure:
    maps, rows = [], []
    for one in chosen:
        layer = example.weights[one.site][one.layer]
        weights = layer.mean(axis=0) if one.head is None else layer[one.head]
        queries, keys = example.sides(one.site)
        head = "mean over heads" if one.head is None else f"head {one.head + 1}"
        site = "" if one.site == "cross" else f"{one.site}, "
        title = f"{site}layer {one.layer + 1}, {head}" + (f" ({one.why})" if one.why else "")
        maps.append(plots.HeatMap(title, weights, queries, keys, one.site == "decoder"))
        rows += _cells(run, one, weights, queries, keys)
    axes = (
        ("source (key)", "target (query)") if what == "cross-attention" else ("attended piece (key)", "piece (query)")
    )
    return Figure(
        f"{_run_name(group, run)}-figures-7-10-{what}-sentence-{example.number}",
        "Figures 7\u201310",
        f"{run.label}: {what} of sentence {example.number}",
        "A row of the target is the step that predicts the piece it is named by. White is exactly 0, hatched rows "
        "are null queries; each map has its own scale, and weights of ReLA are not limited to 0..1.",
        rows,
        lambda: plots.draw_heat_maps(maps, *axes),
    )


def _cells(
    run: Run, one: _Chosen, weights: numpy.ndarray, queries: Sequence[str], keys: Sequence[str]
) -> List[Dict[str, Any]]:
    head = "mean" if one.head is None else one.head + 1
    place = {"run": run.label, "site": one.site, "layer": one.layer + 1, "head": head}
    return [
        {**place, "query": t + 1, "query_piece": query, "key": s + 1, "key_piece": key, "weight": float(weights[t, s])}
        for t, query in enumerate(queries)
        for s, key in enumerate(keys)
        if one.site != "decoder" or s <= t
    ]


def ranking_figure(group: Group, styles: Dict[str, plots.Style]) -> Optional[Figure]:
    """Return the figure of how well null rate and log-probability separate damaged from sound pairs, or None."""
    runs = [run for run in group.runs if "rank" in run.files]
    if not runs:
        return None
    kinds = list(dict.fromkeys(kind for run in runs for kind in run.files["rank"]["kinds"]))
    common = [kind for kind in kinds if all(kind in run.files["rank"]["kinds"] for run in runs)]
    rows = [
        {"run": run.label, "pairs": run.files["rank"]["pairs"], "kind": kind, "score": name, "auc": areas[key]}
        for run in runs
        for kind, areas in run.files["rank"]["kinds"].items()
        for key, name in SCORES.items()
    ]
    bars = [
        plots.Bars(run.label, [run.files["rank"]["kinds"][kind][key] for kind in common], key == "logprob_auc")
        for run in runs
        for key in SCORES
    ]
    names = [kind.replace("_", " ") for kind in common]
    return Figure(
        _name(group, "ranking-auc"),
        "Section 5.2",
        "Ranking sentence pairs: how well each kind of damage shows",
        "Area under the ROC curve for telling damaged pairs from sound ones: 1 is perfect, 0.5 is chance. "
        "Plain bars: a high cross-attention null rate is bad. Hatched: a low log-probability is bad. "
        + "; ".join(f"{run.label}: {run.files['rank']['pairs']:,} pairs" for run in runs)
        + ".",
        rows,
        lambda: plots.draw_bars(names, bars, styles, "area under the ROC curve", *SCORES.values()),  # type: ignore[arg-type]
    )


def all_figures(group: Group, styles: Dict[str, plots.Style]) -> Iterable[Figure]:
    """Yield all figures of a group, in the order of the paper."""
    yield from line_figures(group, styles)
    yield from head_figures(group)
    yield from heat_maps(group)
    ranking = ranking_figure(group, styles)
    if ranking is not None:
        yield ranking


def sites_of(run: Run) -> List[Tuple[str, List[Layer]]]:
    return [(site, run.layers[site]) for site in SITES if run.layers.get(site)]
