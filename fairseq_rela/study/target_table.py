"""A table of the measured sparsity of each site beside the target of ``--rela-sparsity-target``."""

from typing import Any, Dict, List

from ..analysis.summaries import summarise
from ..analysis.targets import TOLERANCE, measured_sparsity
from ..report.table import Table
from ..variants import SITES
from . import text
from .paper_tables import NUMBER, TEXT, make_table
from .values import finished


def target_tables(study: Dict[str, Any]) -> List[Table]:
    """Return the table of the rows with a target; an empty list if no finished run has one."""
    rows, missed = [], []
    for row in study["rows"]:
        runs = [run for run in finished(row) if measured_sparsity(run["analysis"])]
        if not runs:
            continue
        target = runs[0]["analysis"]["sparsity_target"]
        cells = [text.row_name(row), text.number(100 * target, 1)]
        for site in SITES:
            found = {run["seed"]: measured_sparsity(run["analysis"]).get(site) for run in runs}
            shares = {seed: share for seed, share in found.items() if share is not None}
            cells.append(text.mean_sd(summarise(list(shares.values())), 1, 100))
            missed += [
                f"{row['label']} with seed {seed} at {site} ({text.number(100 * (share - target), 1, sign=True)})"
                for seed, share in shares.items()
                if abs(share - target) > TOLERANCE
            ]
        rows.append(cells)
    if not rows:
        return []
    points = f"{100 * TOLERANCE:.0f} points"
    notes = [
        "In percent, of pieces, means over layers, mean ± standard deviation over the seeds. "
        + (f"Missed by more than {points}: {'; '.join(missed)}." if missed else f"Every site is within {points}.")
    ]
    head = ["model", "target", *(f"exact zeros, {site}" for site in SITES)]
    return [make_table("Sparsity beside its target", [TEXT, *(len(head) - 1) * [NUMBER]], head, rows, notes)]
