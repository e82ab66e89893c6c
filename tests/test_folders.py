"""Locks for one process at a time, and folders that are complete or absent."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from fairseq_rela import cli
from fairseq_rela.errors import InputError
from fairseq_rela.experiment.reproduce import STAGES
from fairseq_rela.files.locks import only_process
from fairseq_rela.files.outputs import work_folder

HOLD = (
    "import sys; sys.argv[0] = 'rela'\n"
    "from pathlib import Path\n"
    "from fairseq_rela.files.locks import only_process\n"
    "with only_process(Path(sys.argv[1]), 'trained'):\n"
    "    print('held', flush=True); sys.stdin.read()\n"
)


def test_the_second_process_names_the_one_that_holds_the_folder(tmp_path):
    folder = tmp_path / "run"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert holder.stdout.readline() == b"held\n"
        refused = pytest.raises(InputError, match=rf"run is being trained by another process, {holder.pid} on ")
        with refused, only_process(folder, "trained"):
            pass
        holder.kill()  # a killed process holds no lock
        holder.wait()
        with only_process(folder, "trained"):
            pass
    finally:
        holder.kill()
        holder.communicate()
    assert list(tmp_path.iterdir()) == []


RACE = (
    # without fairseq_rela/__init__.py, which imports fairseq
    "import sys, types; package = types.ModuleType('fairseq_rela'); package.__path__ = [sys.argv[2]]\n"
    "sys.modules['fairseq_rela'] = package\n"
    "from pathlib import Path; from fairseq_rela.errors import InputError\n"
    "from fairseq_rela.files.locks import only_process\n"
    "folder = Path(sys.argv[1]); rounds = 0\n"
    "while rounds < 200:\n"
    "    try:\n"
    "        with only_process(folder / 'run'):\n"
    "            (folder / 'inside').mkdir(); (folder / 'inside').rmdir(); rounds += 1\n"
    "    except InputError as error:\n"
    "        assert 'by another process' in str(error), error\n"
)


def test_exactly_one_of_several_simultaneous_processes_continues(tmp_path):
    """Two processes inside would make the same folder; a lock left by a killed process is taken and removed."""
    (tmp_path / ".run.lock").write_text("made by another process, 1 on nowhere")
    command = [sys.executable, "-c", RACE, str(tmp_path), str(ROOT / "fairseq_rela")]
    racers = [subprocess.Popen(command) for _ in range(4)]
    assert [racer.wait(60) for racer in racers] == [0] * 4
    assert list(tmp_path.iterdir()) == []


def test_a_folder_appears_complete_or_not_at_all(tmp_path):
    with pytest.raises(ZeroDivisionError), work_folder(tmp_path / "out") as work:
        (work / "half").write_text("x")
        1 / 0  # noqa: B018
    assert list(tmp_path.iterdir()) == []
    with work_folder(tmp_path / "out") as work:
        (work / "all").write_text("x")
        assert not (tmp_path / "out").exists()
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["all"]
    with pytest.raises(InputError, match="give the name of a folder"), work_folder(Path("/")):
        pass


def verbs(corpus, data, trained, folder):
    """Return every verb that writes with its arguments and the path that it must not share."""
    last, out = trained / "checkpoint_last.pt", folder / "out"
    text = (corpus / "test.xa", corpus / "test.xb")
    splits = [word for split in ("train", "valid", "test") for word in (f"--{split}", corpus / split)]
    languages = ("--source-lang", "xa", "--target-lang", "xb", "--merges", 150, "--vocabulary-threshold", 8)
    analyze = ("analyze", last, "--data", data, "--output")
    chain, chosen = ("reproduce", "synthetic", "rela_g"), ("--root", folder, "--raw", corpus)
    run_dir = folder / "synthetic" / "rela_g"
    return {
        "synthetic": (["synthetic", out], out),
        "prepare": (["prepare", *splits, *languages, "--output", out], out),
        "train": (["train", "synthetic", "--data", data, "--save-dir", out], out),
        "average": (["average", trained, "--last", 2, "--output", out], out),
        "average of files": (["average", "--inputs", last, "--output", out], out),
        "translate": (["translate", data, "--checkpoint", last, "--output", out], out),
        "score": (["score", "--hypotheses", text[1], "--reference", text[1], "-t", "xb", "--output", out], out),
        "attention": (["attention", last, "--data", data, "--output", out], out),
        "analyze": ([*analyze, out], out),
        "analyze into a run": ([*analyze, run_dir], run_dir / "analysis.json"),
        "rank": (["rank", last, *text, "--data", data, "--output", out, "--device", "cpu"], out),
        "damage": (["rank", last, *text, "--data", data, "--output", out, "--damage"], out),
        "reproduce prepare": ([*chain, "prepare", *chosen], folder / "synthetic" / "data"),
        **{f"reproduce {stage}": ([*chain, stage, *chosen], run_dir) for stage in STAGES[4:]},
    }


def test_every_verb_that_writes_names_the_process_that_holds_its_folder(corpus, data, trained, tmp_path, capsys):
    for number, verb in enumerate(verbs(corpus, data, trained, tmp_path)):
        folder = tmp_path / str(number)
        arguments, shared = verbs(corpus, data, trained, folder)[verb]
        (folder / "synthetic" / "rela_g").mkdir(parents=True)
        before = sorted(folder.rglob("*"))
        with only_process(shared, "read aloud"):
            assert cli.main([str(a) for a in arguments]) == 2, verb
        said = capsys.readouterr().err.splitlines()
        line = f"{shared} is being read aloud by another process, {os.getpid()} on {platform.node()}; wait for it"
        assert line in said[-1] and sum("error" in text for text in said) == 1, (verb, said)
        assert sorted(folder.rglob("*")) == before, verb


def test_a_run_cannot_be_averaged_while_it_is_trained(corpus, tmp_path, capsys):
    """The error names the process that holds the run, for any second command."""
    run_dir = tmp_path / "synthetic" / "rela_g"
    run_dir.mkdir(parents=True)
    with only_process(run_dir, "trained"):
        assert cli.main(["reproduce", "synthetic", "rela_g", "average", "--root", str(tmp_path)]) == 2
    assert "rela_g is being trained by another process" in capsys.readouterr().err
