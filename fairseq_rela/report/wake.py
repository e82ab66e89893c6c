"""The words that wake the heads that are off most often."""

from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from ..variants import SITES
from .figure import SITE_NAMES
from .run import Run

_WORDS = 8  # maximum number of words, and of tags, that are shown for each head
_HEADS = 6  # maximum number of heads that are shown for each run and site


class Waker(NamedTuple):
    """A word or tag, the share of its occurrences that wake a head, and how often a word occurs."""

    name: str
    share: float
    occurs: Optional[int] = None


class Sleeper(NamedTuple):
    """A head that is off for this share of its queries, and what wakes it; layer and head count from 1."""

    layer: int
    head: int
    null_rate: float
    wakers: List[Waker]


def sleepers(run: Run) -> Iterator[Tuple[str, List[Sleeper]]]:
    """Yield the name of each site where heads of the run are off, with the heads that are off most often."""
    for site in SITES:
        heads = run.files.get("analysis", {}).get("wake", {}).get(site, [])
        heads = [head for head in heads if head["null_rate"] > 0 and head["words"]]
        heads.sort(key=lambda head: -head["null_rate"])
        if heads:
            yield SITE_NAMES[site], [_sleeper(head) for head in heads[:_HEADS]]


def _sleeper(head: Dict[str, Any]) -> Sleeper:
    tags = sorted(head["tags"].items(), key=lambda item: (-item[1], item[0]))
    wakers = [Waker(word["word"], word["share"], word["count"]) for word in head["words"][:_WORDS]]
    wakers += [Waker(f"tag {tag}", share) for tag, share in tags[:_WORDS]]
    return Sleeper(head["layer"] + 1, head["head"] + 1, head["null_rate"], wakers)
