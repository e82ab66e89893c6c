"""Interleaved timing and its statistics."""

import statistics
import time
from functools import partial
from typing import Any, Callable, Dict, Iterable, List, Mapping, Sequence, Tuple

Times = Dict[str, List[float]]


def interleave(
    candidates: Mapping[str, Callable[[], Any]],
    budget: float,
    rounds: Tuple[int, int],
    synchronise: Callable[[], Any] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Tuple[Times, Dict[str, str]]:
    """Time candidates in turn, so that whatever else the machine does meets all of them.

    Each is run once before. A round runs all of them once, each round beginning with the next one. Where the least
    number of rounds would take more than twice the budget, the slowest candidates are left out, as far as they are
    more than twice as slow as the first one, the baseline.

    Args:
        candidates: what to run, by name.
        budget: seconds after which no round begins, once the least number is done.
        rounds: the least and the largest number of rounds.
        synchronise: waits until a device has done its work.
        clock: gives seconds.

    Returns:
        seconds of each round by name, and the reasons for those left out.
    """
    least, most = rounds
    skipped: Dict[str, str] = {}
    names = list(candidates)
    seconds = {name: _seconds(candidates[name], synchronise, clock) for name in names}
    warm = {names[0]}
    while least * sum(map(seconds.__getitem__, names)) > 2 * budget:
        slowest = max(names, key=seconds.__getitem__)
        if seconds[slowest] <= 2 * seconds[names[0]]:
            break
        if slowest in warm:
            names.remove(slowest)
            skipped[slowest] = f"a run takes {seconds[slowest]:.1f} s, too long for {least} in {budget:.0f} s"
        else:  # a first run may have made tables and compiled
            warm.add(slowest)
            seconds[slowest] = _seconds(candidates[slowest], synchronise, clock)
    times: Times = {name: [] for name in names}
    start = clock()
    for number in range(most):
        if number >= least and clock() - start > budget:
            break
        first = number % len(names)
        for name in names[first:] + names[:first]:
            times[name].append(_seconds(candidates[name], synchronise, clock))
    return times, skipped


def in_turns(
    names: Sequence[str],
    work: Iterable[Callable[[str], Any]],
    synchronise: Callable[[], Any] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Times:
    """Time pieces of work that differ, each of them by every candidate, each beginning with the next one.

    Args:
        names: of the candidates.
        work: functions that take a candidate's name.
        synchronise, clock: as of :func:`interleave`.

    Returns:
        seconds of each piece of work by name.
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
    """Median, quartiles (their distance is the spread) and number of values."""
    if len(values) == 1:
        low = high = values[0]
    else:
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": statistics.median(values), "q1": low, "q3": high, "rounds": len(values)}


def compare(times: Times, baseline: str) -> Dict[str, Dict[str, Any]]:
    """Each candidate's time over the baseline's, round by round, summed up: below 1 is faster."""
    base = times[baseline]
    return {name: summary([a / b for a, b in zip(values, base)]) for name, values in times.items()}
