"""The script for a borrowed GPU: its order, its time limits, and that a failed step does not stop the next."""

import re
import tarfile
import time

import pytest
import yaml
from conftest import ROOT, run
from test_config import compose

SCRIPT = ROOT / "scripts" / "gpu_session.sh"
# replaces Python: records its arguments, writes the files of the real commands, and follows BEHAVE
PYTHON = """#!/bin/bash
echo "$*" >>"$CALLS"
case "$*" in
    --version) echo Python 3.12.3 ;;
    *gpu_check*) echo "attention row"; eval "${CHECK:-true}" ;;
    *" bench "*) mkdir -p "${@: -1}/${@: -3:1}" && echo '{}' >"${@: -1}/${@: -3:1}/benchmark.json" ;;
    *--collect*) echo collected ;;
    *" study "*)
        while [ "$1" != --output ]; do shift; done
        mkdir -p "$2/multi30k_en_de_gpu/runs" && echo '{}' >"$2/multi30k_en_de_gpu/runs/softmax.seed-1.json"
        eval "${STUDY_DOES:-true}" ;;
esac
"""


def session(folder, **variables):
    python = folder / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    env = {"PYTHON": python, "OUT": folder / "out", "CALLS": folder / "calls", "WHEELS": folder / "none", **variables}
    result = run("bash", SCRIPT, env={key: str(value) for key, value in env.items()})
    calls = (folder / "calls").read_text().splitlines() if (folder / "calls").exists() else []
    return result, [call for call in calls if call != "--version"]


def test_a_dry_run_shows_each_step_with_its_limit_and_runs_nothing(tmp_path):
    result, calls = session(tmp_path, DRY_RUN=1)
    assert result.returncode == 0 and not calls and not (tmp_path / "out").exists()
    steps = [re.match(r"(\w+) \((\d+) s\): (.*)", line).groups() for line in result.stdout.splitlines()]
    assert [name for name, _, _ in steps] == ["kernels", "benchmark", "operator", "study", "collection"]
    assert sum(int(limit) for _, limit, _ in steps[3:]) == 660
    assert "bench --device cuda --quick" in steps[1][2]
    assert "bench --device cuda --quick --parts op" in steps[2][2]
    assert "study multi30k_en_de_gpu --root experiments" in steps[3][2] and steps[3][2].endswith("--jobs 12")


def test_the_steps_run_in_order_and_leave_their_results(tmp_path):
    result, calls = session(tmp_path, DEVICE="cpu")
    assert result.returncode == 0, result.stderr
    found = [re.search(r"gpu_check|bench|--collect|study", call.replace("studies", "")).group() for call in calls]
    assert found[:4] == ["gpu_check", "bench", "bench", "study"] and calls[4].endswith("--collect") and len(calls) == 5
    out = tmp_path / "out"
    assert {path.name for path in out.iterdir()} == {
        *("session.txt", "kernels.log", "bench.log", "benchmark.json", "operator.log", "operator.json"),
        *("study.log", "study.tar.gz"),
    }
    assert (out / "kernels.log").read_text() == "attention row\n" and "done" in (out / "session.txt").read_text()
    with tarfile.open(out / "study.tar.gz") as archive:
        assert "multi30k_en_de_gpu/runs/softmax.seed-1.json" in archive.getnames()


@pytest.mark.slow
def test_a_step_that_fails_or_takes_too_long_does_not_stop_the_next(tmp_path):
    start = time.monotonic()
    result, calls = session(tmp_path, KERNELS=1, CHECK="sleep 60", TOTAL=33, STUDY_DOES="sleep 60")
    assert time.monotonic() - start < 30 and len(calls) == 5
    assert result.returncode == 1  # for the kernels; a study that exceeds the time limit is expected
    said = (tmp_path / "out" / "session.txt").read_text()
    assert "kernels: stopped after 1 s" in said and "study: stopped after" in said and "collection: done" in said
    assert (tmp_path / "out" / "study.tar.gz").is_file()
    assert (tmp_path / "out" / "kernels.log").read_text() == "attention row\n"


@pytest.mark.slow
def test_a_wrong_kernel_changes_the_exit_code(tmp_path):
    result, calls = session(tmp_path, CHECK="exit 1")
    assert result.returncode == 1 and len(calls) == 5 and "kernels: failed with exit code 1" in result.stdout


@pytest.mark.parametrize(
    "variables, message",
    [
        (dict(DEVICE="tpu"), "DEVICE=tpu: give cuda or cpu"),
        (dict(TOTAL="ten"), "ten: give whole numbers"),
        (dict(JOBS=0), "0: give whole numbers"),
    ],
)
def test_wrong_variables_give_one_line(variables, message, tmp_path):
    result, calls = session(tmp_path, **variables)
    assert result.returncode == 2 and result.stderr.startswith(f"gpu_session.sh: error: {message}")
    assert result.stderr.count("\n") == 1 and not calls and not (tmp_path / "out").exists()


def test_the_study_for_the_gpu_has_the_model_size_of_iwslt():
    study = yaml.safe_load((ROOT / "configs" / "study" / "multi30k_en_de_gpu.yaml").read_text())
    assert [row["label"] for row in study["rows"]][:2] == ["softmax", "rela_g"]
    for row in study["rows"]:
        cfg = compose(study["task"], f"attention={row['attention']}", *study["overrides"])
        assert cfg["model"]["_name"] == "transformer_rela_iwslt_de_en" and not cfg["common"]["cpu"]
        assert cfg["optimization"]["max_epoch"] == 12 and list(cfg["optimization"]["update_freq"]) == [1]
