"""Write a page that compares runs with the paper: tables, figures, heat maps, and a view of single sentences.

The page is one HTML file that needs no network. A folder beside it has each figure as PNG and SVG and its numbers as
JSON and CSV. The same runs give the same bytes.
"""

import base64
import hashlib
import shlex
import shutil
import struct
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy
from tqdm import tqdm

from ..analysis import selections
from ..errors import InputError
from ..files.folders import only_process, work_folder
from ..files.lines import read_json, write_json, write_whole
from ..variants import SITES
from . import figures, paper, plots, speed
from .characters import visible
from .figure import SITE_NAMES, Figure, level_text
from .groups import Group, group_runs
from .markup import Content, Html, element, embedded_json, text
from .records import load_runs
from .run import Example, Run
from .seeds import by_settings, count_of, mean, mean_and_deviation, name_of

FORMAT = 1
INDEX = "figures.json"
_EXAMPLE_BYTES = 8 << 20  # most bytes of weights in the page, over all runs
_SVG_BYTES = 100_000  # a figure with a larger SVG is shown as PNG, which is then smaller
_WAKE_WORDS = 8  # most words shown for each head
_WAKE_HEADS = 6  # most heads shown for each run and site
_FLOAT16 = (6e-8, 65504.0)  # the smallest and the largest positive float16
_NONE = "-"
_CLEAR = 2.0  # points of AER from which a difference is called clear


class Drawn(NamedTuple):
    """A drawn figure, its group (None for a figure of a benchmark), and its files: name to content."""

    figure: Figure
    group: Optional[Group]
    files: Dict[str, bytes]


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
        rankings: outputs of ``rela rank`` with selections, whose means and examples are shown.

    Raises:
        InputError: a run does not exist, a file cannot be used, runs of one task have different data, or the output
            cannot be written. Nothing is written then.
    """
    if output.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{output}: give the name of an HTML file to write, such as report.html")
    folder = output.with_name(f"{output.stem}_figures")
    groups = group_runs(load_runs(runs))
    speeds = speed.load_speeds(benchmark) if benchmark is not None else None
    selected = [(path, selections.load_selections(path)) for path in rankings]
    _refuse_foreign_folder(folder)
    styles = [plots.choose_styles([(run.label, run.attention) for run in group.runs]) for group in groups]
    drawn = list(_draw(groups, styles, speeds))
    page = _page(groups, styles, drawn, folder.name, speeds, selected)
    with only_process(output), _replaced(folder):
        with work_folder(folder) as work:
            for one in drawn:
                for name, content in one.files.items():
                    (work / name).write_bytes(content)
            names = sorted(name for one in drawn for name in one.files)
            write_json(work / INDEX, {"format": FORMAT, "page": output.name, "files": names})
        with write_whole(output) as file:
            file.write(page)


def _refuse_foreign_folder(folder: Path) -> None:
    """Check that a folder can be replaced: all its files were written by an earlier report.

    Raises:
        InputError: it has another file.
    """
    if not folder.exists():
        return
    index = read_json(folder / INDEX) if (folder / INDEX).is_file() else {}
    known = {INDEX, *(index.get("files", []) if isinstance(index, dict) else [])}
    foreign = sorted(path.name for path in folder.iterdir() if path.name not in known) if folder.is_dir() else [folder]
    if foreign:
        raise InputError(f"{folder} holds {foreign[0]}, which is not of a report; give another --output")


@contextmanager
def _replaced(folder: Path) -> Iterator[None]:
    """Move the old folder away, delete it when the context ends, and restore it after an exception."""
    old = folder.with_name(f".{folder.name}.old")
    if old.exists() and not folder.exists():  # an earlier call was killed before it restored the folder
        old.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        if old.exists():
            old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _draw(
    groups: Sequence[Group], styles: Sequence[Dict[str, plots.Style]], speeds: Optional[speed.Speeds]
) -> Iterator[Drawn]:
    work: List[Tuple[Figure, Optional[Group]]] = [
        (figure, group) for group, style in zip(groups, styles) for figure in figures.all_figures(group, style)
    ]
    of_benchmark = figures.speed_figure(speeds) if speeds is not None else None
    if of_benchmark is not None:
        work.append((of_benchmark, None))
    names: Dict[str, int] = {}
    for figure, group in tqdm(work, desc="figures", unit=" figures", disable=None):
        names[figure.name] = names.get(figure.name, 0) + 1
        if names[figure.name] > 1:  # names can become equal where characters are replaced
            figure = figure._replace(name=f"{figure.name}-{names[figure.name]}")
        drawing = figure.draw()
        files = {f"{figure.name}.{kind}": plots.render(drawing, kind) for kind in ("png", "svg")}
        files[f"{figure.name}.json"] = figure.as_json(group.title if group else speeds.device).encode()
        files[f"{figure.name}.csv"] = figure.as_csv().encode()
        yield Drawn(figure, group, files)


# ---------------------------------------------------------------------------------------------------------- the page


def _page(
    groups: Sequence[Group],
    styles: Sequence[Dict[str, plots.Style]],
    drawn: Sequence[Drawn],
    folder: str,
    speeds: Optional[speed.Speeds],
    selected: Sequence[Tuple[Path, Dict[str, Any]]] = (),
) -> str:
    style = Html(_asset("report.css"))
    script = Html(_asset("report.js"))
    policy = f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'"
    examples, left_out = _examples(groups)
    sections = [
        ("runs", "The runs side by side", _overview(groups)),
        ("missing", "What is missing", _missing(groups, speeds)),
        ("tables", "The paper’s tables", _tables(groups, speeds)),
        ("figures", "The paper’s figures", _figures(groups, drawn, folder)),
        ("maps", "Heat maps", _of_kind(groups, drawn, folder, "Figures 7", "No run has examples.json.")),
        ("ranking", "Ranking a corpus", Html(_ranking(groups, drawn, folder) + _selected(selected))),
        ("wake", "Which words wake a head", _wake(groups)),
        ("view", "One sentence", _views(examples, left_out)),
        ("notes", "How to read this", _notes()),
    ]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", "Rectified linear attention: report"),
        element("style", style),
    )
    body = element(
        "body",
        element(
            "header",
            element("h1", "Rectified linear attention: our runs beside the paper"),
            element(
                "p",
                "The paper is Zhang, Titov, Sennrich, ",
                element("a", "Sparse Attention with Linear Units", href=paper.ADDRESS),
                ", EMNLP 2021. Its numbers stand as published; ours only where they were measured, else “-”.",
            ),
            _run_list(groups, styles),
            element("nav", element("ul", [element("li", element("a", t, href=f"#{k}")) for k, t, _ in sections])),
        ),
        element("main", [element("section", element("h2", t), content, id=k) for k, t, content in sections]),
        element("script", embedded_json(examples), id="examples", type="application/json"),
        element("script", script),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _table(
    caption: Content, head: Sequence[Sequence[Html]], rows: Sequence[Sequence[Html]], notes: Sequence[Content] = ()
) -> Html:
    """Return a table that scrolls on its own on a narrow screen, with notes below it."""
    table = element(
        "table",
        element("caption", caption),
        element("thead", [element("tr", row) for row in head]),
        element("tbody", [element("tr", row) for row in rows]),
    )
    name = caption if isinstance(caption, str) and not isinstance(caption, Html) else "table"
    return Html(
        element("div", table, class_="scroll", tabindex="0", role="region", aria_label=name)
        + "".join(element("p", note, class_="note") for note in notes)
    )


def _head(content: Content, class_: Optional[str] = None, **attributes: Any) -> Html:
    return element("th", content, class_=class_, scope="col", **attributes)


def _row_head(content: Content, **attributes: Any) -> Html:
    return element("th", content, scope="row", **attributes)


def _cell(content: Content, class_: str = "n") -> Html:
    return element("td", content, class_=class_)


def _number(value: Optional[float], digits: int, scale: float = 1.0) -> str:
    return _NONE if value is None else f"{scale * value:.{digits}f}"


def _percent(value: Optional[float], digits: int = 1) -> str:
    return _NONE if value is None else f"{100 * value:.{digits}f} %"


# -------------------------------------------------------------------------------------------------- runs and missing

_SHAPES = {
    "o": "M7 2a5 5 0 1 0 .01 0z",
    "D": "M7 1l6 6-6 6-6-6z",
    "s": "M2 2h10v10H2z",
    "^": "M7 1l6 12H1z",
    "v": "M7 13L1 1h12z",
}


def _swatch(style: plots.Style) -> Html:
    """Return an icon with the colour and roughly the marker of a model."""
    shape = _SHAPES.get(style.marker, "M5 1h4v4h4v4H9v4H5V9H1V5h4z")
    path = element("path", d=shape, fill=style.colour)
    return element("svg", path, width=14, height=14, viewBox="0 0 14 14", class_="swatch", aria_hidden="true")


def _run_list(groups: Sequence[Group], styles: Sequence[Dict[str, plots.Style]]) -> Html:
    parts = []
    for group, style in zip(groups, styles):
        items = [
            element("li", _swatch(style[run.label]), element("strong", run.label), " ", element("code", run.folder))
            for run in group.runs
        ]
        parts.append(element("p", element("strong", group.title)) + element("ul", items, class_="runs"))
    if len(groups) > 1:
        parts.append(element("p", "Runs of different test sets stand apart, for their numbers are not comparable."))
    return Html("".join(parts))


def _overview(groups: Sequence[Group]) -> Html:
    """Return the table of all measurements, with one column for each run."""
    runs = [run for group in groups for run in group.runs]
    rows: List[Tuple[str, Callable[[Run], str], str]] = [
        ("attention", lambda run: run.attention or _NONE, "n"),
        ("at", _sites_text, "long"),
        ("row of Table 1", lambda run: str(run.row.row) if run.row else _NONE, "n"),
        ("parameters", lambda run: _NONE if run.parameters is None else f"{run.parameters:,}", "n"),
        ("updates", lambda run: f"{run.files['train']['updates']:,}" if _has(run, "train", "updates") else _NONE, "n"),
        ("seed", lambda run: run.seed or _NONE, "n"),
        ("settings changed", lambda run: ", ".join(run.changed) or _NONE, "long"),
        ("sacreBLEU", lambda run: _number(run.files.get("score", {}).get("bleu"), 2), "n ours"),
        ("tokenised BLEU", lambda run: _number(run.files.get("score", {}).get("tokenised_bleu"), 2), "n ours"),
    ]
    for name in dict.fromkeys(key for run in runs for key in run.files.get("score", {}).get("subsets", {})):
        rows.append((f"sacreBLEU, {name} test set", lambda run, name=name: _subset_score(run, name), "n ours"))
    rows.append(("decoding, pieces per second, one run", _decoding_speed, "n"))
    rows.append(("attention is analysed at the level of", lambda run: run.level or _NONE, "n"))
    for site in SITES:
        name = SITE_NAMES[site]
        for what, key in (
            ("exact zeros", "sparsity"),
            ("null queries", "null_rate"),
            ("null queries of the mean of heads", "layer_null_rate"),
        ):
            rows.append((f"{name}: {what}", lambda run, site=site, key=key: _mean_rate(run, site, key), "n"))
    rows.append(("lowest AER, normal", lambda run: _best_aer(run, "normal"), "n"))
    rows.append(("lowest AER, shifted", lambda run: _best_aer(run, "shifted"), "n"))
    shown = [row for row in rows if any(row[1](run) != _NONE for run in runs)]
    titles = [_head("")] + [_head(group.title, "group", colspan=len(group.runs)) for group in groups]
    labels = [_head("")] + [_head(run.label, "n") for run in runs]
    body = [[_row_head(name), *(_cell(value(run), class_) for run in runs)] for name, value, class_ in shown]
    signatures = list(dict.fromkeys(run.files["score"]["signature"] for run in runs if _has(run, "score", "signature")))
    notes: List[Content] = [["sacreBLEU signature: ", element("code", signature)] for signature in signatures]
    if any("translate" in run.files for run in runs):
        notes.append(
            "Decoding speed is that of the one translation that was made, in batches, on whatever else the machine had "
            "to do; it is no measurement of speed."
        )
    return _table("What was measured", [titles, labels], body, notes)


def _has(run: Run, name: str, key: str) -> bool:
    return run.files.get(name, {}).get(key) is not None


def _sites_text(run: Run) -> str:
    if run.attention in (None, "softmax"):
        return _NONE
    return "all sites" if len(run.attention_sites) == len(SITES) else ", ".join(run.attention_sites) + "; else softmax"


def _subset_score(run: Run, name: str) -> str:
    subset = run.files.get("score", {}).get("subsets", {}).get(name)
    return _NONE if subset is None else f"{subset['bleu']:.2f}"


def _decoding_speed(run: Run) -> str:
    speed = run.files.get("translate", {}).get("speed")
    try:
        return f"{speed['tokens'] / speed['seconds']:,.0f}"
    except (TypeError, KeyError, ZeroDivisionError):
        return _NONE


def _mean_rate(run: Run, site: str, key: str) -> str:
    return _percent(mean([getattr(layer, key) for layer in run.layers.get(site, [])]))


def _best_aer(run: Run, kind: str) -> str:
    if not run.alignment:
        return _NONE
    best = run.alignment[kind]["best"]
    head = "mean of heads" if best["head"] is None else f"head {best['head'] + 1}"
    return f"{100 * best['aer']:.1f} % (layer {best['layer'] + 1}, {head})"


def _missing(groups: Sequence[Group], speeds: Optional[speed.Speeds]) -> Html:
    items = []
    for run in (run for group in groups for run in group.runs):
        lacks = list(_lacks(run))
        if lacks:
            inner = element("ul", [element("li", what, ": ", element("code", how)) for what, how in lacks])
            items.append(element("li", element("strong", run.label), " (", element("code", run.folder), ")", inner))
    if speeds is None or not (speeds.training and speeds.decoding):
        how = element("code", "rela bench --output BENCHMARK"), element("code", "rela report ... --benchmark BENCHMARK")
        what = "Speed (Figure 2, the speeds of Table 2), which is measured beside all others in one process:"
        items.append(element("li", what, *how))
    if not items:
        return element("p", "Every run has all of its parts.")
    return element("ul", items, class_="missing")


def _lacks(run: Run) -> Iterator[Tuple[str, str]]:
    """Yield the results that a run does not have, and the command that makes each of them."""
    folder = shlex.quote(str(run.folder))
    data = run.folder.parent / "data"
    where = shlex.quote(str(data)) if data.is_dir() else "DATA"
    source, target = run.languages if len(run.languages) == 2 else ("SOURCE", "TARGET")
    analyze = f"rela analyze {folder}/average.pt --data {where} --output {folder}"
    if "train" not in run.files:
        yield (
            "its task and settings (train.json), so that its numbers are held against no task of the paper",
            f"rela train TASK --attention {run.attention or 'ATTENTION'} --data {where} --save-dir {folder}",
        )
    if "score" not in run.files:
        yield (
            "BLEU (score.json)",
            f"rela translate {where} --checkpoint {folder}/average.pt --output {folder}/test && "
            f"rela score --hypotheses {folder}/test.bpe --reference {where}/raw/test.{target} -t {target} "
            f"--output {folder}/score.json",
        )
    if "analysis" not in run.files:
        what = "head diversity, the hallucination test, what wakes a head (analysis.json)"
        yield (what if run.layers else f"sparsity, null rates, {what}", analyze)
    elif paper.LEVEL not in run.by_level:
        gold = " --gold GOLD" if run.alignment is not None else ""
        yield "sparsity, null rates and head diversity of words, which are the paper’s (analysis.json)", analyze + gold
    if "analysis" in run.files and run.alignment is None:
        yield "alignment error rates (Figure 4, Table 5), which need a gold word alignment", f"{analyze} --gold GOLD"
    if not run.examples:
        yield "heat maps and single sentences (examples.json)", analyze
    if "rank" not in run.files:
        yield (
            "how well damaged pairs show (rank.json)",
            f"rela rank {folder}/average.pt HELDOUT.{source} HELDOUT.{target} --data {where} --output "
            f"{folder}/rank.json --damage",
        )


# ------------------------------------------------------------------------------------------------------------ tables


def _tables(groups: Sequence[Group], speeds: Optional[speed.Speeds]) -> Html:
    parts = [
        element(
            "p",
            "Shaded columns are the paper’s. Italic columns behind a dashed line are of another task or test set "
            "than the paper’s beside them and not comparable with it, only among themselves. "
            "A dagger marks a run whose settings were changed, see “settings changed” above. Runs that differ in "
            "nothing but their seed are one entry: their mean ± the sample’s standard deviation.",
            class_="note",
        ),
        _table_1(groups),
        _table_2(groups, speeds),
        _table_3(groups),
        _table_4(),
        *_per_group(groups, lambda run: run.alignment is not None, _table_5),
        *_per_group(groups, lambda run: _diversity(run, "cross", "1.0") is not None, _table_6),
    ]
    return Html("".join(parts))


def _per_group(
    groups: Sequence[Group], has: Callable[[Run], bool], make: Callable[[Optional[Group]], Html]
) -> List[Html]:
    """Return a table for each group with runs that have the numbers, or one with the paper's numbers alone."""
    some = [group._replace(runs=list(filter(has, group.runs))) for group in groups if any(map(has, group.runs))]
    return [make(group) for group in some or [None]]


def _dagger(run: Run) -> str:
    return "†" if run.changed else ""


def _after(runs: Sequence[Run]) -> str:
    """Return the dagger for changed settings, and the number of seeds of a mean, for runs of the same settings."""
    seeds = count_of(runs)
    return _dagger(runs[0]) + (f", {seeds}" if seeds else "")


def _everywhere(run: Run, attention: str) -> bool:
    """Return whether a run is the row of Table 1 that has an attention at all sites."""
    return run.row is not None and run.row.attention == attention and run.row in paper.TABLE_1[:10]


def _comparable(group: Group, task: str) -> bool:
    return group.task == task and group.subset == "test"


def _bleu(runs: Sequence[Run]) -> str:
    """Return the sacreBLEU and tokenised BLEU of runs of the same settings, as text for a table cell."""
    bleu, tokenised = (
        mean_and_deviation([run.files["score"].get(key) for run in runs], 2) for key in ("bleu", "tokenised_bleu")
    )
    return (bleu or _NONE) + (f" ({tokenised})" if tokenised else "") + _after(runs)


def _scored(group: Group) -> List[List[Run]]:
    """Return the runs of a group that have BLEU scores, grouped by settings."""
    return by_settings([run for run in group.runs if "score" in run.files])


def _table_1(groups: Sequence[Group]) -> Html:
    scored = [group for group in groups if any("score" in run.files for run in group.runs)]
    head = [_head("row"), _head("model"), _head("paper: WMT14 En-De", "n paper")]
    for group in scored:
        same = _comparable(group, paper.TABLE_1_TASK)
        what = "measured: " if same else "another task, measured: "
        head.append(_head([what, group.title], "n" if same else "n other"))
    rows = []
    for row in paper.TABLE_1:
        published = f"{row.bleu:.1f} ({row.tokenised_bleu:.2f})" if row.bleu is not None else "training failed"
        cells = [_cell(str(row.row)), _row_head(row.model), _cell(published, "n paper")]
        for group in scored:
            found = [_bleu(runs) for runs in _scored(group) if runs[0].row == row]
            class_ = "n ours" if _comparable(group, paper.TABLE_1_TASK) else "n other"
            cells.append(_cell("; ".join(found) or _NONE, class_))
        rows.append(cells)
    others = [f"{name_of(runs)} {_bleu(runs)}" for g in scored for runs in _scored(g) if runs[0].row is None]
    notes = [f"Of no row of the paper: {'; '.join(others)}."] if others else []
    if not any(_comparable(group, paper.TABLE_1_TASK) for group in scored):
        notes.append("No run of WMT14 En-De is here.")
    notes.append(f"The paper’s signature: {paper.SIGNATURE}.")
    return _table("Table 1: ablation, sacreBLEU (tokenised BLEU)", [head], rows, notes)


def _paired(group: Optional[Group], keys: Sequence[str]) -> List[Tuple[str, Optional[str], List[Run]]]:
    """Return the rows of a table: name, key of the paper's row or None, and runs of the same settings.

    The rows of the paper come first, in the order of ``keys``; rows without runs have an empty list.
    """
    rows: List[Tuple[str, Optional[str], List[Run]]] = []
    left = by_settings(group.runs) if group else []
    for key in keys:
        same = [runs for runs in left if _everywhere(runs[0], key)]
        rows += [(paper.NAMES[key] + _after(runs), key, runs) for runs in same] or [(paper.NAMES[key], key, [])]
        left = [runs for runs in left if runs not in same]
    return rows + [(name_of(runs) + _after(runs), None, runs) for runs in left]


def _table_2(groups: Sequence[Group], speeds: Optional[speed.Speeds]) -> Html:
    names = ("parameters", "training speed", "decoding speed, one by one", "training speed, PyTorch re-test")
    head = [_head("model"), *(_head(f"paper: {name}", "n paper") for name in names)]
    counted = [group for group in groups if any(run.parameters for run in group.runs)]
    for group in counted:
        same = _comparable(group, paper.TABLE_1_TASK)
        head.append(_head(["counted, ", group.title], "n" if same else "n other"))
    measured: List[Tuple[str, Dict[str, float]]] = []
    if speeds is not None and speeds.training:
        measured.append(("training speed", speeds.training))
    for one in speeds.decoding if speeds is not None else ():
        how = "one by one" if one.batch == 1 else f"{one.batch} at a time"
        measured.append((f"decoding speed, {how}", one.overall))
    head += [_head(f"measured: {what}", "n") for what, _ in measured]
    rows = []
    for key, published in paper.TABLE_2.items():
        cells = [_row_head(paper.NAMES[key]), _cell(f"{published.parameters:.2f}M", "n paper")]
        cells += [_cell(f"{value:.2f}×", "n paper") for value in published[1:]]
        for group in counted:
            runs = [run for run in group.runs if _everywhere(run, key) and run.parameters]
            found = [f"{run.parameters:,}{_dagger(run)}" for run in runs]
            class_ = "n ours" if _comparable(group, paper.TABLE_1_TASK) else "n other"
            cells.append(_cell("; ".join(dict.fromkeys(found)) or _NONE, class_))
        rows.append([*cells, *(_cell(f"{of[key]:.2f}×" if key in of else _NONE, "n ours") for _, of in measured)])
    notes = [
        "The paper: newstest2014 En-De, speeds relative to softmax, 500 steps of about 25K tokens, mean of 3 runs.",
        "72.34M does not follow from the released code, whose two vectors of 512 in 18 sublayers make 72.33M.",
    ]
    if measured:
        notes.append(f"Measured speeds: {speeds.device}; {speeds.command}. Models and lengths are in its file.")
        notes.append(" ".join(filter(None, (speeds.about_training, speeds.about_decoding if speeds.decoding else ""))))
    else:
        notes.append("Speeds are not measured yet; see what is missing.")
    return _table("Table 2: parameters and speed", [head], rows, notes)


def _table_3(groups: Sequence[Group]) -> Html:
    tasks = list(paper.TABLE_3)
    top = [_head("")] + [_head(paper.TASK_NAMES[task], "group", colspan=2) for task in tasks]
    head = [_head("model")] + [_head(*pair) for _ in tasks for pair in (("paper", "n paper"), ("measured", "n"))]
    rows = []
    for key in paper.COMPARED:
        cells = [_row_head(paper.NAMES[key])]
        for task in tasks:
            scored = [runs for group in groups if _comparable(group, task) for runs in _scored(group)]
            same = [runs for runs in scored if _everywhere(runs[0], key)]
            bleu = [mean_and_deviation([run.files["score"]["bleu"] for run in runs], 2) for runs in same]
            found = [f"{value}{_after(runs)}" for value, runs in zip(bleu, same)]
            cells += [_cell(f"{paper.TABLE_3[task][key]:.1f}", "n paper"), _cell("; ".join(found) or _NONE, "n ours")]
        rows.append(cells)
    return _table("Table 3: sacreBLEU of the other tasks", [top, head], rows)


def _table_4() -> Html:
    head = [_head("T, sequence length", "n"), _head("softmax: 3HT² − HT", "n paper")]
    head += [_head("ReLA-g: HT² + 10Td + T", "n paper"), _head("ReLA-g / softmax", "n paper")]
    rows = []
    for length in (100, 1000):
        softmax, rela = paper.table_4_softmax(length), paper.table_4_rela_g(length)
        rows.append(
            [
                _row_head(f"{length:,}", class_="n"),
                *(_cell(f"{value:,}", "n paper") for value in (softmax, rela)),
                _cell(f"{rela / softmax:.2f}", "n paper"),
            ]
        )
    note = f"The paper’s formulas at H = {paper.TABLE_4_HEADS}, d = {paper.TABLE_4_SIZE}; nothing here is measured."
    return _table("Table 4: floating-point operations, by formula", [head], rows, [note])


_AER_MEANS = {f"{kind} {mean}": (kind, mean.lower()) for kind in ("normal", "shifted") for mean in ("AoL", "AoH")}


def _table_5(group: Optional[Group]) -> Html:
    names = list(_AER_MEANS)
    top = [_head("")] + [_head(name, "group", colspan=2) for name in names]
    head = [_head("model")] + [_head(*pair) for _ in names for pair in (("paper", "n paper"), ("ours", "n other"))]
    rows = []
    for name, key, runs in _paired(group, paper.COMPARED):
        published = paper.TABLE_5[key] if key else [None] * 4
        cells = [_row_head(name)]
        for one, (kind, of) in zip(published, _AER_MEANS.values()):
            ours = mean_and_deviation([run.alignment[kind][of] for run in runs], 2, 100)
            cells += [_cell(_number(one, 2), "n paper"), _cell(ours or _NONE, "n other")]
        rows.append(cells)
    note = (
        "In percent, lower is better. AoL: mean over layers of the layer attention’s AER; AoH: of the best head’s. "
        f"{_layer_attention_note(group)} The paper’s models, language pair and gold alignment are other ones than ours."
    )
    notes = [note, *(_against_softmax(group) if group else ())]
    return _table(f"Table 5: alignment error rate; {_ours(group)}", [top, head], rows, notes)


def _layer_attention_note(group: Optional[Group]) -> str:
    normalised = (
        [r.label for r in group.runs if r.files["analysis"].get("layer_attention") == "normalised"] if group else []
    )
    if not normalised:
        return "The layer attention is the mean over the heads of the weights as they are."
    return (
        f"The layer attention is the mean of the weights as they are; in {', '.join(normalised)} of normalised heads."
    )


def _against_softmax(group: Group) -> Iterator[str]:
    """Yield a sentence for each model on whether it aligns clearly better than softmax, as ReLA does in the paper.

    Means over seeds are compared.
    """
    rows = [(name_of(runs), runs[0].attention, _aer_means(runs)) for runs in by_settings(group.runs)]
    softmax = next((means for _, attention, means in rows if attention == "softmax"), None)
    for label, attention, means in rows if softmax else ():
        if attention == "softmax":
            continue
        less = {name: 100 * (softmax[name] - value) for name, value in means.items()}
        clear = [name for name, points in less.items() if points >= _CLEAR]
        other = [f"{name} ({-points:+.1f})" for name, points in less.items() if points < _CLEAR]
        yield (
            f"{label} against softmax, measured: "
            + (f"clearly below, by {_CLEAR:g} points of AER or more, in {', '.join(clear)}" if clear else "")
            + ("; " if clear and other else "")
            + (f"not clearly below in {', '.join(other)}" if other else "")
            + "."
        )


def _aer_means(runs: Sequence[Run]) -> Dict[str, float]:
    return {name: mean([run.alignment[kind][of] for run in runs]) for name, (kind, of) in _AER_MEANS.items()}


def _ours(group: Optional[Group]) -> str:
    return f"ours on {group.title}" if group else "ours: none is measured"


def _diversity(run: Run, site: str, tau: str) -> Optional[float]:
    return mean([layer.diversity.get(tau) for layer in run.layers.get(site, [])])


def _table_6(group: Optional[Group]) -> Html:
    top = [_head("")] + [_head(SITE_NAMES[site], "group", colspan=2) for site in SITES]
    head = [_head("model")] + [_head(*pair) for _ in SITES for pair in (("paper", "n paper"), ("ours", "n other"))]
    rows = []
    for name, published, runs, tau in _table_6_rows(group):
        cells = [_row_head(name)]
        for site in SITES:
            ours = mean_and_deviation([_diversity(run, site, tau) for run in runs], 2)
            cells += [_cell(_number(published.get(site), 2), "n paper"), _cell(ours or _NONE, "n other")]
        rows.append(cells)
    note = "In nats, averaged over layers; τ is the temperature of the softmax over weights that do not sum to 1."
    notes = [note, *([_level_note(group)] if group else [])]
    return _table(f"Table 6: head diversity; {_ours(group)}", [top, head], rows, notes)


def _level_note(group: Group) -> str:
    """Return a note with the level of the paper and the level at which the runs were measured."""
    return f"The paper analyses {paper.LEVEL}. {level_text(group.runs)}"


def _table_6_rows(group: Optional[Group]) -> Iterator[Tuple[str, Dict[str, float], List[Run], str]]:
    keys = list(dict.fromkeys(key for key, _ in paper.TABLE_6))
    for name, key, runs in _paired(group, keys):
        published = {tau: sites for (attention, tau), sites in paper.TABLE_6.items() if attention == key}
        if None in published:
            yield name, published[None], runs, "1.0"
            continue
        layers = [layer for run in runs for entries in run.layers.values() for layer in entries]
        measured = [tau for layer in layers for tau in layer.diversity]
        taus = list(dict.fromkeys([*published, *measured]))
        for tau in taus:
            yield (f"{name}, τ = {tau}" if len(taus) > 1 else name), published.get(tau, {}), runs, tau


# ----------------------------------------------------------------------------------------------------------- figures


def _figures(groups: Sequence[Group], drawn: Sequence[Drawn], folder: str) -> Html:
    names = {
        "Figure 3": "sparsity by layer",
        "Figure 4": "alignment error rate by layer",
        "Figure 5": "head diversity by layer",
        "Figure 6": "null rate by layer, on true and on shuffled targets",
    }
    parts = [_figure_2([one for one in drawn if one.figure.number == "Figure 2"], folder)]
    for number, title in names.items():
        found = [one for one in drawn if one.figure.number == number]
        parts.append(element("h3", f"{number}: {title}"))
        parts += [_figure(one, folder, _group_title(groups, one)) for one in found]
        if not found:
            parts.append(element("p", "Not measured yet; see ", element("a", "what is missing", href="#missing"), "."))
        if number == "Figure 6":
            note = (
                f"The paper prints a variance over heads of {paper.NULL_RATE_VARIANCE} (ReLA-g, En-De), which is the "
                "sample variance, as ours: the population variance of rates from 0 to 1 is at most 0.25."
            )
            parts.append(element("p", note, class_="note"))
            parts += [_layer_nulls(group) for group in groups if any(map(_has_layer_nulls, group.runs))]
    return Html("".join(parts))


def _has_layer_nulls(run: Run) -> bool:
    return any(layer.layer_null_rate is not None for layers in run.layers.values() for layer in layers)


def _layer_nulls(group: Group) -> Html:
    """Return the table of null rates of the attention averaged over the heads of each layer."""
    number = max(len(layers) for run in group.runs for layers in run.layers.values())
    head = [_head("model"), _head("attention"), *(_head(f"layer {layer}", "n") for layer in range(1, number + 1))]
    rows = []
    for runs in by_settings([run for run in group.runs if _has_layer_nulls(run)]):
        for site in SITES:
            layers = list(zip(*(run.layers.get(site, []) for run in runs)))
            rates = [mean_and_deviation([layer.layer_null_rate for layer in same], 2, 100) or _NONE for same in layers]
            cells = [_cell(rate) for rate in rates + [_NONE] * (number - len(rates))]
            rows.append([_row_head(name_of(runs) + _after(runs)), _cell(SITE_NAMES[site], "word"), *cells])
    note = "In percent. The paper reports almost no null queries once the heads of a layer are averaged. "
    title = f"Null rate of the attention averaged over the heads of a layer; {_ours(group)}"
    return _table(title, [head], rows, [note + _level_note(group)])


def _figure_2(found: Sequence[Drawn], folder: str) -> Html:
    """Return the section of Figure 2, which needs a benchmark."""
    return Html(
        element("h3", "Figure 2: decoding speed-up by source length")
        + "".join(_figure(one, folder) for one in found)
        + element(
            "p",
            "" if found else "Not measured yet. ",
            "The paper cuts newstest2014 into 10 equal groups by source length and gives the "
            "speed-up of decoding over softmax in each; over the whole set its figures are those of Table 2: sparsemax "
            f"{paper.TABLE_2['sparsemax'].decode:.2f}×, 1.5-entmax {paper.TABLE_2['entmax15'].decode:.2f}×, "
            f"ReLA-g {paper.TABLE_2['rela_g'].decode:.2f}×.",
            class_="note" if found else "missing",
        )
    )


def _group_title(groups: Sequence[Group], one: Drawn) -> Html:
    return element("h4", one.group.title) if one.group and len(groups) > 1 else Html("")


def _figure(one: Drawn, folder: str, before: Content = None) -> Html:
    name, figure = one.figure.name, one.figure
    kind, content = "svg+xml", one.files[f"{name}.svg"]
    if len(content) > _SVG_BYTES:
        kind, content = "png", one.files[f"{name}.png"]
    width, height = struct.unpack(">II", one.files[f"{name}.png"][16:24])  # a given size keeps the page still
    image = element(
        "img",
        width=width,
        height=height,
        src=f"data:image/{kind};base64,{base64.b64encode(content).decode()}",
        alt=f"{figure.title}. {figure.caption} The numbers are in {name}.csv.",
    )
    links = []
    for ending in ("png", "svg", "csv", "json"):
        links += [" ", element("a", ending.upper(), href=f"{folder}/{name}.{ending}")]
    caption = element("figcaption", figure.caption, " ", element("span", "Files:", links, class_="files"))
    frame = element("div", image, class_="scroll", tabindex="0", role="region", aria_label=figure.title)
    return Html(text(before) + element("figure", frame, caption))


def _of_kind(groups: Sequence[Group], drawn: Sequence[Drawn], folder: str, kind: str, nothing: str) -> Html:
    """Return the figures whose number starts with ``kind``, by group and each with its title."""
    found = [one for one in drawn if one.figure.number.startswith(kind)]
    if not found:
        return element("p", nothing, " See ", element("a", "what is missing", href="#missing"), ".")
    intro = element(
        "p",
        "As in Figures 7 to 10 of the paper, with heads that are chosen by what they do: the layer attention and the "
        "best head of the layer with the lowest AER where there is one, and heads that are off most and least often.",
    )
    parts = [intro]
    for group in groups:
        mine = [one for one in found if one.group is group]
        if mine and len(groups) > 1:
            parts.append(element("h3", group.title))
        parts += [_figure(one, folder, element("h4", one.figure.title)) for one in mine]
    return Html("".join(parts))


def _ranking(groups: Sequence[Group], drawn: Sequence[Drawn], folder: str) -> Html:
    published = element(
        "p",
        f"The paper ranks the pairs of the {paper.RANKING_CORPUS} by the null rate of cross-attention: of the best "
        f"10,000 about {paper.RANKING_TOP_10K_CORRECT:.0%} are correct, of the worst about "
        f"{paper.RANKING_BOTTOM_10K_CORRECT:.0%}. Here pairs are damaged in known ways instead, which is another test.",
    )
    found = [one for one in drawn if one.figure.number == "Section 5.2"]
    if not found:
        missing = element("p", "Not measured yet; see ", element("a", "what is missing", href="#missing"), ".")
        return Html(published + missing)
    return Html(published + "".join(_figure(one, folder, _group_title(groups, one)) for one in found))


def _selected(selected: Sequence[Tuple[Path, Dict[str, Any]]]) -> Html:
    """Return tables of the selections of ranked corpora, with means and example pairs."""
    parts = []
    for path, record in selected:
        head = [_head(""), *(_head(name, "n") for name in ("pairs", "null rate", "log-probability"))]
        head += [_head(f"{side} pieces", "n") for side in ("source", "target")]
        rows = []
        for name, one in record["selections"].items():
            cells = [f"{one['pairs']:,}", _number(one["null_rate"], 4), _number(one["log_probability"], 3)]
            cells += [_number(one[f"{side}_pieces"], 1) for side in ("source", "target")]
            rows.append([_row_head(name), *map(_cell, cells)])
        notes = [
            f"{record.get('label', '')}; {record['pairs']:,} pairs, ranked by {record['by'].replace('_', ' ')}; means. "
            "The sample is drawn from all pairs with a score."
        ]
        parts.append(_table(["Selections of ", path.name], [head], rows, notes))
        for name, one in record["selections"].items():
            if one.get("examples"):
                parts.append(_example_pairs(name, one["examples"]))
    return Html("".join(parts))


def _example_pairs(name: str, examples: Sequence[Dict[str, Any]]) -> Html:
    head = [_head(title, "n") for title in ("line", "null rate", "log-probability")]
    head += [_head(title) for title in ("source", "target")]
    rows = [
        [
            _cell(f"{one['line'] + 1:,}"),
            _cell(_number(one["null_rate"], 3)),
            _cell(_number(one["log_probability"], 2)),
            *(_cell(one[side], "") for side in ("source", "target")),
        ]
        for one in examples
    ]
    title = f"{len(examples)} pairs of the selection “{name}”, drawn at random"
    return element("details", element("summary", title), _table(title, [head], rows))


# -------------------------------------------------------------------------------------------------------------- wake


def _wake(groups: Sequence[Group]) -> Html:
    parts: List[str] = [
        element(
            "p",
            "Of the heads that are off most often: the words whose queries most often attend to anything at all. In "
            "the encoder a query is made of a source word, elsewhere of the target word that the step consumes.",
        )
    ]
    empty = True
    for group in groups:
        for run in group.runs:
            for site in SITES:
                heads = [head for head in _wake_entries(run, site) if head["null_rate"] > 0 and head["words"]]
                heads.sort(key=lambda head: -head["null_rate"])
                if heads:
                    where = f" ({group.title})" if len(groups) > 1 else ""
                    title = f"{run.label}: {SITE_NAMES[site]}{where}"
                    tables = [_wake_table(head) for head in heads[:_WAKE_HEADS]]
                    parts.append(element("h3", title) + element("div", tables, class_="wake"))
                    empty = False
    if empty:
        return element("p", "No run has a head that is ever off, or none was analysed.")
    return Html("".join(parts))


def _wake_entries(run: Run, site: str) -> List[Dict[str, Any]]:
    return run.files.get("analysis", {}).get("wake", {}).get(site, [])


def _wake_table(head: Dict[str, Any]) -> Html:
    caption = f"Layer {head['layer'] + 1}, head {head['head'] + 1}: null rate {_percent(head['null_rate'], 0)}"
    rows = [_wake_row(word["word"], word["share"], f"{word['count']:,}") for word in head["words"][:_WAKE_WORDS]]
    tags = sorted(head["tags"].items(), key=lambda item: (-item[1], item[0]))[:_WAKE_WORDS]
    rows += [_wake_row(f"tag {tag}", share, "") for tag, share in tags]
    titles = [_head("word"), _head("wakes it", "n"), _head("occurs", "n")]
    return element(
        "table", element("caption", caption), element("thead", element("tr", titles)), element("tbody", rows)
    )


def _wake_row(name: str, share: float, count: str) -> Html:
    bar = element(
        "svg",
        element("rect", width=40, height=9, fill="#e4e4e4"),
        element("rect", width=round(40 * share, 1), height=9, fill="#4d4d4d"),
        width=40,
        height=9,
        aria_hidden="true",
    )
    return element("tr", _cell(name, "word"), _cell([bar, f" {100 * share:.0f} %"]), _cell(count))


# ---------------------------------------------------------------------------------------------------- single sentence


def _examples(groups: Sequence[Group]) -> Tuple[List[Dict[str, Any]], int]:
    """Return the sentences for the view by run, up to 8 MiB of weights, and the number of sentences left out."""
    named = [(group, run) for group in groups for run in group.runs if run.examples]
    shown: List[List[Dict[str, Any]]] = [[] for _ in named]
    room, left_out = _EXAMPLE_BYTES, 0
    for place in range(max([len(run.examples) for _, run in named] or [0])):
        for (_, run), sentences in zip(named, shown):
            if place < len(run.examples):
                packed = _packed(run.examples[place])
                size = sum(len(layer["data"]) for layers in packed["weights"].values() for layer in layers)
                if size <= room:
                    room -= size
                    sentences.append(packed)
                else:
                    left_out += 1
    several = len(groups) > 1
    content = [
        {
            "name": run.label + (f", {group.task or '-'.join(group.languages)}" if several else ""),
            "group": groups.index(group),
            "sentences": sentences,
        }
        for (group, run), sentences in zip(named, shown)
        if sentences
    ]
    return content, left_out


def _packed(example: Example) -> Dict[str, Any]:
    """Return an example with its weights as float16 in base64; no weight other than 0 becomes 0."""
    smallest, largest = _FLOAT16
    weights: Dict[str, Any] = {}
    for site, layers in example.weights.items():
        weights[site] = []
        for layer in layers:
            kept = numpy.where(layer == 0, 0.0, numpy.sign(layer) * numpy.clip(numpy.abs(layer), smallest, largest))
            data = base64.b64encode(kept.astype("<f2").tobytes()).decode()
            weights[site].append({"heads": len(layer), "data": data})
    source, target = (list(map(visible, pieces)) for pieces in (example.source, example.target))
    return {"id": example.number, "source": source, "target": target, "weights": weights}


def _views(examples: Sequence[Dict[str, Any]], left_out: int) -> Html:
    if not examples:
        return element("p", "No run has examples.json; see ", element("a", "what is missing", href="#missing"), ".")
    intro = (
        "Any head of any layer, on the sentences that were kept. A row is a query, a column a key; hatched rows with "
        "∅ attend to nothing. Point at a cell for its value, or press Tab until the map has the frame and move "
        "with the arrow keys."
    )
    note = f" {left_out} sentences were left out, to keep this page small." if left_out else ""
    boxes = element(
        "div",
        _checkbox("linked", "both views follow each other"),
        _checkbox("shared-scale", "same scale in both"),
        class_="controls",
    )
    script = element("noscript", element("p", "This view needs JavaScript; the heat maps above do not."))
    return Html(element("p", intro + note) + script + boxes + element("div", class_="views", id="views"))


def _checkbox(name: str, label: str) -> Html:
    return element("label", element("input", type="checkbox", id=name), label, class_="check")


def _notes() -> Html:
    notes = (
        ("Sparsity", "share of attention weights that are exactly 0; padding and future positions are left out."),
        ("Null query", "a query all of whose weights are exactly 0: the head is off there. Null rate: their share."),
        (
            "Words, pieces",
            "the level of sparsity, null rates and head diversity. The weights of words are summed over the pieces of "
            "the attended word and averaged over the pieces of the word that attends; ends of sentences are left out, "
            "so a word that attends to the end alone is null, also with sparsemax and 1.5-entmax. A row of "
            "cross-attention belongs to the word that its step predicts, a row of self-attention in the decoder to the "
            "word that it consumes. Pieces are as the model has them, with the ends.",
        ),
        (
            "Mean of heads",
            "the layer attention: the mean of the weights as they are, so that a ReLA head weighs as much as its "
            "weights are large. `rela analyze --layer-attention normalised` aligns the mean of heads whose rows sum "
            "to 1.",
        ),
        ("Variance", "the sample variance of the null rates of the heads of a layer."),
        (
            "Shuffled targets",
            "every source has the target of another sentence, none its own: the order is one random cycle.",
        ),
        (
            "AER",
            "1 − (|A∩S| + |A∩P|) / (|A| + |S|), counted over the corpus, for links A, sure links S and "
            "possible links P. Each target word is aligned to its strongest source word, once the weights on the end "
            "of the sentence are left out; a null query aligns nothing.",
        ),
        (
            "Normal, shifted",
            "the weights of step i belong to the word that it predicts (normal), or consumes (shifted).",
        ),
        ("Head diversity", "entropy of the mean of the heads less the mean of their entropies, in nats."),
        ("Counting", "layers, heads, queries and keys count from 1 on this page; sentences from 0, as in the data."),
    )
    return element("ul", [element("li", element("strong", name), ": ", meaning) for name, meaning in notes])
