"""Alignment error rate (AER) against gold word alignments (Och and Ney 2000), and the file format of alignments.

A file has one line for each sentence pair, with links between source word i and target word j: ``i-j`` for a sure
link and, in gold files, ``ipj`` for a possible one.
"""

import re
from typing import FrozenSet, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from ..errors import InputError

Link = Tuple[int, int]  # (source position, target position), from 0
_LINK = re.compile(r"([0-9]{1,9})([-p])([0-9]{1,9})")
_BETTER = 0.05  # least gain in AER (0 to 1) that fits_better reports; smaller ones can be chance


class Gold(NamedTuple):
    """The gold links of a sentence pair; ``possible`` contains all links of ``sure``."""

    sure: FrozenSet[Link]
    possible: FrozenSet[Link]


class Counts(NamedTuple):
    """Numbers of links over a corpus, for hypothesis links A, sure gold links S and possible gold links P.

    Attributes:
        links: :math:`|A|`.
        sure: :math:`|S|`.
        right_sure, right_possible: :math:`|A \\cap S|` and :math:`|A \\cap P|`.
    """

    links: int
    sure: int
    right_sure: int
    right_possible: int

    @property
    def aer(self) -> float:
        """The alignment error rate, :math:`1 - (|A \\cap S| + |A \\cap P|) / (|A| + |S|)`; 1 if A is empty."""
        return 1.0 - (self.right_sure + self.right_possible) / (self.links + self.sure)

    @property
    def precision(self) -> Optional[float]:
        """The precision, :math:`|A \\cap P| / |A|`; None if A is empty."""
        return self.right_possible / self.links if self.links else None

    @property
    def recall(self) -> Optional[float]:
        """The recall, :math:`|A \\cap S| / |S|`; None if S is empty."""
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
    """Return the links of each line, with words from 0; each sure link is also in ``possible``.

    Args:
        lines: lines of an alignment file.
        name: name of the file, for error messages.
        base: number of the first word in the file, 0 or 1.
        swap: whether the target word comes first in the file.
        lengths: numbers of source and target words of each pair. Links outside of them are refused, which often finds
            a wrong base or swapped sides.

    Raises:
        InputError: a field is not a link, a link is out of range, or the numbers of lines and ``lengths`` differ.
    """
    gold = []
    for number, line in enumerate(lines, 1):
        if lengths is not None and number > len(lengths):
            raise InputError(f"{name} has more lines than the {len(lengths)} sentences; give links of the same text")
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
                    "check whether words count from 0 or 1, and which side comes first"
                )
            possible.add(link)
            if match.group(2) == "-":
                sure.add(link)
        gold.append(Gold(frozenset(sure), frozenset(possible)))
    if lengths is not None and len(gold) != len(lengths):
        raise InputError(f"{name} has {len(gold)} lines for {len(lengths)} sentences; give links of the same text")
    return gold


def guess_base(lines: Iterable[str]) -> int:
    """Return the likely number of the first word: 1 if no link has a word 0, else 0; 0 if there are no links."""
    numbers = [int(n) for line in lines for match in _LINK.finditer(line) for n in (match.group(1), match.group(3))]
    return int(bool(numbers) and 0 not in numbers)


def count(gold: Sequence[Gold], hypothesis: Sequence[Iterable[Link]]) -> Counts:
    """Count the links of a corpus.

    Args:
        gold: the gold links of each sentence pair.
        hypothesis: the links to evaluate, of the same sentence pairs.

    Raises:
        InputError: the numbers of sentence pairs differ, or there are neither sure links nor hypothesis links.
    """
    if len(gold) != len(hypothesis):
        raise InputError(
            f"{len(gold)} sentences in the gold alignment, {len(hypothesis)} in the other; give files of the same text"
        )
    pairs = list(zip(gold, map(set, hypothesis)))
    counts = Counts(
        links=sum(len(links) for _, links in pairs),
        sure=sum(len(sentence.sure) for sentence, _ in pairs),
        right_sure=sum(len(links & sentence.sure) for sentence, links in pairs),
        right_possible=sum(len(links & sentence.possible) for sentence, links in pairs),
    )
    if not counts.links + counts.sure:
        raise InputError("neither alignment has a link, so there is nothing to compare; give files with links")
    return counts


def fits_better(gold: Sequence[Gold], hypothesis: Sequence[Iterable[Link]]) -> Optional[str]:
    """Return a message if the AER is lower by more than 5 points with swapped sides or with another first word number.

    Such mistakes in the files raise no error; they only increase the AER.

    Returns:
        the interpretation with the lowest AER, and this AER in percent, as text; or None.
    """
    links = [list(pairs) for pairs in hypothesis]
    best = count(gold, links).aer - _BETTER
    found = None
    for what, swap, shift in (
        ("with the two sides of one file swapped", True, 0),
        ("if words of the hypothesis counted from a number 1 lower", False, 1),
        ("if words of the hypothesis counted from a number 1 higher", False, -1),
    ):
        other = [{(j if swap else i + shift, i if swap else j + shift) for i, j in pairs} for pairs in links]
        aer = count(gold, other).aer
        if aer < best:
            best, found = aer, f"the AER would be {100 * aer:.1f} {what}"
    return found
