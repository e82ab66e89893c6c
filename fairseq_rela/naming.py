"""Names of run folders: the attention, then each setting that differs from the task's configuration."""

import hashlib
import re
from typing import Sequence, Tuple

_LONGEST = 120  # characters; file systems take 255
# settings that have a short name of their own
_SHORT = {"model.attention_sites": "sites"}


def split_override(override: str) -> Tuple[str, str]:
    """Return key and value of a Hydra override such as ``++key=value`` or ``~key``."""
    name, _, value = override.lstrip("+~").partition("=")
    return name, value.strip("'\"")


def run_name(attention: str, overrides: Sequence[str]) -> str:
    """Return the name of a run's folder, such as ``rela_g.sites-cross.seed-2``.

    ``run=`` says where a run computes and is left out. The name of a run without overrides is the attention alone.

    Args:
        attention: a variant.
        overrides: of the Hydra configuration, in the order in which they are given.
    """
    parts = [attention]
    for override in overrides:
        key, value = split_override(override)
        if key == "run":
            continue
        short = _SHORT.get(key, key.rsplit(".", 1)[-1])
        parts.append(f"{_plain(short)}-{_plain(value)}" if value else _plain(short))
    name = ".".join(parts)
    if len(name) <= _LONGEST:
        return name
    return f"{name[:_LONGEST]}.{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _plain(text: str) -> str:
    """Return the text with characters that are safe in a path, in fairseq's options and in Hydra's."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", "_", text.replace(",", "+").strip("[]()"))
