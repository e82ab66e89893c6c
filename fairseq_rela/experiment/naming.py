"""Names of run folders: the attention, then each setting that differs from the task's configuration."""

import hashlib
import re
from typing import Iterable, List, Sequence, Set, Tuple

from ..variants import SITES

_LONGEST = 120  # characters; file systems allow 255 bytes
_ELSEWHERE = re.compile(r"cpu|gpu\d+|gpu_small|slurm")  # values of run= that select where a model is trained
SITES_KEYS = ("sites", "model.attention_sites")
SEED_KEY = "common.seed"


def split_override(override: str) -> Tuple[str, str]:
    """Return key and value of a Hydra override such as ``++key=value`` or ``~key``."""
    name, _, value = override.lstrip("+~").partition("=")
    return name, value.strip("'\"")


def keys_of(overrides: Iterable[str]) -> Set[str]:
    """Return the keys that Hydra overrides set."""
    return {split_override(override)[0] for override in overrides}


def split_sites(value: str) -> List[str]:
    """Return the sites in the value of an override, such as ``encoder_cross``, ``[encoder,cross]`` or ``all``."""
    return list(SITES) if value == "all" else [site for site in re.split(r"[\[\],_\s'\"]+", value) if site]


def canonical(overrides: Sequence[str]) -> List[str]:
    """Return the overrides sorted and with one spelling of the sites, so that equal settings give equal lists.

    ``sites=decoder_cross`` and ``model.attention_sites=[cross,decoder]`` both become ``sites=decoder,cross``, and the
    default ``sites=all`` is left out. Overrides of one key keep their order, because Hydra uses the last one.
    """
    found = []
    for override in overrides:
        key, value = split_override(override)
        if key in SITES_KEYS:
            given = split_sites(value)
            if set(given) != set(SITES):
                rest = [site for site in given if site not in SITES]  # unknown sites, which the model refuses
                found.append("sites=" + ",".join([*(site for site in SITES if site in given), *rest]))
        else:
            found.append(override)
    return sorted(found, key=_rank)


def run_name(attention: str, overrides: Sequence[str]) -> str:
    """Return the name of a run's folder, such as ``rela_g.sites-cross.seed-2``.

    ``run=gpu4`` and similar overrides select where a run is computed and are left out. Without overrides the name is
    the attention alone. A name of more than 120 characters is cut there, and 8 hexadecimal digits of its SHA-256
    checksum are added. Different settings can have the same name; the second run in such a folder is refused.

    Args:
        attention: a variant name.
        overrides: Hydra overrides, in any order.
    """
    parts = [attention]
    for override in filter(changes_the_model, canonical(overrides)):
        key, value = split_override(override)
        short = key.rsplit(".", 1)[-1]
        parts.append(f"{_plain(short)}-{_plain(value)}" if value else _plain(short))
    name = ".".join(parts)
    if len(name) <= _LONGEST:
        return name
    return f"{name[:_LONGEST]}.{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def changes_the_model(override: str) -> bool:
    """Return whether an override changes the trained model, not only the machine that trains it."""
    key, value = split_override(override)
    return key != "run" or not _ELSEWHERE.fullmatch(value)


def _rank(override: str) -> Tuple[bool, bool, str]:
    """Return the sort key of an override: sites first, the seed last, as in the table of a study."""
    key, _ = split_override(override)
    return key not in SITES_KEYS, key == SEED_KEY, key


def _plain(text: str) -> str:
    """Return the text with only characters that are safe in a path, in fairseq's options and in Hydra's."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", "_", text.replace(",", "+").strip("[]()"))
