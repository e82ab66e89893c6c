"""The scripts refuse what they cannot use, and touch no environment that is not theirs."""

import re
import sys

import pytest
from conftest import ROOT, run

SCRIPTS = ["demo.sh", "test.sh", "reproduce.sh"]


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_unsupported_python_is_refused(script, tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.1 && exit 0\nexit 1\n')
    python.chmod(0o755)
    result = run("bash", ROOT / "scripts" / script, env={"PYTHON": str(python), "VENV": str(tmp_path / "venv")})
    assert result.returncode == 2
    assert result.stderr.strip() == (
        f"{script}: error: Python 3.9.1 is not supported: set PYTHON to a Python 3.11 or 3.12"
    )
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_python_that_is_not_there_is_named(script, tmp_path):
    result = run("bash", ROOT / "scripts" / script, env={"PYTHON": "no-python", "VENV": str(tmp_path / "venv")})
    assert result.returncode == 2 and "PYTHON=no-python: no such program" in result.stderr


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_environment_of_somebody_else_is_left_alone(script, tmp_path):
    venv = tmp_path / "venv"
    venv.mkdir()
    (venv / "pyvenv.cfg").write_text("theirs")
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 0\n")
    python.chmod(0o755)
    result = run("bash", ROOT / "scripts" / script, env={"PYTHON": str(python), "VENV": str(venv)})
    assert result.returncode == 2 and "was not made by these scripts and is left alone" in result.stderr
    assert [p.name for p in venv.iterdir()] == ["pyvenv.cfg"]


def test_requirements_are_pinned_in_one_place():
    pins = [
        line
        for name in ("requirements.txt", "requirements-fairseq.txt")
        for line in (ROOT / name).read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert all("==" in line for line in pins)
    names = [line.split("==")[0] for line in pins]
    assert len(set(names)) == len(names)
    setup = (ROOT / "setup.py").read_text()
    assert "==" not in setup.split("install_requires")[1].split("entry_points")[0]


def pinned(name):
    lines = (ROOT / name).read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def test_fairseqs_own_pins_are_not_installed_with_it():
    """B31: omegaconf below 2.1 has metadata that pip refuses from 24.1 on, and fairseq's pins ask for it."""
    script = (ROOT / "scripts" / "environment.sh").read_text()
    assert set(pinned("requirements-fairseq.txt")) == {"ve-fairseq"}
    assert '--no-deps --requirement "$ROOT/requirements-fairseq.txt"' in script
    versions = pinned("requirements.txt")
    for package, oldest in (("omegaconf", (2, 1)), ("hydra-core", (1, 1))):
        assert tuple(map(int, versions[package].split(".")[:2])) >= oldest
    # what fairseq imports is there without its own list
    assert {"torch", "numpy", "bitarray", "cffi", "regex", "scikit-learn", "tqdm", "sacrebleu"} <= set(versions)


def test_the_speed_of_prepare_is_told_stage_by_stage():
    result = run(sys.executable, ROOT / "scripts" / "prepare_speed.py", "--lines", "300", "--rounds", "1")
    assert result.returncode == 0, result.stderr
    *lines, limit = result.stdout.splitlines()[-11:]
    rows = [line.split() for line in lines]
    seconds = {" ".join(row[:-3]): [float(value) for value in row[-3:-1]] for row in rows if len(row) > 3}
    stages = ["train: BPE", "binarise", "learn BPE", "test: normalise, tokenise", "raw to BPE", "all"]
    assert set(stages) < set(seconds)
    for one in (0, 1):
        assert seconds["all"][one] == pytest.approx(seconds["raw to BPE"][one] + seconds["binarise"][one], abs=0.02)
    together, ratio = map(
        float, re.search(r"^2 runs .* in ([\d.]+) s; so 2 processes do ([\d.]+) times", limit).groups()
    )
    assert ratio == pytest.approx(2 * seconds["raw to BPE"][0] / together, rel=0.05)


def test_the_speed_of_prepare_on_files_that_are_not_there(tmp_path):
    result = run(sys.executable, ROOT / "scripts" / "prepare_speed.py", "--raw", tmp_path)
    assert result.returncode == 2 and "no such file (the train set)" in result.stderr
