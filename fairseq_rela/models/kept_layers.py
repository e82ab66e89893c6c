"""The options ``--encoder-layers-to-keep`` and ``--decoder-layers-to-keep``: use only some layers of a checkpoint."""

import logging
import re
from typing import Any, Dict, List

from ..errors import InputError

logger = logging.getLogger(__name__)


def parse_layers(side: str, kept: str) -> List[int]:
    """Return the layers to keep, sorted.

    Args:
        side: ``encoder`` or ``decoder``, for the error message.
        kept: numbers of layers, from 0, separated by commas, such as ``0,2,4``.

    Raises:
        InputError: a part is not a number of at least 0, or a number is given twice.
    """
    numbers = [part.strip() for part in kept.split(",")]
    if not all(number.isdecimal() for number in numbers) or len(set(map(int, numbers))) < len(numbers):
        raise InputError(f"--{side}-layers-to-keep {kept}: give different numbers of layers, from 0, such as 0,2,4")
    return sorted(map(int, numbers))


def keep_layers(state_dict: Dict[str, Any], side: str, kept: List[int]) -> Dict[str, Any]:
    """Return the parameters with only some layers of one side, numbered again from 0.

    If there are already as many layers as should be kept, the parameters are returned unchanged. fairseq's own
    ``prune_state_dict`` loses all layers of a side if the option is given for the other side only, and prunes a second
    time when a run is resumed.

    Args:
        state_dict: the parameters of the whole model; those that are not in a layer of this side are kept.
        side: ``encoder`` or ``decoder``.
        kept: the layers to keep, from :func:`parse_layers`.

    Raises:
        InputError: the model does not have a layer that should be kept.
    """
    pattern = re.compile(rf"{side}\.layers\.(\d+)\.")
    layers = {int(match.group(1)) for match in map(pattern.match, state_dict) if match}
    if len(layers) == len(kept):
        return state_dict
    if not set(kept) <= layers:
        raise InputError(
            f"--{side}-layers-to-keep {','.join(map(str, kept))}: the checkpoint has {side} layers from 0 to "
            f"{len(layers) - 1}; keep some of these"
        )
    new = {}
    for key, value in state_dict.items():
        match = pattern.match(key)
        if match is None:
            new[key] = value
        elif int(match.group(1)) in kept:
            new[f"{side}.layers.{kept.index(int(match.group(1)))}.{key[match.end() :]}"] = value
    logger.info(f"{side} layers kept from the {len(layers)} of the checkpoint: {', '.join(map(str, kept))}")
    return new
