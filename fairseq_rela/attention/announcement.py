"""Say which code computes the attention."""

import logging
from typing import Any, Set

logger = logging.getLogger(__name__)
_announced: Set[str] = set()  # each name is logged once in a process


def announce(attention: Any, name: str) -> None:
    """Set ``last_backend`` of an attention module, and log it when training uses it for the first time.

    Args:
        attention: the module.
        name: ``plain`` or the name of a kernel.
    """
    attention.last_backend = name
    if attention.training and name not in _announced:
        _announced.add(name)
        logger.info(f"attention: computed by {'plain PyTorch' if name == 'plain' else f'the kernel {name}'}")
