"""Moses' truecasing of tokenised text: give the first word of each sentence its most frequent case.

Models and texts equal those of Moses' Perl scripts train-truecaser, truecase and detruecase, with two exceptions.
Ties are broken by a fixed rule (in Perl, at random), and text is never parsed as XML or as words with factors,
because Moses' tokens have no "<" and no "|". ``MOSES=<checkout> pytest tests/test_truecase.py`` compares. From
sacremoses only detruecasing is used: its truecaser learns from other words than Perl and limits the model size.
"""

import re
from collections import Counter, defaultdict
from itertools import dropwhile
from typing import Any, DefaultDict, Dict, Iterable, List, Mapping, Set, Tuple

from sacremoses import MosesDetruecaser

from ..errors import InputError
from ..files.lines import PathLike, read_lines
from ..files.outputs import write_whole

_detruecaser = MosesDetruecaser()
_SENTENCE_END = _detruecaser.SENT_END
_BEFORE_SENTENCE = _detruecaser.DELAYED_SENT_START  # brackets and quotes, escaped or not
# (count/total) for the most frequent form, (count) for the others; Perl's counts may be fractions
_COUNT = re.compile(r"\([0-9][0-9.e+-]*(/[0-9][0-9.e+-]*)?\)")


def count_casings(lines: Iterable[str]) -> Any:
    """Return the frequency of each word, counted where it is not the first word of a sentence.

    Returns:
        a ``Counter``. The counters of several blocks of lines can be added.
    """
    counts: Any = Counter()
    for line in lines:
        words = list(dropwhile(_BEFORE_SENTENCE.__contains__, line.split()))
        counts.update(word for before, word in zip(words, words[1:]) if before not in _SENTENCE_END)
    return counts


def choose(counts: Mapping[str, int]) -> List[List[Tuple[str, int]]]:
    """Return the forms of each word with their counts, the most frequent form first.

    Among equally frequent forms the one in lower case comes first, then the order of code points decides. The words
    are in the order of code points too, so that equal counts give equal models.
    """
    forms: DefaultDict[str, List[Tuple[str, int]]] = defaultdict(list)
    for word, count in counts.items():
        forms[_lower(word)].append((word, count))
    return [sorted(forms[lower], key=lambda form: (-form[1], form[0] != lower, form[0])) for lower in sorted(forms)]


def write(path: PathLike, counts: Mapping[str, int]) -> None:
    """Write a model in Moses' format, one word per line: ``usual (count/total) other (count) ...``"""
    with write_whole(path) as file:
        for (word, count), *others in choose(counts):
            total = count + sum(other for _, other in others)
            file.write(" ".join([f"{word} ({count}/{total})", *(f"{form} ({number})" for form, number in others)]))
            file.write("\n")


class Truecaser:
    """Function that gives the first word of each sentence in a line, and each unknown form, its most frequent case.

    Args:
        usual: lower-cased word to its most frequent form.
        known: forms that are left unchanged except at the start of a sentence.
    """

    def __init__(self, usual: Dict[str, str], known: Set[str]) -> None:
        self._usual = usual
        self._known = known

    @classmethod
    def load(cls, path: PathLike) -> "Truecaser":
        """Return the truecaser of a model file.

        Raises:
            InputError: the file is missing or is not a model in Moses' format.
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
    """Return a line of tokens with a capital letter at the start of each sentence."""
    return _detruecaser.detruecase(line, return_str=True)


def _lower(word: str) -> str:
    """Return a word in lower case as Perl does."""
    # Perl lower-cases Σ to σ everywhere, Python to ς at the end of a word
    return word.replace("Σ", "σ").lower()
