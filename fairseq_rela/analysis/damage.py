"""Damage parallel text in known ways; pure functions on sentence pairs."""

import math
import random
import re
from typing import List, NamedTuple, Sequence

KINDS = ("shuffled", "copied", "wrong_language", "inserted", "deleted", "truncated")
_SHARE = 0.3  # share of the words that are inserted or deleted
_UNSPACED = "\u2e80-\u9fff\uf900-\ufaff"  # Chinese and Japanese scripts: each character counts as a word
_WORD = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]+")
_SPACE_BEFORE_UNSPACED = re.compile(rf"(?<=[{_UNSPACED}]) | (?=[{_UNSPACED}])")


class Pair(NamedTuple):
    """The raw text of both sides of a sentence pair."""

    source: str
    target: str


def damage(pairs: Sequence[Pair], kind: str, rng: random.Random) -> List[Pair]:
    """Return the pairs in the same order with the target of each pair damaged.

    The kinds of damage are:

    - ``shuffled``: the target of another pair;
    - ``copied``: the source as target;
    - ``wrong_language``: the source of another pair as target;
    - ``inserted``: 30 % more words, drawn from the words of all targets, at random positions;
    - ``deleted``: 30 % fewer words;
    - ``truncated``: without the second half.

    At least one word is inserted or deleted, but a target of one word loses nothing.

    Args:
        pairs: source and target, raw text or tokens.
        kind: one of :data:`KINDS`.
        rng: random generator; the same seed gives the same damage.

    Raises:
        ValueError: ``kind`` is unknown, or too many sentences are equal to be shuffled.
    """
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    if kind == "shuffled":
        damaged = _derange(targets, rng)
    elif kind == "copied":
        damaged = sources
    elif kind == "wrong_language":
        damaged = _derange(sources, rng)
    elif kind == "inserted":
        vocabulary = sorted({word for target in targets for word in words_of(target)})
        damaged = [_insert(target, vocabulary, rng) for target in targets]
    elif kind == "deleted":
        damaged = [_delete(target, rng) for target in targets]
    elif kind == "truncated":
        damaged = [_truncate(target) for target in targets]
    else:
        raise ValueError(f"unknown kind of damage {kind!r}; choose one of {', '.join(KINDS)}")
    return [Pair(source, target) for source, target in zip(sources, damaged)]


def _derange(sentences: Sequence[str], rng: random.Random) -> List[str]:
    """Return the sentences in a random order in which no position holds the same text as before."""
    order = list(range(len(sentences)))
    for last in range(len(order) - 1, 0, -1):  # Sattolo's algorithm: a single cycle
        other = rng.randrange(last)
        order[last], order[other] = order[other], order[last]
    for place, sentence in enumerate(sentences):
        if sentences[order[place]] != sentence:
            continue
        # an equal sentence came here: swap it with a position where neither text stays in place
        start = rng.randrange(len(order))
        for step in range(len(order)):
            other = (start + step) % len(order)
            if sentences[order[other]] != sentence and sentences[order[place]] != sentences[other]:
                order[place], order[other] = order[other], order[place]
                break
        else:
            raise ValueError("cannot shuffle a single sentence, or sentences more than half of which are equal")
    return [sentences[index] for index in order]


def words_of(text: str) -> List[str]:
    """Return the words of a text; in Chinese and Japanese, each character counts as a word."""
    return _WORD.findall(text)


def _insert(text: str, vocabulary: Sequence[str], rng: random.Random) -> str:
    words = words_of(text)
    for _ in range(max(1, round(_SHARE * len(words)))):
        words.insert(rng.randint(0, len(words)), rng.choice(vocabulary))
    return _join(words)


def _delete(text: str, rng: random.Random) -> str:
    words = words_of(text)
    deleted = set(rng.sample(range(len(words)), min(max(1, round(_SHARE * len(words))), max(len(words) - 1, 0))))
    return _join([word for index, word in enumerate(words) if index not in deleted])


def _truncate(text: str) -> str:
    words = words_of(text)
    return _join(words[: math.ceil(len(words) / 2)])


def _join(words: Sequence[str]) -> str:
    return _SPACE_BEFORE_UNSPACED.sub("", " ".join(words))
