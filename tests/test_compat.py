"""Importing the plugin where fairseq is missing, broken, or loses sentences."""

import sys
from dataclasses import MISSING, fields, is_dataclass

import numpy as np
import pytest
from conftest import ROOT, run
from fairseq.data import data_utils
from warm import WARM

from fairseq_rela import compat

IMPORT = (sys.executable, "-W", "ignore", "-c", "import fairseq_rela")


def fake_fairseq(folder, code):
    package = folder / "fairseq"
    package.mkdir()
    (package / "__init__.py").write_text(code)
    return {"PYTHONPATH": f"{folder}:{ROOT}"}


@pytest.mark.slow
def test_an_extension_compiled_for_another_numpy_is_named_as_the_cause(tmp_path):
    """B43: fairseq's own message claims that it was not built, and comes only after training has begun."""
    reason = "numpy.dtype size changed, may indicate binary incompatibility"
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'fairseq.data.data_utils_fast':\n"
        f"            raise ValueError({reason!r})\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    result = run(*IMPORT, env={"PYTHONPATH": f"{tmp_path}:{ROOT}"})
    last = result.stderr.strip().splitlines()[-1]
    assert result.returncode != 0 and last.startswith("ImportError: fairseq's compiled part")
    assert reason in last and "numpy" in last and "During handling" not in result.stderr


def test_fairseq_finds_the_integer_that_numpy_removed():
    """Its TokenBlockDataset, which fairseq-interactive uses for language models."""
    compat.restore_numpy_names()
    assert np.zeros(2, dtype=np.compat.long).dtype.kind == "i"


def test_every_dataclass_of_the_plugin_is_valid_on_python_3_12():
    """B30: Python 3.11 and later refuse every mutable default, not only lists and dictionaries."""
    from fairseq.dataclass import FairseqDataclass

    from fairseq_rela import encoders
    from fairseq_rela.models.config import TransformerRelaConfig
    from fairseq_rela.tasks.translation_rela import TranslationRelaConfig

    configs = [value for value in vars(encoders).values() if isinstance(value, type)]
    configs = [cls for cls in configs if issubclass(cls, FairseqDataclass) and cls is not FairseqDataclass]
    assert len(configs) == 2
    for cls in (TransformerRelaConfig, TranslationRelaConfig, *configs):
        assert is_dataclass(cls())
        own = [f for f in fields(cls) if f.default is not MISSING]
        assert own and all(f.default.__class__.__hash__ is not None for f in own), cls
        # and no default is a class instead of an instance, as in the forks for newer Pythons
        assert not [f.name for f in own if isinstance(f.default, type)]


@pytest.mark.parametrize(
    "code, message",
    [
        ("raise ModuleNotFoundError(\"No module named 'fairseq'\", name='fairseq')", "fairseq, which is not installed"),
        ("import no_such_module_at_all", "module no_such_module_at_all is missing: pip install no_such_module_at_all"),
        ("raise ValueError('mutable default CommonConfig\\nfor field common')", "does not import on this Python"),
        ("", "module fairseq.models is missing"),
    ],
)
def test_a_missing_or_broken_fairseq_gives_one_clear_line(tmp_path, code, message):
    result = run(*IMPORT, env=fake_fairseq(tmp_path, code))
    assert result.returncode != 0
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ") and message in last
    assert "During handling" not in result.stderr


def test_the_command_reports_the_problem_without_a_traceback(tmp_path):
    env = fake_fairseq(tmp_path, "raise ValueError('mutable default')")
    code = "import sys; sys.argv[0] = 'rela'; from fairseq_rela.cli import main; sys.exit(main())"
    result = run(sys.executable, "-c", code, "attention", "x.pt", "--data", tmp_path, env=env)
    assert result.returncode == 2
    assert len(result.stderr.strip().splitlines()) == 1 and "does not import" in result.stderr


def test_the_probe_detects_the_behaviour_of_this_fairseq():
    """It is compared with a 30-sentence set in the default batches of fairseq-generate (B01)."""
    sizes = np.full(30, 9)
    batches = data_utils.batch_by_size(
        np.arange(30), lambda i: 9, num_tokens_vec=sizes, max_tokens=4000, required_batch_size_multiple=8
    )
    assert compat.drops_last_batch() == (sum(map(len, batches)) < 30)


def test_a_fairseq_that_drops_the_last_batch_is_named(caplog, monkeypatch):
    monkeypatch.setattr(compat, "drops_last_batch", lambda: True)
    with caplog.at_level("WARNING", logger="fairseq_rela.compat"):
        compat.warn_about_last_batch()
    assert len(caplog.records) == 1
    assert "--task translation_rela" in caplog.text and "--required-batch-size-multiple 1" in caplog.text
    caplog.clear()
    monkeypatch.setattr(compat, "drops_last_batch", lambda: False)
    compat.warn_about_last_batch()
    assert caplog.text == ""


@pytest.mark.slow
def test_importing_the_plugin_gives_the_warning():
    result = run(sys.executable, "-c", f"{WARM}\nimport fairseq_rela")
    assert result.returncode == 0
    assert ("drops the last batch" in result.stderr) == compat.drops_last_batch()
