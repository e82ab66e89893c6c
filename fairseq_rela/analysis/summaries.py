"""Means of a few numbers, such as one for each seed, with confidence intervals, and differences of paired numbers."""

import math
from statistics import fmean
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

LEVEL = 0.95  # confidence level of the intervals


class Summary(NamedTuple):
    """A mean.

    Attributes:
        mean: the mean.
        sd: the sample standard deviation; None for one number.
        n: how many numbers.
        interval: 95 % interval of the mean by Student's t; None for one number.
    """

    mean: float
    sd: Optional[float]
    n: int
    interval: Optional[Tuple[float, float]]

    @property
    def record(self) -> Dict[str, Any]:
        """The entries ``mean``, ``sd`` and ``n`` of a JSON file."""
        return {"mean": self.mean, "sd": self.sd, "n": self.n}

    @property
    def bounds(self) -> Optional[List[float]]:
        """The interval as a JSON file has it."""
        return None if self.interval is None else list(self.interval)


def summarise(numbers: Sequence[float]) -> Optional[Summary]:
    r"""Return mean, standard deviation and interval of numbers, or None if there are no numbers.

    The sample standard deviation is :math:`s = \sqrt{\sum_i (x_i - \bar x)^2 / (n - 1)}`, and Student's 95 % interval
    of the mean :math:`\bar x \pm t_{0.975, n-1}\, s / \sqrt n`.
    """
    return summary_of(numbers) if numbers else None


def summary_of(numbers: Sequence[float]) -> Summary:
    """Return the same as :func:`summarise`, of at least one number."""
    n, mean = len(numbers), fmean(numbers)
    if n == 1:
        return Summary(mean, None, n, None)
    from scipy.stats import t  # takes half a second

    # statistics.stdev rounds differently in different versions of Python
    sd = math.sqrt(math.fsum((x - mean) ** 2 for x in numbers) / (n - 1))
    half = float(t.ppf((1 + LEVEL) / 2, n - 1)) * sd / math.sqrt(n)
    return Summary(mean, sd, n, (mean - half, mean + half))


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> Optional[Summary]:
    """Return the mean of ``first`` minus ``second`` over their common seeds, or None without a common seed."""
    return summarise([first[seed] - second[seed] for seed in sorted(first) if seed in second])
