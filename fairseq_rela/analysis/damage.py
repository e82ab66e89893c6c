"""Damage parallel text in known ways, and measure how well the scores of a model separate damaged from sound pairs."""

import math
import random
import re
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy

from ..data.folder import DataFolder
from ..errors import InputError
from ..files.lines import PathLike, read_parallel
from ..files.outputs import refuse_overwriting
from ..files.records import write_json
from .ranking import mean_ranks, roc_auc
from .ranking_study import AREAS, combine, describe_evidence, recommend

KINDS = ("shuffled", "copied", "wrong_language", "inserted", "deleted", "truncated")
FORMAT = 1
_ORDER = [(order, AREAS[order]) for order in ("null_rate", "log_probability", "both")]
_SHARE = 0.3  # share of the words that are inserted or deleted
_DAMAGED = 3  # one pair in three is damaged
_LEAST = 6  # fewest pairs to evaluate on
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
    """Measure how well the scores of a model separate damaged from sound pairs, for each kind of damage.

    For each kind, a third of the pairs is drawn at random and damaged. Damaged pairs should have a higher null rate and
    a lower log-probability per target piece; ``both`` is the mean of the ranks by these two scores. Each score gives an
    area under the ROC curve: 1 is perfect, 0.5 is chance, less is worse than chance.

    Args:
        checkpoint, data: a model and the data folder it was trained on.
        source, target: held-out raw text, plain or ``.gz``, which is read into memory.
        output: JSON file to write, if given.
        seed: seed of the damage.
        device, max_tokens: as for :func:`fairseq_rela.analysis.rank.rank`.

    Returns:
        a dictionary with ``format``; ``label``, the name of the cross-attention; ``pairs``, the number of pairs;
        ``kinds``, kind of damage to ``null_rate_auc``, ``logprob_auc`` and ``both_auc``; ``damage_seed``; ``models``,
        the checkpoint with its results; ``summary``, see :func:`fairseq_rela.analysis.ranking_study.combine`; and
        ``recommended``, the order for ``rela rank --by``.

    Raises:
        InputError: a file or option cannot be used, or too few pairs can be scored.
    """
    return evaluate_models([checkpoint], data, source, target, output, seed, device, max_tokens)


def evaluate_models(
    checkpoints: Sequence[Path],
    data: Path,
    source: PathLike,
    target: PathLike,
    output: Optional[Path] = None,
    seed: int = 1,
    device: Optional[str] = None,
    max_tokens: int = 4096,
) -> Dict[str, Any]:
    """Evaluate several models, such as those of several seeds, as :func:`evaluate` does, with the same damage.

    Args:
        checkpoints: the models, which have the same cross-attention.
        data, source, target, output, seed, device, max_tokens: as for :func:`evaluate`.

    Returns:
        the record of :func:`evaluate`; ``kinds`` holds the means over the models, ``models`` the ``checkpoint``,
        ``label`` and ``kinds`` of each model.

    Raises:
        InputError: as :func:`evaluate`, a model is given twice, or the models differ in their cross-attention.
    """
    if len({path.resolve() for path in checkpoints}) < len(checkpoints):
        raise InputError("a checkpoint is given twice; give each model once")
    if output is not None:
        refuse_overwriting((*checkpoints, source, target), [output])
    pairs = [Pair(*pair) for pair in read_parallel(source, target)]
    results: List[Dict[str, Any]] = []
    for checkpoint in checkpoints:
        result = _evaluate_model(checkpoint, data, pairs, f"{source}, {target}", seed, (device, max_tokens))
        if results and result["label"] != results[0]["label"]:
            raise InputError(
                f"{checkpoint} computes {result['label']}, {checkpoints[0]} {results[0]['label']}; "
                "give models that differ in their seed only"
            )
        results.append(result)
    summary = combine(results)
    result = {
        "format": FORMAT,
        **{name: results[0][name] for name in ("label", "pairs")},
        "kinds": {kind: {key: one[order]["mean"] for order, key in _ORDER} for kind, one in summary.items()},
        "damage_seed": seed,
        "models": [
            {"checkpoint": str(c), "label": r["label"], "kinds": r["kinds"]} for c, r in zip(checkpoints, results)
        ],
        "summary": summary,
        "recommended": recommend(summary),
    }
    if output is not None:
        write_json(output, result)
    return result


def _evaluate_model(
    checkpoint: Path, data: Path, pairs: Sequence[Pair], where: str, seed: int, how: Tuple[Optional[str], int]
) -> Dict[str, Any]:
    from .rank import load_scorer

    scorer = load_scorer(checkpoint, DataFolder(data), *how)
    scores = scorer.score(pairs)
    # a target of one word cannot lose a word
    sound = [i for i, pair in enumerate(pairs) if not scores[i].reason and len(_WORD.findall(pair.target)) > 1]
    if len(sound) < _LEAST:
        raise InputError(f"{where}: {len(sound)} pairs that can be scored, of {len(pairs)}; give {_LEAST} or more")
    kinds = {}
    for kind in KINDS:
        rng = random.Random(f"{seed} {kind}")
        chosen = set(rng.sample(sound, len(sound) // _DAMAGED))
        try:
            damaged = damage([pairs[i] for i in sorted(chosen)], kind, rng)
        except ValueError as error:
            raise InputError(f"{where}: {error}") from error
        bad = [score for score in scorer.score(damaged) if not score.reason]
        if not bad:
            raise InputError(f"{where}: no pair that is {kind} can be scored by {checkpoint}; give other text")
        kinds[kind] = _areas([scores[i] for i in sound if i not in chosen], bad)
    return {"label": scorer.label, "pairs": len(sound), "damage_seed": seed, "kinds": kinds}


def _areas(good: Sequence[Any], bad: Sequence[Any]) -> Dict[str, float]:
    """Return the areas under the ROC curve, from the scores of sound and damaged pairs."""
    null_rates, log_probabilities = (
        numpy.array([score[column] for score in (*good, *bad)], numpy.float64) for column in (0, 1)
    )
    values = (-null_rates, log_probabilities, -mean_ranks(null_rates, log_probabilities))
    return {key: roc_auc(one[: len(good)], one[len(good) :]) for (_, key), one in zip(_ORDER, values)}


def describe(result: Dict[str, Any]) -> str:
    """Return a table with one line for each kind of damage, and the recommended order."""
    models = len(result["models"])
    over = f"{result['pairs']:,} pairs, a third of them damaged" + (f"; mean (sd) of {models} models" * (models > 1))
    lines = [f"{result['label']}: area under the ROC curve over {over}"]
    lines.append(f"{'':16}{'null rate':>16}{'log-probability':>18}{'both':>16}{'difference':>28}")
    for kind, one in result["summary"].items():
        cells = [_cell(one[order]) for order, _ in _ORDER]
        lines.append(f"{kind:16}{cells[0]:>16}{cells[1]:>18}{cells[2]:>16}{_difference(one['difference']):>28}")
    return "\n".join([*lines, describe_evidence(result["summary"])])


def _cell(one: Dict[str, Any]) -> str:
    return f"{one['mean']:.3f}" + ("" if one["sd"] is None else f" ({one['sd']:.3f})")


def _difference(one: Dict[str, Any]) -> str:
    interval = one["interval"]
    return f"{one['mean']:+.3f}" + ("" if interval is None else f" [{interval[0]:+.3f}, {interval[1]:+.3f}]")
