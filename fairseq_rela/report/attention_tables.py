"""Tables 5 and 6 of the paper (alignment error rates, head diversity), and null rates of the mean over heads."""

from statistics import fmean
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from ..variants import SITES
from . import paper
from .figure import SITE_NAMES, level_text
from .groups import Group
from .run import Run
from .seeds import by_settings, common_label, mean, mean_and_deviation, seeds_note
from .table import NONE, Cell, Table, number, pairs_head, row_name

_AER_MEANS = {f"{kind} {mean}": (kind, mean.lower()) for kind in ("normal", "shifted") for mean in ("AoL", "AoH")}
_CLEAR = 2.0  # points of AER from which a difference is called clear


def tables_5(groups: Sequence[Group]) -> List[Table]:
    """Return Table 5 for each group with alignment error rates, or once with the paper's numbers alone."""
    return _for_each(groups, lambda run: run.alignment is not None, _table_5)


def tables_6(groups: Sequence[Group]) -> List[Table]:
    """Return Table 6 for each group with head diversities, or once with the paper's numbers alone."""
    return _for_each(groups, lambda run: _diversity(run, "cross", "1.0") is not None, _table_6)


def layer_null_tables(groups: Sequence[Group]) -> List[Table]:
    """Return the null rates of the attention averaged over the heads of each layer, for each group that has them."""
    return [_layer_nulls(group) for group in groups if any(map(_has_layer_nulls, group.runs))]


def _for_each(
    groups: Sequence[Group], has: Callable[[Run], bool], make: Callable[[Optional[Group]], Table]
) -> List[Table]:
    some = [group._replace(runs=list(filter(has, group.runs))) for group in groups if any(map(has, group.runs))]
    return [make(group) for group in some] or [make(None)]


def _paired(group: Optional[Group], keys: Sequence[str]) -> List[Tuple[str, Optional[str], List[Run]]]:
    """Return the rows of a table: name, key of the paper's row or None, and runs of the same settings.

    The rows of the paper come first, in the order of ``keys``; rows without runs have an empty list.
    """
    rows: List[Tuple[str, Optional[str], List[Run]]] = []
    left = by_settings(group.runs) if group else []
    for key in keys:
        same = [runs for runs in left if runs[0].is_everywhere(key)]
        rows += [(paper.NAMES[key] + seeds_note(runs), key, runs) for runs in same] or [(paper.NAMES[key], key, [])]
        left = [runs for runs in left if runs not in same]
    return rows + [(common_label(runs) + seeds_note(runs), None, runs) for runs in left]


def _ours(group: Optional[Group]) -> str:
    """Return the end of a caption, which names our test set."""
    return f"ours on {group.title}" if group else "ours: not measured"


def _level_note(group: Group) -> str:
    return f"The paper analyses {paper.LEVEL}. {level_text(group.runs)}"


# ------------------------------------------------------------------------------------------------------------ Table 5


def _table_5(group: Optional[Group]) -> Table:
    rows = []
    for name, key, runs in _paired(group, paper.COMPARED):
        published = paper.TABLE_5[key] if key else [None] * 4
        cells = [row_name(name)]
        for one, (kind, of) in zip(published, _AER_MEANS.values()):
            ours = mean_and_deviation([run.alignment[kind][of] for run in runs if run.alignment], 2, 100)
            cells += [Cell(number(one, 2), "n paper"), Cell(ours or NONE, "n other")]
        rows.append(cells)
    note = (
        "In percent, lower is better. AoL: mean over layers of the layer attention’s AER; AoH: of the best head’s. "
        f"{_layer_attention_note(group)} The paper has other models, another language pair and another gold alignment."
    )
    head = pairs_head(list(_AER_MEANS), Cell("ours", "n other"))
    notes = [note, *(_against_softmax(group) if group else ())]
    return Table(f"Table 5: alignment error rate; {_ours(group)}", head, rows, notes)


def _layer_attention_note(group: Optional[Group]) -> str:
    runs = group.runs if group else []
    normalised = [run.label for run in runs if run.files["analysis"].get("layer_attention") == "normalised"]
    if not normalised:
        return "The layer attention is the mean of the raw weights over the heads."
    return (
        f"The layer attention is the mean of the raw weights over the heads; in {', '.join(normalised)}, each row of "
        "each head is first divided by its sum."
    )


def _against_softmax(group: Group) -> Iterator[str]:
    """Yield a sentence for each model on whether it aligns clearly better than softmax, as ReLA does in the paper.

    Means over seeds are compared.
    """
    rows = [(common_label(runs), runs[0].attention, _aer_means(runs)) for runs in by_settings(group.runs)]
    softmax = next((means for _, attention, means in rows if attention == "softmax"), None)
    if softmax is None:
        return
    for label, attention, means in rows:
        if attention == "softmax":
            continue
        less = {name: 100 * (softmax[name] - value) for name, value in means.items()}
        clear = [name for name, points in less.items() if points >= _CLEAR]
        other = [f"{name} ({-points:+.1f})" for name, points in less.items() if points < _CLEAR]
        parts = []
        if clear:
            parts.append(f"clearly below, by {_CLEAR:g} points of AER or more, in {', '.join(clear)}")
        if other:
            parts.append(f"not clearly below in {', '.join(other)}")
        yield f"{label} against softmax, measured: {'; '.join(parts)}."


def _aer_means(runs: Sequence[Run]) -> Dict[str, float]:
    found = [run.alignment for run in runs if run.alignment]
    return {name: fmean(one[kind][of] for one in found) for name, (kind, of) in _AER_MEANS.items()}


# ------------------------------------------------------------------------------------------------------------ Table 6


def _diversity(run: Run, site: str, tau: str) -> Optional[float]:
    return mean([layer.diversity.get(tau) for layer in run.layers.get(site, [])])


def _table_6(group: Optional[Group]) -> Table:
    rows = []
    for name, published, runs, tau in _table_6_rows(group):
        cells = [row_name(name)]
        for site in SITES:
            ours = mean_and_deviation([_diversity(run, site, tau) for run in runs], 2)
            cells += [Cell(number(published.get(site), 2), "n paper"), Cell(ours or NONE, "n other")]
        rows.append(cells)
    note = "In nats, averaged over layers; τ is the temperature of the softmax over weights that do not sum to 1."
    head = pairs_head([SITE_NAMES[site] for site in SITES], Cell("ours", "n other"))
    notes = [note, *([_level_note(group)] if group else [])]
    return Table(f"Table 6: head diversity; {_ours(group)}", head, rows, notes)


def _table_6_rows(group: Optional[Group]) -> Iterator[Tuple[str, Dict[str, float], List[Run], str]]:
    """Yield name, values of the paper by site, runs, and temperature."""
    keys = list(dict.fromkeys(key for key, _ in paper.TABLE_6))
    for name, key, runs in _paired(group, keys):
        published = {tau: sites for (attention, tau), sites in paper.TABLE_6.items() if attention == key}
        if None in published:
            yield name, published[None], runs, "1.0"
            continue
        layers = [layer for run in runs for entries in run.layers.values() for layer in entries]
        measured = [tau for layer in layers for tau in layer.diversity]
        taus = list(dict.fromkeys([*published, *measured]))
        for tau in taus:
            yield (f"{name}, τ = {tau}" if len(taus) > 1 else name), published.get(tau, {}), runs, tau


# ------------------------------------------------------------------------------------ null rates of the mean of heads


def _has_layer_nulls(run: Run) -> bool:
    return any(layer.layer_null_rate is not None for layers in run.layers.values() for layer in layers)


def _layer_nulls(group: Group) -> Table:
    depth = max(len(layers) for run in group.runs for layers in run.layers.values())
    head = [Cell("model"), Cell("attention"), *(Cell(f"layer {layer}", "n") for layer in range(1, depth + 1))]
    rows = []
    for runs in by_settings([run for run in group.runs if _has_layer_nulls(run)]):
        for site in SITES:
            layers = list(zip(*(run.layers.get(site, []) for run in runs)))
            if not layers:
                continue
            rates = [mean_and_deviation([layer.layer_null_rate for layer in same], 2, 100) or NONE for same in layers]
            cells = [Cell(rate, "n") for rate in rates + [NONE] * (depth - len(rates))]
            rows.append([row_name(common_label(runs) + seeds_note(runs)), Cell(SITE_NAMES[site], "word"), *cells])
    note = "In percent. The paper reports almost no null queries once the heads of a layer are averaged. "
    title = f"Null rate of the attention averaged over the heads of a layer; {_ours(group)}"
    return Table(title, [head], rows, [note + _level_note(group)])
