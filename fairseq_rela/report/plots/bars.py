"""Draw groups of bars."""

from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Sequence

import numpy

from ...variants import Style
from .canvas import GRID, add_legend, new_figure, settings
from .fonts import drawable

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Bars(NamedTuple):
    """The bars of one model, with one value for each category."""

    label: str
    values: Sequence[float]
    hatched: bool = False


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
    with settings():
        figure, axes = new_figure(1, 1, 0.19 * len(bars) * len(categories) + 0.13 * len(categories) + 1.4)
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
        axis.set_yticks(range(len(categories)), list(map(drawable, categories)))
        axis.set_ylim(len(categories) - 0.45, -0.55)
        axis.set_xlim(0, 1.06)
        axis.set_xticks([0, 0.25, 0.5, 0.75, 1])
        axis.set_xlabel(unit)
        axis.grid(axis="x", color=GRID, linewidth=0.7)
        colours = {one.label: styles[one.label].colour for one in bars}
        add_legend(figure, _handles(colours, plain, hatched))
        return figure


def _handles(colours: Dict[str, str], plain: str, hatched: str) -> List[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return [
        *(Patch(facecolor=colour, label=drawable(label)) for label, colour in colours.items()),
        Patch(facecolor="#888888", edgecolor="#444444", label=plain),
        Patch(facecolor="white", edgecolor="#444444", hatch="////", label=hatched),
        Line2D([], [], color="#666666", linewidth=1, linestyle=":", label="chance"),
    ]
