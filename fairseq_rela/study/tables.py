"""The results of a study in Markdown, in full and in short, and sentences that summarise them."""

import statistics
from typing import Any, Callable, Dict, List, Sequence, Tuple

from ..report import paper
from ..report.table import Table
from . import claims, gold_set, paper_tables, text
from .target_table import target_tables
from .values import Summary, baseline, difference, diverged, find_row, finished, mean

NO_ALIGNMENT = "No alignment error rate was measured in this study."


def full(study: Dict[str, Any]) -> str:
    """Return the results in Markdown: a summary, the paper's claims with the rule if it judges any, and all tables."""
    alignment = paper_tables.alignment_tables(study)
    found = [paper_tables.table_1(study), paper_tables.training(study), paper_tables.rates(study)]
    found += [*target_tables(study), *alignment, paper_tables.diversity(study), *gold_set.table(study)]
    parts = [summary(study), *_claims(study), *map(_table, found)]
    if not alignment:
        parts.append(NO_ALIGNMENT)
    parts += [effort(study), f"`rela study {study['study']}` repeats it."]
    return "\n\n".join(parts)


def rows(study: Dict[str, Any]) -> str:
    """Return the results in Markdown for rows that the paper does not have: only the columns and rows with numbers.

    Rows are compared with the baseline; with the row of the same attention that has the usual settings; and with the
    row of the same settings that has the baseline's attention, if there is one for any row with settings of its own.
    """
    quality = _measured_columns(paper_tables.table_1(study))
    quality += _other_differences(study)
    parts = [summary(study), _with_names(quality)]
    for table in (paper_tables.training(study), paper_tables.rates(study), *target_tables(study)):
        columns = _measured_columns(table)
        if columns[-1][0] != "model":
            parts += [_with_names(columns), *table.notes]
    return "\n\n".join([*parts, effort(study), f"`rela study {study['study']}` repeats it."])


def _with_names(columns: List[List[str]]) -> str:
    """Return columns as a Markdown table, whose names end at the column ``model``; a row needs more than its name."""
    head, *body = zip(*columns)
    names = head.index("model") + 1
    return markdown(head, [row for row in body if set(row[names:]) - {text.NONE}], names)


def _measured_columns(table: Table) -> List[List[str]]:
    """Return the columns of a table, each with its head, that have a number or a name."""
    columns = ([cell.text for cell in column] for column in zip(*table.head, *table.rows))
    return [column for column in columns if set(column[1:]) != {text.NONE}]


def _other_differences(study: Dict[str, Any]) -> List[List[str]]:
    """Return the columns with the differences in BLEU to the same attention, and to the same settings."""
    rows, base = paper_tables.in_order(study), baseline(study)

    common = set.intersection(*(set(row["overrides"]) for row in rows))

    def settings(row: Dict[str, Any]) -> Tuple[Any, ...]:
        return tuple(filter(None, (row.get("start"), *(one for one in row["overrides"] if one not in common))))

    def column(name: str, like: Callable[[Dict[str, Any], Dict[str, Any]], bool]) -> List[str]:
        pairs = [(row, next((other for other in rows if like(row, other)), None)) for row in rows]
        return [name, *(text.mean_interval(difference(*pair, "bleu"), sign=True) for pair in pairs)]

    def is_usual(row: Dict[str, Any], other: Dict[str, Any]) -> bool:
        return not settings(other) and all(row[key] == other[key] for key in ("attention", "sites"))

    def has_base(row: Dict[str, Any], other: Dict[str, Any]) -> bool:
        return base is not None and other["attention"] == base["attention"] and settings(row) == settings(other)

    columns = [column("difference to its usual settings", is_usual)]
    if any(settings(row) and has_base(row, other) for row in rows for other in rows if other is not row):
        columns.append(column(f"difference to the same with {paper_tables.baseline_name(study)}", has_base))
    return [column for column in columns if set(column[1:]) != {text.NONE}]


def effort(study: Dict[str, Any]) -> str:
    """Return a sentence with the training time and the machines of the runs."""
    seconds = [sum((run.get("seconds") or {}).values()) for row in study["rows"] for run in finished(row)]
    known = [number for number in seconds if number]
    if not known:
        return "The time of the runs was not recorded."
    middle, machine = text.duration(statistics.median(known)), text.join(machines(study)) or "not recorded"
    if len(known) < len(seconds):
        which = f"median of the {len(known)} of {len(seconds)} runs with a recorded time"
        return f"Training a run took {middle} ({which}); machine: {machine}."
    together = f"all {len(known)} together {text.duration(sum(known))} of one process's time"
    return f"Training a run took {middle} (median), {together}; machine: {machine}."


def machines(study: Dict[str, Any]) -> List[str]:
    """Return the machines of the finished runs, each with its number of runs if there are several machines."""
    names = [text.machine(run.get("machine") or {}) for row in study["rows"] for run in finished(row)]
    different = list(dict.fromkeys(filter(None, names)))
    return different if len(different) < 2 else [f"{name} ({names.count(name)} runs)" for name in different]


def short(study: Dict[str, Any]) -> str:
    """Return a table of the rows in :data:`~fairseq_rela.report.paper.COMPARED_ROWS`, and :func:`sentence`."""
    base = baseline(study)
    rows = []
    for row in (row for number in paper.COMPARED_ROWS for row in study["rows"] if row["table_1"] == number):
        bleu = mean(row, "bleu")
        rows.append(
            [
                text.row_name(row),
                text.runs_done(row),
                text.mean_interval(bleu) if bleu else text.without_number(row),
                text.mean_interval(difference(row, base, "bleu"), sign=True),
                text.optional(paper_tables.paper_difference(study, row), 1, sign=True),
            ]
        )
    against = f"difference to {paper_tables.baseline_name(study)}"
    task = paper.TASK_NAMES[paper.TABLE_1_TASK]
    head = ["model", "seeds", "BLEU [95 % interval]", f"{against} [95 % interval]", f"paper, {task}: {against}"]
    return f"{markdown(head, rows, names=1)}\n\n{sentence(study)}"


def sentence(study: Dict[str, Any]) -> str:
    """Return a sentence with the BLEU of ReLA-g against the baseline and the number of claims per verdict.

    For a study that judges no claim, the sentence says what is compared.
    """
    judged = claims.judge(study)
    if not judged:
        return f"On {text.study_title(study)}, every row is compared with {paper_tables.baseline_name(study)}."
    counts = claims.count(judged)
    verdicts = (
        f"of {sum(counts.values())} claims of the paper {counts[claims.AGREES]} agree, {counts[claims.DIFFERS]} do "
        f"not, and {counts[claims.OPEN]} cannot be told at this size"
    )
    row, base = find_row(study, 7), baseline(study)
    found = difference(row, base, "bleu")
    if found is None or base is None:
        lost = row is not None and diverged(row) and not finished(row)
        missing = "every run of ReLA-g so far diverged" if lost else "ReLA-g is not measured against the baseline yet"
        return f"On {text.study_title(study)}, {missing}; {verdicts}."
    return f"On {text.test_set(study)}, {_standing(found, text.row_name(base))}; {verdicts}."


def _standing(found: Summary, against: str) -> str:
    size = f"{text.number(abs(found.mean))} BLEU"
    side = "behind" if found.mean < 0 else "ahead of"
    if found.interval is None:
        return f"ReLA-g is {size} {side} {against} with the one seed that both have, which cannot be told from chance"
    low, high = found.interval
    bounds = f"95 % interval of the difference {text.number(low)} to {text.number(high)}, {found.n} seeds"
    if low <= 0 <= high:
        return f"ReLA-g is {size} {side} {against} on average, which cannot be told from chance ({bounds})"
    return f"ReLA-g is {size} {side} {against} ({bounds})"


def summary(study: Dict[str, Any]) -> str:
    """Return a summary of the runs: task, test set, rows, seeds, and the number of missing runs."""
    rows = study["rows"]
    wanted = sum(len(row["seeds"]) for row in rows)
    done, lost = sum(len(finished(row)) for row in rows), sum(len(diverged(row)) for row in rows)
    found = (
        f"{text.test_set(study)}: {len(rows)} row{'s' * (len(rows) != 1)}, {text.seeds_text(rows)} "
        f"each; {done} of {wanted} runs done"
    )
    found += f", {lost} diverged." if lost else "."
    left = wanted - done - lost
    return found + (f" {left} are left, so that the numbers below are preliminary." if left > 0 else "")


def _claims(study: Dict[str, Any]) -> List[str]:
    judged = claims.judge(study)
    if not judged:
        return []
    rows = [[claim.claim, f"**{claim.verdict}**", claim.sentence] for claim in judged]
    return ["### The paper's claims", claims.RULE, markdown(["the paper", "here", "measured"], rows, names=3)]


def _table(table: Table) -> str:
    (head,) = table.head
    names = 1 + max(place for place, cell in enumerate(head) if cell.kind == paper_tables.TEXT)
    texts = [[cell.text for cell in row] for row in (head, *table.rows)]
    return "\n\n".join([f"### {table.caption}", markdown(texts[0], texts[1:], names), *table.notes])


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]], names: int) -> str:
    """Return a Markdown table with the first ``names`` columns aligned left and the others right."""
    marks = ["---" if place < names else "---:" for place in range(len(head))]
    return "\n".join(f"| {' | '.join(map(_escaped, row))} |" for row in [head, marks, *rows])


def _escaped(cell: str) -> str:
    return " ".join(cell.replace("|", "\\|").split())
