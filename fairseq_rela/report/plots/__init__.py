"""Draw line plots, heat maps, bars and points. Only this room imports matplotlib, inside its functions.

A model has the same colour and marker in all figures. Other differences are line styles and hatches, so that figures
are readable in grey. Legends are above the panels. The same input gives the same bytes.
"""

from ...variants import Style
from .bars import Bars, draw_bars
from .canvas import render
from .heat_maps import HeatMap, draw_head_grid, draw_heat_maps
from .lines import Line, Panel, draw_layer_lines
from .spreads import Spread, draw_spreads
from .styles import choose_styles

__all__ = [
    "Bars",
    "HeatMap",
    "Line",
    "Panel",
    "Spread",
    "Style",
    "choose_styles",
    "draw_bars",
    "draw_head_grid",
    "draw_heat_maps",
    "draw_layer_lines",
    "draw_spreads",
    "render",
]
