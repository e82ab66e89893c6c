"""The table of all measurements, with one column for each run."""

from typing import Callable, List, Sequence, Tuple

from ..variants import SITES
from .figure import SITE_NAMES
from .groups import Group
from .run import Run
from .seeds import mean
from .table import NONE, Cell, Table, number, percent, row_name

_RATES = {
    "sparsity": "exact zeros",
    "null_rate": "null queries",
    "layer_null_rate": "null queries of the mean of heads",
}
_Row = Tuple[str, Callable[[Run], str], str]  # name, text for a run, kind of the cells


def overview(groups: Sequence[Group]) -> Table:
    """Return the table; rows that no run has are left out."""
    runs = [run for group in groups for run in group.runs]
    shown = [row for row in _rows(runs) if any(row[1](run) != NONE for run in runs)]
    head = [
        [Cell(""), *(Cell(group.title, "group", columns=len(group.runs)) for group in groups)],
        [Cell(""), *(Cell(run.label, "n") for run in runs)],
    ]
    body = [[row_name(name), *(Cell(value(run), kind) for run in runs)] for name, value, kind in shown]
    return Table("What was measured", head, body)


def signatures(groups: Sequence[Group]) -> List[str]:
    """Return the sacreBLEU signatures of the scores."""
    scores = [run.files["score"] for group in groups for run in group.runs if "score" in run.files]
    return list(dict.fromkeys(score["signature"] for score in scores if score["signature"] is not None))


def _rows(runs: Sequence[Run]) -> List[_Row]:
    subsets = dict.fromkeys(name for run in runs for name in run.files.get("score", {}).get("subsets", {}))
    return [
        ("attention", lambda run: run.attention or NONE, "n"),
        ("at", _sites, "long"),
        ("row of Table 1", lambda run: str(run.row.row) if run.row else NONE, "n"),
        ("parameters", lambda run: _whole(run.parameters), "n"),
        ("updates", lambda run: _whole(run.files.get("train", {}).get("updates")), "n"),
        ("seed", lambda run: run.seed or NONE, "n"),
        ("settings changed", lambda run: ", ".join(run.changed) or NONE, "long"),
        ("sacreBLEU", lambda run: number(run.files.get("score", {}).get("bleu"), 2), "n ours"),
        ("tokenised BLEU", lambda run: number(run.files.get("score", {}).get("tokenised_bleu"), 2), "n ours"),
        *(
            (f"sacreBLEU, {name} test set", lambda run, name=name: _subset_bleu(run, name), "n ours")
            for name in subsets
        ),
        ("decoding, pieces per second, one run", _decoding_speed, "n"),
        ("attention is analysed at the level of", lambda run: run.level or NONE, "n"),
        *(
            (f"{SITE_NAMES[site]}: {what}", lambda run, site=site, key=key: _mean_rate(run, site, key), "n")
            for site in SITES
            for key, what in _RATES.items()
        ),
        ("lowest AER, normal", lambda run: _lowest_aer(run, "normal"), "n"),
        ("lowest AER, shifted", lambda run: _lowest_aer(run, "shifted"), "n"),
    ]


def _whole(value: int) -> str:
    return NONE if value is None else f"{value:,}"


def _sites(run: Run) -> str:
    if run.attention in (None, "softmax"):
        return NONE
    if run.is_language_model:
        return "every layer of the decoder"
    return "all sites" if len(run.attention_sites) == len(SITES) else ", ".join(run.attention_sites) + "; else softmax"


def _subset_bleu(run: Run, name: str) -> str:
    return number(run.files.get("score", {}).get("subsets", {}).get(name, {}).get("bleu"), 2)


def _decoding_speed(run: Run) -> str:
    speed = run.files.get("translate", {}).get("speed")
    try:
        return f"{speed['tokens'] / speed['seconds']:,.0f}"
    except (TypeError, KeyError, ZeroDivisionError):
        return NONE


def _mean_rate(run: Run, site: str, key: str) -> str:
    return percent(mean([getattr(layer, key) for layer in run.layers.get(site, [])]))


def _lowest_aer(run: Run, kind: str) -> str:
    if not run.alignment:
        return NONE
    best = run.alignment[kind]["best"]
    head = "mean of heads" if best["head"] is None else f"head {best['head'] + 1}"
    return f"{100 * best['aer']:.1f} % (layer {best['layer'] + 1}, {head})"
