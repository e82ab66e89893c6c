"""The measures of a run that are averaged over seeds, and their names."""

from typing import Any, Dict, Mapping

from ..variants import SITES


def measures(run: Mapping[str, Any]) -> Dict[str, float]:
    """Return the measures of a finished run that are averaged over seeds, by name; none for a diverged run.

    Rates and error rates are between 0 and 1, ``valid_nll`` is in bits per piece, and diversity in nats. Names at the
    level of words begin with ``words.``.
    """
    if run["state"] != "done":
        return {}
    score, analysis = run["score"], run["analysis"]
    found = {
        "bleu": score["bleu"],
        "length_ratio": score["hypothesis_length"] / score["reference_length"],
        "parameters": run["parameters"],
        "updates": run["updates"],
    }
    if "tokenised_bleu" in score:
        found["tokenised_bleu"] = score["tokenised_bleu"]
    if run["valid"]:
        found["valid_nll"] = min(entry["nll"] for entry in run["valid"])
    for prefix, block in (("", analysis), ("words.", analysis.get("words"))):
        if block:
            found.update({prefix + name: value for name, value in _analysed(block).items()})
    if analysis.get("alignment"):
        for kind in ("normal", "shifted"):
            for rate in ("aol", "aoh"):
                found[f"aer.{kind}.{rate}"] = analysis["alignment"][kind][rate]
    for kind, areas in run.get("ranking", {}).items():
        found[f"auc.null_rate.{kind}"] = areas["null_rate_auc"]
        found[f"auc.log_probability.{kind}"] = areas["logprob_auc"]
    return found


def _analysed(block: Mapping[str, Any]) -> Dict[str, float]:
    """Return the measures of one level of the analysis, pieces or words, as means over layers."""
    found: Dict[str, float] = {}
    for site in SITES:
        entry = block["sites"].get(site)
        if entry is None:
            continue
        for name in ("sparsity", "null_rate", "layer_null_rate"):
            if name in entry:
                found[f"{name}.{site}"] = entry[name]
        for tau, value in entry.get("diversity", {}).items():
            found[f"diversity.{site}.{tau}"] = value
        shuffled = block.get("shuffled", {}).get("sites", {}).get(site)
        if shuffled:
            rates = [layer["null_rate"] for layer in shuffled["layers"]]
            found[f"null_rate_shuffled.{site}"] = sum(rates) / len(rates)
    return found
