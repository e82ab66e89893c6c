"""A full disk: one clear line, exit code 2, the last good state unchanged, and the next run succeeds."""

import errno
import os
import re
import shutil
import subprocess

import pytest
import torch
from conftest import prepare_data, run_rela
from test_checkpoints import write

from fairseq_rela import checkpoints, cli, safe_loading
from fairseq_rela.data import corpus as corpus_module
from fairseq_rela.errors import InputError
from fairseq_rela.files import outputs
from fairseq_rela.files.records import sha256, write_json

FULL = OSError(errno.ENOSPC, "No space left on device")


def full(*_, **__):
    raise FULL


class Disk:
    """A disk with space for so many bytes in all files that it opens."""

    def __init__(self, room):
        self.room = room

    def open(self, path, mode="r", **options):
        file = open(path, mode, **options)  # noqa: SIM115
        return file if mode.startswith("r") else FileOf(self, file)


class FileOf:
    def __init__(self, disk, file):
        self.disk, self.file = disk, file

    def write(self, data):
        self.disk.room -= len(data)
        if self.disk.room < 0:
            raise FULL
        return self.file.write(data)

    def writelines(self, texts):
        for text in texts:
            self.write(text)

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()


def test_a_file_that_cannot_be_completed_does_not_replace_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    write_json(path, {"old": 1})
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"x.json: cannot be written \(No space left on device\)"):
        write_json(path, {"new": 2})
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(
    int(torch.__version__.split(".")[0]) < 2, reason="this torch ends the process when the test is over"
)
@pytest.mark.parametrize("room", [0, 300, 1200])
def test_an_average_that_cannot_be_written_does_not_replace_the_old_one(room, tmp_path, monkeypatch):
    """torch.save raises its own error instead of that of the disk."""
    inputs = [write(tmp_path / f"{n}.pt", n, float(n)) for n in (1, 2)]
    output = tmp_path / "average.pt"
    checkpoints.average(inputs[:1], output)
    before = output.read_bytes()
    assert len(before) > 1200
    monkeypatch.setattr(outputs, "open", Disk(room).open, raising=False)
    with pytest.raises(InputError, match="average.pt: cannot be written .*No space left on device"):
        checkpoints.average(inputs, output)
    assert output.read_bytes() == before and len(list(tmp_path.iterdir())) == 3


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.02, 0.2, 0.5, 0.9])
def test_data_that_cannot_be_completed_leave_no_files(share, corpus, data, tmp_path, monkeypatch):
    """The disk is full after a share of all bytes that this process writes, including the copies of raw text."""
    fairseqs = (".bin", ".idx", ".log", ".txt")
    total = sum(path.stat().st_size for path in data.rglob("*") if path.is_file() and path.suffix not in fairseqs)
    disk = Disk(int(share * total))
    for module in (outputs, corpus_module):
        monkeypatch.setattr(module, "open", disk.open, raising=False)
    with pytest.raises((InputError, OSError), match="No space left on device"):
        prepare_data(corpus, tmp_path / "data", workers=1)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    prepare_data(corpus, tmp_path / "data", workers=1)
    assert sha256(tmp_path / "data" / "bpecodes") == sha256(data / "bpecodes")


def test_an_unexpected_error_of_the_disk_gives_one_line(tmp_path, monkeypatch, capsys):
    """Examples are a lock that cannot be written and a copy that stops halfway."""
    monkeypatch.setattr(shutil, "copyfileobj", full)
    monkeypatch.setattr(torch, "load", full)
    monkeypatch.setattr(checkpoints, "average", full)
    assert cli.main(["average", "--inputs", "a.pt", "--output", str(tmp_path / "x")]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1 and "No space left on device" in said and "same command" in said


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory):
    """Mount a file system of 256 MB in memory where that is permitted."""
    folder = tmp_path_factory.mktemp("disk")
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", str(folder)], stderr=subprocess.DEVNULL
    )
    if not mounted or mounted.returncode:
        pytest.skip("no small file system can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def leave(disk, room):
    """Fill the disk until only so many bytes are free."""
    ballast = disk / "ballast"
    ballast.unlink(missing_ok=True)
    with open(ballast, "wb") as file:
        free = shutil.disk_usage(disk).free - room
        assert free > 0
        os.posix_fallocate(file.fileno(), 0, free)


# free bytes: none, and some, so that the stage stops halfway
ROOMS = {"prepare": (0, 150_000), "train": (0, 3_000_000, 12_000_000), "average": (0, 300_000)}
ROOMS.update(dict.fromkeys(("translate", "score", "attention"), (0,)))


@pytest.mark.slow
def test_every_stage_reports_a_full_disk_in_one_line(small_disk, corpus):
    root = small_disk / "experiments"
    overrides = ("dataset.max_tokens=500", "optimization.max_update=20", "checkpoint.save_interval_updates=4")
    options = [word for override in overrides for word in ("--override", override)]

    def good():
        kept = (p for p in root.rglob("*") if p.is_file() and not p.name.endswith((".log", ".started.json", ".tmp")))
        return {path: sha256(path) for path in kept}

    for stage, rooms in ROOMS.items():
        command = ("reproduce", "synthetic", "rela_g", stage, "--root", root, "--raw", corpus, "--workers", 2)
        for room in rooms:
            before = good()
            leave(small_disk, room)
            result = run_rela(*command, *options, env={"OMP_NUM_THREADS": "1"})
            said = [line for line in result.stderr.splitlines() if "it/s" not in line and "error" in line]
            assert result.returncode == 2 and len(said) == 1, (stage, room, result.stdout + result.stderr)
            assert "space left" in said[0] or "make room" in said[0], (stage, room, said)
            assert "Traceback" not in result.stderr, (stage, room)
            after = good()
            assert {path: after.get(path) for path in before} == before, (stage, room)
            new = after.keys() - before.keys()
            assert all(path.name.startswith("checkpoint") for path in new), new
            # fairseq copies the numbered ones to _best and _last; a restart skips truncated ones
            assert all(safe_loading.load(path) for path in new if re.fullmatch(r"checkpoint_?\d.*", path.stem))
            assert not [path for path in root.rglob("*") if "partial" in path.name or path.suffix in (".lock", ".tmp")]
        (small_disk / "ballast").unlink()
        result = run_rela(*command, *options, env={"OMP_NUM_THREADS": "1"})
        assert result.returncode == 0, (stage, result.stderr[-2000:])
