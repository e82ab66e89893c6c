"""Time several candidates in turn, and compare their times."""

import statistics
import time
from functools import partial
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

Times = Dict[str, List[float]]


class Timing(NamedTuple):
    """How long candidates are timed, and by which clock.

    Attributes:
        budget: seconds; no new round starts after this time, once the smallest number of rounds is done.
        rounds: smallest and largest number of rounds.
        synchronise: waits until the device has finished its work.
        clock: returns the time in seconds.
    """

    budget: float
    rounds: Tuple[int, int]
    synchronise: Callable[[], Any] = lambda: None
    clock: Callable[[], float] = time.perf_counter

    def interleave(self, candidates: Mapping[str, Callable[[], Any]]) -> Tuple[Times, Dict[str, str]]:
        """Time candidates in turn, so that other load on the machine affects all of them.

        Each candidate runs once before, to estimate its time. A round then runs each candidate once, and each round
        starts with another candidate. If the smallest number of rounds would take more than twice the budget, the
        slowest candidates are left out, as long as they take more than twice the time of the first candidate, the
        baseline.

        Args:
            candidates: functions to time, by name, the baseline first.

        Returns:
            the seconds of each round, by name, and the reasons for the candidates left out, by name.
        """
        least, most = self.rounds
        skipped: Dict[str, str] = {}
        names = list(candidates)
        seconds = {name: self._seconds(candidates[name]) for name in names}
        warm = {names[0]}
        while least * sum(map(seconds.__getitem__, names)) > 2 * self.budget:
            slowest = max(names, key=seconds.__getitem__)
            if seconds[slowest] <= 2 * seconds[names[0]]:
                break
            if slowest in warm:
                names.remove(slowest)
                skipped[slowest] = f"a run takes {seconds[slowest]:.1f} s, too long for {least} in {self.budget:.0f} s"
            else:  # time it again, because the first run may have compiled code
                warm.add(slowest)
                seconds[slowest] = self._seconds(candidates[slowest])
        times: Times = {name: [] for name in names}
        start = self.clock()
        for number in range(most):
            if number >= least and self.clock() - start > self.budget:
                break
            first = number % len(names)
            for name in names[first:] + names[:first]:
                times[name].append(self._seconds(candidates[name]))
        return times, skipped

    def _seconds(self, run: Callable[[], Any]) -> float:
        return _seconds(run, self.synchronise, self.clock)


def in_turns(
    names: Sequence[str],
    work: Iterable[Callable[[str], Any]],
    synchronise: Callable[[], Any] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Times:
    """Time every candidate on each of several pieces of work, each piece starting with another candidate.

    Args:
        names: names of the candidates.
        work: functions that run one piece of work with the candidate of a name.
        synchronise, clock: as for :class:`Timing`.

    Returns:
        the seconds of each piece of work, by name.
    """
    times: Times = {name: [] for name in names}
    for number, run in enumerate(work):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            times[name].append(_seconds(partial(run, name), synchronise, clock))
    return times


def _seconds(run: Callable[[], Any], synchronise: Callable[[], Any], clock: Callable[[], float]) -> float:
    synchronise()
    start = clock()
    run()
    synchronise()
    return clock() - start


def summary(values: Sequence[float]) -> Dict[str, Any]:
    """Return ``median``, the quartiles ``q1`` and ``q3``, and ``rounds``, the number of values."""
    if len(values) == 1:
        low = high = values[0]
    else:
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": statistics.median(values), "q1": low, "q3": high, "rounds": len(values)}


def compare(times: Times, baseline: str) -> Dict[str, Dict[str, Any]]:
    """Return :func:`summary` of each candidate's time divided by the baseline's in the same round; < 1 is faster."""
    base = times[baseline]
    return {name: summary([a / b for a, b in zip(values, base)]) for name, values in times.items()}
