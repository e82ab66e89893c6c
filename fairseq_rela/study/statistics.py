"""Means over seeds, paired differences with confidence intervals, and sacreBLEU's paired bootstrap."""

import math
from statistics import fmean
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..experiment.scoring import sacrebleu_metric

LEVEL = 0.95  # confidence level of the intervals
BOOTSTRAP_SAMPLES = 1000


class Summary(NamedTuple):
    """A mean over seeds.

    Attributes:
        mean: the mean.
        sd: the sample standard deviation; None for one seed and for a difference to the baseline.
        n: number of seeds.
        interval: 95 % interval of the mean by Student's t; None for one seed.
    """

    mean: float
    sd: Optional[float]
    n: int
    interval: Optional[Tuple[float, float]]


def summarise(numbers: Sequence[float]) -> Optional[Summary]:
    r"""Return mean, standard deviation and interval of numbers, or None if there are no numbers.

    The sample standard deviation is :math:`s = \sqrt{\sum_i (x_i - \bar x)^2 / (n - 1)}`, and Student's 95 % interval
    of the mean :math:`\bar x \pm t_{0.975, n-1}\, s / \sqrt n`.
    """
    from scipy.stats import t

    n = len(numbers)
    if not n:
        return None
    mean = fmean(numbers)
    if n == 1:
        return Summary(mean, None, n, None)
    # statistics.stdev rounds differently in different versions of Python
    sd = math.sqrt(math.fsum((x - mean) ** 2 for x in numbers) / (n - 1))
    half = float(t.ppf((1 + LEVEL) / 2, n - 1)) * sd / math.sqrt(n)
    return Summary(mean, sd, n, (mean - half, mean + half))


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> Optional[Summary]:
    """Return the mean of ``first`` minus ``second`` over their common seeds, or None without a common seed."""
    return summarise([first[seed] - second[seed] for seed in sorted(first) if seed in second])


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
    from sacrebleu.significance import PairedTest

    metric = sacrebleu_metric(target_lang)
    # sacreBLEU refuses two equal translations as a mistake; their difference is 0
    if list(hypotheses) == list(baseline):
        score = metric.corpus_score(list(hypotheses), [list(references)]).score
        return {"difference": 0.0, "p": 1.0, "interval": [score, score]}
    systems: List[Tuple[str, Sequence[str]]] = [("baseline", list(baseline)), ("system", list(hypotheses))]
    test = PairedTest(systems, {"BLEU": metric}, [list(references)], test_type="bs", n_samples=BOOTSTRAP_SAMPLES)
    _, scores = test()
    results: Any = scores["BLEU"]
    first, second = results
    return {
        "difference": second.score - first.score,
        "p": second.p_value,
        "interval": [second.mean - second.ci, second.mean + second.ci],
    }
