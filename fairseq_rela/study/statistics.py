"""Means over seeds, paired differences with confidence intervals, and sacreBLEU's paired bootstrap."""

import math
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

LEVEL = 0.95  # confidence level of the intervals
BOOTSTRAP_SAMPLES = 1000


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def deviation(values: Sequence[float]) -> Optional[float]:
    r"""Return the sample standard deviation, :math:`\sqrt{\sum_i (x_i - \bar x)^2 / (n - 1)}`; None for one value."""
    if len(values) < 2:
        return None
    middle = mean(values)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1))


def interval(values: Sequence[float]) -> Optional[Tuple[float, float]]:
    r"""Return Student's 95 % interval of the mean, :math:`\bar x \pm t_{0.975, n-1}\, s / \sqrt n`; None for n = 1."""
    from scipy.stats import t

    spread = deviation(values)
    if spread is None:
        return None
    half = float(t.ppf((1 + LEVEL) / 2, len(values) - 1)) * spread / math.sqrt(len(values))
    middle = mean(values)
    return middle - half, middle + half


def summary(values: Sequence[float]) -> Dict[str, Any]:
    return {"mean": mean(values), "sd": deviation(values), "n": len(values)}


def paired_difference(values: Mapping[int, float], baseline: Mapping[int, float]) -> Optional[Dict[str, Any]]:
    """Return the mean of ``values - baseline`` over their common seeds, with its 95 % interval; None if there are none.

    Args:
        values, baseline: seed to value.

    Returns:
        ``mean``, ``interval`` (None for one seed), the number of seeds ``n``, and ``seeds``.
    """
    seeds = sorted(set(values) & set(baseline))
    if not seeds:
        return None
    differences = [values[seed] - baseline[seed] for seed in seeds]
    bounds = interval(differences)
    return {
        "mean": mean(differences),
        "interval": None if bounds is None else list(bounds),
        "n": len(seeds),
        "seeds": seeds,
    }


def paired_bootstrap(
    hypotheses: Sequence[str], baseline: Sequence[str], references: Sequence[str], target_lang: str
) -> Dict[str, Any]:
    """Return the result of sacreBLEU's paired bootstrap test of two translations of a test set (Koehn 2004).

    Args:
        hypotheses: the translation to test, detokenised.
        baseline: the translation to compare it with.
        references: raw reference text.
        target_lang: language code; selects sacreBLEU's tokeniser (zh for Chinese, otherwise 13a).

    Returns:
        ``difference`` in BLEU, hypotheses minus baseline; ``p`` for the null hypothesis that both are equal; and
        ``interval``, the 95 % interval of the BLEU of ``hypotheses`` over the resampled test sets.
    """
    from sacrebleu.metrics import BLEU
    from sacrebleu.significance import PairedTest

    # sacreBLEU refuses two equal translations as a mistake; their difference is 0
    if list(hypotheses) == list(baseline):
        score = _bleu(target_lang).corpus_score(list(hypotheses), [list(references)]).score
        return {"difference": 0.0, "p": 1.0, "interval": [score, score]}
    systems: List[Tuple[str, Sequence[str]]] = [("baseline", list(baseline)), ("system", list(hypotheses))]
    metric: BLEU = _bleu(target_lang)
    test = PairedTest(systems, {"BLEU": metric}, [list(references)], test_type="bs", n_samples=BOOTSTRAP_SAMPLES)
    _, scores = test()
    results: Any = scores["BLEU"]
    first, second = results
    return {
        "difference": second.score - first.score,
        "p": second.p_value,
        "interval": [second.mean - second.ci, second.mean + second.ci],
    }


def _bleu(target_lang: str) -> Any:
    from sacrebleu.metrics import BLEU

    return BLEU(tokenize="zh" if target_lang == "zh" else "13a")
