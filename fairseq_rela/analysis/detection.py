"""Measure how well the scores of a model separate damaged from sound pairs."""

import random
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import numpy

from ..data.folder import DataFolder
from ..errors import InputError
from ..files.lines import PathLike, read_parallel
from ..files.outputs import refuse_overwriting
from ..files.records import read_json, write_json
from .comparison import AREAS, combine, describe_evidence, recommend, roc_auc
from .damage import KINDS, Pair, damage, words_of
from .orders import mean_ranks
from .pair_scorer import PairScorer, Score, load_scorer

FORMAT = 1
_ORDER = [(order, AREAS[order]) for order in ("null_rate", "log_probability", "both")]
_DAMAGED = 3  # one pair in three is damaged
_LEAST = 6  # fewest pairs to evaluate on


def evaluate(
    checkpoints: Sequence[Path],
    data: DataFolder,
    source: PathLike,
    target: PathLike,
    output: Optional[Path] = None,
    seed: int = 1,
    device: Optional[str] = None,
    max_tokens: Optional[int] = None,
) -> Dict[str, Any]:
    """Measure how well the scores of models separate damaged from sound pairs, for each kind of damage.

    For each kind, a third of the pairs is drawn at random and damaged. Damaged pairs should have a higher null rate and
    a lower log-probability per target piece; ``both`` is the mean of the ranks by these two scores. Each score gives an
    area under the ROC curve: 1 is perfect, 0.5 is chance, less is worse than chance.

    Args:
        checkpoints: models with the same cross-attention, such as those of several seeds.
        data: the data folder they were trained on.
        source, target: held-out raw text, plain or ``.gz``, which is read into memory.
        output: JSON file to write, if given.
        seed: seed of the damage, which is the same for all models.
        device, max_tokens: as for :func:`fairseq_rela.analysis.rank.rank`.

    Returns:
        a dictionary with ``format``; ``label``, the name of the cross-attention; ``pairs``, the number of pairs;
        ``kinds``, kind of damage to the means over the models of ``null_rate_auc``, ``logprob_auc`` and ``both_auc``;
        ``damage_seed``; ``models``, the ``checkpoint``, ``label`` and ``kinds`` of each model; ``summary``, see
        :func:`fairseq_rela.analysis.comparison.combine`; and ``recommended``, the order for ``rela rank --by``.

    Raises:
        InputError: a file or option cannot be used, too few pairs can be scored, a model is given twice, or the models
            differ in their cross-attention.
    """
    if len({path.resolve() for path in checkpoints}) < len(checkpoints):
        raise InputError("a checkpoint is given twice; give each model once")
    if output is not None:
        refuse_overwriting((*checkpoints, source, target), [output])
    pairs = [Pair(*pair) for pair in read_parallel(source, target)]
    results: List[Dict[str, Any]] = []
    for checkpoint in checkpoints:
        scorer = load_scorer(checkpoint, data, device, max_tokens)
        result = _evaluate_model(scorer, pairs, f"{source}, {target}", seed, checkpoint)
        if results and result["label"] != results[0]["label"]:
            raise InputError(
                f"{checkpoint} computes {result['label']}, but {checkpoints[0]} {results[0]['label']}; "
                "give models that differ only in their seed"
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
    scorer: PairScorer, pairs: Sequence[Pair], where: str, seed: int, checkpoint: Path
) -> Dict[str, Any]:
    scores = scorer.score(pairs)
    # pairs with a target of one word are left out, because the damage cannot delete a word from it
    sound = [i for i, pair in enumerate(pairs) if not scores[i].reason and len(words_of(pair.target)) > 1]
    if len(sound) < _LEAST:
        raise InputError(f"{where}: only {len(sound)} of {len(pairs)} pairs can be scored; give {_LEAST} or more")
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
            raise InputError(f"{where}: {checkpoint} can score no pair with the damage {kind!r}; give other text")
        kinds[kind] = areas([scores[i] for i in sound if i not in chosen], bad)
    return {"label": scorer.label, "pairs": len(sound), "damage_seed": seed, "kinds": kinds}


def areas(good: Sequence[Score], bad: Sequence[Score]) -> Dict[str, float]:
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


def recommended_for(checkpoint: Path) -> Optional[str]:
    """Return the order that ``rank.json`` in the folder of a checkpoint recommends, or None."""
    try:
        found = read_json(checkpoint.parent / "rank.json").get("recommended")
    except (InputError, AttributeError):
        return None
    return found if found in AREAS else None
