"""The levels at which weights are analysed: the pieces of the model, and words."""

from typing import Any, Dict

LEVELS = ("pieces", "words")


def levels_of(analysis: Dict[str, Any]) -> Dict[str, Dict[str, Any]]:
    """Return a dictionary from level to the part of analysis.json that has the ``sites`` and ``shuffled`` of the level.

    The levels are ``pieces`` and ``words``. An analysis without ``level`` is at the level of pieces.
    """
    levels = {analysis.get("level", "pieces"): analysis}
    return {**levels, "words": analysis["words"]} if "words" in analysis else levels
