"""The figures of a report: all of a group of runs, and Figure 2 from a benchmark."""

from typing import Dict, Iterable, Optional

from . import paper, plots, speed
from .figure import Figure
from .groups import Group
from .head_figures import head_figures, heat_maps
from .layer_figures import layer_figures
from .position_figure import position_figure

_SCORES = {"null_rate_auc": "null rate", "logprob_auc": "log-probability"}


def all_figures(group: Group, styles: Dict[str, plots.Style]) -> Iterable[Figure]:
    """Yield all figures of a group, in the order of the paper."""
    yield from layer_figures(group, styles)
    yield from head_figures(group)
    yield from heat_maps(group)
    positions = position_figure(group, styles)
    if positions is not None:
        yield positions
    ranking = ranking_figure(group, styles)
    if ranking is not None:
        yield ranking


def speed_figure(speeds: speed.Speeds) -> Optional[Figure]:
    """Return Figure 2 from a benchmark, or None without decoding speeds."""
    if not speeds.decoding:
        return None
    models = speeds.models or {name: name for name in speed.COMPARED}
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
        f"Higher is faster; softmax is 1. {speeds.about_decoding} {speeds.device}; {speeds.command}.",
        speed.rows(speeds.decoding),
        lambda: plots.draw_layer_lines([panels], styles, axis_name="source length (pieces)"),
    )


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
        for key, name in _SCORES.items()
    ]
    bars = [
        plots.Bars(run.label, [run.files["rank"]["kinds"][kind][key] for kind in common], key == "logprob_auc")
        for run in runs
        for key in _SCORES
    ]
    names = [kind.replace("_", " ") for kind in common]
    return Figure(
        f"{group.key}-ranking-auc",
        "Section 5.2",
        "Ranking sentence pairs: how well each kind of damage shows",
        "Area under the ROC curve for telling damaged pairs from sound ones: 1 is perfect, 0.5 is chance. "
        "Plain bars: pairs with a high null rate of cross-attention count as damaged. Hatched bars: those with a low "
        "log-probability. " + "; ".join(f"{run.label}: {run.files['rank']['pairs']:,} pairs" for run in runs) + ".",
        rows,
        lambda: plots.draw_bars(names, bars, styles, "area under the ROC curve", *_SCORES.values()),  # type: ignore[arg-type]
    )
