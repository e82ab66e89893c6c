"""Names of run folders: the attention, then each setting that differs from the task's configuration."""

import hashlib
import re
from typing import List, Sequence, Tuple

from .variants import SITES

_LONGEST = 120  # characters; file systems take 255
_ELSEWHERE = re.compile(r"cpu|gpu\d+|slurm")  # values of run= that say where a model is trained, and not what it is
_SITES_KEYS = ("sites", "model.attention_sites")


def split_override(override: str) -> Tuple[str, str]:
    """Return key and value of a Hydra override such as ``++key=value`` or ``~key``."""
    name, _, value = override.lstrip("+~").partition("=")
    return name, value.strip("'\"")


def canonical(overrides: Sequence[str]) -> List[str]:
    """Return overrides in one order and with one spelling of the sites, so that equal settings are equal lists.

    ``sites=decoder_cross`` and ``model.attention_sites=[cross,decoder]`` both become ``sites=decoder,cross``, and the
    default ``sites=all`` is left out. Settings of one key keep their order, since Hydra takes the last.
    """
    found = []
    for override in overrides:
        key, value = split_override(override)
        if key in _SITES_KEYS:
            given = SITES if value == "all" else re.split(r"[,_\s'\"]+", value.strip("[] "))
            if set(given) != set(SITES):
                rest = [site for site in given if site not in SITES]  # that the model refuses by name
                found.append("sites=" + ",".join([*(site for site in SITES if site in given), *rest]))
        else:
            found.append(override)
    return sorted(found, key=_rank)


def run_name(attention: str, overrides: Sequence[str]) -> str:
    """Return the name of a run's folder, such as ``rela_g.sites-cross.seed-2``.

    ``run=gpu4`` and its like say where a run computes and are left out. The name of a run without overrides is the
    attention alone. Settings with one name share a folder, where a run of other settings is then refused.

    Args:
        attention: a variant.
        overrides: of the Hydra configuration, in any order.
    """
    parts = [attention]
    for override in canonical(overrides):
        key, value = split_override(override)
        if key == "run" and _ELSEWHERE.fullmatch(value):
            continue
        short = key.rsplit(".", 1)[-1]
        parts.append(f"{_plain(short)}-{_plain(value)}" if value else _plain(short))
    name = ".".join(parts)
    if len(name) <= _LONGEST:
        return name
    return f"{name[:_LONGEST]}.{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def changes_the_model(override: str) -> bool:
    """Return whether an override changes what is trained, and not only the place where it is trained."""
    key, value = split_override(override)
    return key != "run" or not _ELSEWHERE.fullmatch(value)


def _rank(override: str) -> Tuple[bool, bool, str]:
    """Sites come first and the seed last, as in the table of a study."""
    key, _ = split_override(override)
    return key not in _SITES_KEYS, key == "common.seed", key


def _plain(text: str) -> str:
    """Return the text with characters that are safe in a path, in fairseq's options and in Hydra's."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", "_", text.replace(",", "+").strip("[]()"))
