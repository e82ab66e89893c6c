"""Generate a parallel corpus from a small grammar, with its gold word alignment; a laptop learns it in minutes.

The verb is in the middle of a source sentence and at the end of a target sentence. The two languages differ by

* reordering: in the target the verb is last, an adjective follows its noun, and negation comes first;
* agreement: target adjectives take an ending for the class and number of their noun;
* fertility: some verbs have two words on the source side and one on the target side, others the reverse;
* words without a counterpart: the definite article of the source and the object marker of the target.
"""

import random
from itertools import count
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Set, Tuple

from ..errors import InputError
from ..files.outputs import write_whole

SOURCE_LANG, TARGET_LANG = "xa", "xb"
SPLIT_SIZES = {"train": 5000, "valid": 200, "test": 300}


class Noun(NamedTuple):
    """A noun: its stem in both languages, and its class, 0 or 1, in the target language."""

    source: str
    target: str
    noun_class: int


class Verb(NamedTuple):
    """A verb: its words in both languages, one or two on each side."""

    source: Tuple[str, ...]
    target: Tuple[str, ...]


class Lexicon(NamedTuple):
    """The content words of both languages; a pair of strings is a source word and its translation."""

    nouns: List[Noun]
    verbs: List[Verb]
    adjectives: List[Tuple[str, str]]
    adverbs: List[Tuple[str, str]]
    prepositions: List[Tuple[str, str]]


class Sentence(NamedTuple):
    """Tokens of both sides, and links (source position, target position), from 0, of words with the same meaning."""

    source: List[str]
    target: List[str]
    links: List[Tuple[int, int]]


_DEFINITE, _INDEFINITE, _NOT = "the", "a", "not"  # function words of the source
_ONE, _OBJECT, _NO = "un", "ka", "ne"  # of the target: indefinite article, object marker, negation
_PLURAL_SOURCE, _PLURAL_TARGET = "s", "im"
_AGREEMENT = {(0, False): "o", (0, True): "oi", (1, False): "a", (1, True): "ai"}  # (class, plural) to ending


def make_lexicon(rng: random.Random) -> Lexicon:
    """Return random words of both languages, all different."""
    taken: Set[str] = {_DEFINITE, _INDEFINITE, _NOT, _ONE, _OBJECT, _NO}

    def word(syllables: int, onsets: str, vowels: str, coda: str) -> str:
        while True:
            made = "".join(rng.choice(onsets) + rng.choice(vowels) for _ in range(syllables)) + rng.choice(coda)
            if made not in taken:
                taken.add(made)
                return made

    def source(syllables: int = 2) -> str:
        return word(syllables, "bdfglmprtw", "aeou", "nlrkt")

    def target(syllables: int = 2) -> str:
        return word(syllables, "chjkmnsvxz", "aeiu", "bdg")

    verbs = [Verb((source(),), (target(),)) for _ in range(16)]
    verbs += [Verb((source(),), (target(), target(1))) for _ in range(8)]
    verbs += [Verb((source(), source(1)), (target(),)) for _ in range(8)]
    return Lexicon(
        nouns=[Noun(source(), target(), rng.randrange(2)) for _ in range(48)],
        verbs=verbs,
        adjectives=[(source(), target()) for _ in range(20)],
        adverbs=[(source(), target()) for _ in range(8)],
        prepositions=[(source(1), target(1)) for _ in range(4)],
    )


Side = List[Tuple[str, int]]  # words with the number of their meaning; 0 for a word without a counterpart


def _noun_phrase(rng: random.Random, lexicon: Lexicon, meanings: Iterator[int]) -> Tuple[Side, Side]:
    """Return a random noun with an article and sometimes an adjective, on both sides."""
    noun, plural = rng.choice(lexicon.nouns), rng.random() < 0.4
    noun_meaning = next(meanings)
    source: Side = []
    target: Side = [(noun.target + (_PLURAL_TARGET if plural else ""), noun_meaning)]
    if rng.random() < 0.45:
        adjective, meaning = rng.choice(lexicon.adjectives), next(meanings)
        source.append((adjective[0], meaning))
        target.append((adjective[1] + _AGREEMENT[noun.noun_class, plural], meaning))
    source.append((noun.source + (_PLURAL_SOURCE if plural else ""), noun_meaning))
    if rng.random() < 0.6:
        source.insert(0, (_DEFINITE, 0))
    elif not plural:
        meaning = next(meanings)
        source.insert(0, (_INDEFINITE, meaning))
        target.insert(0, (_ONE, meaning))
    return source, target


def make_sentence(rng: random.Random, lexicon: Lexicon) -> Sentence:
    """Return a random pair: subject, verb, object, and sometimes an adverb, a prepositional phrase or a negation."""
    meanings = count(1)
    subject, target_subject = _noun_phrase(rng, lexicon, meanings)
    source_object, target_object = _noun_phrase(rng, lexicon, meanings)
    verb, verb_meaning = rng.choice(lexicon.verbs), next(meanings)

    source = list(subject)
    front: Side = []
    if rng.random() < 0.2:
        meaning = next(meanings)
        source.append((_NOT, meaning))
        front.append((_NO, meaning))
    source += [(word, verb_meaning) for word in verb.source] + source_object
    target = front + target_subject + target_object + [(_OBJECT, 0)]
    if rng.random() < 0.4:
        preposition, meaning = rng.choice(lexicon.prepositions), next(meanings)
        place, target_place = _noun_phrase(rng, lexicon, meanings)
        source += [(preposition[0], meaning), *place]
        target += [*target_place, (preposition[1], meaning)]
    if rng.random() < 0.3:
        adverb, meaning = rng.choice(lexicon.adverbs), next(meanings)
        source.append((adverb[0], meaning))
        target.append((adverb[1], meaning))
    target += [(word, verb_meaning) for word in verb.target]
    stop = next(meanings)
    source.append((".", stop))
    target.append((".", stop))

    links = [
        (i, j)
        for i, (_, meaning) in enumerate(source)
        for j, (_, other) in enumerate(target)
        if meaning and meaning == other
    ]
    return Sentence([word for word, _ in source], [word for word, _ in target], links)


def make_corpus(seed: int, sizes: Dict[str, int]) -> Dict[str, List[Sentence]]:
    """Return the sentences of each split; no source sentence occurs twice in the corpus.

    Args:
        seed: the same seed gives the same corpus on every machine.
        sizes: split to number of sentence pairs.
    """
    rng = random.Random(seed)
    lexicon = make_lexicon(rng)
    seen: Set[Tuple[str, ...]] = set()
    corpus: Dict[str, List[Sentence]] = {}
    for split, size in sizes.items():
        corpus[split] = []
        while len(corpus[split]) < size:
            sentence = make_sentence(rng, lexicon)
            if tuple(sentence.source) not in seen:
                seen.add(tuple(sentence.source))
                corpus[split].append(sentence)
    return corpus


def write_corpus(folder: Path, seed: int = 1, train_pairs: int = SPLIT_SIZES["train"]) -> Dict[str, int]:
    """Write ``SPLIT.xa`` and ``SPLIT.xb`` (raw text) and ``SPLIT.align`` (gold links ``i-j`` from 0, Pharaoh format).

    Positions count words and the final full stop, as in text that Moses has tokenised.

    Args:
        folder: the folder to write.
        seed: seed of the random generator.
        train_pairs: number of training pairs, from 1 to 1,000,000.

    Returns:
        split to number of sentence pairs.

    Raises:
        InputError: ``train_pairs`` is out of range, or the folder cannot be written.
    """
    if not 1 <= train_pairs <= 1_000_000:
        raise InputError(f"--pairs {train_pairs}: give a number from 1 to 1,000,000")
    corpus = make_corpus(seed, {**SPLIT_SIZES, "train": train_pairs})
    for split, sentences in corpus.items():
        columns = {
            SOURCE_LANG: (_as_text(s.source) for s in sentences),
            TARGET_LANG: (_as_text(s.target) for s in sentences),
            "align": (" ".join(f"{i}-{j}" for i, j in s.links) for s in sentences),
        }
        for suffix, lines in columns.items():
            with write_whole(folder / f"{split}.{suffix}") as file:
                file.writelines(line + "\n" for line in lines)
    return {split: len(sentences) for split, sentences in corpus.items()}


def _as_text(tokens: List[str]) -> str:
    return " ".join(tokens).replace(" .", ".")
