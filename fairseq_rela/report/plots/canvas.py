"""Make figures that look alike, with their legends, and render them as PNG and SVG."""

import io
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Iterator, Sequence, Tuple

import numpy

from ...errors import InputError
from ...variants import Style
from .fonts import drawable, font_families

if TYPE_CHECKING:
    from matplotlib.figure import Figure


GRID, GREY = "#dddddd", "#3d3d3d"  # colours of grid lines, and of legend entries that stand for all models
_WIDTH = 9.6  # width of a figure in inches
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


@contextmanager
def settings() -> Iterator[None]:
    """Use the settings of this project for matplotlib in the context, instead of the user's own.

    Raises:
        InputError: matplotlib is not installed.
    """
    # Hydra in fairseq may have set the root logger to DEBUG, where these two log every font and image chunk
    for name in ("matplotlib", "PIL"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        import matplotlib
    except ImportError as error:
        raise InputError("figures need matplotlib; install it: pip install matplotlib") from error
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **_RC, "font.family": list(font_families())}):
        yield


def new_figure(rows: int, columns: int, height: float, **options: Any) -> Tuple["Figure", numpy.ndarray]:
    """Return a figure of this height in inches, and its axes (rows, columns)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def line_handle(style: Style, label: str, line: str = "-") -> Any:
    """Return the entry of a legend for a line."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color=style.colour, marker=style.marker, linestyle=line, label=drawable(label))


def add_legend(figure: "Figure", handles: Sequence[Any]) -> None:
    """Put a legend above the panels."""
    figure.legend(handles=list(handles), loc="outside upper left", ncols=min(len(handles), 5), handlelength=2.6)


def render(figure: "Figure", kind: str) -> bytes:
    """Return the PNG or SVG file of a figure, without date and version, so that the bytes are always the same.

    Args:
        figure: the figure.
        kind: ``png`` or ``svg``.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)  # no window, no display
    with settings():
        layout = figure.get_layout_engine()
        if layout is not None and layout.adjust_compatible is False:
            figure.draw_without_rendering()
            figure.set_layout_engine("none")  # the layout is computed once for PNG and SVG
    metadata = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
    output = io.BytesIO()
    with settings():
        figure.savefig(output, format=kind, dpi=160, facecolor="white", metadata=metadata)
    return _with_palette(output) if kind == "png" else output.getvalue()


def _with_palette(png: io.BytesIO) -> bytes:
    """Return the picture in 256 colours, which takes about a third of the bytes."""
    from PIL import Image

    output = io.BytesIO()
    with Image.open(png) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(output, "png", optimize=True)
    return output.getvalue()
