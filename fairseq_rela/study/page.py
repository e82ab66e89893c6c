"""Write the report of a study, with claims, figures, tables and runs, as one HTML page and as Markdown."""

from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from ..report import figure_folder, paper
from ..report.figure_folder import Drawn
from ..report.template import STYLE_SHEET, fill, read_assets
from . import claims, figures, gold_set, paper_tables, tables, text
from .target_table import target_tables
from .values import diverged, finished

PAGE, MARKDOWN, FIGURES = "study.html", "study.md", "figures"
_HERE = Path(__file__).parent
_BADGES = {claims.AGREES: "agrees", claims.DIFFERS: "differs", claims.OPEN: "open"}


def write_study(study: Dict[str, Any], folder: Path) -> None:
    """Write ``study.html``, ``study.md`` and ``figures/`` of a study, and replace those of an earlier call.

    Args:
        study: the content of ``study.json``; nothing else is read.
        folder: the folder to write into, such as ``studies/NAME``.

    Raises:
        InputError: ``figures/`` holds other files, or an output cannot be written.
    """
    figure_folder.refuse_foreign_files(folder / FIGURES)
    drawn = [figure_folder.draw(figure, text.study_title(study)) for figure in figures.all_figures(study)]
    pages = {folder / PAGE: _page(study, drawn), folder / MARKDOWN: _markdown(study, drawn)}
    figure_folder.write_pages(pages, folder / FIGURES, drawn)


def _title(study: Dict[str, Any]) -> str:
    if claims.judge(study):
        return f"{text.study_title(study)}: the paper's claims, measured"
    return f"{text.study_title(study)}: {study['study']}"


def _markdown(study: Dict[str, Any], drawn: Sequence[Drawn]) -> str:
    parts = [f"# {_title(study)}", tables.sentence(study), tables.full(study)]
    for figure in (one.figure for one in drawn):
        image = f"![{figure.title}]({FIGURES}/{figure.name}.png)"
        parts += [f"### {figure.number}: {figure.title}", image, figure.caption]
    return "\n\n".join(parts) + "\n"


def _page(study: Dict[str, Any], drawn: Sequence[Drawn]) -> str:
    judged = claims.judge(study)
    return fill(
        _HERE / "study.jinja",
        style=read_assets(STYLE_SHEET, _HERE / "study.css"),
        title=_title(study),
        paper=paper,
        lead=tables.sentence(study),
        summary=tables.summary(study),
        claims=judged,
        verdicts=claims.count(judged),
        badges=_BADGES,
        rule=claims.RULE,
        shown_checks=claims.SHOWN,
        drawn=drawn,
        folder=FIGURES,
        table_1=paper_tables.table_1(study),
        training=paper_tables.training(study),
        rates=paper_tables.rates(study),
        targets=target_tables(study),
        alignment=paper_tables.alignment_tables(study) + gold_set.table(study),
        no_alignment=tables.NO_ALIGNMENT,
        diversity=paper_tables.diversity(study),
        runs=list(_run_rows(study)),
        effort=tables.effort(study),
        facts=[*(("machine", name) for name in tables.machines(study)), *_versions(study)],
    )


class RunRow(NamedTuple):
    """A run in the table of all runs, as text; ``settings`` are those of its row."""

    model: str
    settings: str
    seed: str
    bleu: str
    updates: str = text.NONE
    time: str = text.NONE


def _run_rows(study: Dict[str, Any]) -> Iterator[RunRow]:
    """Yield every run that the study wants or has; missing and diverged runs are marked."""
    for row in paper_tables.in_order(study):
        model, settings = text.row_name(row), text.settings(row)
        done = {run["seed"]: run for run in finished(row)}
        lost = {run["seed"] for run in diverged(row)}
        for seed in dict.fromkeys([*row["seeds"], *done, *lost]):
            if seed not in done:
                yield RunRow(model, settings, str(seed), "diverged" if seed in lost else "not run yet")
                continue
            run = done[seed]
            updates, seconds = run.get("updates"), sum((run.get("seconds") or {}).values())
            yield RunRow(
                model,
                settings,
                str(seed),
                text.optional((run.get("score") or {}).get("bleu")),
                text.NONE if updates is None else f"{updates:,}",
                text.duration(seconds) if seconds else text.NONE,
            )


def _versions(study: Dict[str, Any]) -> List[Tuple[str, str]]:
    """Return each program with its versions in the runs."""
    found: Dict[str, Dict[str, None]] = {}
    for row in study["rows"]:
        for run in row["runs"]:
            for name, version in (run.get("versions") or {}).items():
                found.setdefault(name, {})[str(version)] = None
    return [(name, ", ".join(versions)) for name, versions in found.items()]
