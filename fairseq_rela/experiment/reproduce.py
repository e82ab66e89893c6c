"""Run the stages of an experiment, and skip a stage whose complete result from the same inputs exists."""

import time
from contextlib import nullcontext
from typing import Callable, ContextManager, Dict, Sequence

from ..errors import InputError
from ..files.locks import only_process
from . import data_stages, run_stages
from .composed import attention_overrides, checksums
from .experiment import Experiment
from .training import check_overrides

RUN: Dict[str, Callable[[Experiment], None]] = {
    "download": data_stages.download,
    "extract": data_stages.extract,
    "prepare": data_stages.prepare,
    "train": run_stages.train,
    "average": run_stages.average,
    "translate": run_stages.translate,
    "score": run_stages.score,
    "attention": run_stages.attention,
    "analyze": run_stages.analyze,
}
STAGES = tuple(RUN)

# stages that lock the run's folder, with the verb that the error message uses; earlier stages lock their own outputs
_LOCKING = {
    "average": "averaged",
    "translate": "translated",
    "score": "scored",
    "attention": "analyzed",
    "analyze": "analyzed",
}


def reproduce(experiment: Experiment, stages: Sequence[str]) -> None:
    """Run the given stages in the order of :data:`STAGES`.

    Raises:
        InputError: the task, the attention, a stage, an override or a given folder is invalid, or a stage failed.
    """
    for stage in stages:
        if stage not in STAGES:
            raise InputError(f"no stage {stage!r}; there are {', '.join(STAGES)}")
    check_overrides(experiment.task, experiment.overrides)
    experiment.check()
    if "train" in stages:  # raises an error for missing config files now; training starts hours later
        checksums(experiment.task, [*attention_overrides(experiment.attention), *experiment.overrides])
    no_download = experiment.spec.sources is None or experiment.raw is not None
    for stage in STAGES:
        if stage not in stages or (no_download and stage in ("download", "extract")):
            continue
        if stage == "train" and experiment.first is not None:
            _run(experiment.first, "train")
            if not run_stages.is_averaged(experiment.first):
                _run(experiment.first, "average")
        _run(experiment, stage)


def _run(experiment: Experiment, stage: str) -> None:
    print(f"== {experiment.task} {experiment.attention}: {stage}", flush=True)
    start = time.monotonic()
    with _locked(experiment, stage):
        RUN[stage](experiment)
    print(f"== {stage}: {time.monotonic() - start:.0f} s", flush=True)


def _locked(experiment: Experiment, stage: str) -> ContextManager[None]:
    """Return a context manager that locks the run's folder during a stage.

    Raises:
        InputError: another process trains or uses the run; raised when the context is entered.
    """
    if stage in _LOCKING and experiment.run.is_dir():
        return only_process(experiment.run, _LOCKING[stage])
    return nullcontext()
