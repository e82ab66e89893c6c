"""The rules by which training pairs are dropped, as in Moses' clean-corpus-n."""

from hashlib import blake2b
from typing import List, Optional, Set, Tuple

from .settings import Settings

RULES = ("empty", "long", "ratio", "duplicate", "long in pieces")
_MANY = 0.05  # warn if the ratio rule removes this share of the training pairs; text in words loses less
_LONGEST_WORD = 1000  # characters; the limit of Moses' clean-corpus-n for training pairs


def why_removed(source: str, target: str, settings: Settings) -> Optional[str]:
    """Return the cleaning rule that a training pair breaks, or None."""
    left, right = len(source.split()), len(target.split())
    if not left or not right:
        return "empty"
    if max(left, right) > settings.max_tokens or _has_long_word(source) or _has_long_word(target):
        return "long"
    if max(left, right) > settings.max_ratio * min(left, right):
        return "ratio"
    return None


def _has_long_word(line: str) -> bool:
    return len(line) > _LONGEST_WORD and max(map(len, line.split())) > _LONGEST_WORD


def ratio_hint(removed: int, read: int) -> Optional[str]:
    """Return what may be wrong if the ratio rule removed many pairs, or None."""
    if not removed or removed < _MANY * read:
        return None
    return (
        f"the ratio rule removed {removed / read:.0%} of the training pairs: is a side written without spaces, as "
        "Chinese? Segment it into words (--tokeniser moses does so by jieba), or raise --max-ratio"
    )


class Duplicates:
    """Drops pairs that came before; of each pair, a checksum of 8 bytes is kept."""

    def __init__(self) -> None:
        self._seen: Set[int] = set()

    def drop(self, sides: Tuple[bytes, bytes]) -> Tuple[Tuple[bytes, bytes], int]:
        """Return the lines of both sides without pairs that came before, and the number of pairs that are left."""
        kept: List[Tuple[bytes, bytes]] = []
        for pair in zip(*(side.splitlines(keepends=True) for side in sides)):
            key = int.from_bytes(blake2b(b"".join(pair), digest_size=8).digest(), "big")
            if key not in self._seen:
                self._seen.add(key)
                kept.append(pair)
        return (b"".join(pair[0] for pair in kept), b"".join(pair[1] for pair in kept)), len(kept)
