"""Every stage of the synthetic task is killed at random moments: the final result is the same."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from conftest import RELA, ROOT, run_rela

from fairseq_rela import checkpoints, safe_loading
from fairseq_rela.experiment.naming import run_name
from fairseq_rela.files.records import sha256

pytestmark = pytest.mark.slow

# training is killed most; the environment variable KILLS=10 gives 50 kills in all (about ten minutes)
SHARES = {
    "prepare": 1.4,
    "train": 1.4,
    "average": 0.7,
    "translate": 0.5,
    "score": 0.3,
    "attention": 0.3,
    "analyze": 0.4,
}
TIMES = int(os.environ.get("KILLS", 3))
KILLS = {stage: max(round(TIMES * share), 1) for stage, share in SHARES.items()}
OVERRIDES = (
    *("dataset.max_tokens=500", "optimization.max_update=50", "checkpoint.save_interval_updates=4"),
    # the learning rate of such updates would be 0 at first
    *("lr_scheduler.warmup_updates=10", "lr_scheduler.warmup_init_lr=1e-4"),
)


class Chain:
    """The stages of one experiment, run to their end or killed before it."""

    def __init__(self, root, raw):
        self.root, self.raw = root, raw
        self.output = ""

    def command(self, stage):
        overrides = [word for override in OVERRIDES for word in ("--override", override)]
        folders = ("--root", self.root, "--raw", self.raw)
        return ["reproduce", "synthetic", "rela_g", stage, *folders, "--workers", 2, *overrides]

    def finish(self, stage):
        """Run a stage to its end and return its seconds."""
        start = time.monotonic()
        result = run_rela(*self.command(stage), env={"OMP_NUM_THREADS": "1"})
        assert result.returncode == 0, (stage, (result.stdout + result.stderr)[-3000:])
        self.output += result.stdout
        return time.monotonic() - start

    def kill_after(self, stage, seconds):
        """Kill a stage after so many seconds; return whether it was still running."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, *RELA[1:], *map(str, self.command(stage))],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            encoding="utf-8",
        )
        try:
            said, _ = process.communicate(timeout=seconds)
            killed = process.returncode != 0
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            said, _ = process.communicate()  # all that hold the pipe have ended
            killed = True
        assert "error:" not in said, said[-2000:]
        self.output += said
        return killed

    def forget(self, stage):
        """Delete the output of a stage, so that it can be interrupted again."""
        made = {
            "prepare": [self.data],
            "train": [self.run],
            "average": self.run.glob("average.pt*"),
            "translate": [*self.run.glob("test.*"), self.run / "translate.json"],
            "analyze": [self.run / "analysis.json"],
        }.get(stage, [self.run / f"{stage}.json"])
        for path in made:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    @property
    def run(self):
        return self.root / "synthetic" / run_name("rela_g", OVERRIDES)

    @property
    def data(self):
        return self.root / "synthetic" / "data"


def files(folder):
    return {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}


def same_model(one, other):
    one, other = (safe_loading.load(path) for path in (one, other))
    assert checkpoints.updates_of(one) == checkpoints.updates_of(other)
    assert one["model"].keys() == other["model"].keys()
    assert all(torch.equal(one["model"][key], other["model"][key]) for key in one["model"])


def without(record, *keys):
    return {key: value for key, value in record.items() if key not in keys}


def test_kills_at_random_moments_do_not_change_the_result(corpus, tmp_path):
    rng = random.Random(17)
    calm, rough = Chain(tmp_path / "calm", corpus), Chain(tmp_path / "rough", corpus)
    for stage, number in KILLS.items():
        seconds = calm.finish(stage)
        killed = tries = 0
        while killed < number:
            tries += 1
            assert tries < 3 * number, (stage, killed)
            # rather late, when more work can be lost
            if rough.kill_after(stage, rng.triangular(0, seconds, 0.7 * seconds)):
                killed += 1
            else:
                rough.forget(stage)
        rough.finish(stage)
    assert sum(KILLS.values()) == 50 or TIMES != 10
    cuts = set(re.findall(r"resuming from .*update (\d+)", rough.output))
    assert len(cuts) >= (2 if TIMES >= 10 else 1)  # training was cut in the middle

    # the data: every file but the record of times and versions, byte by byte
    ours, theirs = files(calm.data), files(rough.data)
    assert ours.keys() == theirs.keys()
    assert [n for n in ours if n != "prepare.json" and sha256(ours[n]) != sha256(theirs[n])] == []
    records = [json.loads((chain.data / "prepare.json").read_text()) for chain in (calm, rough)]
    assert records[0]["outputs"] == records[1]["outputs"]

    # training: every parameter, of the last state and of the average of the last five
    for name in ("checkpoint_last.pt", "average.pt"):
        same_model(calm.run / name, rough.run / name)
    averages = [json.loads((chain.run / "average.pt.json").read_text()) for chain in (calm, rough)]
    assert [[c["updates"] for c in average["checkpoints"]] for average in averages] == [[50, 48, 44, 40, 36]] * 2

    for name in ("test.bpe", "test.tok", "test.txt", "score.json"):
        assert (calm.run / name).read_bytes() == (rough.run / name).read_bytes(), name
    attentions = [json.loads((chain.run / "attention.json").read_text()) for chain in (calm, rough)]
    assert without(attentions[0], "sha256", "checkpoint") == without(attentions[1], "sha256", "checkpoint")

    left = [n for n in files(tmp_path / "rough") if ".partial" in n or n.endswith((".part", ".lock", ".tmp"))]
    assert left == []


def test_a_kill_between_the_last_update_and_the_record_adds_no_update(corpus, tmp_path):
    """fairseq alone would make one more update than requested."""
    chain = Chain(tmp_path / "experiments", corpus)
    for stage in ("prepare", "train"):
        chain.finish(stage)
    before = sha256(chain.run / "checkpoint_last.pt")
    for lost in ((), ("checkpoint_last.pt",)):
        for name in ("train.json", *lost):
            (chain.run / name).unlink()
        chain.finish("train")
        assert sha256(chain.run / "checkpoint_last.pt") == before
        assert json.loads((chain.run / "train.json").read_text())["updates"] == 50
