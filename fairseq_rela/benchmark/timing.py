"""Interleaved timing and its statistics."""

import statistics
import time
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

Times = Dict[str, List[float]]


def interleave(
    candidates: Mapping[str, Callable[[], Any]],
    budget: float,
    rounds: Tuple[int, int],
    synchronise: Callable[[], Any] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Tuple[Times, Dict[str, str]]:
    """Time candidates in turn, so that whatever else the machine does meets all of them.

    Each is run once before. A round runs all of them once, each round beginning with the next one. A
    candidate of which the least number of rounds alone would take longer than the budget is left out, unless it is
    less than twice as slow as the first one, the baseline.

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
    skipped, names, limit = {}, [], float("inf")
    for name in candidates:
        seconds = _seconds(candidates[name], synchronise, clock)
        if seconds > limit:  # a first run may have made tables and compiled
            seconds = _seconds(candidates[name], synchronise, clock)
        if not names:
            limit = max(budget / least, 2 * seconds)
        if seconds > limit:
            skipped[name] = f"a run takes {seconds:.1f} s, {least} of them more than the {budget:.0f} s there are"
        else:
            names.append(name)
    times: Times = {name: [] for name in names}
    start = clock()
    for number in range(most):
        if number >= least and clock() - start > budget:
            break
        first = number % len(names)
        for name in names[first:] + names[:first]:
            times[name].append(_seconds(candidates[name], synchronise, clock))
    return times, skipped


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
