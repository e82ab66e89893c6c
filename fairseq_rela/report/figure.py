"""A figure of a report or a study: its numbers as table rows, and the function that draws it."""

import csv
import io
import json
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Sequence

from .run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


SITE_NAMES = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}


class Figure(NamedTuple):
    """A figure of a report or a study.

    Attributes:
        name: name of its files without ending.
        number: figure or section of the paper, such as ``Figure 3``.
        title, caption: title, and caption that explains how to read the figure.
        rows: the numbers of the figure; all rows have the same columns.
        draw: function that draws the figure.
    """

    name: str
    number: str
    title: str
    caption: str
    rows: List[Dict[str, Any]]
    draw: Callable[[], "Drawing"]

    def as_json(self, measured_on: str) -> str:
        """Return the numbers as JSON; ``measured_on`` is the test set on which they were measured."""
        record = {"figure": self.number, "title": self.title, "measured_on": measured_on, "rows": self.rows}
        return json.dumps(record, ensure_ascii=False, indent=1, allow_nan=False) + "\n"

    def as_csv(self) -> str:
        """Return the numbers as CSV with a header."""
        text = io.StringIO()
        writer = csv.DictWriter(text, list(self.rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()


def level_text(runs: Sequence[Run]) -> str:
    """Return a sentence with the level at which the runs were measured, pieces or words."""
    levels = {run.level for run in runs if run.level}
    if len(levels) == 1:
        return f"Measured at the level of {levels.pop()}."
    return "Measured at levels that differ: " + ", ".join(f"{r.label} of {r.level}" for r in runs if r.level) + "."
