"""Names of run folders: the attention, then each setting that differs from the task's configuration."""

import hashlib
import re
from typing import Sequence, Tuple

_LONGEST = 120  # characters; file systems allow 255 bytes
# settings with a short name in run names
_SHORT = {"model.attention_sites": "sites"}


def split_override(override: str) -> Tuple[str, str]:
    """Return key and value of a Hydra override such as ``++key=value`` or ``~key``."""
    name, _, value = override.lstrip("+~").partition("=")
    return name, value.strip("'\"")


def run_name(attention: str, overrides: Sequence[str]) -> str:
    """Return the name of a run's folder, such as ``rela_g.sites-cross.seed-2``.

    ``run=`` selects where a run is computed and is left out. Without overrides the name is the attention alone. A
    name of more than 120 characters is cut there, and 8 hexadecimal digits of its SHA-256 checksum are added.

    Args:
        attention: a variant name.
        overrides: Hydra overrides, in the order given by the user.
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
    """Return the text with only characters that are safe in a path, in fairseq's options and in Hydra's."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", "_", text.replace(",", "+").strip("[]()"))
