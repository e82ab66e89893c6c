"""One process at a time, and folders that are whole or absent."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from fairseq_rela.data.folders import only_process, work_folder
from fairseq_rela.errors import InputError

HOLD = (
    "import sys; sys.argv[0] = 'rela'\n"
    "from pathlib import Path\n"
    "from fairseq_rela.data.folders import only_process\n"
    "with only_process(Path(sys.argv[1]), 'trained'):\n"
    "    print('held', flush=True); sys.stdin.read()\n"
)


def test_the_second_process_says_who_holds_the_folder(tmp_path):
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
        holder.kill()  # a process that was killed holds nothing
        holder.wait()
        with only_process(folder, "trained"):
            pass
    finally:
        holder.kill()
        holder.communicate()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
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
