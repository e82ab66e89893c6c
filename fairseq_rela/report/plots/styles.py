"""Choose the colour and marker of each model, which are the same in all figures."""

from typing import Dict, Optional, Sequence, Tuple

from ...variants import VARIANTS, Style

_STYLES = [variant.style for variant in VARIANTS.values() if variant.style is not None]


def choose_styles(models: Sequence[Tuple[str, Optional[str]]]) -> Dict[str, Style]:
    """Return the style of each label.

    The first model of each variant of Table 1 gets the style of the variant; other models get the next free style.

    Args:
        models: label and attention of each model.
    """
    chosen: Dict[str, Style] = {}
    for label, attention in models:
        style = VARIANTS[attention].style if attention in VARIANTS else None
        if style is not None and style not in chosen.values():
            chosen[label] = style
    free = [style for style in _STYLES if style not in chosen.values()]
    for label, _ in models:
        if label not in chosen:
            chosen[label] = free.pop(0) if free else _STYLES[len(chosen) % len(_STYLES)]
    return chosen
