"""Draw line plots, heat maps and bars as PNG or SVG. Only this module imports matplotlib, inside its functions.

A model has the same colour and marker in all figures. Other differences are line styles and hatches, so that figures
are readable in grey. Legends are above the panels. The same input gives the same bytes.
"""

import io
import logging
import unicodedata
from contextlib import contextmanager
from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Dict, FrozenSet, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy

from ..errors import InputError
from ..variants import VARIANTS, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_STYLES = [variant.style for variant in VARIANTS.values()]
GRID = "#dddddd"
FUTURE = "#e9e9e9"
_WIDTH = 9.6  # of a figure, in inches
_RC = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "axes.axisbelow": True,
    "axes.prop_cycle": "cycler('color', ['#3d3d3d'])",
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.5,
    "hatch.linewidth": 0.7,
    "hatch.color": "#8a8a8a",
    "svg.hashsalt": "fairseq_rela",
    "svg.fonttype": "path",
    "text.parse_math": False,  # a token may contain $
    "text.usetex": False,
    "axes.unicode_minus": True,
}
_FALLBACKS = ("Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "WenQuanYi Zen Hei", "Arial Unicode MS")


def choose_styles(models: Sequence[Tuple[str, Optional[str]]]) -> Dict[str, Style]:
    """Return the style of each label.

    The first model of each variant of Table 1 gets the style of the variant; other models get the next free style.

    Args:
        models: label and attention of each model.
    """
    chosen: Dict[str, Style] = {}
    for label, attention in models:
        style = VARIANTS[attention].style if attention in VARIANTS else None
        if style is not None and style not in chosen.values():
            chosen[label] = style
    free = [style for style in _STYLES if style not in chosen.values()]
    for label, _ in models:
        if label not in chosen:
            chosen[label] = free.pop(0) if free else _STYLES[len(chosen) % len(_STYLES)]
    return chosen


class Line(NamedTuple):
    """A line in a plot.

    Attributes:
        label: label of the model.
        values: one value for each layer, first layer first; None leaves a gap.
        dashed: whether the line is dashed.
        errors: half lengths of the error bars, None for a value without one; empty for no error bars.
    """

    label: str
    values: Sequence[Optional[float]]
    dashed: bool = False
    errors: Sequence[Optional[float]] = ()


class Panel(NamedTuple):
    """A panel with lines.

    Attributes:
        title: title of the panel.
        unit: label of the y axis.
        lines: the lines.
        top: upper end of the y axis; None to choose it from the values.
        log: whether the y axis is logarithmic.
    """

    title: str
    unit: str
    lines: Sequence[Line]
    top: Optional[float] = None
    log: bool = False


class HeatMap(NamedTuple):
    """A heat map of one matrix of weights.

    Attributes:
        title: title of the map.
        weights: (T, S), queries by keys.
        queries, keys: names of the rows and columns.
        causal: whether queries cannot attend to later keys.
    """

    title: str
    weights: numpy.ndarray
    queries: Sequence[str]
    keys: Sequence[str]
    causal: bool = False


class Bars(NamedTuple):
    """The bars of one model, with one value for each category."""

    label: str
    values: Sequence[float]
    hatched: bool = False


def draw_layer_lines(
    rows: Sequence[Sequence[Panel]],
    styles: Dict[str, Style],
    solid: str = "",
    dashed: str = "",
    places: Optional[Sequence[Any]] = None,
    axis_name: str = "layer",
) -> "Figure":
    """Draw a grid of panels with lines; the panels of a row share their y axis.

    Args:
        rows: rows of panels, from top to bottom.
        styles: style of each label.
        solid, dashed: meanings of the two kinds of lines for the legend, if both are used.
        places: tick labels of the x axis; None for 1, 2, ...
        axis_name: label of the x axis.
    """
    with _style():
        figure, axes = _figure(len(rows), len(rows[0]), 2.35 * len(rows) + 0.55, sharey="row")
        for row, panels in zip(axes, rows):
            if panels[0].log:
                _make_logarithmic(row[0])
            else:
                row[0].set_ylim(_limits(panels))
            for place, (axis, panel) in enumerate(zip(row, panels)):
                _draw_lines(axis, panel, styles)
                axis.set_ylabel(panel.unit if place == 0 else "")
        for axis in axes[-1]:
            axis.set_xlabel(axis_name)
        for axis in axes.flat if places is not None else ():
            axis.set_xticks(range(1, len(places) + 1))
            axis.set_xticklabels(places)
        labels = list(dict.fromkeys(line.label for row in rows for panel in row for line in panel.lines))
        handles = [_handle(styles[label], label) for label in labels]
        if solid and dashed:
            handles += [_handle(Style("#3d3d3d", ""), text, style) for text, style in ((solid, "-"), (dashed, "--"))]
        _legend(figure, handles)
        return figure


def _make_logarithmic(axis: "Axes") -> None:
    """Make the y axis logarithmic, with ticks such as 0.5, 1, 2 instead of powers of 10."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.yaxis.set_minor_locator(LogLocator(subs=()))


def _draw_lines(axis: "Axes", panel: Panel, styles: Dict[str, Style]) -> None:
    axis.set_title(panel.title)
    axis.grid(axis="y", color=GRID, linewidth=0.7)
    longest = max([len(line.values) for line in panel.lines] or [1])
    for line in panel.lines:
        style = styles[line.label]
        axis.plot(
            range(1, len(line.values) + 1),
            [numpy.nan if value is None else value for value in line.values],
            color=style.colour,
            marker=style.marker,
            linestyle="--" if line.dashed else "-",
            markerfacecolor="white" if line.dashed else style.colour,
            clip_on=False,
            zorder=3,
        )
        if line.errors:
            _draw_errors(axis, line, style)
    step = 1 if longest <= 12 else -(-longest // 12)
    axis.set_xticks(range(1, longest + 1, step))
    axis.set_xlim(0.7, longest + 0.3)


def _draw_errors(axis: "Axes", line: Line, style: Style) -> None:
    bars = [
        (place, value, error)
        for place, (value, error) in enumerate(zip(line.values, line.errors), 1)
        if value is not None and error is not None
    ]
    if bars:
        places, values, errors = zip(*bars)
        axis.errorbar(
            places, values, errors, fmt="none", ecolor=style.colour, elinewidth=1, capsize=2.5, clip_on=False, zorder=2
        )


def _limits(panels: Sequence[Panel]) -> Tuple[float, float]:
    """Return the limits of the y axis: from 0 to the highest ``top``, or to 8 % above the highest value without one."""
    values = [
        value + (error or 0.0)
        for panel in panels
        for line in panel.lines
        for value, error in zip_longest(line.values, line.errors)
        if value is not None
    ]
    top = max([panel.top or 0.0 for panel in panels] or [0.0])
    return 0.0, top or 1.08 * max(values, default=0.0) or 1.0


def draw_heat_maps(maps: Sequence[HeatMap], source: str, target: str) -> "Figure":
    """Draw heat maps, two in a row, each with its own colour bar because weights are not limited to 0..1.

    A weight of exactly 0 is white and a future key is grey. A null query is hatched and its name has an empty-set sign.
    A negative weight has a minus sign.

    Args:
        maps: the heat maps.
        source, target: labels of the x axis (keys) and the y axis (queries).
    """
    with _style():
        columns = min(2, len(maps))
        rows = -(-len(maps) // columns)
        tallest = max(len(one.queries) for one in maps)
        height = rows * (0.205 * min(tallest, 60) + 1.75) + 0.3
        figure, axes = _figure(rows, columns, height)
        layout: Any = figure.get_layout_engine()
        layout.set(w_pad=0.12, h_pad=0.08)  # inches; keeps the label of a colour bar away from the next map
        for axis, one in zip(axes.flat, maps):
            _draw_heat_map(figure, axis, one, source, target)
        for axis in list(axes.flat)[len(maps) :]:
            axis.set_axis_off()
        _legend(figure, [_null_handle()])
        return figure


def _draw_heat_map(figure: "Figure", axis: "Axes", one: HeatMap, source: str, target: str) -> None:
    from matplotlib.patches import Rectangle

    weights = numpy.asarray(one.weights, dtype=float)
    queries, keys = weights.shape
    future = (
        numpy.triu(numpy.ones_like(weights, dtype=bool), 1) if one.causal else numpy.zeros_like(weights, dtype=bool)
    )
    nulls = ((weights == 0) | future).all(axis=1)
    top = float(numpy.abs(weights[~future]).max()) if weights.size else 0.0
    top = top or 1.0
    shown = numpy.ma.masked_array(numpy.abs(weights), mask=(weights == 0) | future)
    mesh = axis.pcolormesh(shown, cmap=_colours(), vmin=0, vmax=top, edgecolors="white", linewidth=0.3)
    for row in range(queries):
        if nulls[row]:
            width = row + 1 if one.causal else keys
            axis.add_patch(Rectangle((0, row), width, 1, facecolor="white", hatch="////", edgecolor="#8a8a8a", lw=0.4))
        if one.causal and row + 1 < keys:
            axis.add_patch(Rectangle((row + 1, row), keys - row - 1, 1, facecolor=FUTURE, edgecolor="none"))
    for row, column in zip(*numpy.nonzero((weights < 0) & ~future)):
        axis.text(column + 0.5, row + 0.5, "\u2212", ha="center", va="center", fontsize=6, color="#b34700")
    axis.set_title(one.title)
    axis.set_xlim(0, keys)
    axis.set_ylim(queries, 0)
    size = 7.5 if max(queries, keys) <= 24 else 5
    axis.set_xticks(numpy.arange(keys) + 0.5)
    axis.set_xticklabels(_drawable_names(one.keys), rotation=90, fontsize=size)
    names = [f"{name} \u2205" if null else name for name, null in zip(_drawable_names(one.queries), nulls)]
    axis.set_yticks(numpy.arange(queries) + 0.5)
    axis.set_yticklabels(names, fontsize=size)
    axis.tick_params(length=0)
    for side in ("top", "right"):
        axis.spines[side].set_visible(True)
    axis.set_xlabel(source)
    axis.set_ylabel(target)
    bar = figure.colorbar(mesh, ax=axis, fraction=0.05, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7.5)
    bar.set_label("weight" if (weights >= 0).all() else "absolute weight", fontsize=8)


def draw_head_grid(panels: Sequence[Tuple[str, Sequence[Sequence[float]]]]) -> "Figure":
    """Draw the null rates of all heads in percent, with one row for each layer.

    Args:
        panels: title of each panel and its null rates (layers, heads), from 0 to 1.
    """
    with _style():
        layers = max(len(values) for _, values in panels)
        figure, axes = _figure(1, len(panels), 0.34 * layers + 1.15)
        mesh = None
        for axis, (title, values) in zip(axes[0], panels):
            heads = max(map(len, values))
            grid = numpy.full((len(values), heads), numpy.nan)
            for row, shares in enumerate(values):
                grid[row, : len(shares)] = [100 * share for share in shares]
            mesh = axis.pcolormesh(grid, cmap=_colours(), vmin=0, vmax=100, edgecolors="white", linewidth=1)
            for (row, column), value in numpy.ndenumerate(grid):
                if numpy.isfinite(value):
                    colour = "white" if value > 55 else "black"
                    text = f"{value:.0f}" if value == 0 or value >= 1 else "<1"
                    axis.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=8, color=colour)
            axis.set_title(title)
            axis.set_xticks(numpy.arange(heads) + 0.5)
            axis.set_xticklabels(range(1, heads + 1))
            axis.set_yticks(numpy.arange(len(values)) + 0.5)
            axis.set_yticklabels(range(1, len(values) + 1))
            axis.set_ylim(len(values), 0)
            axis.tick_params(length=0)
            axis.set_xlabel("head")
        axes[0][0].set_ylabel("layer")
        bar = figure.colorbar(mesh, ax=list(axes[0]), fraction=0.03, pad=0.01)
        bar.outline.set_visible(False)
        bar.set_label("null rate (%)")
        return figure


def draw_bars(
    categories: Sequence[str],
    bars: Sequence[Bars],
    styles: Dict[str, Style],
    unit: str,
    plain: str,
    hatched: str,
    chance: float = 0.5,
) -> "Figure":
    """Draw groups of horizontal bars with their values, from 0 to 1, and a line at chance.

    Args:
        categories: names of the groups.
        bars: the bars of each model, with one value for each category.
        styles: style of each label.
        unit: label of the x axis.
        plain, hatched: meanings of the two kinds of bars for the legend.
        chance: position of the line.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    with _style():
        figure, axes = _figure(1, 1, 0.19 * len(bars) * len(categories) + 0.13 * len(categories) + 1.4)
        axis = axes[0][0]
        thickness = 0.82 / len(bars)
        for place, one in enumerate(bars):
            centres = numpy.arange(len(categories)) + (place - (len(bars) - 1) / 2) * thickness
            colour = styles[one.label].colour
            axis.barh(
                centres,
                one.values,
                height=thickness * 0.9,
                facecolor="white" if one.hatched else colour,
                edgecolor=colour,
                hatch="////" if one.hatched else None,
            )
            for centre, value in zip(centres, one.values):
                axis.text(value + 0.008, centre, f"{value:.2f}", va="center", fontsize=7.5)
        axis.axvline(chance, color="#666666", linewidth=1, linestyle=":", zorder=4)
        axis.set_yticks(range(len(categories)))
        axis.set_yticklabels([_drawable(category) for category in categories])
        axis.set_ylim(len(categories) - 0.45, -0.55)
        axis.set_xlim(0, 1.06)
        axis.set_xticks([0, 0.25, 0.5, 0.75, 1])
        axis.set_xlabel(unit)
        axis.grid(axis="x", color=GRID, linewidth=0.7)
        handles: List[Any] = [
            Patch(facecolor=styles[label].colour, label=_drawable(label))
            for label in dict.fromkeys(one.label for one in bars)
        ]
        handles += [
            Patch(facecolor="#888888", edgecolor="#444444", label=plain),
            Patch(facecolor="white", edgecolor="#444444", hatch="////", label=hatched),
            Line2D([], [], color="#666666", linewidth=1, linestyle=":", label="chance"),
        ]
        _legend(figure, handles)
        return figure


class Spread(NamedTuple):
    """The values of one model in a plot of points.

    Attributes:
        label: label of the model, which has a style.
        points: one value for each seed.
        mean: mean, drawn as a vertical mark.
        interval: lower and upper end of the interval of the mean, drawn as a line.
        reference: value to compare with, drawn as a hollow marker.
    """

    label: str
    points: Sequence[float]
    mean: Optional[float] = None
    interval: Optional[Tuple[float, float]] = None
    reference: Optional[float] = None


def draw_spreads(
    panels: Sequence[Tuple[str, str, Sequence[Spread]]],
    styles: Dict[str, Style],
    reference: str = "",
    zero: Sequence[bool] = (),
) -> "Figure":
    """Draw points, mean and interval of each model, with one row for each model.

    The x axis shows all points, means and references. An interval that is much longer than the range of the values,
    such as one of two seeds, is cut off at the frame.

    Args:
        panels: title, label of the x axis, and the models from top to bottom, which are the same in all panels.
        styles: style of each label.
        reference: meaning of the hollow markers for the legend; empty for none.
        zero: for each panel, whether to draw a line at 0.
    """
    with _style():
        names = [spread.label for spread in panels[0][2]]
        figure, axes = _figure(1, len(panels), 0.3 * len(names) + 1.3, sharey=True)
        for place, (axis, (title, unit, spreads)) in enumerate(zip(axes[0], panels)):
            for height, spread in enumerate(spreads):
                _draw_spread(axis, height, spread, styles[spread.label])
            if place < len(zero) and zero[place]:
                axis.axvline(0, color="#666666", linewidth=1, linestyle=":", zorder=1)
            axis.set_title(title)
            axis.set_xlabel(unit)
            axis.set_xlim(_spread_limits(spreads))
            axis.grid(axis="x", color=GRID, linewidth=0.7)
            axis.tick_params(axis="y", length=0)
        axes[0][0].set_yticks(range(len(names)))
        axes[0][0].set_yticklabels(list(map(_drawable, names)))
        axes[0][0].set_ylim(len(names) - 0.4, -0.6)
        grey = "#3d3d3d"
        handles = [
            _handle(Style(grey, "o"), "one seed", ""),
            _handle(Style(grey, "|"), "mean, 95 % interval", "-"),
        ]
        if reference:
            hollow = _handle(Style(grey, "D"), reference, "")
            hollow.set_markerfacecolor("white")
            handles.append(hollow)
        _legend(figure, handles)
        return figure


def _draw_spread(axis: "Axes", height: int, spread: Spread, style: Style) -> None:
    if spread.interval is not None:
        axis.plot(spread.interval, [height, height], color=style.colour, linewidth=2, alpha=0.55, zorder=2)
    if spread.mean is not None:
        axis.plot([spread.mean], [height], color=style.colour, marker="|", markersize=14, markeredgewidth=2, zorder=3)
    for point in spread.points:
        axis.plot([point], [height], color=style.colour, marker="o", markersize=4.5, alpha=0.8, zorder=4)
    if spread.reference is not None:
        axis.plot(
            [spread.reference],
            [height],
            marker="D",
            markersize=6,
            markerfacecolor="white",
            markeredgecolor=style.colour,
            zorder=3,
        )


def _spread_limits(spreads: Sequence[Spread]) -> Tuple[float, float]:
    values = [value for spread in spreads for value in spread.points]
    values += [value for spread in spreads for value in (spread.mean, spread.reference) if value is not None]
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    reach = (high - low or 1.0) / 2  # an interval may extend the axis by at most half of the range of the values
    for spread in spreads:
        if spread.interval is not None:
            low = min(low, max(spread.interval[0], min(values) - reach))
            high = max(high, min(spread.interval[1], max(values) + reach))
    margin = 0.06 * (high - low or 1.0)
    return low - margin, high + margin


def render(figure: "Figure", kind: str) -> bytes:
    """Return the PNG or SVG file of a figure, without date and version, so that the bytes are always the same.

    Args:
        figure: the figure.
        kind: ``png`` or ``svg``.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)  # no window, no display
    with _style():
        if figure.get_layout_engine() is not None and figure.get_layout_engine().adjust_compatible is False:
            figure.draw_without_rendering()
            figure.set_layout_engine("none")  # the layout is computed once for PNG and SVG
    metadata = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
    output = io.BytesIO()
    with _style():
        figure.savefig(output, format=kind, dpi=160, facecolor="white", metadata=metadata)
    return _with_palette(output) if kind == "png" else output.getvalue()


def _with_palette(png: io.BytesIO) -> bytes:
    """Return the picture in 256 colours, which takes about a third of the bytes."""
    from PIL import Image

    output = io.BytesIO()
    with Image.open(png) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(output, "png", optimize=True)
    return output.getvalue()


def visible(text: str) -> str:
    """Return text with invisible characters, such as line breaks and U+2028, written as escapes."""
    return "".join(
        character if not unicodedata.category(character).startswith(("C", "Zl", "Zp")) else f"\\u{ord(character):04x}"
        for character in text
    )


@contextmanager
def _style() -> Iterator[None]:
    # Hydra in fairseq may have set the root logger to DEBUG, where these two log every font and image chunk
    for name in ("matplotlib", "PIL"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        import matplotlib
    except ImportError as error:
        raise InputError("figures need matplotlib; install it: pip install matplotlib") from error
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **_RC, "font.family": list(_families())}):
        yield


@lru_cache(maxsize=1)
def _families() -> Tuple[str, ...]:
    """Return DejaVu Sans, which comes with matplotlib, and the installed fonts for scripts that it lacks."""
    from matplotlib import font_manager

    installed = {font.name for font in font_manager.fontManager.ttflist}
    return ("DejaVu Sans", *(name for name in _FALLBACKS if name in installed))


@lru_cache(maxsize=1)
def _characters() -> FrozenSet[int]:
    from matplotlib import font_manager

    known: set = set()
    for family in _families():
        known.update(font_manager.get_font(font_manager.findfont(family)).get_charmap())
    return frozenset(known)


def _drawable(text: str, instead: str = "?") -> str:
    """Return text of at most 24 characters that the fonts can draw, or ``instead``.

    A leading underscore gets a space before it, because matplotlib leaves labels with one out of legends.
    """
    text = visible(text)
    if not all(ord(character) in _characters() for character in text):
        return instead
    text = text if len(text) <= 24 else text[:23] + "\u2026"
    return f" {text}" if text.startswith("_") else text


def _drawable_names(pieces: Sequence[str]) -> List[str]:
    """Return the names of the pieces of a sentence; a piece that no font can draw is named by its position, from 1."""
    return [_drawable(piece, f"[{number}]") for number, piece in enumerate(pieces, 1)]


def _figure(rows: int, columns: int, height: float, **options: Any) -> Tuple["Figure", numpy.ndarray]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def _handle(style: Style, label: str, line: str = "-") -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=style.colour, marker=style.marker, linestyle=line, label=_drawable(label))


def _null_handle() -> Any:
    from matplotlib.patches import Patch

    return Patch(
        facecolor="white", edgecolor="#8a8a8a", hatch="////", label="null query (\u2205): all weights exactly 0"
    )


def _legend(figure: "Figure", handles: Sequence[Any]) -> None:
    figure.legend(handles=list(handles), loc="outside upper left", ncols=min(len(handles), 5), handlelength=2.6)


def _colours() -> Any:
    """Return a colour map from light to dark blue; white is only for weights of exactly 0."""
    from matplotlib.colors import LinearSegmentedColormap

    stops = ["#dbe9f6", "#6baed6", "#08519c", "#041f45"]
    return LinearSegmentedColormap.from_list("rela", stops).with_extremes(bad="white")
