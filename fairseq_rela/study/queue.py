"""Run the jobs of a study, several at a time, each in its own process."""

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import List, NamedTuple, Optional, Sequence

from tqdm import tqdm

from ..data.folder import DataFolder
from ..errors import InputError
from ..experiment.reproduce import reproduce
from ..files.locks import only_process
from ..files.records import read_record
from ..files.workers import die_with_parent
from .folder import Run, StudyFolder

_POLL = 1.0  # seconds between checks of the processes


def select(folder: StudyFolder, only: Sequence[str]) -> List[Run]:
    """Return the runs of the rows with these labels, or all runs if no label is given.

    Raises:
        InputError: no row has that label.
    """
    labels = [row.label for row in folder.study.rows]
    for label in only:
        if label not in labels:
            raise InputError(f"--only {label}: no such row; choose from {', '.join(labels)}")
    return [run for run in folder.runs if not only or run.job.row.label in only]


def prepare_data(folder: StudyFolder) -> None:
    """Prepare the data folder that all runs share, if it does not exist; first check the study's word alignment.

    Raises:
        InputError: the raw corpus or the word alignment is missing; the message says how to get it.
    """
    study, experiment = folder.study, folder.runs[0].experiment
    if folder.gold is not None and not folder.gold.is_file():
        raise InputError(
            f"{folder.gold}: no such file; the study needs {study.gold_kind} word alignments of the test set; "
            f"prepare the data by `rela reproduce {study.task} softmax prepare`, then make them by "
            f"`python scripts/silver_alignment.py {experiment.data} --output {folder.gold}`"
        )
    if not DataFolder.is_prepared(experiment.data):
        reproduce(experiment, ("download", "extract", "prepare"))


def run_queue(runs: Sequence[Run], number: int, command: Sequence[str]) -> None:
    """Perform the runs that have no record yet, ``number`` at a time; the same call resumes an interrupted queue.

    A failed run does not stop the others. The output of a run goes to ``RUN.log`` beside its run folder ``RUN``.

    Args:
        runs: runs of one study, in the order in which they start.
        number: number of runs at a time.
        command: command that performs one run; ``--run INDEX`` is added.

    Raises:
        InputError: some runs failed, or another process runs the same study.
    """
    with only_process(runs[0].folder.records, "run"):
        waiting = [run for run in runs if run.finished() is None]
        done = len(runs) - len(waiting)
        if done:
            print(f"{done} of {len(runs)} runs are already there")
        if waiting:
            _Queue(waiting, number, command).run()


class _Started(NamedTuple):
    """A run whose process was started."""

    run: Run
    process: "subprocess.Popen[bytes]"
    log: Path
    at: float  # time of the start, in seconds of time.monotonic


class _Queue:
    """Runs that are waiting, running or failed, and the durations of the finished ones in seconds."""

    def __init__(self, waiting: Sequence[Run], number: int, command: Sequence[str]) -> None:
        self._waiting, self._number, self._command = list(waiting), number, command
        self._running: List[_Started] = []
        self._durations: List[float] = []
        self._failed: List[str] = []

    def run(self) -> None:
        """Perform all runs; if this is interrupted, kill the processes.

        Raises:
            InputError: some runs failed.
        """
        total = len(self._waiting)
        with tqdm(total=total, desc=self._waiting[0].folder.study.name, unit=" runs", disable=None) as bar:
            try:
                while self._waiting or self._running:
                    self._start_some()
                    time.sleep(_POLL)
                    for ended in [one for one in self._running if one.process.poll() is not None]:
                        self._running.remove(ended)
                        self._end(ended)
                        bar.update()
            finally:
                for one in self._running:
                    one.process.kill()
                    one.process.wait()
        if self._failed:
            what = "; ".join(self._failed)
            raise InputError(f"{len(self._failed)} of {total} runs failed: {what}; fix this and rerun the same command")

    def _start_some(self) -> None:
        """Start waiting runs; one that starts from the model of another run waits until that is trained."""
        for run in list(self._waiting):
            if len(self._running) == self._number:
                return
            names = {other.name for other in (*self._waiting, *(one.run for one in self._running))}
            if run.job.start not in names:
                self._waiting.remove(run)
                self._start(run)

    def _start(self, run: Run) -> None:
        log = run.experiment.run.with_name(f"{run.experiment.run.name}.log")
        log.parent.mkdir(parents=True, exist_ok=True)
        # processes that run in parallel slow each other down if each uses one thread per core
        environment = {"OMP_NUM_THREADS": "1", **os.environ} if self._number > 1 else dict(os.environ)
        with open(log, "ab") as file:
            process = subprocess.Popen(
                [*self._command, "--run", str(run.index)],
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
                preexec_fn=partial(die_with_parent, os.getpid()),
            )
        self._running.append(_Started(run, process, log, time.monotonic()))
        self._say(f"{run.name}: started (log: {log})")

    def _end(self, ended: _Started) -> None:
        name, seconds = ended.run.name, time.monotonic() - ended.at
        if ended.process.returncode != 0:
            self._failed.append(f"{name} ({_last_line(ended.log)})")
            self._say(f"{name}: FAILED after {seconds / 60:.1f} minutes; see {ended.log}")
            return
        self._durations.append(seconds)
        record = read_record(ended.run.record)
        result = f"BLEU {record['score']['bleu']:.2f}" if record["state"] == "done" else "diverged"
        self._say(f"{name}: {result} ({seconds / 60:.1f} minutes)")

    def _say(self, what: str) -> None:
        left = self._remaining()
        tqdm.write(
            f"{what} | running {len(self._running)}, waiting {len(self._waiting)}"
            + (f", about {left / 3600:.1f} hours remain" if left is not None else ""),
            file=sys.stdout,
        )
        sys.stdout.flush()

    def _remaining(self) -> Optional[float]:
        """Return an estimate of the remaining seconds, from the mean time of the finished runs, or None."""
        if not self._durations:
            return None
        each = sum(self._durations) / len(self._durations)
        now = time.monotonic()
        rest = sum(max(each - (now - one.at), 0.0) for one in self._running)
        return (rest + each * len(self._waiting)) / self._number


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "no output"
