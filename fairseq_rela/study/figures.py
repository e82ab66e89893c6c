"""Figures of a study: the paper's Figures 3, 5 and 6 by layer, with error bars over seeds, and BLEU by row."""

import statistics
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ..report import paper, plots
from ..report.figure import SITE_NAMES, Figure
from ..variants import SITES
from . import text
from .paper_tables import in_order, paper_difference
from .values import Summary, baseline, difference, finished, level, mean, shuffled, sites, values

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

_MOST = 6  # maximum number of rows in a figure if the study has none of paper.COMPARED_ROWS
_BARS = "Error bars: standard deviation over the seeds, where there are several."


class Layers(NamedTuple):
    """A measure of one row of the study at one site, layer by layer.

    Attributes:
        row: the row.
        name: its name in figures.
        site: ``encoder``, ``decoder`` or ``cross``.
        targets: ``true``, or ``shuffled`` if it was measured on sources with the target of another sentence.
        by_layer: seed to value, for each layer.
    """

    row: Dict[str, Any]
    name: str
    site: str
    targets: str
    by_layer: List[Dict[int, float]]

    @property
    def means(self) -> List[Optional[float]]:
        """The mean over the seeds for each layer; None without a value."""
        return [statistics.fmean(seeds.values()) if seeds else None for seeds in self.by_layer]

    @property
    def errors(self) -> List[Optional[float]]:
        """The sample standard deviation over the seeds for each layer; None for fewer than two values."""
        return [statistics.stdev(seeds.values()) if len(seeds) > 1 else None for seeds in self.by_layer]

    def line(self, scale: float = 1.0) -> plots.Line:
        """Return the line to draw, with the values times ``scale``; shuffled targets are dashed."""
        means = [None if value is None else scale * value for value in self.means]
        errors = [None if value is None else scale * value for value in self.errors]
        return plots.Line(self.name, means, self.targets == "shuffled", errors)


def all_figures(study: Dict[str, Any]) -> List[Figure]:
    """Return the figures for which the study has measurements."""
    made = (_bleu(study), _sparsity(study), _diversity(study), _null_rates(study))
    return [figure for figure in made if figure is not None]


def _styles(study: Dict[str, Any]) -> Dict[str, plots.Style]:
    names = text.figure_names(study["rows"])
    return plots.choose_styles([(names[row["label"]], row["attention"]) for row in in_order(study)])


def _layers(
    study: Dict[str, Any], get: Callable[[Dict[str, Any]], Optional[float]], targets: str = "true"
) -> List[Layers]:
    """Return a measure of every layer for each row and site, the rows of Table 1 first.

    Args:
        study: the content of ``study.json``.
        get: function from the analysis of a layer to the measure, or None.
        targets: "true", or "shuffled" for sources with the target of another sentence.
    """
    found = []
    names = text.figure_names(study["rows"])
    blocks = shuffled if targets == "shuffled" else sites
    for row in in_order(study):
        measured = {run["seed"]: blocks(run, level(study)) for run in finished(row)}
        for site in SITES:
            layers = {seed: block[site]["layers"] for seed, block in measured.items() if site in block}
            by_layer: List[Dict[int, float]] = [{} for _ in range(max(map(len, layers.values()), default=0))]
            for seed, entries in layers.items():
                for place, entry in enumerate(entries):
                    number = get(entry)
                    if number is not None:
                        by_layer[place][seed] = number
            if any(by_layer):
                found.append(Layers(row, names[row["label"]], site, targets, by_layer))
    return found


def _rows_of(found: Sequence[Layers], key: str) -> List[Dict[str, Any]]:
    """Return the measures as rows of a table with mean, standard deviation and the value of each seed."""
    return [
        {
            "row": one.row["label"],
            "site": one.site,
            "targets": one.targets,
            "layer": layer,
            key: average,
            "sd": error,
            "seeds": " ".join(f"{seed}={value:.6g}" for seed, value in sorted(seeds.items())),
        }
        for one in found
        for layer, (average, error, seeds) in enumerate(zip(one.means, one.errors, one.by_layer), 1)
    ]


def _drawn(study: Dict[str, Any], found: Sequence[Layers]) -> List[Layers]:
    """Return the measures of the rows to draw, those of the paper's figures; the data files have all rows."""
    rows = [row for row in in_order(study) if any(one.row is row for one in found)]
    chosen = [row for row in rows if row["table_1"] in paper.COMPARED_ROWS] or rows[:_MOST]
    return [one for one in found if any(one.row is row for row in chosen)]


def _lines_figure(
    study: Dict[str, Any],
    found: List[Layers],
    key: str,
    name: str,
    title: str,
    caption: str,
    unit: str,
    scale: float = 1.0,
    top: Optional[float] = None,
    kinds: Tuple[str, str] = ("", ""),
) -> Optional[Figure]:
    """Return a figure with a panel for each site, or None if nothing was found.

    Args:
        study: the content of ``study.json``.
        found: the measures.
        key: name of the measure in the data files.
        name, title, caption: those of the figure; the name starts with ``figure-`` and its number in the paper.
        unit: label of the y axis.
        scale: factor from the measure to the unit.
        top: upper end of the y axis; None to choose it from the values.
        kinds: meanings of solid and dashed lines.
    """
    if not found:
        return None
    drawn = _drawn(study, found)
    panels = [
        plots.Panel(SITE_NAMES[site], unit, [one.line(scale) for one in drawn if one.site == site], top)
        for site in SITES
    ]
    others = " The other rows are in the files." if len(found) > len(drawn) else ""
    return Figure(
        name,
        " ".join(name.split("-")[:2]).capitalize(),
        title,
        f"{caption} Of {level(study)}. {_BARS}{others}",
        _rows_of(found, key),
        lambda: plots.draw_layer_lines([panels], _styles(study), *kinds),
    )


def _sparsity(study: Dict[str, Any]) -> Optional[Figure]:
    return _lines_figure(
        study,
        _layers(study, lambda layer: layer.get("sparsity")),
        "sparsity",
        "figure-3-sparsity",
        "Sparsity by layer",
        "Share of attention weights that are exactly 0, averaged over the heads of a layer.",
        "weights exactly 0 (%)",
        100,
        100,
    )


def _diversity(study: Dict[str, Any]) -> Optional[Figure]:
    return _lines_figure(
        study,
        _layers(study, lambda layer: layer.get("diversity", {}).get("1.0")),
        "diversity",
        "figure-5-diversity",
        "Head diversity by layer",
        "How much the heads of a layer differ; 0 where all are equal. Weights that do not sum to 1 are made "
        "probabilities by a softmax at \u03c4 = 1.",
        "head diversity (nats)",
    )


def _null_rates(study: Dict[str, Any]) -> Optional[Figure]:
    return _lines_figure(
        study,
        [
            one
            for targets in ("true", "shuffled")
            for one in _layers(study, lambda layer: layer.get("null_rate"), targets)
        ],
        "null_rate",
        "figure-6-null-rate",
        "Null rate by layer, on true and on shuffled targets",
        "Share of queries all of whose weights are 0, averaged over heads. Solid: true targets. Dashed: each source "
        "with the target of another; the encoder sees no target, so there the lines coincide.",
        "null queries (%)",
        100,
        kinds=("true targets", "shuffled targets"),
    )


# --------------------------------------------------------------------------------------------------------------- BLEU


def _readable(study: Dict[str, Any]) -> Tuple[List[Dict[str, Any]], List[Dict[str, Any]]]:
    """Return the rows with at least half the best mean BLEU, and those below it, which would stretch the axis."""
    means = [(row, mean(row, "bleu")) for row in in_order(study)]
    scored = [(row, found.mean) for row, found in means if found is not None]
    best = max((score for _, score in scored), default=0.0)
    return [row for row, score in scored if score >= best / 2], [row for row, score in scored if score < best / 2]


def _bleu(study: Dict[str, Any]) -> Optional[Figure]:
    rows, failed = _readable(study)
    if not rows:
        return None
    names = text.figure_names(study["rows"])
    caption = (
        "Left: sacreBLEU of each seed. Right: the difference to the baseline with the same seed, and the paper's on "
        "WMT14 En-De at base size. Horizontal lines are 95 % intervals by Student's t, which two seeds make very long; "
        "they end at the frame."
    )
    if failed:
        caption += (
            " Too low for this scale: "
            + ", ".join(f"{names[row['label']]} {text.mean_sd(mean(row, 'bleu'))}" for row in failed)
            + "."
        )
    empty = [names[row["label"]] for row in in_order(study) if row not in (*rows, *failed)]
    if empty:
        caption += f" Without a finished run: {', '.join(empty)}."
    by_attention = plots.choose_styles([(name, name) for name in dict.fromkeys(row["attention"] for row in rows)])
    styles = {names[row["label"]]: by_attention[row["attention"]] for row in rows}
    return Figure(
        "bleu-by-row",
        "Table 1",
        "BLEU by row, with every seed",
        caption,
        [entry for row in (*rows, *failed) for entry in _bleu_rows(study, row)],
        lambda: _draw_bleu(study, rows, styles),
    )


def _bleu_rows(study: Dict[str, Any], row: Dict[str, Any]) -> List[Dict[str, Any]]:
    base = baseline(study)
    reference = values(base, "bleu") if base else {}
    return [
        {
            "row": row["label"],
            "table_1": row["table_1"],
            "seed": seed,
            "bleu": bleu,
            "difference": bleu - reference[seed] if row is not base and seed in reference else None,
        }
        for seed, bleu in sorted(values(row, "bleu").items())
    ]


def _draw_bleu(study: Dict[str, Any], rows: List[Dict[str, Any]], styles: Dict[str, plots.Style]) -> "Drawing":
    base, names = baseline(study), text.figure_names(study["rows"])

    def spread(row: Dict[str, Any], key: str, summary: Optional[Summary], published: Optional[float]) -> plots.Spread:
        points = [entry[key] for entry in _bleu_rows(study, row) if entry[key] is not None]
        spread = plots.Spread(names[row["label"]], points, reference=published)
        return spread._replace(mean=summary.mean, interval=summary.interval) if summary else spread

    scores = [spread(row, "bleu", mean(row, "bleu"), None) for row in rows]
    against = [spread(row, "difference", difference(row, base, "bleu"), paper_difference(study, row)) for row in rows]
    name = text.row_name(base) if base else study["baseline"]
    panels = [("score", "sacreBLEU", scores), (f"difference to {name}", "BLEU", against)]
    return plots.draw_spreads(panels, styles, "the paper, WMT14 En-De", (False, True))
