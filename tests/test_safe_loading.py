"""Every command loads checkpoints as data and runs no code in them."""

import argparse
import os
import pickle
import re

import numpy
import pytest
import torch
from conftest import ROOT, load_anything, run_fairseq, run_rela, train_arguments
from test_checkpoints import write

from fairseq_rela import checkpoints, safe_loading
from fairseq_rela.cli import main
from fairseq_rela.errors import InputError


class Hostile:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("kind", ["torch", "pickle"])
def test_a_pickle_that_would_run_code_is_refused_and_does_not_run(kind, tmp_path):
    evil, mark = tmp_path / "checkpoint_last.pt", tmp_path / "ran"
    state = {"model": {}, "extra": Hostile(mark)}
    if kind == "torch":
        torch.save(state, evil)
    else:
        evil.write_bytes(pickle.dumps(state))
    with pytest.raises(InputError, match="refused|not a checkpoint"):
        safe_loading.load(evil)
    for verb in (["average", tmp_path, "--last", 1, "--output", tmp_path / "out.pt"],):
        result = run_rela(*verb)
        assert result.returncode == 2 and len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert not mark.exists() and not (tmp_path / "out.pt").exists()


def test_namespaces_are_loaded(tmp_path):
    path = write(tmp_path / "1.pt", 1, args=argparse.Namespace(arch="transformer"))
    assert safe_loading.load(path)["args"].arch == "transformer"


NUMBERS = [
    numpy.array([[1.5, -2.0], [0.0, 1e300]]),
    numpy.asfortranarray(numpy.arange(6, dtype=numpy.int64).reshape(2, 3)),
    numpy.array([True, False]),
    numpy.array(7, ">i4"),
    numpy.float32(0.1),
    numpy.int64(-(2**60)),
    numpy.zeros((0, 3), numpy.uint8),
]


@pytest.mark.parametrize("zip_format", [True, False])
def test_arrays_of_numbers_are_loaded(tmp_path, zip_format):
    """Meters have such arrays with --eval-bleu; saved again, they are ordinary NumPy arrays."""
    path = write(tmp_path / "1.pt", 1)
    state = {**safe_loading.load(path), "numbers": NUMBERS}
    for name in ("once.pt", "twice.pt"):
        torch.save(state, tmp_path / name, _use_new_zipfile_serialization=zip_format)
        state = safe_loading.load(tmp_path / name)
        for got, want in zip(state["numbers"], NUMBERS):
            assert got.dtype == want.dtype.newbyteorder("=") and got.shape == want.shape
            assert numpy.array_equal(got, want) and numpy.array_equal(got + got, want + want)
    kinds = {type(number) for number in load_anything(tmp_path / "twice.pt")["numbers"]}
    assert kinds == {numpy.ndarray, numpy.float32, numpy.int64}


@pytest.mark.parametrize(
    "array",
    [
        numpy.array(["text"]),
        numpy.array([{"an": "object"}]),
        numpy.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
        numpy.array([numpy.datetime64(1, "s")]),
    ],
    ids=["text", "objects", "records", "dates"],
)
def test_arrays_of_other_types_are_refused(array, tmp_path):
    path = write(tmp_path / "1.pt", 1)
    torch.save({**safe_loading.load(path), "array": array}, path)
    with pytest.raises(InputError, match="refused|not a checkpoint"):
        safe_loading.load(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"hello", b"\x80\x02}q\x00."])
def test_truncated_and_foreign_files_are_named(content, tmp_path):
    path = tmp_path / "checkpoint_last.pt"
    path.write_bytes(content)
    with pytest.raises(InputError, match="checkpoint_last.pt: not a checkpoint"):
        safe_loading.load(path)


@pytest.mark.parametrize(
    "change",
    [dict(model={}), dict(model={"w": 1}), dict(optimizer_history=None), dict(optimizer_history=["x"]), dict(cfg=None)],
)
def test_files_that_are_not_checkpoints_of_fairseq_are_refused(change, tmp_path):
    state = torch.load(write(tmp_path / "1.pt", 1))
    torch.save({**state, **change}, tmp_path / "2.pt")
    with pytest.raises(InputError, match="not a checkpoint of fairseq"):
        safe_loading.load(tmp_path / "2.pt")


def older(path, source):
    """Write the checkpoint as fairseq before 0.12 did, with an omegaconf object as its configuration."""
    from omegaconf import OmegaConf

    state = load_anything(source)
    state["cfg"] = OmegaConf.create({**state["cfg"], "list": [1, 2.5, None, True, "${common.seed}"]})
    OmegaConf.set_struct(state["cfg"], True)
    torch.save(state, path)
    return path


def test_a_configuration_of_omegaconf_is_loaded(trained, tmp_path):
    """The plugin's tools and fairseq's own loading read it; an average stores it in plain types."""
    from fairseq import checkpoint_utils

    paths = [older(tmp_path / f"checkpoint_1_{n}.pt", trained / "checkpoint_last.pt") for n in (1,)]
    plain, state = safe_loading.load(trained / "checkpoint_last.pt"), safe_loading.load(paths[0])
    assert type(state["cfg"]) is dict and state["cfg"]["model"] == plain["cfg"]["model"]
    assert state["cfg"]["list"] == [1, 2.5, None, True, "${common.seed}"]
    assert checkpoint_utils.load_checkpoint_to_cpu(str(paths[0]))["cfg"]["model"]["attention"] == "rela_g"
    checkpoints.average(paths, tmp_path / "average.pt")
    assert type(load_anything(tmp_path / "average.pt")["cfg"]) is dict
    if int(torch.__version__.split(".")[0]) >= 2:
        torch.load(tmp_path / "average.pt", weights_only=True)  # without any allowed classes, as if that were undone


@pytest.mark.slow
def test_an_older_checkpoint_translates_like_a_newer_one(trained, data, tmp_path):
    path = older(tmp_path / "old.pt", trained / "checkpoint_last.pt")
    for name, checkpoint in (("old", path), ("new", trained / "checkpoint_last.pt")):
        result = run_rela("translate", data, "--checkpoint", checkpoint, "--output", tmp_path / name, "--beam", 1)
        assert result.returncode == 0, result.stderr[-2000:]
    assert (tmp_path / "old.bpe").read_bytes() == (tmp_path / "new.bpe").read_bytes()


@pytest.mark.slow
def test_a_training_with_bleu_validation_is_resumed_and_used(data, tmp_path):
    """B44: fairseq stores its meters of BLEU in every checkpoint as arrays of NumPy."""
    bleu = ("--eval-bleu", "--eval-bleu-args", '{"beam": 1, "max_len_b": 20}', "--eval-bleu-remove-bpe")
    run = (*train_arguments(data, tmp_path / "run"), "--no-epoch-checkpoints", "--save-interval-updates", 1, *bleu)
    for updates in (2, 3):
        result = run_fairseq("train", *run, "--max-update", updates)
        assert result.returncode == 0, result.stderr[-2000:]
    assert "(epoch 1 @ 2 updates)" in result.stdout
    state = safe_loading.load(tmp_path / "run" / "checkpoint_last.pt")
    assert checkpoints.updates_of(state) == 3
    average, out = tmp_path / "average.pt", tmp_path / "out"
    for arguments in (
        ["average", tmp_path / "run", "--last", 2, "--output", average],
        ["translate", data, "--checkpoint", tmp_path / "run" / "checkpoint_last.pt", "--output", out],
        ["attention", average, "--data", data],
    ):
        result = run_rela(*arguments)
        assert result.returncode == 0, result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "verb, options, message",
    [
        ("attention", ["--no-cross-attention"], "has no cross-attention to the source alone"),
        ("analyze", ["--no-cross-attention", "--cross-self-attention"], "has no cross-attention to the source alone"),
        ("rank", ["--task", "translation_multi_simple_epoch", "--lang-pairs", "xa-xb"], "its task is TranslationMulti"),
    ],
)
def test_models_that_are_not_analysed_are_named(verb, options, message, corpus, data, tmp_path):
    arguments = [a for a in train_arguments(data, tmp_path / "run") if a not in ("--task", "translation_rela")]
    if "--task" not in options:
        options = [*options, "--task", "translation_rela"]
    result = run_fairseq("train", *arguments, *options, "--max-update", 1, "--disable-validation")
    assert result.returncode == 0, result.stderr[-2000:]
    text = {"attention": [], "analyze": ["--output", "o"]}.get(
        verb, [corpus / "test.xa", corpus / "test.xb", "--output", "o"]
    )
    result = run_rela(verb, tmp_path / "run" / "checkpoint_last.pt", *text, "--data", data, cwd=tmp_path)
    assert result.returncode == 2 and message in result.stderr.splitlines()[-1], result.stderr
    assert "Traceback" not in result.stderr


class Disguised(dict):
    """Looks like data, but runs code when its contents are set."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def __reduce__(self):
        return eval, (f"__import__('os').system('touch {self.path}')",)


@pytest.fixture(params=["extra", "cfg", "args", "omegaconf", "model", "legacy", "pickle"])
def hostile(request, trained, tmp_path):
    """Make a folder with a checkpoint that runs code when unpickled, hidden in several ways."""
    from omegaconf import DictConfig

    folder, mark = tmp_path / "hostile", tmp_path / "ran"
    folder.mkdir()
    state = load_anything(trained / "checkpoint_last.pt")
    if request.param == "omegaconf":
        state["cfg"] = DictConfig({})
        state["cfg"].__dict__["_content"] = {"model": Hostile(mark)}
    elif request.param == "model":
        state["model"]["extra"] = Hostile(mark)
    elif request.param == "args":
        state["args"] = argparse.Namespace(arch=Disguised(mark))
    else:
        state["cfg" if request.param == "cfg" else "extra"] = Disguised(mark)
    path = folder / "checkpoint_last.pt"
    if request.param == "pickle":
        path.write_bytes(pickle.dumps(state))
    else:
        torch.save(state, path, _use_new_zipfile_serialization=request.param != "legacy")
    yield path
    assert not mark.exists()


def test_a_hostile_checkpoint_is_refused_by_every_verb(hostile, corpus, data, tmp_path, capsys):
    text, out = (corpus / "test.xa", corpus / "test.xb"), tmp_path / "out"
    train = ["train", "synthetic", "--data", data, "--save-dir", out, "--override"]
    run_dir = tmp_path / "root" / "synthetic" / "rela_g"
    run_dir.mkdir(parents=True)
    for name in ("checkpoint_last.pt", "average.pt"):
        (run_dir / name).write_bytes(hostile.read_bytes())
    (tmp_path / "root" / "synthetic" / "data").symlink_to(data)
    chain = ["reproduce", "synthetic", "rela_g"]
    for verb in (
        ["average", hostile.parent, "--last", 1, "--output", out],
        ["average", "--inputs", hostile, "--output", out],
        ["translate", data, "--checkpoint", hostile, "--output", out],
        ["attention", hostile, "--data", data],
        ["analyze", hostile, "--data", data, "--output", out],
        ["rank", hostile, *text, "--data", data, "--output", out, "--device", "cpu"],
        ["rank", hostile, *text, "--data", data, "--output", out, "--device", "cpu", "--damage"],
        [*train, f"checkpoint.restore_file={hostile}"],
        [*train, f"checkpoint.finetune_from_model={hostile}"],
        ["train", "synthetic", "--data", data, "--save-dir", hostile.parent],
        *([*chain, stage, "--root", tmp_path / "root"] for stage in ("train", "average", "translate", "attention")),
    ):
        if verb[3:4] == ["average"]:
            (run_dir / "train.json").touch()  # as after a training
        assert main([str(argument) for argument in verb]) == 2, verb
        said = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
        assert len(said) == 1 and re.search("refused|not a checkpoint|can be loaded", said[0]), (verb, said)
    assert not out.exists()


def test_a_hostile_checkpoint_is_refused_by_fairseqs_own_loaders(hostile, data):
    """The loaders of fairseq-train (restore and finetune), -generate, -interactive, -validate and the hub."""
    from fairseq import checkpoint_utils

    from fairseq_rela.models.transformer_rela import TransformerRelaModel

    for load in (
        lambda: checkpoint_utils.load_checkpoint_to_cpu(str(hostile)),
        lambda: checkpoint_utils.load_model_ensemble([str(hostile)]),
        lambda: checkpoint_utils.load_model_ensemble_and_task([str(hostile)]),
        lambda: TransformerRelaModel.from_pretrained(str(hostile.parent), hostile.name, str(data)),
    ):
        with pytest.raises((pickle.UnpicklingError, InputError)):
            load()


@pytest.mark.slow
def test_a_hostile_checkpoint_is_refused_by_fairseqs_own_commands(trained, data, tmp_path):
    path, mark = tmp_path / "checkpoint_last.pt", tmp_path / "ran"
    state = load_anything(trained / "checkpoint_last.pt")
    torch.save({**state, "extra": Hostile(mark)}, path)
    plugin = ("--user-dir", ROOT / "fairseq_rela", "--task", "translation_rela")
    hydra = ("--config-dir", ROOT / "configs", "--config-name", "synthetic", f"task.data={data}")
    once = ("--max-update", 1)
    for module, arguments in (
        ("train", [*train_arguments(data, tmp_path), *once]),
        ("train", [*train_arguments(data, tmp_path / "r"), *once, "--restore-file", path]),
        ("train", [*train_arguments(data, tmp_path / "f"), *once, "--finetune-from-model", path]),
        ("hydra_train", [*hydra, f"checkpoint.save_dir={tmp_path}", "optimization.max_update=1"]),
        ("generate", [data, *plugin, "--path", path]),
        ("interactive", [data, *plugin, "--path", path, "--source-lang", "xa", "--target-lang", "xb"]),
        ("validate", [data, *plugin, "--path", path, "--max-tokens", 1000]),
    ):
        result = run_fairseq(module, *arguments, cwd=tmp_path)
        assert result.returncode != 0 and re.search("Unpickling|refused|Weights only", result.stderr), module
        assert not mark.exists(), module
