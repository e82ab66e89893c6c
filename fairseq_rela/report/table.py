"""A table of a report or a study, made of cells of text."""

from typing import List, NamedTuple, Optional, Sequence

NONE = "-"


class Cell(NamedTuple):
    """A cell of a table.

    Attributes:
        text: its text.
        kind: its classes in report.css: ``n`` (a number), ``n paper`` (of the paper), ``n ours`` (comparable with the
            paper), ``n other`` (not comparable), ``group`` (a heading of several columns), ``long`` or ``word`` (text).
        names_row: whether the cell is the name of its row.
        columns: number of columns that the cell spans.
    """

    text: str
    kind: str = ""
    names_row: bool = False
    columns: int = 1


class Table(NamedTuple):
    """A table with a caption, rows of headings, rows of cells, and notes below it."""

    caption: str
    head: Sequence[Sequence[Cell]]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()


def row_name(text: str, kind: str = "") -> Cell:
    """Return the cell that names a row."""
    return Cell(text, kind, names_row=True)


def pairs_head(names: Sequence[str], ours: Cell) -> List[List[Cell]]:
    """Return two rows of headings: names, and below each the columns of the paper and ours."""
    top = [Cell(""), *(Cell(name, "group", columns=2) for name in names)]
    return [top, [Cell("model"), *([Cell("paper", "n paper"), ours] * len(names))]]


def number(value: Optional[float], digits: int) -> str:
    """Return a number with this many digits after the point, or ``-`` for None."""
    return NONE if value is None else f"{value:.{digits}f}"


def percent(value: Optional[float], digits: int = 1) -> str:
    """Return a share in percent, or ``-`` for None."""
    return NONE if value is None else f"{100 * value:.{digits}f} %"
