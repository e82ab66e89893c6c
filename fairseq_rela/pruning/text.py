"""The results of pruning as Markdown, and as the panels of a figure.

The random draws of a seed count as one number, their mean. Numbers are means over seeds with the sample standard
deviation; differences are paired over seeds, with Student's 95 % interval.
"""

from statistics import fmean
from typing import Any, Dict, List, Optional, Sequence

from ..analysis.summaries import Summary, paired, summarise
from ..report.plots import Line, Panel, Style
from ..study.tables import markdown as table
from ..variants import find_variant

_NAMES = {"null": "null rate", "loss": "loss", "random": "random heads"}
STYLES = {"null rate": Style("#d55e00", "s"), "loss": Style("#0072b2", "o"), "random heads": Style("#999999", "^")}
Results = Dict[str, Any]


def shares_of(results: Results) -> List[float]:
    """Return the shares of heads that were removed, from 0."""
    return sorted({point["share"] for point in results["points"]})


def attentions_of(results: Results) -> List[str]:
    """Return the attentions, softmax last."""
    return sorted({point["attention"] for point in results["points"]}, key=lambda name: (name == "softmax", name))


def by_seed(results: Results, attention: str, by: str, share: float, key: str) -> Dict[int, float]:
    """Return a number of a point for each seed; of several draws, their mean. Without a removed head, ``by`` is any."""
    found: Dict[int, List[float]] = {}
    for point in results["points"]:
        if point["attention"] == attention and point["share"] == share and (share == 0 or point["by"] == by):
            found.setdefault(point["seed"], []).append(point[key])
    return {seed: fmean(values) for seed, values in sorted(found.items())}


def orders_of(results: Results, attention: str) -> List[str]:
    """Return the ways in which the heads of an attention were chosen."""
    there = {point["by"] for point in results["points"] if point["attention"] == attention}
    return [by for by in _NAMES if by in there]


def markdown(results: Results) -> str:
    """Return the tables: BLEU, differences to random heads, loss, parameters and speed, and correlations."""
    shares = shares_of(results)
    head = ["attention", "heads chosen by", *(f"{100 * share:g} %" for share in shares)]
    bleu: List[List[str]] = []
    loss: List[List[str]] = []
    difference: List[List[str]] = []
    for attention in attentions_of(results):
        label = find_variant(attention).label
        for by in orders_of(results, attention):
            name = [label, _NAMES[by]]
            for key, digits, rows in (("bleu", 1, bleu), ("loss", 3, loss)):
                values = [summarise(list(by_seed(results, attention, by, share, key).values())) for share in shares]
                rows.append([*name, *(_mean(value, digits) for value in values)])
            if by != "random":
                pairs = [[by_seed(results, attention, b, share, "bleu") for b in (by, "random")] for share in shares]
                difference.append([*name, *(_interval(paired(*pair)) for pair in pairs[1:])])
    parts = [
        f"BLEU against the share of heads removed ({_about(results)}):\n\n{table(head, bleu, 2)}",
        "Difference in BLEU to random heads, with 95 % interval:\n\n" + table([*head[:2], *head[3:]], difference, 2),
        f"Loss on the dev set, in nats a piece:\n\n{table(head, loss, 2)}",
        "Parameters, and CPU time of decoding relative to the whole model (heads chosen by loss, paired in one "
        f"process, equal numbers of pieces):\n\n{table([head[0], '', *head[3:]], _costs(results, shares[1:]), 2)}",
        *_correlations(results),
    ]
    return "\n\n".join(parts) + "\n"


def _about(results: Results) -> str:
    seeds = {point["seed"] for point in results["points"]}
    draws = max(point["draw"] for point in results["points"])
    beams = "/".join(sorted({str(point["decoding"]["beam"]) for point in results["points"]}))
    signatures = " and ".join(sorted({point["signature"] for point in results["points"]}))
    return f"{len(seeds)} seeds, random draws for each: {draws}, beam {beams}; sacreBLEU `{signatures}`"


def _mean(value: Optional[Summary], digits: int) -> str:
    if value is None:
        return "-"
    return f"{value.mean:.{digits}f}" + ("" if value.sd is None else f" ± {value.sd:.{digits}f}")


def _interval(value: Optional[Summary], digits: int = 1) -> str:
    if value is None:
        return "-"
    ends = [] if value.interval is None else [f"{end:+.{digits}f}" for end in value.interval]
    return f"{value.mean:+.{digits}f}" + (f" [{', '.join(ends)}]" if ends else "")


def _costs(results: Results, shares: Sequence[float]) -> List[List[str]]:
    rows = []
    for attention in attentions_of(results):
        whole, sizes, times = by_seed(results, attention, "loss", 0.0, "parameters"), [], []
        for share in shares:
            sizes.append(summarise(list(by_seed(results, attention, "loss", share, "parameters").values())))
            ratios = [
                point["speed"]["median"]
                for point in results["points"]
                if point["speed"] and point["attention"] == attention and point["share"] == share
            ]
            times.append(_mean(summarise(ratios), 2))
        label, total = find_variant(attention).label, fmean(whole.values())
        percent = ["-" if size is None else f"{100 * size.mean / total:.0f} %" for size in sizes]
        rows += [[label, f"parameters, of {total:,.0f}", *percent], [label, "time a sentence", *times]]
    return rows


def _correlations(results: Results) -> List[str]:
    """Return sentences on single heads: the loss without those that are null most often, and rank correlations."""
    from scipy.stats import spearmanr

    parts = []
    for attention in attentions_of(results):
        models = [one for one in results["models"] if one["attention"] == attention and len(one["heads"]) > 1]
        heads = {model["seed"]: model["heads"] for model in models if model["heads"][0]["null_rate"] is not None}
        if not heads:
            continue
        quarters, others, ranks = {}, {}, []
        for seed, rows in sorted(heads.items()):
            order = sorted(rows, key=lambda row: -row["null_rate"])
            quarter = max(len(rows) // 4, 1)
            quarters[seed] = fmean(row["loss_rise"] for row in order[:quarter])
            others[seed] = fmean(row["loss_rise"] for row in order[quarter:])
            value = spearmanr([row["null_rate"] for row in rows], [row["loss_rise"] for row in rows])[0]
            ranks.append(f"{value:+.2f}")
        parts.append(
            f"Single heads of {find_variant(attention).label}: without one of the quarter with the highest null rates, "
            f"the loss on the dev set rises by {fmean(quarters.values()):.3f} on average, without one of the others by "
            f"{fmean(others.values()):.3f}; difference {_interval(paired(quarters, others), 3)}. Spearman's rank "
            f"correlation of null rate and rise is {', '.join(ranks)} "
            f"(seeds {', '.join(map(str, sorted(heads)))}); -1 would mean that null heads matter least."
        )
    return parts


def panels(results: Results) -> List[Panel]:
    """Return lines of BLEU against the share of heads removed, a panel for each attention."""
    shares, found = shares_of(results), []
    for attention in attentions_of(results):
        lines = []
        for by in orders_of(results, attention):
            values = [summarise(list(by_seed(results, attention, by, share, "bleu").values())) for share in shares]
            means = [None if value is None else value.mean for value in values]
            lines.append(Line(_NAMES[by], means, errors=[None if value is None else value.sd for value in values]))
        places = [f"{100 * share:g} %" for share in shares]
        found.append(Panel(find_variant(attention).label, "BLEU", lines, places=places))
    return found
