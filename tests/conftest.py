"""Shared by the tests: a dictionary, models small enough to build in milliseconds, a prepared corpus."""

import argparse
import inspect
import os
import subprocess
import sys
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:  # leave the other cores to other processes
    os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "2")

import pytest
import torch
import warm

import fairseq_rela  # noqa: F401  registers the plugin with fairseq
from fairseq_rela.models.config import TransformerRelaConfig
from fairseq_rela.models.transformer_rela import TransformerRelaModel

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
SIZES = {
    f"{side}_{key}": value
    for side in ("encoder", "decoder")
    for key, value in (("layers", 2), ("embed_dim", 16), ("ffn_embed_dim", 24), ("attention_heads", 4))
}


def pytest_collection_modifyitems(items):
    """Run slow tests first, so that the last minutes have short ones for every process; the longest begin."""
    longest = ("test_kills", "test_end_to_end", "test_wmt", "test_docs")

    def key(item):
        slow = item.get_closest_marker("slow") is not None
        return not slow, slow and not item.module.__name__.startswith(longest)

    items.sort(key=key)


def make_dictionary(words=20):
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for index in range(words):
        dictionary.add_symbol(f"w{index}", n=words - index)
    return dictionary


def make_task(words=20):
    return argparse.Namespace(source_dictionary=make_dictionary(words), target_dictionary=make_dictionary(words))


def make_model(attention="rela_g", seed=0, task=None, **options):
    """A 2+2 layer model of size 16 in evaluation mode, in float64, with gains and gates that are not trivial."""
    torch.manual_seed(seed)
    config = TransformerRelaConfig(attention=attention, **{**SIZES, "dropout": 0.0, **options})
    model = TransformerRelaModel.build_model(config, task or make_task())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "attn_norm" in name or name.endswith("proj.bias"):
                parameter.uniform_(-1.0, 1.0)
    return model.double().eval()


def values_of(model):
    """Return a model's state without the buffer that fairseq 0.12.2 neither fills nor reads."""
    return {name: value for name, value in model.state_dict().items() if not name.endswith("_float_tensor")}


def load_anything(path):
    """Load a file of torch with any classes in it; torch before 1.13 has no argument `weights_only`."""
    options = {"weights_only": False} if "weights_only" in inspect.signature(torch.load).parameters else {}
    return torch.load(path, map_location="cpu", **options)


@pytest.fixture
def uninitialised(monkeypatch):
    """Build models without values: drawing them takes most of the time of a large one."""
    for name in ("normal_", "uniform_", "xavier_uniform_", "kaiming_uniform_"):
        monkeypatch.setattr(torch.nn.init, name, lambda tensor, *_, **__: tensor)


@pytest.fixture(scope="session", autouse=True)
def warm_python():
    """Start Python's programs by the server of `warm.py`, also those that the package starts."""
    with warm.python() as program, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", program)
        yield


def run(*command, cwd=None, env=None, timeout=600):
    """Run a command and return its completed process, with the output captured as text."""
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        timeout=timeout,
    )


def run_fairseq(module, *arguments, **options):
    return run(sys.executable, "-W", "ignore", "-m", f"fairseq_cli.{module}", *arguments, **options)


# a new Python, as the console script starts it
RELA = (sys.executable, "-W", "ignore", "-c", warm.RELA_CODE)


def run_rela(*arguments, **options):
    """Run the command `rela` as the console script does."""
    return run(sys.executable, *RELA[1:], *arguments, **options)


def prepare_data(corpus, output, workers):
    """Prepare a data folder from a raw synthetic corpus."""
    from fairseq_rela.data.prepare import Corpus, prepare
    from fairseq_rela.data.settings import Settings

    files = {split: (corpus / f"{split}.xa", corpus / f"{split}.xb") for split in ("train", "valid", "test")}
    prepare(Corpus(files), Settings("xa", "xb", merges=150, vocabulary_threshold=8), output, workers=workers)
    return output


def translation_task(data, required_seq_len_multiple):
    """Return the plugin's task on a data folder of `prepare_data`."""
    from fairseq_rela.tasks.translation_rela import TranslationRelaConfig, TranslationRelaTask

    return TranslationRelaTask.setup_task(
        TranslationRelaConfig(
            data=str(data),
            source_lang="xa",
            target_lang="xb",
            train_subset="train",
            dataset_impl="mmap",
            required_seq_len_multiple=required_seq_len_multiple,
        )
    )


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Make a raw synthetic corpus: a folder with train, valid and test files."""
    from fairseq_rela.corpora.synthetic import write_corpus

    folder = tmp_path_factory.mktemp("raw")
    write_corpus(folder, seed=3, train_pairs=300)
    return folder


@pytest.fixture(scope="session")
def data(corpus, tmp_path_factory):
    """Prepare the data folder of the corpus."""
    return prepare_data(corpus, tmp_path_factory.mktemp("prepared") / "data", workers=2)


@pytest.fixture(scope="session")
def trained(data, tmp_path_factory):
    """Train a few updates by fairseq-train with --user-dir and return the folder of the checkpoints."""
    folder = tmp_path_factory.mktemp("run")
    result = run_fairseq(
        "train", *train_arguments(data, folder), "--max-update", 8, "--save-interval-updates", 2, "--seed", 5
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return folder


def train_arguments(data, save_dir, arch="transformer_rela_tiny"):
    return [
        *(data, "--user-dir", ROOT / "fairseq_rela", "--task", "translation_rela", "--arch", arch),
        *("--optimizer", "adam", "--lr", "1e-3", "--max-tokens", 1000, "--cpu", "--save-dir", save_dir),
        *("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1"),
    ]
