"""The usual case of each word, for the first words of sentences: Moses' truecasing of tokenised text.

Models and texts are those of Moses' Perl scripts train-truecaser, truecase and detruecase, except that ties go
to one word always (in Perl, to any) and that text is never taken for XML or for words with factors: Moses' tokens
have no "<" and no "|". ``MOSES=<checkout> pytest tests/test_truecase.py`` compares. Of sacremoses only the way back
is used: it learns from other words than Perl does, and its models are limited in size.
"""

import re
from collections import Counter, defaultdict
from itertools import dropwhile
from typing import Any, DefaultDict, Dict, Iterable, List, Mapping, Set, Tuple

from sacremoses import MosesDetruecaser

from ..errors import InputError
from .lines import PathLike, read_lines, write_whole

_detruecaser = MosesDetruecaser()
_SENTENCE_END = _detruecaser.SENT_END
_BEFORE_SENTENCE = _detruecaser.DELAYED_SENT_START  # brackets and quotes, escaped or not
# (count/total) of the usual form, (count) of the others; Perl's counts may be fractions
_COUNT = re.compile(r"\([0-9][0-9.e+-]*(/[0-9][0-9.e+-]*)?\)")


def count_casings(lines: Iterable[str]) -> Any:
    """How often each word is where its case is its own: not first in a line, nor after the end of a sentence.

    Returns:
        a ``Counter``; the sum of those of several blocks of lines is that of the text.
    """
    counts: Any = Counter()
    for line in lines:
        words = list(dropwhile(_BEFORE_SENTENCE.__contains__, line.split()))
        counts.update(word for before, word in zip(words, words[1:]) if before not in _SENTENCE_END)
    return counts


def choose(counts: Mapping[str, int]) -> List[List[Tuple[str, int]]]:
    """The forms of each word with their counts, the usual one first.

    Of forms as frequent as each other, one in lower case is the first, then the one first in the order of code
    points. The words are in the order of code points, too, so equal counts give equal models.
    """
    forms: DefaultDict[str, List[Tuple[str, int]]] = defaultdict(list)
    for word, count in counts.items():
        forms[_lower(word)].append((word, count))
    return [sorted(forms[lower], key=lambda form: (-form[1], form[0] != lower, form[0])) for lower in sorted(forms)]


def write(path: PathLike, counts: Mapping[str, int]) -> None:
    """A model in Moses' format, a line a word: ``usual (count/total) other (count) ...``"""
    with write_whole(path) as file:
        for (word, count), *others in choose(counts):
            total = count + sum(other for _, other in others)
            file.write(" ".join([f"{word} ({count}/{total})", *(f"{form} ({number})" for form, number in others)]))
            file.write("\n")


class Truecaser:
    """A line of tokens to the same with the first words of its sentences, and unknown words, in their usual case.

    Args:
        usual: the most frequent form of each word in lower case.
        known: forms that stay as they are but at the start of a sentence.
    """

    def __init__(self, usual: Dict[str, str], known: Set[str]) -> None:
        self._usual = usual
        self._known = known

    @classmethod
    def load(cls, path: PathLike) -> "Truecaser":
        """
        Raises:
            InputError: no such file, or not a model in Moses' format.
        """
        usual: Dict[str, str] = {}
        known: Set[str] = set()
        for number, line in enumerate(read_lines(path), 1):
            fields = line.split()
            words, counts = fields[::2], fields[1::2]
            if not words or len(words) != len(counts) or not all(map(_COUNT.fullmatch, counts)):
                raise InputError(
                    f'{path}, line {number}: not "word (count/total) other (count)"; is this a truecasing model?'
                )
            usual[_lower(words[0])] = words[0]
            known.update(words)
        return cls(usual, known)

    def __call__(self, line: str) -> str:
        words = line.split()
        start = True
        for position, word in enumerate(words):
            if start or word not in self._known:
                words[position] = self._usual.get(_lower(word), word)
            start = word in _SENTENCE_END or (start and word in _BEFORE_SENTENCE)
        return " ".join(words)


def detruecase(line: str) -> str:
    """A line of tokens with a capital at the start of each sentence."""
    return _detruecaser.detruecase(line, return_str=True)


def _lower(word: str) -> str:
    # Perl has one small sigma for every place in a word
    return word.replace("Σ", "σ").lower()
