"""Show the results of a run as text for the terminal."""

from typing import Any, Dict

from ..analysis.targets import describe_target
from ..files.records import read_record
from .experiment import Experiment


def describe_score(scores: Dict[str, Any]) -> str:
    """Return one line per score, with its signature: sacreBLEU, tokenised BLEU, and those of the subsets."""
    lines = [f"sacreBLEU {scores['bleu']:.2f}   {scores['signature']}"]
    if "tokenised_bleu" in scores:
        lines.append(f"tokenised BLEU {scores['tokenised_bleu']:.2f}   {scores['tokenised_signature']}")
    for name, subset in scores.get("subsets", {}).items():
        lines += [f"{name} ({subset['sentences']:,} sentences): {line}" for line in describe_score(subset).split("\n")]
    return "\n".join(lines)


def describe_attention(summary: Dict[str, Any]) -> str:
    """Return one line per site: the attention that ran, its sparsity and null rate in percent, measured on pieces.

    A model with a sparsity target has a line more, which says whether the target was met.
    """
    lines = [
        f"pieces {site:8} {'/'.join(entry['variants']):18} exact zeros {entry['sparsity']:6.1%}   "
        f"null queries {entry['null_rate']:6.1%}"
        for site, entry in summary["sites"].items()
    ]
    return "\n".join([*lines, *filter(None, [describe_target(summary)])])


def result_table(experiment: Experiment) -> str:
    """Return the results of a run, one per line: BLEU and its signature, parameters, sparsity, attention that ran."""
    scores = read_record(experiment.run / "score.json")
    summary = read_record(experiment.run / "attention.json")
    rows = {"": experiment.attention, "sacreBLEU": f"{scores['bleu']:.2f}"}
    for name, subset in scores.get("subsets", {}).items():
        rows[f"sacreBLEU, {name} test set"] = f"{subset['bleu']:.2f}"
    rows["parameters"] = f"{summary['parameters']:,}"
    rows["cross-attention: exact zeros (pieces)"] = f"{summary['sites']['cross']['sparsity']:.1%}"
    rows["cross-attention: null queries (pieces)"] = f"{summary['sites']['cross']['null_rate']:.1%}"
    for site, entry in summary["sites"].items():
        rows[f"{site}: attention that ran"] = "/".join(entry["variants"])
    width = max(map(len, rows)) + 2
    lines = [name.ljust(width) + value.rjust(14) for name, value in rows.items()]
    return "\n".join([*lines, "signature".ljust(width) + scores["signature"]])
