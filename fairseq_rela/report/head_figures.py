"""Null rates of all heads, and heat maps of selected heads as in Figures 7 to 10 of the paper."""

from typing import Any, Dict, List, Sequence, Tuple

from ..variants import SITES
from . import plots
from .characters import file_name
from .figure import SITE_NAMES, Figure, level_text
from .groups import Group
from .head import AXES, Head
from .run import Example, Run

_HEATMAP_PIECES = 26  # sentences with more pieces are only in the interactive view
_MAPS = 4  # maximum number of cross-attention maps in a figure
_Chosen = Tuple[Head, str]  # and the reason for its choice


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
        f"In percent; darker heads are null more often. Layers and heads count from 1. {level_text([run])}",
        [
            {"run": run.label, "site": site, "layer": number, "head": head, "null_rate": rate, "level": run.level}
            for site, layers in run.layers.items()
            for number, layer in enumerate(layers, 1)
            for head, rate in enumerate(layer.null_rate_by_head, 1)
        ],
        lambda: plots.draw_head_grid(panels),
    )


def _run_name(group: Group, run: Run) -> str:
    return f"{group.key}-{group.runs.index(run) + 1}-{file_name(run.label)[:60]}"


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
    alignment = run.alignment
    if alignment:
        errors = {kind: alignment[kind]["best"]["aer"] for kind in ("normal", "shifted")}
        kind = min(errors, key=lambda one: errors[one])
        entries = alignment[kind]["layers"]
        layer = min(range(len(entries)), key=lambda i: entries[i]["heads"][entries[i]["best_head"]]["aer"])
        layer = min(layer, len(layers) - 1)
        head = entries[layer]["best_head"]
        if head < len(layers[layer]):
            error = entries[layer]["heads"][head]["aer"]
            chosen.append((Head("cross", layer, head), f"lowest AER, {error:.0%} {kind}"))
    chosen.insert(0, (Head("cross", layer, None), ""))
    taken = [head for head, _ in chosen]
    extremes = [one for one in _choose_extremes(run, example, "cross", 4) if one[0] not in taken]
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
    scores, reason = {place: rates.get(place, 0.0) for place in places}, "null rate {:.0%}"
    if not any(scores.values()):
        scores = {(layer, head): example.weights[site][layer][head].max(axis=1).mean() for layer, head in places}
        reason = "mean maximum {:.2f}"
    ordered = sorted(places, key=lambda place: (-scores[place], place))
    from_both_ends = dict.fromkeys(place for pair in zip(ordered, reversed(ordered)) for place in pair)
    return [(Head(site, *place), reason.format(scores[place])) for place in list(from_both_ends)[:number]]


def _heat_map(group: Group, run: Run, example: Example, what: str, chosen: Sequence[_Chosen]) -> Figure:
    maps, rows = [], []
    for head, why in chosen:
        site = "" if head.site == "cross" else f"{head.site}, "
        name = "mean over heads" if head.head is None else f"head {head.head + 1}"
        title = f"{site}layer {head.layer + 1}, {name}" + (f" ({why})" if why else "")
        maps.append(head.heat_map(example, title))
        rows += _cells(run, head, example)
    return Figure(
        f"{_run_name(group, run)}-figures-7-10-{what}-sentence-{example.number}",
        "Figures 7\u201310",
        f"{run.label}: {what} of sentence {example.number}",
        "A row with the name of a target piece is the step that predicts this piece. White is exactly 0; hatched rows "
        "are null queries. Each map has its own scale, because weights of ReLA are not limited to 0..1.",
        rows,
        lambda: plots.draw_heat_maps(maps, *AXES[chosen[0][0].site]),
    )


def _cells(run: Run, head: Head, example: Example) -> List[Dict[str, Any]]:
    """Return a table row for each weight; keys after the query are left out in the decoder."""
    name = "mean" if head.head is None else head.head + 1
    place = {"run": run.label, "site": head.site, "layer": head.layer + 1, "head": name}
    weights, (queries, keys) = head.weights(example), example.sides(head.site)
    return [
        {**place, "query": t + 1, "query_piece": query, "key": s + 1, "key_piece": key, "weight": float(weights[t, s])}
        for t, query in enumerate(queries)
        for s, key in enumerate(keys)
        if head.site != "decoder" or s <= t
    ]
