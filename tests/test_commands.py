"""Running fairseq's commands: what is shown, kept and reported."""

import pytest

from fairseq_rela.errors import InputError
from fairseq_rela.files import commands


def test_a_command_that_fails_says_its_last_words_and_its_log(tmp_path, capsys):
    log = tmp_path / "log"
    with pytest.raises(InputError, match=r"fairseq-preprocess failed with exit code 2: .*--no-such-option \(log: "):
        commands.run_fairseq("preprocess", ["--no-such-option"], log)
    assert capsys.readouterr().out == "$ fairseq-preprocess --no-such-option\n"
    assert log.read_text().startswith("$ fairseq-preprocess --no-such-option\n")


def test_what_is_shown_can_be_typed(tmp_path):
    assert commands.shell_command("hydra_train", ["a b", "c=1"]) == "fairseq-hydra-train 'a b' c=1"


def test_paths_that_fairseq_would_split_are_refused(tmp_path):
    with pytest.raises(InputError, match="splits paths at a colon"):
        commands.run_fairseq("generate", [tmp_path / "a:b"], tmp_path / "log")
    assert list(tmp_path.iterdir()) == []


def test_a_log_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "log").mkdir()
    with pytest.raises(InputError, match="log: cannot be written"):
        commands.run_fairseq("generate", [], tmp_path / "log")
