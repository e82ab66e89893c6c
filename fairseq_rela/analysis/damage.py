"""Known damages of parallel text, and how well a model's null rate tells damaged pairs from sound ones."""

import math
import random
import re
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from ..data.lines import PathLike, read_parallel, refuse_overwriting, write_json
from ..errors import InputError
from .ranking import roc_auc

KINDS = ("shuffled", "copied", "wrong_language", "inserted", "deleted", "truncated")
FORMAT = 1
_SHARE = 0.3  # of the words, that are inserted or deleted
_DAMAGED = 3  # one pair of so many
_LEAST = 6  # pairs
_UNSPACED = "\u2e80-\u9fff\uf900-\ufaff"  # scripts of Chinese and Japanese, whose every character is a word here
_WORD = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]+")
_SPACE_BEFORE_UNSPACED = re.compile(rf"(?<=[{_UNSPACED}]) | (?=[{_UNSPACED}])")


class Pair(NamedTuple):
    """Raw text of both sides."""

    source: str
    target: str


def damage(pairs: Sequence[Pair], kind: str, rng: random.Random) -> List[Pair]:
    """The pairs, in order, each with its target damaged; sources stay.

    The kinds: ``shuffled``, the target of another pair; ``copied``, the source as target; ``wrong_language``, the
    source of another pair as target; ``inserted``, 30 % more words in the target, at random from all targets and at
    random places; ``deleted``, 30 % of its words less; ``truncated``, without its second half. At least one word is
    inserted or deleted; of a target of one word none is deleted or cut.

    Args:
        pairs: source and target, raw text or tokens.
        kind: one of :data:`KINDS`.
        rng: decides all that is random; the same seed gives the same damage.

    Raises:
        ValueError: no such kind, or nothing to shuffle, as all sentences are the same.
    """
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    if kind == "shuffled":
        damaged = _derange(targets, rng)
    elif kind == "copied":
        damaged = sources
    elif kind == "wrong_language":
        damaged = _derange(sources, rng)
    elif kind == "inserted":
        vocabulary = sorted({word for target in targets for word in _WORD.findall(target)})
        damaged = [_insert(target, vocabulary, rng) for target in targets]
    elif kind == "deleted":
        damaged = [_delete(target, rng) for target in targets]
    elif kind == "truncated":
        damaged = [_truncate(target) for target in targets]
    else:
        raise ValueError(f"no damage {kind!r}; choose one of {', '.join(KINDS)}")
    return [Pair(source, target) for source, target in zip(sources, damaged)]


def _derange(sentences: Sequence[str], rng: random.Random) -> List[str]:
    """The sentences in a random order in which none is where it, or one equal to it, was."""
    order = list(range(len(sentences)))
    for last in range(len(order) - 1, 0, -1):  # Sattolo's: one cycle through all
        other = rng.randrange(last)
        order[last], order[other] = order[other], order[last]
    for place, sentence in enumerate(sentences):
        if sentences[order[place]] != sentence:
            continue
        # an equal sentence came here; any place will do where both are then among others
        start = rng.randrange(len(order))
        for step in range(len(order)):
            other = (start + step) % len(order)
            if sentences[order[other]] != sentence and sentences[order[place]] != sentences[other]:
                order[place], order[other] = order[other], order[place]
                break
        else:
            raise ValueError("more than half of the sentences are the same, or there is only one: nothing to shuffle")
    return [sentences[index] for index in order]


def _insert(text: str, vocabulary: Sequence[str], rng: random.Random) -> str:
    words = _WORD.findall(text)
    for _ in range(max(1, round(_SHARE * len(words)))):
        words.insert(rng.randint(0, len(words)), rng.choice(vocabulary))
    return _join(words)


def _delete(text: str, rng: random.Random) -> str:
    words = _WORD.findall(text)
    deleted = set(rng.sample(range(len(words)), min(max(1, round(_SHARE * len(words))), max(len(words) - 1, 0))))
    return _join([word for index, word in enumerate(words) if index not in deleted])


def _truncate(text: str) -> str:
    words = _WORD.findall(text)
    return _join(words[: math.ceil(len(words) / 2)])


def _join(words: Sequence[str]) -> str:
    return _SPACE_BEFORE_UNSPACED.sub("", " ".join(words))


def evaluate(
    checkpoint: Path,
    data: Path,
    source: PathLike,
    target: PathLike,
    output: Optional[Path] = None,
    seed: int = 1,
    device: Optional[str] = None,
    max_tokens: int = 4096,
) -> Dict[str, Any]:
    """How well damaged pairs are told from the others, one kind of damage at a time.

    A third of the pairs is damaged, drawn anew for each kind. The null rate should be higher there; the baseline is
    the same model's own log-probability of the target by its length in pieces, which should be lower. Each gives an
    area under the ROC curve: 1 is perfect, 0.5 is chance, less is worse than chance.

    Args:
        checkpoint, data: a model and the data folder it was trained on.
        source, target: held-out raw text, plain or ``.gz``. All of it is held in memory.
        output: a JSON file to write.
        seed: of all damages.
        device, max_tokens: as for :func:`fairseq_rela.analysis.rank.rank`.

    Returns:
        ``format``; ``label``, the cross-attention; ``pairs``; ``kinds``: kind to ``null_rate_auc``, ``logprob_auc``.

    Raises:
        InputError: as :func:`fairseq_rela.analysis.rank.rank`, or too few pairs that can be scored.
    """
    from .rank import load_scorer

    if output is not None:
        refuse_overwriting((checkpoint, source, target), [output])
    scorer = load_scorer(checkpoint, data, device, max_tokens)
    pairs = [Pair(*pair) for pair in read_parallel(source, target)]
    scores = scorer.score(pairs)
    # a target of one word cannot lose any, and a source that is its own target is a copy already
    sound = [i for i, pair in enumerate(pairs) if not scores[i].reason and len(_WORD.findall(pair.target)) > 1]
    if len(sound) < _LEAST:
        raise InputError(f"{source}: {len(sound)} pairs that can be scored, of {len(pairs)}; give {_LEAST} or more")
    kinds = {}
    for kind in KINDS:
        rng = random.Random(f"{seed} {kind}")
        chosen = set(rng.sample(sound, len(sound) // _DAMAGED))
        try:
            damaged = damage([pairs[i] for i in sorted(chosen)], kind, rng)
        except ValueError as error:
            raise InputError(f"{source}, {target}: {error}") from error
        bad = [score for score in scorer.score(damaged) if not score.reason]
        good = [scores[i] for i in sound if i not in chosen]
        kinds[kind] = {
            "null_rate_auc": roc_auc([-score.null_rate for score in good], [-score.null_rate for score in bad]),
            "logprob_auc": roc_auc([s.log_probability for s in good], [s.log_probability for s in bad]),
        }
    result = {"format": FORMAT, "label": scorer.label, "pairs": len(sound), "kinds": kinds}
    if output is not None:
        write_json(output, result)
    return result


def describe(result: Dict[str, Any]) -> str:
    """A line a kind of damage."""
    lines = [f"{result['label']}: area under the ROC curve over {result['pairs']:,} pairs, a third of them damaged"]
    lines.append(f"{'':16}{'null rate':>12}{'log-probability':>18}")
    for kind, areas in result["kinds"].items():
        lines.append(f"{kind:16}{areas['null_rate_auc']:>12.3f}{areas['logprob_auc']:>18.3f}")
    return "\n".join(lines)
