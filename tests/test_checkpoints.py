"""Choosing, averaging and loading checkpoints."""

import argparse
import os
import pickle
import re

import numpy
import pytest
import torch
from conftest import ROOT, load_anything, run_fairseq, run_rela, train_arguments

from fairseq_rela import checkpoints, cli
from fairseq_rela.errors import InputError


def write(path, updates, value=1.0, dtype=torch.float32, interval=2, model=None, **extra):
    state = {
        "args": None,
        "cfg": {"model": {"_name": "transformer_rela", "attention": "rela_g"}, "checkpoint": {}},
        "model": model or {"w": torch.full((3,), value, dtype=dtype), "n": torch.tensor(7)},
        "optimizer_history": [{"num_updates": updates, "criterion_name": "c", "lr_scheduler_state": {}}],
        "extra_state": {"train_iterator": {"epoch": 1}},
        "last_optimizer_state": {"state": torch.zeros(3)},
    }
    state["cfg"]["checkpoint"]["save_interval_updates"] = interval
    state.update(extra)
    torch.save(state, path)
    return path


def epoch_of_8_updates_saved_every_2(folder, epoch_files):
    """B09: what fairseq leaves: no update file where an epoch ends (8, 16, 24), the last state in _last."""
    for updates in (2, 4, 6, 10, 12, 14, 18, 20, 22):
        write(folder / f"checkpoint_{1 + updates // 8}_{updates}.pt", updates)
    if epoch_files:
        for epoch in (1, 2, 3):
            write(folder / f"checkpoint{epoch}.pt", 8 * epoch)
    write(folder / "checkpoint_last.pt", 24)
    write(folder / "checkpoint_best.pt", 14)
    write(folder / "checkpoint.best_loss_3.21.pt", 14)


def test_the_last_five_are_the_last_five(tmp_path):
    epoch_of_8_updates_saved_every_2(tmp_path, epoch_files=True)
    choice = checkpoints.choose_last(tmp_path, 5)
    assert [f.updates for f in choice.chosen] == [24, 22, 20, 18, 16]
    assert [f.path.name for f in choice.chosen][::4] == ["checkpoint3.pt", "checkpoint2.pt"]
    assert choice.missing == [] and choice.interval == 2


def test_a_gap_is_named(tmp_path):
    epoch_of_8_updates_saved_every_2(tmp_path, epoch_files=False)
    choice = checkpoints.choose_last(tmp_path, 5)
    assert [f.updates for f in choice.chosen] == [24, 22, 20, 18, 14]
    assert choice.missing == [16]


def test_names_are_not_trusted(tmp_path):
    """The number inside the file counts."""
    for name, updates in (("checkpoint_1_2.pt", 40), ("checkpoint_9_900.pt", 20), ("checkpoint_last.pt", 40)):
        write(tmp_path / name, updates)
    found = checkpoints.find(tmp_path)
    assert [(f.path.name, f.updates) for f in found] == [("checkpoint_1_2.pt", 40), ("checkpoint_9_900.pt", 20)]


def test_states_between_the_intervals_are_left_out_but_the_final_one(tmp_path):
    for updates in (100, 200, 300):
        write(tmp_path / f"checkpoint_1_{updates}.pt", updates, interval=100)
    for epoch in (1, 2):
        write(tmp_path / f"checkpoint{epoch}.pt", 135 * epoch, interval=100)
    write(tmp_path / "checkpoint_last.pt", 350, interval=100)
    choice = checkpoints.choose_last(tmp_path, 4)
    assert [f.updates for f in choice.chosen] == [350, 300, 200, 100]
    assert choice.missing == []


def test_too_few_are_refused(tmp_path):
    write(tmp_path / "checkpoint_last.pt", 4)
    with pytest.raises(InputError, match="5 checkpoints are wanted, 1 are there"):
        checkpoints.choose_last(tmp_path, 5)
    with pytest.raises(InputError, match="--last 0"):
        checkpoints.choose_last(tmp_path, 0)
    with pytest.raises(InputError, match="no such folder"):
        checkpoints.find(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has the model been trained"):
        checkpoints.find(tmp_path / "empty")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(dtype, tmp_path):
    """B18: the mean of bfloat16 values one unit apart is not the first of them."""
    values = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0625]).to(dtype) * 256
    paths = [write(tmp_path / f"{i}.pt", i + 1, float(v), dtype) for i, v in enumerate(values)]
    checkpoints.average(paths, tmp_path / "average.pt")
    got = checkpoints.load(tmp_path / "average.pt")["model"]["w"]
    assert got.dtype == dtype
    assert torch.equal(got, torch.full((3,), float(values.double().mean())).to(dtype))


def test_many_bfloat16_values_do_not_swamp(tmp_path):
    paths = [write(tmp_path / f"{i}.pt", i + 1, 1 + i / 128, torch.bfloat16) for i in range(5)]
    checkpoints.average(paths, tmp_path / "average.pt")
    assert checkpoints.load(tmp_path / "average.pt")["model"]["w"][0] == 1 + 2 / 128


def test_one_file_is_its_own_average_bitwise_and_opposites_cancel(tmp_path):
    torch.manual_seed(0)
    w = {"w": torch.randn(1000), "n": torch.tensor(3)}
    one = write(tmp_path / "1.pt", 1, model=w)
    two = write(tmp_path / "2.pt", 2, model={"w": -w["w"], "n": torch.tensor(3)})
    checkpoints.average([one], tmp_path / "a.pt")
    assert torch.equal(checkpoints.load(tmp_path / "a.pt")["model"]["w"], w["w"])
    checkpoints.average([one, two], tmp_path / "b.pt")
    averaged = checkpoints.load(tmp_path / "b.pt")
    assert (averaged["model"]["w"] == 0).all() and averaged["model"]["n"] == 3
    assert "last_optimizer_state" not in averaged
    assert averaged["extra_state"]["averaged_from"] == [str(one), str(two)]
    assert checkpoints.updates_of(averaged) == 2


def test_what_cannot_be_averaged_is_refused_and_leaves_nothing(tmp_path):
    one, output = write(tmp_path / "1.pt", 1), tmp_path / "average.pt"
    other = write(tmp_path / "2.pt", 2, model={"w": torch.zeros(4), "n": torch.tensor(1)})
    same = write(tmp_path / "3.pt", 1)
    cfg = {"model": {"attention": "softmax"}, "checkpoint": {}}
    foreign = write(tmp_path / "4.pt", 4, cfg=cfg)
    average = write(tmp_path / "5.pt", 5, extra_state={"averaged_from": ["x"]})
    for paths, message in (
        ([], "no checkpoints"),
        ([one, one], "given 2 times"),
        ([one, tmp_path / "." / "1.pt"], "given 2 times"),
        ([one, other], "different models: they differ in w"),
        ([one, same], "hold the same update 1"),
        ([one, foreign], "different model configurations"),
        ([one, average], "is an average already"),
        ([one, tmp_path / "absent.pt"], "no such checkpoint"),
    ):
        with pytest.raises(InputError, match=message):
            checkpoints.average(paths, output)
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"{i}.pt" for i in range(1, 6)]


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
        checkpoints.load(evil)
    for verb in (["average", tmp_path, "--last", 1, "--output", tmp_path / "out.pt"],):
        result = run_rela(*verb)
        assert result.returncode == 2 and len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert not mark.exists() and not (tmp_path / "out.pt").exists()


def test_namespaces_are_data(tmp_path):
    path = write(tmp_path / "1.pt", 1, args=argparse.Namespace(arch="transformer"))
    assert checkpoints.load(path)["args"].arch == "transformer"


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
def test_arrays_of_numbers_are_data(tmp_path, zip_format):
    """As the meters hold them with --eval-bleu; written again they are NumPy's own."""
    path = write(tmp_path / "1.pt", 1)
    state = {**checkpoints.load(path), "numbers": NUMBERS}
    for name in ("once.pt", "twice.pt"):
        torch.save(state, tmp_path / name, _use_new_zipfile_serialization=zip_format)
        state = checkpoints.load(tmp_path / name)
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
def test_arrays_of_anything_else_are_not(array, tmp_path):
    path = write(tmp_path / "1.pt", 1)
    torch.save({**checkpoints.load(path), "array": array}, path)
    with pytest.raises(InputError, match="refused|not a checkpoint"):
        checkpoints.load(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"hello", b"\x80\x02}q\x00."])
def test_torn_and_foreign_files_are_named(content, tmp_path):
    path = tmp_path / "checkpoint_last.pt"
    path.write_bytes(content)
    with pytest.raises(InputError, match="checkpoint_last.pt: not a checkpoint"):
        checkpoints.load(path)


def test_a_torn_last_checkpoint_gives_way_to_the_newest_good_one(tmp_path):
    """B22."""
    write(tmp_path / "checkpoint_1_2.pt", 2)
    write(tmp_path / "checkpoint_1_4.pt", 4)
    write(tmp_path / "checkpoint_last.pt", 6)
    assert checkpoints.newest_good(tmp_path).path.name == "checkpoint_last.pt"
    whole = (tmp_path / "checkpoint_last.pt").read_bytes()
    (tmp_path / "checkpoint_last.pt").write_bytes(whole[: len(whole) // 2])
    assert checkpoints.newest_good(tmp_path) == checkpoints.Found(tmp_path / "checkpoint_1_4.pt", 4)
    assert checkpoints.newest_good(tmp_path / "absent") is None


def test_an_average_does_not_take_the_place_of_a_checkpoint(tmp_path):
    one = write(tmp_path / "one.pt", 1)
    for output in (one, tmp_path / "checkpoint7.pt", tmp_path / "checkpoint_last.pt"):
        with pytest.raises(InputError, match="must not take the place"):
            checkpoints.average([one], output)


def test_runs_with_other_data_or_seeds_are_not_mixed(tmp_path):
    def cfg(seed, data):
        return {"model": {}, "task": {"data": data}, "common": {"seed": seed}, "checkpoint": {}}

    one = write(tmp_path / "1.pt", 1, cfg=cfg(1, "a"))
    for other, message in ((cfg(2, "a"), "different seeds"), (cfg(1, "b"), "different task configurations")):
        with pytest.raises(InputError, match=message):
            checkpoints.average([one, write(tmp_path / "2.pt", 2, cfg=other)], tmp_path / "average.pt")


@pytest.mark.parametrize(
    "change",
    [dict(model={}), dict(model={"w": 1}), dict(optimizer_history=None), dict(optimizer_history=["x"]), dict(cfg=None)],
)
def test_what_is_no_checkpoint_of_fairseq_is_refused(change, tmp_path):
    state = torch.load(write(tmp_path / "1.pt", 1))
    torch.save({**state, **change}, tmp_path / "2.pt")
    with pytest.raises(InputError, match="not a checkpoint of fairseq"):
        checkpoints.load(tmp_path / "2.pt")


@pytest.mark.slow
def test_an_average_made_anew_is_not_taken_for_the_old_one(tmp_path):
    """rela average RUN, then --inputs to the same output, then RUN again."""
    for updates in (2, 4, 6):
        write(tmp_path / f"checkpoint_1_{updates}.pt", updates, float(updates))
    output = tmp_path / "average.pt"
    command = ["average", tmp_path, "--last", 2, "--output", output]
    assert run_rela(*command).returncode == 0
    assert "already averaged" in run_rela(*command).stdout
    checkpoints.average([tmp_path / "checkpoint_1_2.pt"], output)
    assert "already" not in run_rela(*command).stdout
    assert checkpoints.load(output)["model"]["w"][0] == 5


# --- data only, in every command ---------------------------------------------------------------------------------


def older(path, source):
    """The same checkpoint as fairseq before 0.12 wrote it, whose configuration is an object of omegaconf."""
    from omegaconf import OmegaConf

    state = load_anything(source)
    state["cfg"] = OmegaConf.create({**state["cfg"], "list": [1, 2.5, None, True, "${common.seed}"]})
    OmegaConf.set_struct(state["cfg"], True)
    torch.save(state, path)
    return path


def test_a_configuration_of_omegaconf_is_data(trained, tmp_path):
    """By the plugin's tools and by fairseq's own loading; what an average keeps of it is plain."""
    from fairseq import checkpoint_utils

    paths = [older(tmp_path / f"checkpoint_1_{n}.pt", trained / "checkpoint_last.pt") for n in (1,)]
    plain, state = checkpoints.load(trained / "checkpoint_last.pt"), checkpoints.load(paths[0])
    assert type(state["cfg"]) is dict and state["cfg"]["model"] == plain["cfg"]["model"]
    assert state["cfg"]["list"] == [1, 2.5, None, True, "${common.seed}"]
    assert checkpoint_utils.load_checkpoint_to_cpu(str(paths[0]))["cfg"]["model"]["attention"] == "rela_g"
    checkpoints.average(paths, tmp_path / "average.pt")
    assert type(load_anything(tmp_path / "average.pt")["cfg"]) is dict
    if int(torch.__version__.split(".")[0]) >= 2:
        torch.load(tmp_path / "average.pt", weights_only=True)  # with nothing allowed, were that undone


@pytest.mark.slow
def test_an_older_checkpoint_translates_as_a_newer_one(trained, data, tmp_path):
    path = older(tmp_path / "old.pt", trained / "checkpoint_last.pt")
    for name, checkpoint in (("old", path), ("new", trained / "checkpoint_last.pt")):
        result = run_rela("translate", data, "--checkpoint", checkpoint, "--output", tmp_path / name, "--beam", 1)
        assert result.returncode == 0, result.stderr[-2000:]
    assert (tmp_path / "old.bpe").read_bytes() == (tmp_path / "new.bpe").read_bytes()


@pytest.mark.slow
def test_a_training_with_bleu_validation_goes_on_and_is_used(data, tmp_path):
    """B44: fairseq's meters of BLEU are arrays of NumPy, and lie in every checkpoint."""
    bleu = ("--eval-bleu", "--eval-bleu-args", '{"beam": 1, "max_len_b": 20}', "--eval-bleu-remove-bpe")
    run = (*train_arguments(data, tmp_path / "run"), "--no-epoch-checkpoints", "--save-interval-updates", 1, *bleu)
    for updates in (2, 3):
        result = run_fairseq("train", *run, "--max-update", updates)
        assert result.returncode == 0, result.stderr[-2000:]
    assert "(epoch 1 @ 2 updates)" in result.stdout
    state = checkpoints.load(tmp_path / "run" / "checkpoint_last.pt")
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
        ("rank", ["--task", "translation_multi_simple_epoch", "--lang-pairs", "xa-xb"], "of the task TranslationMulti"),
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
    """Data to all appearances, which would run code when its contents are set."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def __reduce__(self):
        return eval, (f"__import__('os').system('touch {self.path}')",)


@pytest.fixture(params=["extra", "cfg", "args", "omegaconf", "model", "legacy", "pickle"])
def hostile(request, trained, tmp_path):
    """A folder with a checkpoint that would run code when unpickled, wherever that is hidden."""
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
        assert cli.main([str(argument) for argument in verb]) == 2, verb
        said = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
        assert len(said) == 1 and re.search("refused|not a checkpoint|can be loaded", said[0]), (verb, said)
    assert not out.exists()


def test_a_hostile_checkpoint_is_refused_by_fairseqs_own_loaders(hostile, data):
    """Those by which fairseq-train restores and finetunes, -generate, -interactive, -validate and the hub load."""
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
