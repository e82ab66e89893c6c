"""A user's folder that registers an attention."""

import shutil
import sys

import pytest
from conftest import ROOT, run_rela

from fairseq_rela import user_dir, variants
from fairseq_rela.errors import InputError
from fairseq_rela.experiment.composed import attention_overrides, checksums, composed_values
from fairseq_rela.testing import check_variant

EXAMPLE = ROOT / "examples" / "my_attention"


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.setattr(variants, "VARIANTS", dict(variants.VARIANTS))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv(user_dir.VARIABLE, raising=False)
    yield
    sys.modules.pop("my_attention", None)


def test_the_example_registers_an_attention_that_passes_the_checks(monkeypatch):
    monkeypatch.setenv(user_dir.VARIABLE, str(EXAMPLE))
    user_dir.load_user_code()
    assert variants.find_variant("temperature").sums_to_one
    check_variant("temperature")


def test_without_a_folder_the_user_dir_is_the_plugin():
    assert user_dir.user_dir() == ROOT / "fairseq_rela" and user_dir.user_code() == {}
    user_dir.load_user_code()
    assert "temperature" not in variants.VARIANTS


def test_the_user_code_is_recorded_without_its_tests(tmp_path, monkeypatch):
    folder = tmp_path / "my_attention"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv(user_dir.VARIABLE, str(folder))
    before = user_dir.user_code()
    assert list(before) == ["__init__.py"]
    (folder / "test_more.py").write_text("")
    assert user_dir.user_code() == before
    (folder / "__init__.py").write_text("# changed\n")
    assert user_dir.user_code() != before


@pytest.mark.parametrize(
    "text, fault",
    [
        (None, "no __init__.py in it"),
        ("import nothing_of_this_name", "cannot be imported .ModuleNotFoundError: .*nothing_of_this_name"),
        ("def", "cannot be imported .SyntaxError"),
        ("import fairseq_rela\nfairseq_rela.register_variant('rela_g', abs)", "variant rela_g: the name is taken"),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused_in_one_line(text, fault, tmp_path, monkeypatch):
    folder = tmp_path / f"own_{abs(hash(fault))}"
    folder.mkdir()
    if text is not None:
        (folder / "__init__.py").write_text(text)
    monkeypatch.setenv(user_dir.VARIABLE, str(folder))
    with pytest.raises(InputError, match=fault) as error:
        user_dir.load_user_code()
    assert "\n" not in str(error.value)


def test_a_folder_with_the_name_of_another_module_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "json"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    monkeypatch.setenv(user_dir.VARIABLE, str(folder))
    with pytest.raises(InputError, match="json is the name of .*; rename the folder"):
        user_dir.load_user_code()


def test_an_attention_without_a_config_file_is_chosen_by_its_key():
    assert attention_overrides("softpick") == ["attention=softpick"]
    assert attention_overrides("temperature") == ["model.attention=temperature"]
    assert "attention/rela_g.yaml" in checksums("synthetic", attention_overrides("temperature"))


@pytest.mark.parametrize("name", variants.VARIANTS)
def test_every_variant_of_the_table_has_a_config_file(name):
    assert composed_values("synthetic", attention_overrides(name))["model.attention"] == name


def test_the_command_accepts_the_folder_before_the_verb():
    result = run_rela("--user-dir", EXAMPLE, "user-dir")
    assert (result.returncode, result.stdout) == (0, f"{EXAMPLE}\n"), result.stderr
    result = run_rela("--user-dir", "nowhere", "user-dir")
    assert result.returncode == 2 and "no __init__.py" in result.stderr and "Traceback" not in result.stderr
