"""Draw lines over the layers of a model, or over lengths."""

from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Dict, NamedTuple, Optional, Sequence, Tuple

import numpy

from ...variants import Style
from .canvas import GREY, GRID, add_legend, line_handle, new_figure, settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
        places: tick labels of the x axis; None for 1, 2, ...
    """

    title: str
    unit: str
    lines: Sequence[Line]
    top: Optional[float] = None
    log: bool = False
    places: Optional[Sequence[Any]] = None


def draw_layer_lines(
    rows: Sequence[Sequence[Panel]],
    styles: Dict[str, Style],
    solid: str = "",
    dashed: str = "",
    axis_name: str = "layer",
) -> "Figure":
    """Draw a grid of panels with lines; the panels of a row share their y axis.

    Args:
        rows: rows of panels, from top to bottom.
        styles: style of each label.
        solid, dashed: meanings of the two kinds of lines for the legend, if both are used.
        axis_name: label of the x axis.
    """
    with settings():
        figure, axes = new_figure(len(rows), len(rows[0]), 2.35 * len(rows) + 0.55, sharey="row")
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
        labels = list(dict.fromkeys(line.label for row in rows for panel in row for line in panel.lines))
        handles = [line_handle(styles[label], label) for label in labels]
        if solid and dashed:
            handles += [line_handle(Style(GREY, ""), text, style) for text, style in ((solid, "-"), (dashed, "--"))]
        add_legend(figure, handles)
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
    if panel.places is None:
        axis.set_xticks(range(1, longest + 1, max(1, -(-longest // 12))))
    else:
        axis.set_xticks(range(1, len(panel.places) + 1), panel.places)
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
