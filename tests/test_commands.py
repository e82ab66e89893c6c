"""Running fairseq's commands: the printed command, the log and the errors."""

import pytest

from fairseq_rela.errors import InputError
from fairseq_rela.files import commands


def test_the_error_of_a_failed_command_has_its_last_line_and_its_log(tmp_path, capsys):
    log = tmp_path / "log"
    with pytest.raises(InputError, match=r"fairseq-preprocess failed with exit code 2: .*--no-such-option \(log: "):
        commands.run_fairseq("preprocess", ["--no-such-option"], log)
    assert capsys.readouterr().out == "$ fairseq-preprocess --no-such-option\n"
    assert log.read_text().startswith("$ fairseq-preprocess --no-such-option\n")


def test_the_printed_command_can_be_copied_into_a_shell(tmp_path):
    assert commands.shell_command("hydra_train", ["a b", "c=1"]) == "fairseq-hydra-train 'a b' c=1"


def test_paths_that_fairseq_would_split_are_refused(tmp_path):
    with pytest.raises(InputError, match="splits paths at a colon"):
        commands.run_fairseq("generate", [tmp_path / "a:b"], tmp_path / "log")
    assert list(tmp_path.iterdir()) == []


def test_a_log_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "log").mkdir()
    with pytest.raises(InputError, match="log: cannot be written"):
        commands.run_fairseq("generate", [], tmp_path / "log")
