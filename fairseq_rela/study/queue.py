"""Run the jobs of a study, several at a time, each in its own process."""

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from tqdm import tqdm

from ..errors import InputError
from ..experiment.pipeline import reproduce
from ..files.locks import only_process
from ..files.workers import die_with_parent
from .runs import Places, finished
from .spec import Job, Study

_POLL = 1.0  # seconds between checks of the processes


def select(study: Study, only: Sequence[str]) -> List[Job]:
    """Return the jobs of the rows with these labels, or all jobs if no label is given.

    Raises:
        InputError: no row has that label.
    """
    labels = [row.label for row in study.rows]
    for label in only:
        if label not in labels:
            raise InputError(f"--only {label}: no such row; there are {', '.join(labels)}")
    return [job for job in study.jobs if not only or job.row.label in only]


def prepare_data(study: Study, places: Places) -> None:
    """Prepare the data folder that all runs share, if it does not exist; first check the study's word alignment.

    Raises:
        InputError: the raw corpus or the word alignment is missing; the message says how to get it.
    """
    if study.gold and not (places.output / study.gold).is_file():
        raise InputError(
            f"{places.output / study.gold} is missing: {study.gold_kind} word alignments of the test set; "
            f"prepare the data by `rela reproduce {study.task} softmax prepare`, then make them by "
            f"`python scripts/silver_alignment.py {places.root / study.task / 'data'} "
            f"--output {places.output / study.gold}`"
        )
    experiment = places.experiment(study, study.jobs[0])
    if not (experiment.data / "prepare.json").is_file():
        reproduce(experiment, ("download", "extract", "prepare"))


def run_queue(study: Study, jobs: Sequence[Job], number: int, command: Sequence[str], places: Places) -> None:
    """Run the jobs that have no record yet, ``number`` at a time; the same call resumes an interrupted queue.

    A failed job does not stop the others. The output of a job goes to ``RUN.log`` beside its run folder ``RUN``.

    Args:
        study: the study.
        jobs: the jobs to run, in this order.
        number: number of jobs at a time.
        command: command that runs one job; ``--run INDEX`` is added.
        places: the folders of the study.

    Raises:
        InputError: some jobs failed, or another process runs the same study.
    """
    with only_process(places.output / "runs", "run"):
        waiting = [job for job in jobs if finished(study, job, places) is None]
        done = len(jobs) - len(waiting)
        if done:
            print(f"{done} of {len(jobs)} runs are already there")
        if waiting:
            _Queue(study, waiting, number, command, places).run()


class _Queue:
    def __init__(
        self, study: Study, waiting: Sequence[Job], number: int, command: Sequence[str], places: Places
    ) -> None:
        self._study, self._waiting, self._number = study, list(waiting), number
        self._command, self._places = command, places
        self._running: Dict[Job, "subprocess.Popen[bytes]"] = {}
        self._started: Dict[Job, float] = {}
        self._durations: List[float] = []
        self._failed: List[str] = []

    def run(self) -> None:
        total = len(self._waiting)
        with tqdm(total=total, desc=self._study.name, unit=" runs", disable=None) as bar:
            try:
                while self._waiting or self._running:
                    while self._waiting and len(self._running) < self._number:
                        self._start(self._waiting.pop(0))
                    time.sleep(_POLL)
                    for job in [job for job, process in self._running.items() if process.poll() is not None]:
                        self._end(job)
                        bar.update()
            finally:
                for process in self._running.values():
                    process.kill()
                    process.wait()
        if self._failed:
            what = "; ".join(self._failed)
            raise InputError(f"{len(self._failed)} of {total} runs failed: {what}; fix this and rerun the same command")

    def _log(self, job: Job) -> Path:
        run = self._places.experiment(self._study, job).run
        return run.with_name(f"{run.name}.log")

    def _start(self, job: Job) -> None:
        log = self._log(job)
        log.parent.mkdir(parents=True, exist_ok=True)
        index = self._study.jobs.index(job)
        # parallel processes slow each other down if each uses a thread per core
        environment = {"OMP_NUM_THREADS": "1", **os.environ} if self._number > 1 else dict(os.environ)
        with open(log, "ab") as file:
            self._running[job] = subprocess.Popen(
                [*self._command, "--run", str(index)],
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
                preexec_fn=partial(die_with_parent, os.getpid()),
            )
        self._started[job] = time.monotonic()
        self._say(f"{job.name}: started (log: {log})")

    def _end(self, job: Job) -> None:
        process = self._running.pop(job)
        seconds = time.monotonic() - self._started[job]
        if process.returncode != 0:
            self._failed.append(f"{job.name} ({_last_line(self._log(job))})")
            self._say(f"{job.name}: FAILED after {seconds / 60:.1f} minutes; see {self._log(job)}")
            return
        self._durations.append(seconds)
        record = finished(self._study, job, self._places)
        score = record["score"]["bleu"] if record and record["state"] == "done" else None
        self._say(f"{job.name}: {'diverged' if score is None else f'BLEU {score:.2f}'} ({seconds / 60:.1f} minutes)")

    def _say(self, what: str) -> None:
        left = self._remaining()
        tqdm.write(
            f"{what} | running {len(self._running)}, waiting {len(self._waiting)}"
            + (f", about {left / 3600:.1f} hours remain" if left is not None else ""),
            file=sys.stdout,
        )
        sys.stdout.flush()

    def _remaining(self) -> Optional[float]:
        """Return an estimate of the remaining seconds, from the mean time of the finished jobs, or None."""
        if not self._durations:
            return None
        each = sum(self._durations) / len(self._durations)
        now = time.monotonic()
        rest = sum(max(each - (now - self._started[job]), 0.0) for job in self._running)
        return (rest + each * len(self._waiting)) / self._number


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "no output"
