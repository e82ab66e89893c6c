"""Tables 1 and 3 of the paper, with the BLEU scores of the runs beside its own."""

from typing import List, Sequence

from . import paper
from .groups import Group
from .run import Run
from .seeds import by_settings, common_label, mean_and_deviation, seeds_note
from .table import NONE, Cell, Table, pairs_head, row_name


def table_1(groups: Sequence[Group]) -> Table:
    """Return Table 1, the ablation, with one column for each group of scored runs."""
    scored = [group for group in groups if _scored(group)]
    comparable = [group.is_test_set_of(paper.TABLE_1_TASK) for group in scored]
    head = [Cell("row"), Cell("model"), Cell("paper: WMT14 En-De", "n paper")]
    for group, same in zip(scored, comparable):
        what = "measured" if same else "another task, measured"
        head.append(Cell(f"{what}: {group.title}", "n" if same else "n other"))
    rows = []
    for row in paper.TABLE_1:
        published = f"{row.bleu:.1f} ({row.tokenised_bleu:.2f})" if row.bleu is not None else "training failed"
        cells = [Cell(str(row.row), "n"), row_name(row.model), Cell(published, "n paper")]
        for group, same in zip(scored, comparable):
            found = [_both_scores(runs) for runs in _scored(group) if runs[0].row == row]
            cells.append(Cell("; ".join(found) or NONE, "n ours" if same else "n other"))
        rows.append(cells)
    others = [
        f"{common_label(runs)} {_both_scores(runs)}" for g in scored for runs in _scored(g) if runs[0].row is None
    ]
    notes = [f"Not in the paper: {'; '.join(others)}."] if others else []
    if not any(comparable):
        notes.append("No run is of WMT14 En-De.")
    notes.append(f"The paper’s signature: {paper.SIGNATURE}.")
    return Table("Table 1: ablation, sacreBLEU (tokenised BLEU)", [head], rows, notes)


def table_3(groups: Sequence[Group]) -> Table:
    """Return Table 3, the BLEU scores on the other tasks."""
    rows = []
    for key in paper.COMPARED:
        cells = [row_name(paper.NAMES[key])]
        for task, published in paper.TABLE_3.items():
            scored = [runs for group in groups if group.is_test_set_of(task) for runs in _scored(group)]
            found = [_score(runs, "bleu") + seeds_note(runs) for runs in scored if runs[0].is_everywhere(key)]
            cells += [Cell(f"{published[key]:.1f}", "n paper"), Cell("; ".join(found) or NONE, "n ours")]
        rows.append(cells)
    head = pairs_head([paper.TASK_NAMES[task] for task in paper.TABLE_3], Cell("measured", "n"))
    return Table("Table 3: sacreBLEU of the other tasks", head, rows)


def _scored(group: Group) -> List[List[Run]]:
    """Return the runs of a group that have BLEU scores, grouped by settings."""
    return by_settings([run for run in group.runs if "score" in run.files])


def _score(runs: Sequence[Run], key: str) -> str:
    return mean_and_deviation([run.files["score"].get(key) for run in runs], 2) or ""


def _both_scores(runs: Sequence[Run]) -> str:
    """Return the sacreBLEU and tokenised BLEU of runs of the same settings."""
    tokenised = _score(runs, "tokenised_bleu")
    return _score(runs, "bleu") + (f" ({tokenised})" if tokenised else "") + seeds_note(runs)
