"""Write a page that compares runs with the paper: tables, figures, heat maps, and a view of single sentences.

The page is one HTML file that needs no network. A folder beside it has each figure as PNG and SVG and its numbers as
JSON and CSV. The same runs give the same bytes.
"""

from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence

from tqdm import tqdm

from ..analysis import selections
from ..errors import InputError
from . import figures, paper, plots
from .attention_tables import layer_null_tables, tables_5, tables_6
from .bleu_tables import table_1, table_3
from .cost_tables import table_2, table_4
from .figure_folder import Drawn, draw, refuse_foreign_files, write_pages
from .groups import Group, group_runs
from .missing import missing_results
from .operator_figure import operator_figure
from .overview import overview, signatures
from .records import load_runs
from .sentences import pack_examples
from .speed import Speeds, load_speeds
from .template import STYLE_SHEET, fill, read_assets
from .wake import sleepers

_HERE = Path(__file__).parent
_Styles = Dict[str, plots.Style]


def write_report(
    runs: Sequence[Path], output: Path, benchmark: Optional[Path] = None, rankings: Sequence[Path] = ()
) -> None:
    """Write the page ``OUTPUT`` and, beside it, the folder ``STEM_figures``, where STEM is OUTPUT without its ending.

    The page has at most 8 MiB of weights of example sentences and about 0.5 MB for each run. A page and a folder of an
    earlier call are replaced.

    Args:
        runs: folders with results of ``rela reproduce``, ``rela analyze`` and ``rela rank``, complete or not.
        output: HTML file to write.
        benchmark: a ``benchmark.json`` of ``rela bench``, for Figure 2 and the speeds of Table 2.
        rankings: outputs of ``rela rank`` with selections; the page shows their means and examples.

    Raises:
        InputError: a run does not exist, a file cannot be used, runs of one task have different data, or the output
            cannot be written. In these cases nothing is written.
    """
    if output.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{output}: give the name of an HTML file to write, such as report.html")
    folder = output.with_name(f"{output.stem}_figures")
    groups = group_runs(load_runs(runs))
    speeds = load_speeds(benchmark) if benchmark is not None else None
    ranked = [(path.name, selections.load_selections(path)) for path in rankings]
    refuse_foreign_files(folder)
    styles = [plots.choose_styles([(run.label, run.attention) for run in group.runs]) for group in groups]
    drawn = list(_draw(groups, styles, speeds))
    page = _page(groups, styles, drawn, speeds, folder=folder.name, ranked=ranked)
    write_pages({output: page}, folder, drawn)


def _draw(groups: Sequence[Group], styles: Sequence[_Styles], speeds: Optional[Speeds]) -> Iterator[Drawn]:
    work: List[Any] = [
        (figure, group.title, group)
        for group, style in zip(groups, styles)
        for figure in figures.all_figures(group, style)
    ]
    if speeds is not None:
        of_benchmark = figures.speed_figure(speeds), operator_figure(speeds.operator, speeds.device, speeds.command)
        work += [(figure, speeds.device, None) for figure in of_benchmark if figure is not None]
    names: Dict[str, int] = {}
    for figure, measured_on, group in tqdm(work, desc="figures", unit=" figures", disable=None):
        names[figure.name] = names.get(figure.name, 0) + 1
        if names[figure.name] > 1:  # labels can differ only in characters that file names replace
            figure = figure._replace(name=f"{figure.name}-{names[figure.name]}")
        yield draw(figure, measured_on, group)


def _page(
    groups: Sequence[Group], styles: Sequence[_Styles], drawn: Sequence[Drawn], speeds: Optional[Speeds], **more: Any
) -> str:
    runs = [run for group in groups for run in group.runs]
    examples, left_out = pack_examples(groups)
    return fill(
        _HERE / "report.jinja",
        style=read_assets(STYLE_SHEET),
        script=read_assets(_HERE / "report.js"),
        paper=paper,
        groups=groups,
        styles=styles,
        drawn=drawn,
        overview=overview(groups),
        signatures=signatures(groups),
        decoded=any("translate" in run.files for run in runs),
        lacking=[(run, results) for run in runs for results in [list(missing_results(run))] if results],
        speeds_lack=speeds is None or not (speeds.training and speeds.decoding),
        tables=[
            table_1(groups),
            table_2(groups, speeds),
            table_3(groups),
            table_4(),
            *tables_5(groups),
            *tables_6(groups),
        ],
        layer_nulls=layer_null_tables(groups),
        sleepers=[(run, group, list(sleepers(run))) for group in groups for run in group.runs],
        examples=examples,
        left_out=left_out,
        **more,
    )
