"""``--encoder-layers-to-keep`` and ``--decoder-layers-to-keep``: a model with some of a checkpoint's layers."""

import logging
import re
from typing import Any, Dict, List

from .errors import InputError

logger = logging.getLogger(__name__)


def parse_layers(side: str, kept: str) -> List[int]:
    """The layers to keep of ``0,2,4``, in order.

    Raises:
        InputError: no numbers from 0, or one given twice.
    """
    numbers = [part.strip() for part in kept.split(",")]
    if not all(number.isdecimal() for number in numbers) or len(set(map(int, numbers))) < len(numbers):
        raise InputError(f"--{side}-layers-to-keep {kept}: give different numbers of layers, from 0, such as 0,2,4")
    return sorted(map(int, numbers))


def keep_layers(state_dict: Dict[str, Any], side: str, kept: List[int]) -> Dict[str, Any]:
    """The parameters of a model that keeps some layers of one side, from those of the model with all of them.

    What has as many layers as are kept is such a model already. fairseq's own ``prune_state_dict`` loses the layers of
    a side for which nothing is said, and prunes a second time where a run is resumed.

    Raises:
        InputError: a layer to keep is not there.
    """
    pattern = re.compile(rf"{side}\.layers\.(\d+)\.")
    layers = {int(match.group(1)) for match in map(pattern.match, state_dict) if match}
    if len(layers) == len(kept):
        return state_dict
    if not set(kept) <= layers:
        raise InputError(
            f"--{side}-layers-to-keep {','.join(map(str, kept))}: the checkpoint has {side} layers from 0 to "
            f"{len(layers) - 1}; keep only such"
        )
    new = {}
    for key, value in state_dict.items():
        match = pattern.match(key)
        if match is None:
            new[key] = value
        elif int(match.group(1)) in kept:
            new[f"{side}.layers.{kept.index(int(match.group(1)))}.{key[match.end() :]}"] = value
    logger.info(f"of the {len(layers)} {side} layers of the checkpoint {', '.join(map(str, kept))} are kept")
    return new
