"""Compare the measured share of exact zeros of a model with the target of ``--rela-sparsity-target``."""

from typing import Any, Dict, Optional

from ..variants import BASELINE
from .levels import levels_of

TOLERANCE = 0.03  # a site meets its target if its share of exact zeros, the mean of its layers, is this close


def measured_sparsity(analysis: Dict[str, Any]) -> Dict[str, float]:
    """Return the share of exact zeros of each site that has the target, at the level of pieces, as training sees them.

    Args:
        analysis: the content of ``analysis.json``, or a summary of :func:`fairseq_rela.analysis.analyze.summarise`.

    Returns:
        site to share; empty if the model has no target, or if only words were measured.
    """
    pieces = levels_of(analysis).get("pieces")
    if analysis.get("sparsity_target") is None or pieces is None:
        return {}
    sites = analysis.get("attention_sites")
    return {
        site: entry["sparsity"]
        for site, entry in pieces["sites"].items()
        if (entry.get("variants") != [BASELINE] if sites is None else site in sites)
    }


def describe_target(analysis: Dict[str, Any]) -> Optional[str]:
    """Return a line with the target and the share of exact zeros of each site, or None without a target."""
    target, found = analysis.get("sparsity_target"), measured_sparsity(analysis)
    if target is None or not found:
        return None
    missed = [site for site, share in found.items() if abs(share - target) > TOLERANCE]
    points = f"{100 * TOLERANCE:.0f} points"
    shares = ", ".join(f"{site} {share:.1%} ({100 * (share - target):+.1f})" for site, share in found.items())
    verdict = f"missed by more than {points}: {', '.join(missed)}" if missed else f"met within {points} at every site"
    return f"sparsity target {target:.1%}, {verdict}; exact zeros of pieces: {shares}"
