"""Write the report of a study, with claims, figures, tables and runs, as one HTML page and as Markdown."""

from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from ..files.folders import only_process, work_folder
from ..files.lines import write_json, write_whole
from ..report import page as report
from ..report import paper, plots
from ..report.figure import Figure
from ..report.markup import Content, Html, element
from . import claims, figures, paper_tables, tables, text
from .values import diverged, finished

PAGE, MARKDOWN, FIGURES = "study.html", "study.md", "figures"
_BADGES = {claims.AGREES: "agrees", claims.DIFFERS: "differs", claims.OPEN: "open"}
_CLASSES = {paper_tables.NAME: None, paper_tables.COUNT: "n", paper_tables.OURS: "n", paper_tables.PAPER: "n paper"}
_KINDS = ("png", "svg")


def write_study(study: Dict[str, Any], folder: Path) -> None:
    """Write ``study.html``, ``study.md`` and ``figures/`` of a study, and replace those of an earlier call.

    Args:
        study: the content of ``study.json``; nothing else is read.
        folder: the folder to write into, such as ``studies/NAME``.

    Raises:
        InputError: ``figures/`` holds other files, or an output cannot be written.
    """
    target = folder / FIGURES
    report._refuse_foreign_folder(target)
    drawn = [_draw(study, figure) for figure in figures.all_figures(study)]
    page, markdown = _page(study, drawn), _markdown(study, drawn)
    with only_process(folder / PAGE), report._replaced(target):
        with work_folder(target) as work:
            names = sorted(name for one in drawn for name in one.files)
            for one in drawn:
                for name, drawing in one.files.items():
                    (work / name).write_bytes(drawing)
            write_json(work / report.INDEX, {"format": report.FORMAT, "page": PAGE, "files": names})
        for name, content in ((PAGE, page), (MARKDOWN, markdown)):
            with write_whole(folder / name) as file:
                file.write(content)


def _draw(study: Dict[str, Any], figure: Figure) -> report.Drawn:
    drawing = figure.draw()
    files = {f"{figure.name}.{kind}": plots.render(drawing, kind) for kind in _KINDS}
    files[f"{figure.name}.json"] = figure.as_json(text.study_title(study)).encode()
    files[f"{figure.name}.csv"] = figure.as_csv().encode()
    return report.Drawn(figure, None, files)


def _markdown(study: Dict[str, Any], drawn: Sequence[report.Drawn]) -> str:
    parts = [f"# {_title(study)}", tables.sentence(study), tables.full(study)]
    for one in drawn:
        image = f"![{one.figure.title}]({FIGURES}/{one.figure.name}.png)"
        parts += [f"### {_figure_title(one.figure)}", image, one.figure.caption]
    return "\n\n".join(parts) + "\n"


def _title(study: Dict[str, Any]) -> str:
    return f"{text.study_title(study)}: the paper's claims, measured"


def _figure_title(figure: Figure) -> str:
    return f"{figure.number}: {figure.title}"


# ----------------------------------------------------------------------------------------------------------- the page


def _page(study: Dict[str, Any], drawn: Sequence[report.Drawn]) -> str:
    style = Html(report._asset("report.css") + Path(__file__).with_name("study.css").read_text(encoding="utf-8"))
    policy = f"default-src 'none'; img-src data:; style-src {report._hash(style)}; base-uri 'none'"
    sections = [
        ("claims", "The paper’s claims", _claims(study)),
        ("quality", "Translation quality", _quality(study, drawn)),
        ("attention", "What the attention does", _attention(study, drawn)),
        ("runs", "Runs", _runs(study)),
    ]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", _title(study)),
        element("style", style),
    )
    header = element(
        "header",
        element("h1", _title(study)),
        element("p", tables.sentence(study), class_="lead"),
        element("p", tables.summary(study)),
        element(
            "p",
            "The paper is Zhang, Titov, Sennrich, ",
            element("a", "Sparse Attention with Linear Units", href=paper.ADDRESS),
            ", EMNLP 2021; its numbers are shaded and are of other tasks and larger models.",
            class_="note",
        ),
        element("nav", element("ul", [element("li", element("a", t, href=f"#{key}")) for key, t, _ in sections])),
    )
    main = element("main", [element("section", element("h2", t), body, id=key) for key, t, body in sections])
    return f"<!DOCTYPE html>\n{element('html', head, element('body', header, main), lang='en')}\n"


def _claims(study: Dict[str, Any]) -> Html:
    judged = claims.judge(study)
    counts = [
        element("li", _badge(verdict), f" {number} of {len(judged)}")
        for verdict, number in claims.count(judged).items()
    ]
    rows = [
        [
            report._row_head(claim.claim),
            report._cell(_badge(claim.verdict), "verdict"),
            report._cell([claim.sentence, _checks(claim)], "measured"),
        ]
        for claim in judged
    ]
    table = element(
        "table",
        element("thead", element("tr", [report._head(name) for name in ("the paper", "here", "measured")])),
        element("tbody", [element("tr", row) for row in rows]),
        class_="claims",
    )
    rule = element("p", claims.RULE.replace("**", ""), class_="note")
    frame = element("div", table, class_="scroll", tabindex="0", role="region", aria_label="The paper's claims")
    return Html(element("ul", counts, class_="counts") + rule + frame)


def _badge(verdict: str) -> Html:
    return element("span", verdict, class_=f"badge {_BADGES[verdict]}")


def _checks(claim: claims.Claim) -> Content:
    """Return a foldable table of a claim's comparisons, or nothing if its sentence lists them already."""
    if len(claim.checks) <= claims.SHOWN:
        return ""
    rows = [
        element(
            "tr",
            report._row_head(check.name),
            report._cell(check.measured),
            report._cell(_badge(check.verdict), "verdict"),
        )
        for check in claim.checks
    ]
    table = element("table", element("tbody", rows), class_="checks")
    return element("details", element("summary", f"All {len(rows)} comparisons"), table)


def _table(table: paper_tables.Table) -> Html:
    classes = [_CLASSES[kind] for kind in table.kinds]
    body = [
        element("tr", [report._cell(cell, class_ or "") for cell, class_ in zip(row, classes)]) for row in table.rows
    ]
    markup = element(
        "table",
        element("caption", table.title),
        element("thead", element("tr", [report._head(name, kind) for name, kind in zip(table.head, classes)])),
        element("tbody", body),
        class_="numbers",
    )
    frame = element("div", markup, class_="scroll", tabindex="0", role="region", aria_label=table.title)
    return Html(frame + "".join(element("p", note.replace("`", ""), class_="note") for note in table.notes))


def _figures(drawn: Sequence[report.Drawn], numbers: Sequence[str]) -> Html:
    chosen = [one for one in drawn if one.figure.number in numbers]
    return Html(
        "".join(report._figure(one, FIGURES, element("h3", _figure_title(one.figure))) for one in chosen)
        or element("p", "Not measured yet.", class_="missing")
    )


def _quality(study: Dict[str, Any], drawn: Sequence[report.Drawn]) -> Html:
    quality = [paper_tables.table_1(study), paper_tables.training(study)]
    return Html(_table(quality[0]) + _figures(drawn, ("Table 1",)) + _table(quality[1]))


def _attention(study: Dict[str, Any], drawn: Sequence[report.Drawn]) -> Html:
    errors = paper_tables.alignment_tables(study)
    return Html(
        _figures(drawn, ("Figure 3", "Figure 6"))
        + _table(paper_tables.rates(study))
        + ("".join(map(_table, errors)) or element("p", tables.NO_ALIGNMENT, class_="missing"))
        + _figures(drawn, ("Figure 5",))
        + _table(paper_tables.diversity(study))
    )


# --------------------------------------------------------------------------------------------------------------- runs


def _runs(study: Dict[str, Any]) -> Html:
    head = [report._head("model"), report._head("settings"), *(_right(t) for t in ("seed", "BLEU", "updates", "time"))]
    rows = [
        [
            report._row_head(text.row_name(row)),
            report._cell(element("code", " ".join(row["overrides"])) if row["overrides"] else text.NONE, ""),
            *(report._cell(cell) for cell in cells),
        ]
        for row in paper_tables.in_order(study)
        for cells in _run_cells(row)
    ]
    facts = [("machine", name) for name in tables.machines(study)] + _versions(study)
    listed = [Html(element("dt", name) + element("dd", value)) for name, value in facts]
    return Html(
        report._table("Every run", [head], rows, [tables.effort(study)])
        + (element("h3", "Machine and versions") + element("dl", listed, class_="facts") if listed else "")
    )


def _right(title: str) -> Html:
    return report._head(title, "n")


def _run_cells(row: Dict[str, Any]) -> List[List[str]]:
    """Return seed, BLEU, updates and time of every run; missing and diverged runs are marked."""
    done = {run["seed"]: run for run in finished(row)}
    lost = {run["seed"] for run in diverged(row)}
    cells = []
    for seed in dict.fromkeys([*row["seeds"], *done, *lost]):
        if seed not in done:
            cells.append([str(seed), "diverged" if seed in lost else "not run yet", text.NONE, text.NONE])
            continue
        run = done[seed]
        score, updates = (run.get("score") or {}).get("bleu"), run.get("updates")
        seconds = sum((run.get("seconds") or {}).values())
        cells.append(
            [
                str(seed),
                text.optional(score),
                text.NONE if updates is None else f"{updates:,}",
                text.duration(seconds) if seconds else text.NONE,
            ]
        )
    return cells


def _versions(study: Dict[str, Any]) -> List[Tuple[str, str]]:
    """Return each program with its versions in the runs."""
    found: Dict[str, Dict[str, None]] = {}
    for row in study["rows"]:
        for run in row["runs"]:
            for name, version in (run.get("versions") or {}).items():
                found.setdefault(name, {})[str(version)] = None
    return [(name, ", ".join(versions)) for name, versions in found.items()]
