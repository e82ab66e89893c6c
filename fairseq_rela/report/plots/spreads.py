"""Draw the values of all seeds of each model, with their mean and its interval."""

from typing import TYPE_CHECKING, Dict, NamedTuple, Optional, Sequence, Tuple

from ...variants import Style
from .canvas import GREY, GRID, add_legend, line_handle, new_figure, settings
from .fonts import drawable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
    with settings():
        names = [spread.label for spread in panels[0][2]]
        figure, axes = new_figure(1, len(panels), 0.3 * len(names) + 1.3, sharey=True)
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
        axes[0][0].set_yticks(range(len(names)), list(map(drawable, names)))
        axes[0][0].set_ylim(len(names) - 0.4, -0.6)
        handles = [
            line_handle(Style(GREY, "o"), "one seed", ""),
            line_handle(Style(GREY, "|"), "mean, 95 % interval", "-"),
        ]
        if reference:
            hollow = line_handle(Style(GREY, "D"), reference, "")
            hollow.set_markerfacecolor("white")
            handles.append(hollow)
        add_legend(figure, handles)
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
