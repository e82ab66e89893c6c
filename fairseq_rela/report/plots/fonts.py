"""Find out which characters the installed fonts can draw."""

from functools import lru_cache
from typing import FrozenSet, List, Sequence, Tuple

from ..characters import visible

_FALLBACKS = ("Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "WenQuanYi Zen Hei", "Arial Unicode MS")


@lru_cache(maxsize=1)
def font_families() -> Tuple[str, ...]:
    """Return DejaVu Sans, which comes with matplotlib, and the installed fonts for scripts that it lacks."""
    from matplotlib import font_manager

    installed = {font.name for font in font_manager.fontManager.ttflist}
    return ("DejaVu Sans", *(name for name in _FALLBACKS if name in installed))


@lru_cache(maxsize=1)
def known_characters() -> FrozenSet[int]:
    """Return the code points that one of the fonts can draw."""
    from matplotlib import font_manager

    known: set = set()
    for family in font_families():
        known.update(font_manager.get_font(font_manager.findfont(family)).get_charmap())
    return frozenset(known)


def drawable(text: str, instead: str = "?") -> str:
    """Return text of at most 24 characters that the fonts can draw, or ``instead``.

    A leading underscore gets a space before it, because matplotlib leaves labels with one out of legends.
    """
    text = visible(text)
    if not all(ord(character) in known_characters() for character in text):
        return instead
    text = text if len(text) <= 24 else text[:23] + "\u2026"
    return f" {text}" if text.startswith("_") else text


def drawable_names(pieces: Sequence[str]) -> List[str]:
    """Return the names of the pieces of a sentence; a piece that no font can draw is named by its position, from 1."""
    return [drawable(piece, f"[{number}]") for number, piece in enumerate(pieces, 1)]
