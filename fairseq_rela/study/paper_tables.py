"""The paper's Tables 1, 5 and 6 with the numbers of a study beside them, for Markdown and HTML."""

from typing import Any, Dict, List, Optional, Sequence, Tuple

from ..report import paper
from ..report.table import Cell, Table
from ..variants import SITES
from . import text
from .values import at_level, baseline, difference, finished, level, mean

TEXT, NUMBER, PAPER = "", "n", "n paper"  # kinds of cells, see :class:`fairseq_rela.report.table.Cell`
ERRORS = {
    "normal AoL": "aer.normal.aol",
    "normal AoH": "aer.normal.aoh",
    "shifted AoL": "aer.shifted.aol",
    "shifted AoH": "aer.shifted.aoh",
}


def make_table(
    caption: str, kinds: Sequence[str], head: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]
) -> Table:
    """Return a table of text; ``kinds`` has the kind of the cells of each column."""

    def cells(texts: Sequence[str]) -> List[Cell]:
        return [Cell(text, kind) for text, kind in zip(texts, kinds)]

    return Table(caption, [cells(head)], list(map(cells, rows)), notes)


def in_order(study: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Return the rows of Table 1 by number, then the others as the study lists them."""
    return sorted(study["rows"], key=lambda row: row["table_1"] or len(paper.TABLE_1) + 1)


def row_number(row: Dict[str, Any]) -> str:
    """Return the number of a row in Table 1, or ``-``."""
    return str(row["table_1"] or text.NONE)


def paper_bleu(row: Optional[Dict[str, Any]]) -> Optional[float]:
    """Return the paper's sacreBLEU of a row, or None if the paper has none."""
    published = text.published_row(row) if row else None
    return published.bleu if published else None


def paper_difference(study: Dict[str, Any], row: Dict[str, Any]) -> Optional[float]:
    """Return the paper's BLEU of a row minus that of the baseline; None for the baseline or if the paper lacks one."""
    of_row, of_baseline = paper_bleu(row), paper_bleu(baseline(study))
    if row is baseline(study) or of_row is None or of_baseline is None:
        return None
    return of_row - of_baseline


# ------------------------------------------------------------------------------------------------------------ Table 1


def table_1(study: Dict[str, Any]) -> Table:
    """Return Table 1: mean BLEU of every row, difference to the baseline, bootstrap, and the paper's values."""
    rows = []
    for row in in_order(study):
        published = text.published_row(row)
        failed = published is not None and published.bleu is None
        summary = mean(row, "bleu")
        rows.append(
            [
                row_number(row),
                text.row_name(row),
                text.runs_done(row),
                text.mean_sd(summary) if summary else text.without_number(row),
                "training failed" if failed else text.optional(paper_bleu(row), 1),
                _difference(study, row),
                text.optional(paper_difference(study, row), 1, sign=True),
                bootstrap(row),
            ]
        )
    against = f"difference to {baseline_name(study)}"
    head = ["row", "model", "seeds", "BLEU", "paper", against, "paper's difference", "bootstrap, p < 0.05"]
    notes = [
        "BLEU is sacreBLEU's, mean ± standard deviation over the seeds. The difference is paired over the same seeds, "
        "with its 95 % interval by Student's t; a row of one seed has none (n = 1). The paired bootstrap is "
        "sacreBLEU's over the sentences of the test set: in how many seeds a difference has p < 0.05. "
        f"The paper's columns are of {paper.TASK_NAMES[paper.TABLE_1_TASK]} at base size"
        + ("." if study["task"] == paper.TABLE_1_TASK else ": another task, so compare differences and not scores."),
        *_signatures(study),
        *_settings(study),
        *_lost(study),
    ]
    kinds = [NUMBER, TEXT, NUMBER, NUMBER, PAPER, NUMBER, PAPER, NUMBER]
    return make_table("Table 1: translation quality", kinds, head, rows, notes)


def baseline_name(study: Dict[str, Any]) -> str:
    """Return the name of the baseline for readers."""
    base = baseline(study)
    return text.row_name(base) if base else study["baseline"]


def _difference(study: Dict[str, Any], row: Dict[str, Any]) -> str:
    """Return the difference in BLEU with its interval, and its number of seeds if the row has more."""
    found, own = difference(row, baseline(study), "bleu"), mean(row, "bleu")
    written = text.mean_interval(found, sign=True)
    return f"{written} (n = {found.n})" if found and found.interval and own and found.n < own.n else written


def bootstrap(row: Dict[str, Any]) -> str:
    """Return the number of seeds with p < 0.05, and the direction, such as ``3 of 4, lower``."""
    found = list((row.get("bootstrap") or {}).values())
    if not found:
        return text.NONE
    clear = [one["difference"] for one in found if one["p"] < 0.05]
    lower, higher = sum(gain < 0 for gain in clear), sum(gain > 0 for gain in clear)
    way = f" ({lower} lower, {higher} higher)" if lower and higher else f", {'lower' if lower else 'higher'}"
    return f"{len(clear)} of {len(found)}{way if clear else ''}"


def _signatures(study: Dict[str, Any]) -> List[str]:
    scores = [run.get("score") or {} for row in study["rows"] for run in finished(row)]
    signatures = dict.fromkeys(score["signature"] for score in scores if "signature" in score)
    return [f"sacreBLEU signature: `{signature}`." for signature in signatures]


def _settings(study: Dict[str, Any]) -> List[str]:
    changed = [(row["label"], text.settings(row)) for row in in_order(study) if text.settings(row)]
    if not changed:
        return []
    return ["Settings: " + "; ".join(f"{label} `{settings}`" for label, settings in changed) + "."]


def _lost(study: Dict[str, Any]) -> List[str]:
    lost = [
        f"{row['label']} with seed {run['seed']}" + (f" ({run['reason']})" if run.get("reason") else "")
        for row in in_order(study)
        for run in row["runs"]
        if run["state"] == "diverged"
    ]
    return [f"Diverged, and left out of every mean: {'; '.join(lost)}."] if lost else []


def training(study: Dict[str, Any]) -> Table:
    """Return a table of the other measures of training and translation for every row."""
    measures = [
        ("tokenised BLEU", "tokenised_bleu", 2),
        ("length ratio", "length_ratio", 3),
        ("validation NLL (bits)", "valid_nll", 3),
        ("updates", "updates", 0),
        ("parameters", "parameters", 0),
    ]
    rows = [
        [row_number(row), text.row_name(row), *(_plain(row, measure, digits) for _, measure, digits in measures)]
        for row in in_order(study)
    ]
    notes = [
        "Mean ± standard deviation over the seeds. The length ratio is that of hypotheses to references; the NLL is "
        "the lowest of a training, in bits for each piece."
    ]
    head = ["row", "model", *(name for name, _, _ in measures)]
    return make_table("Training and translation", [NUMBER, TEXT] + 5 * [NUMBER], head, rows, notes)


def _plain(row: Dict[str, Any], measure: str, digits: int) -> str:
    summary = mean(row, measure)
    if summary is None:
        return text.without_number(row)
    if digits:
        return text.mean_sd(summary, digits)
    return f"{summary.mean:,.0f}" + (f" ± {summary.sd:,.0f}" if summary.sd else "")


# ------------------------------------------------------------------------------------------- sparsity and null rates


def rates(study: Dict[str, Any]) -> Table:
    """Return the sparsity and null rates of every row, in percent: the means over layers of Figures 3 and 6."""
    columns = [(f"exact zeros, {site}", f"sparsity.{site}") for site in SITES]
    columns += [(f"null, {site}", f"null_rate.{site}") for site in SITES]
    columns += [
        ("null, cross, shuffled", "null_rate_shuffled.cross"),
        ("null, cross, mean of heads", "layer_null_rate.cross"),
    ]
    rows = [
        [
            row_number(row),
            text.row_name(row),
            *(_rate(row, at_level(study, measure), 2 if measure.startswith("layer") else 1) for _, measure in columns),
        ]
        for row in in_order(study)
    ]
    notes = [
        f"In percent, of {level(study)}, mean ± standard deviation over the seeds. Exact zeros: share of attention "
        "weights that are exactly 0. Null: share of queries all of whose weights are 0, averaged over heads; shuffled: "
        "each source with the target of another; mean of heads: of the attention averaged over the heads of a layer."
    ]
    kinds = [NUMBER, TEXT] + len(columns) * [NUMBER]
    return make_table("Figures 3 and 6: sparsity and null rates", kinds, ["row", "model", *dict(columns)], rows, notes)


def _rate(row: Dict[str, Any], measure: str, digits: int) -> str:
    summary = mean(row, measure)
    return text.mean_sd(summary, digits, 100) if summary else text.without_number(row)


# ------------------------------------------------------------------------------------------------------------ Table 5


def alignment_tables(study: Dict[str, Any]) -> List[Table]:
    """Return Table 5 and the differences to the baseline; an empty list if no row has an alignment error rate."""
    measured = [row for row in in_order(study) if any(mean(row, measure) for measure in ERRORS.values())]
    return [_table_5(study, measured), _table_5_differences(study, measured)] if measured else []


def gold_name(study: Dict[str, Any]) -> str:
    """Return the kind of the word alignment with an article, such as ``a silver alignment``."""
    return "a gold alignment" if study.get("gold_kind") == "gold" else "a silver alignment"


def _paper_errors(row: Optional[Dict[str, Any]]) -> Optional[paper.AlignmentErrors]:
    if row is None or row["table_1"] not in paper.COMPARED_ROWS:
        return None
    return paper.TABLE_5.get(row["attention"])


def _table_5(study: Dict[str, Any], measured: Sequence[Dict[str, Any]]) -> Table:
    rows = []
    for row in measured:
        published = _paper_errors(row) or (None,) * len(ERRORS)
        cells = [row_number(row), text.row_name(row)]
        for measure, of_paper in zip(ERRORS.values(), published):
            cells += [text.mean_sd(mean(row, measure), 1, 100), text.optional(of_paper)]
        rows.append(cells)
    head = ["row", "model", *(name for error in ERRORS for name in (error, "paper"))]
    silver = (
        "The links are silver: made by a statistical aligner and not by people, so that an error may be the aligner's. "
        if study.get("gold_kind") != "gold"
        else ""
    )
    notes = [
        f"In percent, lower is better, mean ± standard deviation over the seeds. {silver}AoL: mean over layers of the "
        "error of the attention averaged over heads; AoH: of the best head of each layer. Normal: step i with target "
        "word i; shifted: step i with target word i \u2212 1. The paper's language pair, models and links are others."
    ]
    title = f"Table 5: alignment error rate against {gold_name(study)}"
    return make_table(title, [NUMBER, TEXT] + len(ERRORS) * [NUMBER, PAPER], head, rows, notes)


def _table_5_differences(study: Dict[str, Any], measured: Sequence[Dict[str, Any]]) -> Table:
    base = baseline(study)
    published_base = _paper_errors(base)
    rows = []
    for row in (row for row in measured if row is not base):
        published = _paper_errors(row)
        cells = [row_number(row), text.row_name(row)]
        for place, measure in enumerate(ERRORS.values()):
            of_paper = published[place] - published_base[place] if published and published_base else None
            cells += [
                text.mean_interval(difference(row, base, measure), 1, 100, sign=True),
                text.optional(of_paper, 1, sign=True),
            ]
        rows.append(cells)
    head = ["row", "model", *(name for error in ERRORS for name in (error, "paper"))]
    notes = ["In points, below 0 is better, with the 95 % interval of the difference, paired over the seeds."]
    title = f"Table 5, difference to {baseline_name(study)}, against {gold_name(study)}"
    return make_table(title, [NUMBER, TEXT] + len(ERRORS) * [NUMBER, PAPER], head, rows, notes)


# ------------------------------------------------------------------------------------------------------------ Table 6


def diversity(study: Dict[str, Any]) -> Table:
    """Return Table 6: head diversity of the paper's rows at each of its temperatures, of other rows at 1."""
    rows = []
    for row in in_order(study):
        for tau, published in _temperatures(study, row):
            name = text.row_name(row) + (f", \u03c4 = {tau}" if tau != "1.0" or len(published_taus(row)) > 1 else "")
            cells = [row_number(row), name]
            for site in SITES:
                summary = mean(row, at_level(study, f"diversity.{site}.{tau}"))
                cells += [
                    text.mean_sd(summary, 3) if summary else text.without_number(row),
                    text.optional(published.get(site)),
                ]
            rows.append(cells)
    notes = [
        f"In nats, of {level(study)}, averaged over layers, mean ± standard deviation over the seeds. 0 is where all "
        "heads of a layer are equal. \u03c4 is the temperature of the softmax over weights that do not sum to 1."
    ]
    head = ["row", "model", *(name for site in SITES for name in (site, "paper"))]
    return make_table("Table 6: head diversity", [NUMBER, TEXT] + len(SITES) * [NUMBER, PAPER], head, rows, notes)


def published_taus(row: Dict[str, Any]) -> Dict[Optional[str], Dict[str, float]]:
    """Return the paper's head diversity of a row (Table 6): temperature to site to value in nats."""
    if row["table_1"] not in paper.COMPARED_ROWS:
        return {}
    return {tau: sites for (attention, tau), sites in paper.TABLE_6.items() if attention == row["attention"]}


def _temperatures(study: Dict[str, Any], row: Dict[str, Any]) -> List[Tuple[str, Dict[str, float]]]:
    published = published_taus(row)
    if None in published:
        return [("1.0", published[None])]
    return [(str(tau), sites) for tau, sites in published.items()] or [("1.0", {})]
