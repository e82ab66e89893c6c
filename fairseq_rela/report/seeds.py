"""Find the runs that differ only in the seed of their training, and compute their means."""

import statistics
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .run import Run, settings_label


def by_settings(runs: Sequence[Run]) -> List[List[Run]]:
    """Group the runs that differ only in their seed, and keep the order of the runs.

    The runs of a group have the same attention at the same sites, overrides, configuration files, prepared data and
    sacreBLEU signature. A run without train.json is in a group of its own, because its settings are not known.
    """
    gathered: Dict[Any, List[Run]] = {}
    for run in runs:
        gathered.setdefault(_settings(run), []).append(run)
    return list(gathered.values())


def _settings(run: Run) -> Tuple[Any, ...]:
    train = run.files.get("train")
    if train is None:
        return (run.folder,)
    configs = {name: sha for name, sha in train.get("configs", {}).items() if not name.startswith("sites/")}
    return (
        run.attention,
        frozenset(run.attention_sites),
        tuple(sorted(run.changed)),
        tuple(sorted(configs.items())),
        tuple(sorted(train.get("data", {}).items())),
        run.files.get("score", {}).get("signature"),
    )


def common_label(runs: Sequence[Run]) -> str:
    """Return the common label of runs with the same settings."""
    return runs[0].label if len(runs) == 1 else settings_label(runs[0])


def dagger(run: Run) -> str:
    """Return the mark of a run whose settings were changed, or nothing."""
    return "†" if run.changed else ""


def seeds_note(runs: Sequence[Run]) -> str:
    """Return the note after a result of runs with the same settings: a dagger, and the number of seeds of a mean."""
    seeds = len({run.seed for run in runs})
    if len(runs) == 1:
        return dagger(runs[0])
    count = f"{len(runs)} seeds" if seeds == len(runs) else f"{len(runs)} runs of {seeds} seed{'s' * (seeds > 1)}"
    return f"{dagger(runs[0])}, {count}"


def mean(values: Sequence[Optional[float]]) -> Optional[float]:
    """Return the mean, or None if a value is None or there are no values."""
    there = _complete(values)
    return statistics.fmean(there) if there else None


def _complete(values: Sequence[Optional[float]]) -> List[float]:
    """Return the values, or an empty list if one is None."""
    there = [value for value in values if value is not None]
    return there if len(there) == len(values) else []


def mean_and_deviation(values: Sequence[Optional[float]], digits: int, scale: float = 1.0) -> Optional[str]:
    """Return ``mean ± sample standard deviation`` as text, the value alone if there is one, or None as :func:`mean`.

    Args:
        values: the values, or None for a missing one.
        digits: digits after the decimal point.
        scale: factor for mean and deviation.
    """
    there = _complete(values)
    if not there:
        return None
    text = f"{scale * statistics.fmean(there):.{digits}f}"
    return text if len(there) == 1 else f"{text} ± {scale * statistics.stdev(there):.{digits}f}"
