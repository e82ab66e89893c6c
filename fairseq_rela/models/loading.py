"""Load the parameters of a checkpoint into a model whose attention may be another one."""

import logging
from contextlib import contextmanager
from typing import Any, Dict, Iterator

from torch import nn

from ..attention import VariantAttention
from ..errors import InputError, one_line_in_fairseq

logger = logging.getLogger(__name__)


def with_start_values(model: nn.Module, state_dict: Dict[str, Any]) -> Dict[str, Any]:
    """Return the parameters of a checkpoint, completed by :func:`fresh_parameters`; a warning lists the added ones."""
    fresh = fresh_parameters(model, state_dict)
    if fresh:
        logger.warning(
            f"the checkpoint lacks {len(fresh)} parameters of attention norms and weights, which keep their start "
            f"values: {', '.join(fresh)}"
        )
    return {**state_dict, **fresh}


def fresh_parameters(model: nn.Module, state_dict: Dict[str, Any]) -> Dict[str, Any]:
    """Return the parameters of attention norms and weights that a checkpoint of another attention lacks.

    A norm or weight function is left out if ``state_dict`` has one of its parameters, and so are attention modules
    that ``state_dict`` lacks entirely: these are errors, which loading reports.

    Args:
        model: the model to load into.
        state_dict: the parameters of the checkpoint.

    Returns:
        name to parameter, with the start values of ``model``.
    """
    fresh = {}
    for name, module in model.named_modules():
        if not isinstance(module, VariantAttention) or f"{name}.q_proj.weight" not in state_dict:
            continue
        for part in ("attn_norm", "attn_weights"):
            child = getattr(module, part)
            values = child.state_dict() if isinstance(child, nn.Module) else {}
            own = {f"{name}.{part}.{key}": value for key, value in values.items()}
            if not own.keys() & state_dict.keys():
                fresh.update(own)
    return fresh


@contextmanager
def misfit_in_one_line() -> Iterator[None]:
    """Replace torch's error for parameters that do not fit the model, which lists them all, by one line.

    Raises:
        InputError: the parameters do not fit the model.
    """
    with one_line_in_fairseq():
        try:
            yield
        except RuntimeError as error:
            # torch lists every parameter; the first ones are enough
            reason = " ".join(str(error).split()).partition(": ")[2][:200]
            raise InputError(
                f"the checkpoint does not fit the model ({reason}); give the data and architecture that it is of"
            ) from error
