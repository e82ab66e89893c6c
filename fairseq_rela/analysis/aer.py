"""Alignment error rate of word alignments against gold ones (Och and Ney 2000); pure functions and the file format.

A file has a line for each sentence pair: links ``i-j`` (sure) and, in gold files, ``ipj`` (possible), of source word i
and target word j.
"""

import re
from typing import FrozenSet, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from ..errors import InputError

Link = Tuple[int, int]  # (source position, target position), from 0
_LINK = re.compile(r"([0-9]{1,9})([-p])([0-9]{1,9})")
_BETTER = 0.05  # of the alignment error rate; what is gained by chance is less


class Gold(NamedTuple):
    """The links that a sentence pair must have, and those that it may have, which include them."""

    sure: FrozenSet[Link]
    possible: FrozenSet[Link]


class Counts(NamedTuple):
    """Counts over a corpus; ratios come last.

    Attributes:
        links: those of the hypothesis, |A|.
        sure: of the gold, |S|.
        right_sure, right_possible: |A & S| and |A & P|.
    """

    links: int
    sure: int
    right_sure: int
    right_possible: int

    @property
    def aer(self) -> float:
        """:math:`1 - (|A \\cap S| + |A \\cap P|) / (|A| + |S|)`: 1 where nothing is aligned."""
        return 1.0 - (self.right_sure + self.right_possible) / (self.links + self.sure)

    @property
    def precision(self) -> Optional[float]:
        """:math:`|A \\cap P| / |A|`, None where nothing is aligned."""
        return self.right_possible / self.links if self.links else None

    @property
    def recall(self) -> Optional[float]:
        """:math:`|A \\cap S| / |S|`, None where nothing is sure."""
        return self.right_sure / self.sure if self.sure else None

    def __str__(self) -> str:
        precision, recall = ("-" if x is None else f"{x:.1%}" for x in (self.precision, self.recall))
        return f"AER {100 * self.aer:.1f}   precision {precision}   recall {recall}   {self.links:,} links"


def read_links(
    lines: Iterable[str],
    name: str,
    base: int = 0,
    swap: bool = False,
    lengths: Optional[Sequence[Tuple[int, int]]] = None,
) -> List[Gold]:
    """The links of each line; a sure link is a possible one too.

    Args:
        name: of the file, for messages.
        base: number of the first word, 0 or 1.
        swap: the file has the target word first.
        lengths: words of source and target of each pair, which links must not pass. This finds a wrong base and
            swapped sides.

    Raises:
        InputError: a line with something else, or a link out of range.
    """
    gold = []
    for number, line in enumerate(lines, 1):
        if lengths is not None and number > len(lengths):
            raise InputError(f"{name} has more lines than the {len(lengths)} sentences; is it of the same text?")
        sure: Set[Link] = set()
        possible: Set[Link] = set()
        for field in line.split():
            match = _LINK.fullmatch(field)
            if match is None:
                raise InputError(
                    f"{name}, line {number}: {field!r} is not a link such as 3-4, or 3p4 for a possible one"
                )
            first, second = int(match.group(1)) - base, int(match.group(3)) - base
            link = (second, first) if swap else (first, second)
            limits = lengths[number - 1] if lengths is not None else (None, None)
            if min(link) < 0 or any(limit is not None and i >= limit for i, limit in zip(link, limits)):
                size = "" if lengths is None else f" of {limits[0]} and {limits[1]} words"
                raise InputError(
                    f"{name}, line {number}: {field} is outside of the sentences{size}; "
                    "do its words count from 0 or from 1, and which side comes first?"
                )
            possible.add(link)
            if match.group(2) == "-":
                sure.add(link)
        gold.append(Gold(frozenset(sure), frozenset(possible)))
    if lengths is not None and len(gold) != len(lengths):
        raise InputError(f"{name} has {len(gold)} lines for {len(lengths)} sentences; is it of the same text?")
    return gold


def guess_base(lines: Iterable[str]) -> int:
    """1 where no word of either side has the number 0, as a whole file can hardly do that counts from 0; else 0."""
    numbers = [int(n) for line in lines for match in _LINK.finditer(line) for n in (match.group(1), match.group(3))]
    return int(bool(numbers) and 0 not in numbers)


def count(gold: Sequence[Gold], hypothesis: Sequence[Iterable[Link]]) -> Counts:
    """Counts over a corpus.

    Raises:
        InputError: other numbers of sentences, or no sure link and no hypothesis at all.
    """
    if len(gold) != len(hypothesis):
        raise InputError(
            f"{len(gold)} sentences in the gold alignment, {len(hypothesis)} in the other; compare the same text"
        )
    totals = [0, 0, 0, 0]
    for wanted, links in zip(gold, map(set, hypothesis)):
        for index, size in enumerate(
            (len(links), len(wanted.sure), len(links & wanted.sure), len(links & wanted.possible))
        ):
            totals[index] += size
    if not totals[0] + totals[1]:
        raise InputError("neither alignment has a link to compare; are these the right files?")
    return Counts(*totals)


def fits_better(gold: Sequence[Gold], hypothesis: Sequence[Iterable[Link]]) -> Optional[str]:
    """How else the hypothesis may be meant, where the gold alignment then fits clearly better; None where not.

    A transposed file, or one that counts from another number, has an error rate as any other, only a worse one.
    """
    links = [list(pairs) for pairs in hypothesis]
    best = count(gold, links).aer - _BETTER
    found = None
    for what, swap, shift in (
        ("with the two sides of one file swapped", True, 0),
        ("if the hypothesis counted its words from 1 less", False, 1),
        ("if the hypothesis counted its words from 1 more", False, -1),
    ):
        other = [{(j if swap else i + shift, i if swap else j + shift) for i, j in pairs} for pairs in links]
        aer = count(gold, other).aer
        if aer < best:
            best, found = aer, f"the AER would be {100 * aer:.1f} {what}"
    return found
