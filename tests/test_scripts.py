"""The scripts refuse unusable programs and disks, and change no environment that they did not make."""

import os
import re
import sys

import pytest
from conftest import ROOT, run

SCRIPTS = ["demo.sh", "test.sh", "reproduce.sh", "docs.sh"]


def program(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def with_disk(folder, megabytes, memory=0):
    """Return a PATH with a `df` that reports so many MB as free on the disk, and so many in MEMORY."""
    folder.mkdir()
    answer = 'case "$2" in */ram-disk*) free={};; *) free={};; esac; echo header; echo "disk 9 9 $free 1% /"'
    program(folder / "df", answer.format(memory, megabytes))
    return f"{folder}:{os.environ['PATH']}"


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_unsupported_python_is_refused(script, tmp_path):
    python = program(tmp_path / "python", '[ "$1" = --version ] && echo Python 3.9.1 && exit 0\nexit 1')
    result = run("bash", ROOT / "scripts" / script, env={"PYTHON": python, "VENV": str(tmp_path / "venv")})
    assert result.returncode == 2
    assert result.stderr.strip() == (
        f"{script}: error: Python 3.9.1 is not supported: set PYTHON to a Python 3.11 or 3.12"
    )
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_missing_python_is_named(script, tmp_path):
    result = run("bash", ROOT / "scripts" / script, env={"PYTHON": "no-python", "VENV": str(tmp_path / "venv")})
    assert result.returncode == 2 and "PYTHON=no-python: no such program" in result.stderr


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_environment_of_another_owner_is_not_changed(script, tmp_path):
    venv = tmp_path / "venv"
    venv.mkdir()
    (venv / "pyvenv.cfg").write_text("theirs")
    env = {"PYTHON": program(tmp_path / "python", "exit 0"), "VENV": str(venv)}
    result = run("bash", ROOT / "scripts" / script, env=env)
    assert result.returncode == 2 and "was not made by these scripts and is not changed" in result.stderr
    assert [p.name for p in venv.iterdir()] == ["pyvenv.cfg"]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_disk_without_enough_space_is_refused_at_the_start(script, tmp_path):
    env = {"PATH": with_disk(tmp_path / "bin", 2499), "VENV": str(tmp_path / "a" / "venv")}
    env["PYTHON"] = program(tmp_path / "python", "exit 0")
    result = run("bash", ROOT / "scripts" / script, env=env)
    assert result.returncode == 2
    assert result.stderr.startswith(f"{script}: error: {tmp_path}/a/venv: 2499 MB are free, 2500 are needed")
    assert result.stderr.count("\n") == 1 and not (tmp_path / "a").exists()


def test_a_failed_installation_is_removed_from_the_disk(tmp_path):
    # a Python that makes environments with a pip that fills the disk
    pip = 'echo all >"$(dirname "$0")/huge"; echo "No space left on device" >&2; exit 1'
    make = f'[ "$2" != venv ] || {{ mkdir -p "$3/bin"; cp {tmp_path}/pip "$3/bin/python"; }}'
    program(tmp_path / "pip", pip)
    env = {"PYTHON": program(tmp_path / "python", make), "VENV": str(tmp_path / "venv")}
    env["PATH"] = with_disk(tmp_path / "bin", 3000)
    result = run("bash", ROOT / "scripts" / "test.sh", env=env)
    assert result.returncode == 2
    assert "test.sh: error: installing requirements.txt failed; see above (3000 MB were free for " in result.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize("disk, memory, used", [(9499, 9500, True), (9500, 99999, False), (287, 9499, False)])
def test_ci_works_in_memory_where_the_disk_is_full(disk, memory, used, tmp_path):
    (tmp_path / "ram-disk").mkdir()
    env = {"PATH": with_disk(tmp_path / "bin", disk, memory), "MEMORY": str(tmp_path / "ram-disk")}
    env["PYTHON"] = program(tmp_path / "python", 'echo "in $VENV and $TMPDIR" >&2; exit 1')  # any Python is refused
    env["VENV"], env["TMPDIR"] = str(tmp_path / "venv"), str(tmp_path)
    result = run("bash", ROOT / ".ci" / "run", env=env)
    folder = rf"{tmp_path}/ram-disk/ci\.\w+"
    place = rf"in {folder}/venv and {folder}/tmp is not" if used else f"in {tmp_path}/venv and {tmp_path} is not"
    assert result.returncode == 2 and re.search(place, result.stderr), result.stderr
    assert bool(re.match(rf"{disk} MB are free on the disk: working in {folder}\n", result.stdout)) == used
    assert not list((tmp_path / "ram-disk").iterdir())


def test_requirements_are_pinned_in_one_place():
    pins = [
        line
        for name in (f"requirements{use}.txt" for use in ("", "-fairseq", "-docs", "-huggingface"))
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
    # the packages that fairseq imports are installed without its own list
    assert {"torch", "numpy", "bitarray", "cffi", "regex", "scikit-learn", "tqdm", "sacrebleu"} <= set(versions)


@pytest.mark.slow
def test_the_speed_of_prepare_is_reported_for_each_stage():
    result = run(sys.executable, ROOT / "scripts" / "prepare_speed.py", "--lines", "300", "--rounds", "1")
    assert result.returncode == 0, result.stderr
    *lines, limit = result.stdout.splitlines()[-11:]
    rows = [line.split() for line in lines]
    seconds = {" ".join(row[:-3]): [float(value) for value in row[-3:-1]] for row in rows if len(row) > 3}
    stages = ["train: BPE", "binarise", "learn BPE", "test: normalise, tokenise", "raw to BPE", "all"]
    assert set(stages) < set(seconds)
    for one in (0, 1):
        assert seconds["all"][one] == pytest.approx(seconds["raw to BPE"][one] + seconds["binarise"][one], abs=0.02)
    told = re.search(r"^2 runs .* in ([\d.]+) s; so 2 processes that share nothing do ([\d.]+) times", limit)
    together, ratio = map(float, told.groups())
    assert ratio == pytest.approx(2 * seconds["raw to BPE"][0] / together, rel=0.05)


def test_the_speed_of_prepare_on_missing_files_is_an_error(tmp_path):
    result = run(sys.executable, ROOT / "scripts" / "prepare_speed.py", "--raw", tmp_path)
    assert result.returncode == 2 and "no such file (the train set)" in result.stderr


def test_an_activated_environment_is_not_rebuilt_by_its_own_python(tmp_path):
    """It would be removed before its Python can make it again."""
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / ".fairseq-rela").write_text("made from other requirements")
    own = program(venv / "bin" / "python3.11", "exit 0")
    others = tmp_path / "others"
    others.mkdir()
    # the Python to be used; it makes no environment, which ends the script
    program(others / "python3.11", f'[ "$1" != -m ] || {{ echo "$0" >{tmp_path}/used; exit 1; }}')
    env = {"PATH": f"{venv}/bin:{others}:{os.environ['PATH']}", "VENV": str(venv)}
    result = run("bash", ROOT / "scripts" / "test.sh", env=env)
    assert result.returncode == 2 and (tmp_path / "used").read_text().strip() == f"{others}/python3.11"
    result = run("bash", ROOT / "scripts" / "test.sh", env={**env, "PYTHON": own})
    assert result.returncode == 2 and "PYTHON=" in result.stderr and len(result.stderr.splitlines()) == 1
