"""Drawings: correct numbers, hostile names, equal bytes, and no import of matplotlib before it is needed."""

import sys

import numpy
import pytest
from conftest import ROOT, run

pytest.importorskip("matplotlib")

from warm import WARM

from fairseq_rela.report import plots
from fairseq_rela.report.characters import visible
from fairseq_rela.report.plots import fonts
from fairseq_rela.variants import VARIANTS

STYLES = plots.choose_styles([("softmax", "softmax"), ("rela_g", "rela_g")])
HOSTILE = ["$x$", "_hidden", "</script>", "a\u2028b", "\u4e2d\u6587", "-->"]


def lines_figure():
    lines = [plots.Line("softmax", [0.0, 10.0]), plots.Line("rela_g", [60.0, None, 80.0], dashed=True)]
    return plots.draw_layer_lines([[plots.Panel("cross-attention", "%", lines)]], STYLES, "one", "other")


def test_lines_have_the_given_numbers():
    axis = lines_figure().axes[0]
    solid, dashed = axis.get_lines()
    assert list(solid.get_xdata()) == [1, 2] and list(solid.get_ydata()) == [0.0, 10.0]
    assert numpy.array_equal(dashed.get_ydata(), [60.0, numpy.nan, 80.0], equal_nan=True)
    assert (solid.get_linestyle(), dashed.get_linestyle()) == ("-", "--")
    assert solid.get_marker() != dashed.get_marker() and solid.get_color() != dashed.get_color()
    assert axis.get_xlabel() == "layer" and axis.get_ylabel() == "%"
    assert axis.get_ylim()[0] == 0 and axis.get_ylim()[1] > 80


def test_a_row_of_panels_shares_a_scale_that_holds_all_values():
    panels = [plots.Panel(name, "%", [plots.Line("rela_g", [top])]) for name, top in (("a", 3.0), ("b", 50.0))]
    figure = plots.draw_layer_lines([panels], STYLES)
    assert all(axis.get_ylim()[1] > 50 for axis in figure.axes)


def test_a_heat_map_shows_weights_nulls_and_the_future():
    from matplotlib.patches import Rectangle

    weights = numpy.array([[2.5, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.5]])
    figure = plots.draw_heat_maps([plots.HeatMap("t", weights, ["a", "b", "c"], ["a", "b", "c"], True)], "key", "query")
    axis = figure.axes[0]
    cells = axis.collections[0].get_array().reshape(3, 3)
    assert cells.mask.tolist() == [[False, True, True], [True, True, True], [True, False, False]]
    assert cells.compressed().tolist() == [2.5, 1.0, 0.5] and axis.collections[0].get_clim() == (0, 2.5)
    assert [label.get_text() for label in axis.get_yticklabels()] == ["a", "b \u2205", "c"]
    hatched = [p for p in axis.patches if isinstance(p, Rectangle) and p.get_hatch()]
    assert [(p.get_xy(), p.get_width()) for p in hatched] == [((0, 1), 2)]


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_hostile_names_are_drawn_and_the_bytes_are_the_same_each_time(kind):
    weights = numpy.arange(36.0).reshape(6, 6) - 3

    def drawn():
        return plots.render(plots.draw_heat_maps([plots.HeatMap("$t$", weights, HOSTILE, HOSTILE)], "k", "q"), kind)

    content = drawn()
    assert content == drawn()
    assert content.startswith(b"\x89PNG" if kind == "png" else b"<?xml")
    if kind == "svg":
        import xml.etree.ElementTree as tree

        tree.fromstring(content)


def test_names_without_a_font_are_replaced_by_their_position(monkeypatch):
    monkeypatch.setattr(fonts, "known_characters", lambda: frozenset(range(128)))
    assert fonts.drawable_names(["Hund", "\u4e2d", "_x"]) == ["Hund", "[2]", " _x"]
    assert visible("a\u2028b\x00") == "a\\u2028b\\u0000"


def test_bars_have_the_given_values():
    bars = [plots.Bars("rela_g", [0.5, 0.9]), plots.Bars("rela_g", [0.7, 0.2], hatched=True)]
    axis = plots.draw_bars(["shuffled", "copied"], bars, STYLES, "AUC", "null", "log").axes[0]
    assert [patch.get_width() for patch in axis.patches] == [0.5, 0.9, 0.7, 0.2]
    assert [bool(patch.get_hatch()) for patch in axis.patches] == [False, False, True, True]


def test_models_of_one_variant_get_different_styles():
    styles = plots.choose_styles([("a", "rela_g"), ("b", "rela_g"), ("c", "softmax"), ("d", None)])
    assert styles["a"] == STYLES["rela_g"] and styles["c"] == STYLES["softmax"]
    assert len(set(styles.values())) == 4
    assert len({style.marker for style in styles.values()}) == 4


def test_colours_differ_in_greyscale():
    def lightness(colour):
        red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        return 0.299 * red + 0.587 * green + 0.114 * blue

    compared = [VARIANTS[name].style for name in ("softmax", "sparsemax", "entmax15", "rela_g")]
    grey = sorted(lightness(style.colour) for style in compared)
    assert min(b - a for a, b in zip(grey, grey[1:])) > 8


def test_matplotlib_is_imported_only_to_draw():
    code = (
        f"{WARM}\nimport sys, fairseq_rela.report.plots, fairseq_rela.report.page; print('matplotlib' in sys.modules)"
    )
    result = run(sys.executable, "-W", "ignore", "-c", code, cwd=ROOT)
    assert result.stdout.strip() == "False", result.stderr[-500:]
