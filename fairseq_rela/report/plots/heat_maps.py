"""Draw matrices of weights, and the null rates of all heads."""

from typing import TYPE_CHECKING, Any, NamedTuple, Sequence, Tuple

import numpy

from .canvas import add_legend, new_figure, settings
from .fonts import drawable_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


FUTURE = "#e9e9e9"


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


def draw_heat_maps(maps: Sequence[HeatMap], source: str, target: str) -> "Figure":
    """Draw heat maps, two in a row, each with its own colour bar because weights are not limited to 0..1.

    A weight of exactly 0 is white and a future key is grey. A null query is hatched and its name has an empty-set sign.
    A negative weight has a minus sign.

    Args:
        maps: the heat maps.
        source, target: labels of the x axis (keys) and the y axis (queries).
    """
    from matplotlib.patches import Patch

    with settings():
        columns = min(2, len(maps))
        rows = -(-len(maps) // columns)
        tallest = max(len(one.queries) for one in maps)
        height = rows * (0.205 * min(tallest, 60) + 1.75) + 0.3
        figure, axes = new_figure(rows, columns, height)
        layout: Any = figure.get_layout_engine()
        layout.set(w_pad=0.12, h_pad=0.08)  # inches; keeps the label of a colour bar away from the next map
        for axis, one in zip(axes.flat, maps):
            _draw_heat_map(figure, axis, one, source, target)
        for axis in list(axes.flat)[len(maps) :]:
            axis.set_axis_off()
        label = "null query (\u2205): all weights exactly 0"
        add_legend(figure, [Patch(facecolor="white", edgecolor="#8a8a8a", hatch="////", label=label)])
        return figure


def _draw_heat_map(figure: "Figure", axis: "Axes", one: HeatMap, source: str, target: str) -> None:
    from matplotlib.patches import Rectangle

    weights = numpy.asarray(one.weights, dtype=float)
    queries, keys = weights.shape
    future = numpy.triu(numpy.full_like(weights, one.causal, dtype=bool), 1)
    nulls = ((weights == 0) | future).all(axis=1)
    top = float(numpy.abs(weights[~future]).max(initial=0.0)) or 1.0
    shown = numpy.ma.masked_array(numpy.abs(weights), mask=(weights == 0) | future)
    mesh = axis.pcolormesh(shown, cmap=_weight_colours(), vmin=0, vmax=top, edgecolors="white", linewidth=0.3)
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
    axis.set_xticks(numpy.arange(keys) + 0.5, drawable_names(one.keys), rotation=90, fontsize=size)
    names = [f"{name} \u2205" if null else name for name, null in zip(drawable_names(one.queries), nulls)]
    axis.set_yticks(numpy.arange(queries) + 0.5, names, fontsize=size)
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
    with settings():
        layers = max(len(values) for _, values in panels)
        figure, axes = new_figure(1, len(panels), 0.34 * layers + 1.15)
        for axis, (title, values) in zip(axes[0], panels):
            heads = max(map(len, values))
            grid = numpy.full((len(values), heads), numpy.nan)
            for row, shares in enumerate(values):
                grid[row, : len(shares)] = [100 * share for share in shares]
            mesh = axis.pcolormesh(grid, cmap=_weight_colours(), vmin=0, vmax=100, edgecolors="white", linewidth=1)
            for (row, column), value in numpy.ndenumerate(grid):
                if numpy.isfinite(value):
                    colour = "white" if value > 55 else "black"
                    text = f"{value:.0f}" if value == 0 or value >= 1 else "<1"
                    axis.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=8, color=colour)
            axis.set_title(title)
            axis.set_xticks(numpy.arange(heads) + 0.5, range(1, heads + 1))
            axis.set_yticks(numpy.arange(len(values)) + 0.5, range(1, len(values) + 1))
            axis.set_ylim(len(values), 0)
            axis.tick_params(length=0)
            axis.set_xlabel("head")
        axes[0][0].set_ylabel("layer")
        bar = figure.colorbar(mesh, ax=list(axes[0]), fraction=0.03, pad=0.01)
        bar.outline.set_visible(False)
        bar.set_label("null rate (%)")
        return figure


def _weight_colours() -> Any:
    """Return a colour map from light to dark blue; white is only for weights of exactly 0."""
    from matplotlib.colors import LinearSegmentedColormap

    stops = ["#dbe9f6", "#6baed6", "#08519c", "#041f45"]
    return LinearSegmentedColormap.from_list("rela", stops).with_extremes(bad="white")
