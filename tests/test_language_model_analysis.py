"""The analysis of language models, against loops over single contexts and values computed by hand."""

import json
import math

import pytest
import torch
from fairseq.data import Dictionary, indexed_dataset
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from test_language_model import SIZES, make_config

from fairseq_rela.analysis import analyze as analysis
from fairseq_rela.analysis import record
from fairseq_rela.analysis.capture import Batch, Captured, recorded_weights
from fairseq_rela.analysis.collectors.positions import Positions
from fairseq_rela.analysis.contexts import read_contexts
from fairseq_rela.errors import InputError
from fairseq_rela.models.transformer_lm_rela import TransformerLMRelaModel
from fairseq_rela.models.transformer_rela import attention_modules
from fairseq_rela.report.page import write_report
from fairseq_rela.variants import find_variant

LENGTH = 12  # pieces of a context; the last one of the subset is shorter
SENTENCES = 9


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A data folder as fairseq-preprocess --only-source writes it: dict.txt, test.bin, test.idx."""
    folder = tmp_path_factory.mktemp("LM")
    dictionary = Dictionary()
    for word in range(20):
        dictionary.add_symbol(f"w{word}", n=20 - word)
    dictionary.save(str(folder / "dict.txt"))
    generator = torch.Generator().manual_seed(5)
    builder = indexed_dataset.make_builder(str(folder / "test.bin"), impl="mmap", vocab_size=len(dictionary))
    for length in range(3, 3 + SENTENCES):
        words = torch.randint(4, len(dictionary), (length,), generator=generator)
        builder.add_item(torch.cat((words, torch.tensor([2]))).int())
    builder.finalize(str(folder / "test.idx"))
    return folder


@pytest.fixture
def task(data):
    return LanguageModelingTask.setup_task(
        LanguageModelingConfig(
            data=str(data),
            tokens_per_sample=LENGTH,
            seed=1,
            batch_size=None,
            dataset_impl="mmap",
            use_plasma_view=False,
        )
    )


@pytest.fixture
def analyze(data, task, tmp_path, monkeypatch):
    def run(model, **options):
        checkpoint = tmp_path / "model.pt"
        checkpoint.write_bytes(b"stands for the model")
        monkeypatch.setattr(analysis, "load_model", lambda path, folder: (model, task))
        return analysis.analyze(checkpoint, data, **options)

    return run


def make_model(attention, task):
    """A model of which some queries attend to nothing."""
    torch.manual_seed(1)
    model = TransformerLMRelaModel.build_model(make_config(attention=attention), task).double().eval()
    with torch.no_grad():
        for modules in attention_modules(model).values():
            for module in modules.values():
                module.q_proj.weight.mul_(6)
                module.k_proj.weight.mul_(6)
    return model


def stream(task):
    """The pieces of the subset, one after the other, as text."""
    task.load_dataset("test")
    dataset = indexed_dataset.make_dataset(str(task.args.data) + "/test", "mmap")
    return [int(token) for index in range(len(dataset)) for token in dataset[index]]


def rows_of(model, task):
    """Yield layer, head, position from 1, and the weights of each query, one context at a time, without padding."""
    tokens = stream(task)
    for start in range(0, len(tokens), LENGTH):
        inputs = torch.tensor([[2 if start == 0 else tokens[start - 1], *tokens[start : start + LENGTH - 1]]])
        inputs = inputs[:, : len(tokens) - start]
        sites = attention_modules(model)
        with torch.no_grad(), recorded_weights(sites) as weights:
            model(inputs)
        for layer, name in enumerate(sites["decoder"]):
            for head in range(SIZES["decoder_attention_heads"]):
                for t in range(inputs.size(1)):
                    yield layer, head, t + 1, weights[name][0, head, t, : t + 1].tolist()


@pytest.mark.parametrize("attention", ["softmax", "rela_g", "relu"])
def test_rates_are_those_of_a_loop_over_single_contexts(attention, task, analyze):
    model = make_model(attention, task)
    result = analyze(model, max_tokens=40)
    rows = list(rows_of(model, task))
    layers = result["sites"]["decoder"]["layers"]
    assert len(layers) == 2 and result["sites"].keys() == {"decoder"}
    for layer, entry in enumerate(layers):
        for head in range(4):
            own = [weights for at, h, _, weights in rows if (at, h) == (layer, head)]
            zeros, cells = sum(w == 0 for row in own for w in row), sum(map(len, own))
            assert entry["sparsity_by_head"][head] == pytest.approx(zeros / cells)
            assert entry["null_rate_by_head"][head] == pytest.approx(sum(not any(row) for row in own) / len(own))
    for part in result["positions"]:
        for layer, entry in enumerate(part["sites"]["decoder"]["layers"]):
            own = [w for at, _, t, w in rows if at == layer and part["first"] <= t <= part["last"]]
            assert part["queries"] == len(own) / 4
            assert entry["sparsity"] == pytest.approx(sum(w == 0 for row in own for w in row) / sum(map(len, own)))
            assert entry["null_rate"] == pytest.approx(sum(not any(row) for row in own) / len(own))
    assert [(part["first"], part["last"]) for part in result["positions"]] == [(1, 1), (2, 2), (3, 4), (5, 8), (9, 12)]
    if attention != "softmax":
        assert 0 < result["sites"]["decoder"]["null_rate"] < 1
    else:
        assert result["sites"]["decoder"]["null_rate"] == 0


def test_diversity_of_softmax_is_the_jensen_shannon_divergence(task, analyze):
    model = make_model("softmax", task)
    found = analyze(model)["sites"]["decoder"]["layers"]
    rows = list(rows_of(model, task))

    def entropy(row):
        return -sum(p * math.log(p) for p in row if p > 0)

    for layer, entry in enumerate(found):
        heads = [[w for at, h, _, w in rows if (at, h) == (layer, head)] for head in range(4)]
        values = []
        for query in zip(*heads):
            mean = [sum(column) / 4 for column in zip(*query)]
            values.append(entropy(mean) - sum(map(entropy, query)) / 4)
        assert entry["diversity"]["1.0"] == pytest.approx(sum(values) / len(values), abs=1e-6)


def test_positions_by_hand():
    """One head, two contexts of 3 and 2 pieces, padded to 3."""
    weights = torch.tensor([[[0.0, 9, 9], [0.5, 0, 9], [0, 0, 0]], [[2.0, 9, 9], [0, 0, 9], [9, 9, 9]]])[:, None]
    real = torch.tensor([[True, True, True], [True, True, False]])
    allowed = (real[:, :, None] & real[:, None, :]).tril()
    positions = Positions((1.0,))
    positions.add(Batch([0, 1], [Captured("decoder", 0, "name", find_variant("relu"), weights, allowed)]))
    first, second, third = positions.result()
    assert (first["first"], first["last"], first["queries"]) == (1, 1, 2)
    assert (second["first"], second["last"], second["queries"]) == (2, 2, 2)
    assert (third["first"], third["last"], third["queries"]) == (3, 3, 1)
    assert first["sites"]["decoder"]["sparsity"] == 1 / 2 and first["sites"]["decoder"]["null_rate"] == 1 / 2
    assert second["sites"]["decoder"]["sparsity"] == 3 / 4 and second["sites"]["decoder"]["null_rate"] == 1 / 2
    assert third["sites"]["decoder"]["sparsity"] == 1 and third["sites"]["decoder"]["null_rate"] == 1


def test_the_record_is_that_of_a_language_model(data, task, analyze, tmp_path):
    result = analyze(make_model("rela_g", task))
    assert (result["task"], result["languages"], result["attention_sites"]) == ("language_modeling", [], ["decoder"])
    assert (
        result["label"] == "rela_g" and result["shuffled"] is None and set(result["data"]) == {"test.bin", "test.idx"}
    )
    assert result["sentences"] == math.ceil(len(stream(task)) / LENGTH)
    assert "position 9 to 12" in record.describe(result)
    record.write(result, tmp_path / "out")
    written = json.loads((tmp_path / "out" / "analysis.json").read_text())
    assert written["positions"] == json.loads(json.dumps(result["positions"]))


def test_contexts_are_what_the_model_predicts(task):
    contexts = [pair.target for pair in read_contexts(task, "test")]
    assert [piece for context in contexts for piece in context] == [task.dictionary[token] for token in stream(task)]
    assert {len(context) for context in contexts[:-1]} == {LENGTH}


def test_summary_has_the_decoder_alone(data, task, monkeypatch, tmp_path):
    model = make_model("relu", task)
    monkeypatch.setattr(analysis, "load_model", lambda path, folder: (model, task))
    summary = analysis.summarise(tmp_path / "model.pt", data, "test")
    assert summary["sites"].keys() == {"decoder"} and summary["task"] == "language_modeling"
    rates = [not any(row) for _, _, _, row in rows_of(model, task)]
    assert summary["sites"]["decoder"]["null_rate"] == pytest.approx(sum(rates) / len(rates))


@pytest.mark.parametrize(
    "options", [{"level": "words"}, {"examples_of": [0]}, {"tags": "x"}, {"source_tags": "x"}, {"gold": "x"}]
)
def test_options_of_translation_models_are_refused(options, task, analyze):
    with pytest.raises(InputError, match="is of translation models"):
        analyze(make_model("rela_g", task), **options)


def test_a_context_longer_than_the_model_is_refused(task, analyze):
    model = make_model("rela_g", task)
    model.decoder.max_target_positions = LENGTH - 1
    with pytest.raises(InputError, match=f"test: a context of {LENGTH} pieces, the model takes {LENGTH - 1}"):
        analyze(model)


@pytest.mark.slow
def test_report_shows_language_models(task, analyze, tmp_path):
    for attention in ("softmax", "rela_g"):
        record.write(analyze(make_model(attention, task)), tmp_path / attention)
    write_report([tmp_path / "softmax", tmp_path / "rela_g"], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "language model, subset test" in page and "by position in the context" in page
    assert "row of Table 1" not in page and "Cross-attention, which a language model does not have" in page
    rows = json.loads((tmp_path / "report_figures" / "language-model-test-positions.json").read_text())
    assert any(row["first"] == 9 for row in rows["rows"])
