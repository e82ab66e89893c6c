"""Trained models and real text in the benchmark, against fairseq-generate, loops and a simulated clock."""

import argparse
import json

import numpy
import pytest
import torch
from conftest import load_anything
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from fairseq_rela.benchmark import real_text, timing, trained
from fairseq_rela.benchmark.models import Size, choose_variants
from fairseq_rela.benchmark.plan import Plan
from fairseq_rela.benchmark.run import run as run_benchmark
from fairseq_rela.benchmark.shown import describe_result
from fairseq_rela.data.folder import DataFolder
from fairseq_rela.errors import InputError
from fairseq_rela.experiment.decoding import load_decoding
from fairseq_rela.experiment.translation import translate
from fairseq_rela.files.lines import read_lines
from fairseq_rela.report.figures import speed_figure
from fairseq_rela.report.speed import load_speeds, rows, speeds_of

CPU = torch.device("cpu")
TINY = Size(layers=1, dim=16, ffn=16, heads=2, words=30)
PLAN = Plan(0.5, (1, 2), (), (TINY, 200, 8), (TINY, (4, 6), (1, 2)), "float32", (TINY, 8, (8,)))
SEARCH = load_decoding(max_len_a=0.5, max_len_b=3)  # such models rarely end their outputs
pytestmark = pytest.mark.skipif(int(torch.__version__.split(".")[0]) < 2, reason="rela bench needs torch 2")


def with_attention(checkpoint, data, path, attention):
    """Write a checkpoint like another one, with new weights and another attention."""
    state = load_anything(checkpoint)
    config = state["cfg"]["model"]
    if not isinstance(config, argparse.Namespace):
        config = OmegaConf.create(config)
    config.attention = attention
    torch.manual_seed(3)
    state["cfg"]["model"] = config
    state["model"] = trained.load_task(data).build_model(config).state_dict()
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, path)
    return path


# the fixture `trained` of conftest.py has the name of the module
@pytest.fixture(scope="module")
def checkpoint(request):
    return request.getfixturevalue("trained") / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def softmax(checkpoint, data, tmp_path_factory):
    return with_attention(checkpoint, data, tmp_path_factory.mktemp("softmax") / "m.pt", "softmax")


@pytest.fixture(scope="module")
def benched(checkpoint, softmax, data, tmp_path_factory):
    """Return the written record of two models that decode the test set."""
    folder = tmp_path_factory.mktemp("bench")
    request = trained.Request([checkpoint, softmax], data, SEARCH, "test", batches=(64,), rounds=1)
    measured = run_benchmark(folder, PLAN, parts=["decoding"], progress=lambda line: None, trained=request)
    written = json.loads((folder / "benchmark.json").read_text())
    assert written == json.loads(json.dumps(measured))
    return folder / "benchmark.json", written


@given(st.lists(st.integers(1, 30), min_size=10, max_size=60), st.none() | st.integers(1, 4))
def test_groups_are_equal_parts_by_length(lengths, most):
    groups = trained.length_groups(lengths)
    assert sorted(i for group in groups for i in group) == list(range(len(lengths)))
    assert max(map(len, groups)) - min(map(len, groups)) <= 1
    assert [lengths[i] for group in groups for i in group] == sorted(lengths)
    for whole, some in zip(groups, trained.length_groups(lengths, most=most)):
        assert len(some) == len(set(some)) == min(most or len(whole), len(whole)) and set(some) <= set(whole)


def test_groups_of_too_few_sentences_are_refused():
    with pytest.raises(ValueError, match="9 sentences do not make 10 groups"):
        trained.length_groups([1] * 9)


@pytest.mark.slow
def test_translations_equal_those_of_fairseq_generate(benched, checkpoint, data, tmp_path):
    translate(DataFolder(data), checkpoint, tmp_path / "out", SEARCH)
    pieces = [len(line.split()) for line in read_lines(tmp_path / "out.bpe")]
    sources = [len(line.split()) for line in read_lines(data / "bpe" / "test.xa")]
    order = sorted(range(len(sources)), key=lambda i: sources[i])  # stable
    cells = benched[1]["decoding"]
    assert len(cells) == 10 and sum(cell["sentences"] for cell in cells) == len(sources)
    for cell in cells:
        group, order = order[: cell["sentences"]], order[cell["sentences"] :]
        of_group = [sources[i] for i in group]
        assert (cell["shortest"], cell["longest"]) == (min(of_group), max(of_group))
        assert cell["length"] == pytest.approx(sum(of_group) / len(of_group), abs=0.051)
        # an unknown word is one piece, but may be written as two; lengths may tie in a beam
        assert cell["pieces"]["rela_g"] == sum(pieces[i] for i in group)


def test_the_record_of_trained_models(benched, checkpoint, softmax, data):
    record = benched[1]
    assert [one["label"] for one in record["trained"]["models"]] == ["softmax", "rela_g"]  # the baseline first
    assert [one["checkpoint"] for one in record["trained"]["models"]] == [str(softmax), str(checkpoint)]
    assert record["trained"]["search"]["gnmt_lenpen"] == 0.6 and record["trained"]["subset"] == "test"
    for cell in record["decoding"]:
        assert cell["ratio"]["softmax"]["median"] == 1.0 and cell["batch"] == 64 and cell["beam"] == 4
        assert set(cell["seconds"]) == {"softmax", "rela_g"} and cell["seconds"]["rela_g"]["rounds"] == 1
    assert "decoding, T=" in describe_result(record)


def test_models_take_turns_in_every_group(checkpoint, softmax, data, monkeypatch):
    order = []
    monkeypatch.setattr(trained, "_decode_group", lambda *arguments: order.append(arguments[-1]))
    request = trained.Request(
        [checkpoint, softmax], data, load_decoding(), "test", batches=(1, 50), rounds=2, sentences=1
    )
    models = trained.load(request, CPU, "float32")
    cells = trained.decode(models, request, CPU, "float32")
    # one warm-up, then two rounds, each of which begins with the next model
    assert order == 20 * ["softmax", "rela_g", "softmax", "rela_g", "rela_g", "softmax"]
    assert [cell["batch"] for cell in cells] == 10 * [1] + 10 * [50] and cells[3]["sentences"] == 1


def test_figure_2_shows_trained_models(benched):
    speeds = load_speeds(benched[0])
    assert speeds.models == {"softmax": "softmax", "rela_g": "rela_g"}
    cells = benched[1]["decoding"]
    want = [1 / cell["ratio"]["rela_g"]["median"] for cell in sorted(cells, key=lambda cell: cell["length"])]
    assert speeds.decoding[0].speeds["rela_g"] == pytest.approx(want)
    assert len(rows(speeds.decoding)) == 20
    figure = speed_figure(speeds)
    assert "trained models on" in figure.caption and "random weights" not in figure.caption
    pytest.importorskip("matplotlib")
    figure.draw()
    record = json.loads(json.dumps(benched[1]).replace('"rela_g"', '"rela_g (seed-2)"'))
    assert "rela_g (seed-2)" in speeds_of(record).decoding[0].speeds
    speed_figure(speeds_of(record)).draw()


def test_models_with_equal_names_get_different_labels(tmp_path):
    def model(label, folder):
        return trained.Trained(label, "", tmp_path / folder / "m.pt", None)

    models = [model("softmax", "s1"), model("softmax", "s2"), model("rela_g", "r1"), model("rela_g", "r2")]
    labels = [one.label for one in trained._with_own_labels(models)]
    assert labels == ["softmax", "softmax (s2)", "rela_g (r1)", "rela_g (r2)"]
    same = trained._with_own_labels([*models[:1], model("rela_g", "a/r"), model("rela_g", "b/r")])
    assert len({one.label for one in same}) == 3 and [one.attention for one in same][1:] == ["rela_g", "rela_g"]


def test_models_that_cannot_be_compared_are_refused(checkpoint, softmax, data, tmp_path):
    for checkpoints, subset, match in (
        ([checkpoint], "test", "none has softmax attention"),
        ([checkpoint, checkpoint], "test", "given twice"),
        ([tmp_path / "none.pt", softmax], "test", "no such checkpoint"),
        ([checkpoint, softmax], "test1", "no subset 'test1'"),
    ):
        request = trained.Request(checkpoints, data, SEARCH, subset, (1,), 1)
        with pytest.raises(InputError, match=match):
            run_benchmark(tmp_path, PLAN, parts=["decoding"], progress=lambda line: None, trained=request)
    assert not list(tmp_path.iterdir())


# --- training ----------------------------------------------------------------------------------------------------


def test_each_block_of_work_begins_with_the_next_candidate():
    now, order = [0.0], []

    def work(seconds):
        def run(name):
            order.append(name)
            now[0] += seconds * (2 if name == "b" else 1)

        return run

    times = timing.in_turns("abc", map(work, (1.0, 3.0, 5.0, 7.0)), clock=lambda: now[0])
    assert "".join(order) == "abcbcacababc"
    assert times == {"a": [1, 3, 5, 7], "b": [2, 6, 10, 14], "c": [1, 3, 5, 7]}


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40))
def test_blocks_add_up(values):
    blocks = real_text.in_blocks({"a": list(map(float, values))})["a"]
    assert sum(blocks) == sum(values) and len(blocks) == min(10, len(values))
    sizes = [len(part) for part in numpy.array_split(values, len(blocks))]
    assert max(sizes) - min(sizes) <= 1


def test_variants_train_on_the_same_real_batches(data, monkeypatch):
    seen = {}

    def record(model, optimizer, batch):
        assert model.training
        seen.setdefault(id(model), []).append([tuple(part.flatten().tolist()) for part in batch])

    monkeypatch.setattr(real_text, "update", record)
    result = real_text.train(
        real_text.Request(data, steps=25), choose_variants(["rela_g", "rela_i"]), TINY, 400, CPU, "float32"
    )
    assert list(result["total_seconds"]) == ["softmax", "rela_g", "rela_i"]
    first, *others = seen.values()
    assert len(first) == 27 and all(other == first for other in others)  # two before, untimed
    assert len({batch[0] for batch in first}) > 5
    targets = [piece for batch in first[2:] for piece in batch[3]]
    sentences = sum(targets.count(2) for targets in (batch[3] for batch in first[2:]))
    assert result["tokens"] == round(sum(piece != 1 for piece in targets) / 25)
    assert result["length"] == pytest.approx(sum(piece != 1 for piece in targets) / sentences, abs=0.051)
    assert all(len(batch[0]) <= 400 and len(batch[3]) <= 400 for batch in first)
    # the words come from the training text
    train = {tuple(line.split()) for line in read_lines(data / "bpe" / "train.xb")}
    dictionary = trained.load_task(data).target_dictionary
    pieces = first[5][3][: first[5][3].index(2)]
    assert any(tuple(dictionary.symbols[i] for i in pieces) == line for line in train)


@pytest.fixture(scope="module")
def on_text(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    request, names = real_text.Request(data, steps=12, max_tokens=100), ("rela_g", "sparsemax")
    return run_benchmark(folder, PLAN, parts=["training"], progress=lambda line: None, real=request, attention=names)


def test_the_record_of_training_on_real_text(on_text, data):
    training = on_text["training"]
    assert training["steps"] == 12 and training["data"] == str(data) and 0 < training["tokens"] <= 100
    assert training["seconds"]["rela_g"]["rounds"] == 10 and training["ratio"]["softmax"]["median"] == 1.0
    speeds = speeds_of({**on_text, "device": {**on_text["device"], "name": "chip"}})
    total = training["total_seconds"]
    assert speeds.training["rela_g"] == total["softmax"] / total["rela_g"] and set(speeds.training) == set(total)
    assert speeds.about_training.startswith("Training: 12 updates on the training text of")
    assert "training, T=" in describe_result(on_text)


def test_unusable_training_options_are_refused(data, tmp_path):
    for request, name, match in (
        (real_text.Request(data, 1), "rela", "--attention rela: no such variant; choose from softmax"),
        (real_text.Request(tmp_path, 1), "rela_g", "not a data folder"),
        (
            real_text.Request(data, 1, 1),
            "rela_g",
            "no training pair has at most 1 pieces; give a larger --max-tokens",
        ),
    ):
        with pytest.raises(InputError, match=match):
            run_benchmark(
                tmp_path, PLAN, parts=["training"], progress=lambda line: None, real=request, attention=[name]
            )
    assert not list(tmp_path.iterdir())


# --- the command -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--checkpoints", "m.pt"], "--checkpoints needs --data and the part decoding"),
        (["--checkpoints", "m.pt", "--data", "d", "--parts", "core"], "--checkpoints needs --data"),
        (["--steps", "5"], "--steps needs --data and the part training"),
        (["--data", "d", "--rounds", "5"], "--rounds needs --checkpoints"),
        (["--data", "d", "--parts", "flops"], "--data needs the part training, or --checkpoints"),
        (["--checkpoints", "m.pt", "--data", "d", "--batches", "1,0"], "--batches 0: give a number of at least 1"),
    ],
)
def test_incompatible_options_are_refused(arguments, message, tmp_path, monkeypatch, capsys):
    from fairseq_rela.cli import main

    monkeypatch.chdir(tmp_path)
    assert main(["bench", *arguments]) == 2
    assert message in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_command_decodes_and_draws(checkpoint, softmax, data, tmp_path, capsys):
    from fairseq_rela.cli import main

    pytest.importorskip("matplotlib")
    options = ("--rounds", 1, "--sentences", 1, "--batches", "4", "--output", tmp_path)
    arguments = ("bench", "--quick", "--data", data, *options, "--checkpoints", checkpoint, softmax)
    assert main(list(map(str, arguments))) == 0
    folder = tmp_path / "cpu-quick-trained"
    assert sorted(path.name for path in folder.iterdir()) == ["benchmark.json", "decoding.png"]
    assert "decoding, T=" in capsys.readouterr().out
    assert len(load_speeds(folder / "benchmark.json").decoding[0].lengths) == 10
