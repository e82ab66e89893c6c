"""The whole analysis of untrained models, against loops over single sentences."""

import argparse
import contextlib
import json
import math
import shutil
import statistics
from collections import Counter, defaultdict

import pytest
import torch
from conftest import make_model, prepare_data, translation_task
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import build_model

from fairseq_rela.analysis import analyze as analysis
from fairseq_rela.analysis import record
from fairseq_rela.analysis.aer import count, read_links
from fairseq_rela.analysis.capture import derangement, recorded_weights
from fairseq_rela.analysis.collectors.examples import choose_examples
from fairseq_rela.analysis.collectors.level import make_levels
from fairseq_rela.analysis.diversity import DiversityCount, count_diversity, normalised, tempered
from fairseq_rela.analysis.options import Options
from fairseq_rela.analysis.sentences import Sentence, data_checksums, read_sentences, refuse_hidden_words
from fairseq_rela.errors import InputError
from fairseq_rela.experiment import run_stages
from fairseq_rela.files.lines import read_lines
from fairseq_rela.files.records import sha256
from fairseq_rela.models.transformer_rela import attention_modules

HEADS = 4
SENTENCES = 60


@pytest.fixture(scope="module")
def corpus(corpus, tmp_path_factory):
    """Make a corpus whose test set is small enough to be counted by loops."""
    folder = tmp_path_factory.mktemp("small")
    for path in corpus.iterdir():
        kept = list(read_lines(path))[: SENTENCES if path.stem == "test" else None]
        (folder / path.name).write_text("".join(line + "\n" for line in kept))
    return folder


@pytest.fixture(scope="module")
def data(corpus, tmp_path_factory):
    return prepare_data(corpus, tmp_path_factory.mktemp("prepared") / "data", workers=1)


@pytest.fixture(scope="module")
def task(data):
    return translation_task(data, required_seq_len_multiple=1)


@pytest.fixture
def analyze(data, task, tmp_path, monkeypatch):
    """Return a function that analyses a model in memory, without a checkpoint."""

    def run(model, **options):
        checkpoint = tmp_path / "model.pt"
        checkpoint.write_bytes(b"stands for the model")
        monkeypatch.setattr(analysis, "load_model", lambda path, folder: (model, task))
        return analysis.analyze(checkpoint, data, **options)

    return run


def biased(name, task, **options):
    """Build a model with some null queries: scores of random size around a low mean."""
    model = make_model(name, task=task, **options)
    with torch.no_grad():
        for modules in attention_modules(model).values():
            for module in modules.values():
                module.q_proj.weight.mul_(4)
                module.k_proj.weight.mul_(4)
    return model


def one_by_one(model, task, subset="test", targets=None):
    """Return index to module to weights (H, T, S), with one sentence a batch."""
    task.load_dataset(subset)
    dataset, sentences = task.dataset(subset), {}
    for index in range(len(dataset)):
        sample = dict(dataset[index])
        if targets is not None:
            sample["target"] = dataset[targets[index]]["target"]
        inputs = dataset.collater([sample])["net_input"]
        with torch.no_grad(), recorded_weights(attention_modules(model)) as weights:
            model(**inputs)
        sentences[index] = {name: w[0] for name, w in weights.items()}
    return sentences


def rows_of(weights, decoder):
    """Return the rows of one head as lists of the weights that a query may use."""
    return [row[: t + 1] if decoder else row for t, row in enumerate(weights.tolist())]


def test_every_figure_equals_loops_over_single_sentences(analyze, task, data, corpus):
    """Sparsity, null rates, hallucination test, alignment, diversity and wake, all without the tested code."""
    model = biased("rela_g", task)
    tags = corpus / "gender.tags"  # two tags, by the length of the word
    words = [[line.split() for line in read_lines(data / "text" / f"test.{lang}")] for lang in ("xa", "xb")]
    tags.write_text("".join(" ".join("long" if len(w) > 4 else "short" for w in line) + "\n" for line in words[1]))
    result = analyze(model, gold=corpus / "test.align", tags=tags)
    pieces = [[line.split() for line in read_lines(data / "bpe" / f"test.{lang}")] for lang in ("xa", "xb")]
    sentences = one_by_one(model, task)
    shuffled = one_by_one(model, task, targets=derangement(SENTENCES, 1))

    for site, modules in attention_modules(model).items():
        assert [layer["name"] for layer in result["sites"][site]["layers"]] == list(modules)
        for layer, name in enumerate(modules):
            entry = result["sites"][site]["layers"][layer]
            for head in range(HEADS):
                rows = [row for w in sentences.values() for row in rows_of(w[name][head], site == "decoder")]
                cells = [cell for row in rows for cell in row]
                assert entry["sparsity_by_head"][head] == pytest.approx(cells.count(0) / len(cells))
                null = sum(not any(row) for row in rows) / len(rows)
                assert entry["null_rate_by_head"][head] == pytest.approx(null)
            other = [
                sum(not any(row) for w in shuffled.values() for row in rows_of(w[name][head], site == "decoder"))
                / sum(len(w[name][head]) for w in shuffled.values())
                for head in range(HEADS)
            ]
            got = result["shuffled"]["sites"][site]["layers"][layer]
            assert got["null_rate"] == pytest.approx(sum(other) / HEADS)
            mean = sum(other) / HEADS
            assert got["null_rate_variance"] == pytest.approx(sum((x - mean) ** 2 for x in other) / (HEADS - 1))
            for tau in (1.0, 0.5, 0.25, 0.1):
                total = DiversityCount(0.0, 0)
                for weights in sentences.values():
                    w = weights[name].unsqueeze(0)
                    allowed = torch.ones(1, *w.shape[2:], dtype=torch.bool)
                    allowed = allowed.tril() if site == "decoder" else allowed
                    total = total + count_diversity(tempered(w, allowed, tau), allowed)
                assert entry["diversity"][str(tau)] == pytest.approx(total.mean)
                assert 0 <= entry["diversity"][str(tau)] <= math.log(HEADS)
            check_wake(result, site, layer, sentences, name, pieces, words)
        for key in ("sparsity", "null_rate"):
            mean = sum(layer[key] for layer in result["sites"][site]["layers"]) / 2
            assert result["sites"][site][key] == pytest.approx(mean)
    assert 0.05 < result["sites"]["cross"]["null_rate"] < 0.95  # otherwise the assertions above test little

    gold = read_links(read_lines(corpus / "test.align"), "gold")
    for kind, first in (("normal", 0), ("shifted", 1)):
        layers = []
        for layer in range(2):
            weights = [sentences[i][f"decoder.layers.{layer}.encoder_attn"] for i in range(SENTENCES)]
            stacked = [torch.cat((w, w.mean(0, keepdim=True))) for w in weights]
            layers.append(
                [count(gold, [loop_links(w[h], first, *p) for w, *p in zip(stacked, *pieces)]) for h in range(5)]
            )
        got = result["alignment"][kind]
        for layer, counts in zip(got["layers"], layers):
            assert [head["aer"] for head in layer["heads"]] == pytest.approx([c.aer for c in counts[:-1]])
            want = {"aer": counts[-1].aer, "precision": counts[-1].precision, "recall": counts[-1].recall}
            assert layer["layer_attention"] == pytest.approx(want)
            assert layer["best_head"] == min(range(HEADS), key=lambda h: layer["heads"][h]["aer"])
        assert got["aol"] == pytest.approx(sum(counts[-1].aer for counts in layers) / 2)
        assert got["aoh"] == pytest.approx(sum(min(c.aer for c in counts[:-1]) for counts in layers) / 2)
        assert got["best"]["aer"] == pytest.approx(min(c.aer for counts in layers for c in counts))
    assert result["alignment"]["normal"]["aol"] != result["alignment"]["shifted"]["aol"]


def word_of(pieces):
    """Return the word number of each piece, and the words."""
    text = " ".join(pieces)
    words = text.replace("@@ ", "").split()
    numbers, seen = [], 0
    for piece in pieces:
        numbers.append(seen)
        seen += not piece.endswith("@@")
    return numbers, words


def loop_links(weights, first, source, target):
    """Return the links of one head; row ``first + t`` is target piece t, without </s> on either side."""
    links = set()
    source_words, target_words = word_of(source)[0], word_of(target)[0]
    for word in sorted(set(target_words)):
        rows = [first + t for t, w in enumerate(target_words) if w == word]
        score = Counter()
        for row in rows:
            for s, w in enumerate(source_words):
                score[w] += float(weights[row, s]) / len(rows)
        best = max(score, key=score.__getitem__)
        if score[best] > 0:
            links.add((best, word))
    return links


def check_wake(result, site, layer, sentences, name, pieces, words):
    """Check the wake rates by the word that each step consumes."""
    side, first = (0, 0) if site == "encoder" else (1, 1)
    for head in range(HEADS):
        seen, woken, by_tag = Counter(), Counter(), defaultdict(list)
        for index, weights in sentences.items():
            numbers, found = word_of(pieces[side][index])
            assert found == words[side][index]
            rows = rows_of(weights[name][head], site == "decoder")
            for number, word in enumerate(found):
                awake = any(any(rows[first + t]) for t, n in enumerate(numbers) if n == number)
                seen[word] += 1
                woken[word] += awake
                by_tag["long" if len(word) > 4 else "short"].append(awake)
        (got,) = (e for e in result["wake"][site] if (e["layer"], e["head"]) == (layer, head))
        want = sorted(((-woken[w] / n, -n, w) for w, n in seen.items() if n >= 5))[:20]
        assert [(e["word"], e["count"]) for e in got["words"]] == [(w, -n) for _, n, w in want]
        assert [e["share"] for e in got["words"]] == pytest.approx([-share for share, _, _ in want])
        tags = {} if site == "encoder" else {tag: sum(awake) / len(awake) for tag, awake in by_tag.items()}
        assert got["tags"] == pytest.approx(tags)
        assert got["null_rate"] == result["sites"][site]["layers"][layer]["null_rate_by_head"][head]


def fairseqs_own(task):
    """Build fairseq's Transformer: 2 + 2 layers, 2 heads."""
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, ["data", "--arch", "transformer_tiny"])
    torch.manual_seed(0)
    return build_model(convert_namespace_to_omegaconf(args).model, task).eval()


def word_rows(weights, site, source, target):
    """Return the rows of one head: for each query word the weights of the words that it may attend to."""
    source, target = word_of(source)[0], word_of(target)[0]
    if site == "encoder":
        queries = keys = list(enumerate(source))
    elif site == "cross":
        queries, keys = list(enumerate(target)), list(enumerate(source))
    else:
        queries = keys = list(enumerate(target, 1))  # position 0 consumes the end of sentence
    rows = []
    for i in sorted({word for _, word in queries}):
        pieces = [t for t, word in queries if word == i]
        row = []
        for j in sorted({word for _, word in keys}):
            if site != "decoder" or j <= i:
                row.append(sum(float(weights[t][s]) for t in pieces for s, word in keys if word == j) / len(pieces))
        rows.append(row)
    return rows


WORD_MODELS = {
    "rela_g": lambda task: biased("rela_g", task),
    "rela_g_gelu": lambda task: biased("rela_g_gelu", task),
    "sparsemax": lambda task: biased("sparsemax", task),
    "fairseq": fairseqs_own,
}


@pytest.mark.parametrize("name", WORD_MODELS)
def test_word_level_figures_equal_loops_over_single_sentences(analyze, task, data, name):
    """Sparsity, null rates, their variance and the hallucination test of words."""
    model = WORD_MODELS[name](task)
    result = analyze(model, examples=0)["words"]
    assert sorted(result) == ["shuffled", "sites"]
    pieces = [[line.split() for line in read_lines(data / "bpe" / f"test.{lang}")] for lang in ("xa", "xb")]
    order = derangement(SENTENCES, 1)
    true, shuffled = one_by_one(model, task), one_by_one(model, task, targets=order)
    for site, modules in attention_modules(model).items():
        for layer, module in enumerate(modules):
            heads = range(next(iter(modules.values())).num_heads)
            rates = {}
            for kind, sentences in (("true", true), ("shuffled", shuffled)):
                targets = range(SENTENCES) if kind == "true" else order
                # head, and "mean" for the layer attention, to rows
                rows = {head: [] for head in (*heads, "mean")}
                for index, weights in sentences.items():
                    sides = pieces[0][index], pieces[1][targets[index]]
                    w = weights[module].double()
                    for head in heads:
                        rows[head] += word_rows(w[head].tolist(), site, *sides)
                    rows["mean"] += word_rows(w.mean(0).tolist(), site, *sides)
                rates[kind] = {head: sum(not any(row) for row in r) / len(r) for head, r in rows.items()}
                if kind == "true":
                    cells = {head: [cell for row in rows[head] for cell in row] for head in heads}
            got = result["sites"][site]["layers"][layer]
            assert got["sparsity_by_head"] == pytest.approx([cells[h].count(0) / len(cells[h]) for h in heads])
            assert got["null_rate_by_head"] == pytest.approx([rates["true"][head] for head in heads])
            assert got["layer_null_rate"] == pytest.approx(rates["true"]["mean"])
            for kind, entry in (("true", got), ("shuffled", result["shuffled"]["sites"][site]["layers"][layer])):
                values = [rates[kind][head] for head in heads]
                assert entry["null_rate"] == pytest.approx(sum(values) / len(values))
                assert entry["null_rate_variance"] == pytest.approx(statistics.variance(values))
            assert all(0 <= value <= math.log(len(heads)) for value in got["diversity"].values())
    cross = result["sites"]["cross"]
    if name == "rela_g":
        assert 0.05 < cross["null_rate"] < 0.95 and cross["layer_null_rate"] < cross["null_rate"]
    if name == "fairseq":
        assert cross["sparsity"] == cross["null_rate"] == 0


def test_one_level_is_computed_alone(analyze, task, tmp_path):
    model = biased("rela_g", task)
    both, pieces, words = (analyze(model, level=level) for level in (None, "pieces", "words"))
    assert (both["level"], pieces["level"], words["level"]) == ("pieces", "pieces", "words")
    assert both["variance"] == "sample" and "words" not in pieces and "words" not in words
    for key in ("sites", "shuffled"):
        assert both[key] == pieces[key] and both["words"][key] == words[key] and pieces[key] != words[key]
    (head,) = (e for e in words["wake"]["cross"] if (e["layer"], e["head"]) == (1, 2))
    assert head["null_rate"] == words["sites"]["cross"]["layers"][1]["null_rate_by_head"][2]
    for result, levels in ((both, ["pieces", "words"]), (pieces, ["pieces"]), (words, ["words"])):
        lines = record.describe(result).splitlines()[1:]
        assert [line.split()[:2] for line in lines] == [[v, s] for v in levels for s in ("encoder", "decoder", "cross")]
    with pytest.raises(InputError, match="level 'syllables': give one of pieces, words"):
        analyze(model, level="syllables")


def test_sentences_without_words_have_no_word_level():
    sentences = [Sentence(["a", "</s>"], ["b", "</s>"]), Sentence(["</s>"], ["</s>"])]
    with pytest.raises(InputError, match="no sentence has words on both sides after shuffling the targets"):
        make_levels(Options(), sentences, "test")
    with pytest.raises(InputError, match="test: no sentence has words on both sides; give --level pieces"):
        make_levels(Options(level="words"), sentences[1:] * 2, "test")
    assert list(make_levels(Options(level="pieces"), sentences, "test")) == ["pieces"]


def test_layer_attention_gives_every_normalised_head_equal_weight(analyze, task, data, corpus):
    """Against loops; softmax heads have equal weight already."""
    model = biased("rela_g", task)
    raw, result = (analyze(model, gold=corpus / "test.align", layer_attention=kind) for kind in ("raw", "normalised"))
    assert (raw["layer_attention"], result["layer_attention"]) == ("raw", "normalised")
    pieces = [[line.split() for line in read_lines(data / "bpe" / f"test.{lang}")] for lang in ("xa", "xb")]
    sentences = one_by_one(model, task)
    gold = read_links(read_lines(corpus / "test.align"), "gold")
    for kind, first in (("normal", 0), ("shifted", 1)):
        assert raw["alignment"][kind]["aoh"] == result["alignment"][kind]["aoh"]
        for layer in range(2):
            links = []
            for index, *sides in zip(range(SENTENCES), *pieces):
                heads = sentences[index][f"decoder.layers.{layer}.encoder_attn"].tolist()
                shares = [[[w / (sum(row) or 1) for w in row] for row in head] for head in heads]
                links.append(loop_links(torch.tensor(shares).mean(0), first, *sides))
            got = result["alignment"][kind]["layers"][layer]["layer_attention"]["aer"]
            assert got == pytest.approx(count(gold, links).aer, abs=1e-3)  # equal maxima may differ by rounding
            assert got != raw["alignment"][kind]["layers"][layer]["layer_attention"]["aer"]
    with pytest.raises(InputError, match="give one of raw, normalised"):
        analyze(model, layer_attention="sum")
    model = make_model("softmax", task=task)
    raw, result = (analyze(model, gold=corpus / "test.align", layer_attention=k) for k in ("raw", "normalised"))
    assert raw["alignment"]["normal"]["aol"] == pytest.approx(result["alignment"]["normal"]["aol"], abs=1e-3)


def flat(value, path=""):
    """Yield every number in nested lists and dictionaries with its path."""
    if isinstance(value, dict):
        return {k: v for key, item in value.items() for k, v in flat(item, f"{path}/{key}").items()}
    if isinstance(value, list):
        return {k: v for key, item in enumerate(value) for k, v in flat(item, f"{path}/{key}").items()}
    return {path: value}


def test_the_size_of_batches_does_not_matter(analyze, task, corpus):
    """B15, B26: no figure counts padding."""
    model = biased("rela_g", task)
    small, large = (flat(analyze(model, gold=corpus / "test.align", max_tokens=n)) for n in (1, 8000))
    assert small.keys() == large.keys()
    for place, value in small.items():
        if isinstance(value, float):
            assert large[place] == pytest.approx(value, abs=1e-6, rel=2e-4 if "/weights/" in place else 1e-6), place
        else:
            assert large[place] == value, place


@pytest.mark.parametrize("name", ["softmax", "sparsemax", "entmax15"])
def test_normalised_weights_have_no_null_rows(analyze, task, name):
    """They have only one diversity; softmax has no zeros either (B15)."""
    model = make_model(name, task=task)
    result = analyze(model)
    assert (result["label"], result["attention_sites"]) == (name, ["encoder", "decoder", "cross"])
    assert result["alignment"] is None and result["links"] is None
    weights = one_by_one(model, task)
    for site, entry in result["sites"].items():
        assert entry["null_rate"] == 0 and (entry["sparsity"] == 0) == (name == "softmax")
        assert list(entry["diversity"]) == ["1.0"] and 0 < entry["diversity"]["1.0"] < math.log(HEADS)
        assert all(word["share"] == 1 for head in result["wake"][site] for word in head["words"])
        assert result["shuffled"]["sites"][site]["null_rate"] == 0
    total = DiversityCount(0.0, 0)
    for sentence in weights.values():
        w = sentence["decoder.layers.1.encoder_attn"].unsqueeze(0)
        allowed = torch.ones(1, *w.shape[2:], dtype=torch.bool)
        total = total + count_diversity(normalised(w, allowed), allowed)
    assert result["sites"]["cross"]["layers"][1]["diversity"]["1.0"] == pytest.approx(total.mean)


@pytest.mark.parametrize("name", ["rela_g_gelu", "rela_g_leaky_relu"])
def test_negative_weights_are_analysed(analyze, task, name):
    result = analyze(biased(name, task), links=True)
    for entry in result["sites"].values():
        assert all(0 <= d <= math.log(HEADS) for d in entry["diversity"].values())
    assert result["alignment"] is None and len(result["links"]) == 2 * 2 * 5


def test_other_sites_keep_softmax(analyze, task):
    model = biased("rela_g", task, attention_sites="encoder,cross")
    result = analyze(model)
    assert result["label"] == "rela_g (encoder,cross)"
    assert (result["attention"], result["attention_sites"]) == ("rela_g", ["encoder", "cross"])
    assert [result["sites"][site]["layers"][0]["variant"] for site in ("encoder", "decoder", "cross")] == [
        *("rela_g", "softmax", "rela_g")
    ]
    assert list(result["sites"]["decoder"]["diversity"]) == ["1.0"]
    assert result["parameters"] == sum(p.numel() for p in model.parameters())


def test_examples_are_the_same_for_every_model(analyze, task, data):
    results = [analyze(biased(name, task), examples=4)["examples"] for name in ("rela_g", "softmax")]
    ids = [[sentence["id"] for sentence in result["sentences"]] for result in results]
    assert ids[0] == ids[1] == sorted(set(ids[0])) and len(ids[0]) == 4
    sentences, weights = read_sentences(task, data, "test"), one_by_one(biased("rela_g", task), task)
    for example in results[0]["sentences"]:
        assert (example["source"], example["target"]) == sentences[example["id"]]
        assert example["target"][-1] == example["source"][-1] == "</s>" and 8 <= len(example["target"]) <= 20
        for site, modules in attention_modules(biased("rela_g", task)).items():
            for layer, name in enumerate(modules):
                got = torch.tensor(example["weights"][site][layer], dtype=torch.float64)
                torch.testing.assert_close(got, weights[example["id"]][name], rtol=1e-3, atol=1e-12)


def test_the_nearest_examples_are_taken_where_none_has_moderate_length():
    lengths = [3, 50, 7, 22, 100, 4]
    sentences = [(["a"] * n, ["b"] * n) for n in lengths]
    sentences = [Sentence(*sentence) for sentence in sentences]
    assert choose_examples(sentences, 2) == [2, 3]
    assert choose_examples(sentences, 99) == list(range(6))
    assert choose_examples(sentences, 0) == []
    uneven = [Sentence(["a"] * source, ["b"] * target) for source, target in ((200, 10), (10, 22))]
    assert choose_examples(uneven, 1) == [1]  # the nearer side does not count alone


def test_analysis_files_are_written(analyze, task, data, corpus, tmp_path):
    result = analyze(biased("rela_g", task), gold=corpus / "test.align", examples=2)
    folder = tmp_path / "out"
    (folder / "alignments").mkdir(parents=True)
    (folder / "alignments" / "normal.layer9.head0.pharaoh").write_text("0-0\n")  # files of another model
    record.write(result, folder)
    written = json.loads((folder / "analysis.json").read_text())
    assert written == {key: value for key, value in result.items() if key not in ("examples", "links")}
    assert json.loads((folder / "examples.json").read_text()) == result["examples"]
    assert written["sha256"] == sha256(tmp_path / "model.pt")
    assert written["data"] == {p.name: sha256(p) for p in data.glob("test.*")} and len(written["data"]) == 4
    assert written["languages"] == ["xa", "xb"] and written["sentences"] == SENTENCES
    gold = read_links(read_lines(corpus / "test.align"), "gold")
    files = sorted(path.name for path in (folder / "alignments").iterdir())
    heads = [*(f"head{head}" for head in range(HEADS)), "mean"]
    assert files == sorted(f"{k}.layer{n}.{h}.pharaoh" for k in ("normal", "shifted") for n in (0, 1) for h in heads)
    for kind in ("normal", "shifted"):
        for number, layer in enumerate(written["alignment"][kind]["layers"]):
            for head, name in enumerate(heads):
                lines = read_lines(folder / "alignments" / f"{kind}.layer{number}.{name}.pharaoh")
                rate = layer["layer_attention"] if name == "mean" else layer["heads"][head]
                links = [sentence.sure for sentence in read_links(lines, name)]
                assert count(gold, links).aer == pytest.approx(rate["aer"])


def test_gold_files_of_other_conventions_give_the_same_rates(analyze, task, corpus, tmp_path):
    """Files from 1, target first, with possible links. Only possible links cause no division by zero."""
    model = biased("rela_g", task)
    lines = [[tuple(map(int, link.split("-"))) for link in line.split()] for line in read_lines(corpus / "test.align")]
    other, possible = tmp_path / "other", tmp_path / "possible"
    other.write_text("".join(" ".join(f"{j + 1}-{i + 1}" for i, j in line) + "\n" for line in lines))
    want = analyze(model, gold=corpus / "test.align")["alignment"]
    got = analyze(model, gold=other, gold_base=1, gold_reversed=True)["alignment"]
    assert got["normal"] == want["normal"] and got["shifted"] == want["shifted"] and got["gold"] == str(other)
    possible.write_text("".join(" ".join(f"{i}p{j}" for i, j in line) + "\n" for line in lines))
    with torch.no_grad():
        for module in attention_modules(model)["cross"].values():  # every score is far below 0
            for projection, value in ((module.q_proj, 1.0), (module.k_proj, -1.0)):
                projection.weight.zero_()
                projection.bias.fill_(value)
    nothing = analyze(model, gold=possible)["alignment"]["normal"]
    assert nothing["aol"] == nothing["aoh"] == nothing["best"]["aer"] == 1
    assert nothing["layers"][0]["layer_attention"] == {"aer": 1, "precision": 0, "recall": 0}


def test_files_that_do_not_match_the_data_are_refused(analyze, task, corpus, data, tmp_path):
    model = make_model(task=task)
    lines = list(read_lines(corpus / "test.align"))

    def written(name, *content, encoding="utf-8"):
        (tmp_path / name).write_text("".join(line + "\n" for line in content), encoding=encoding)
        return tmp_path / name

    def shifted(line):
        return " ".join("-".join(str(int(n) + 1) for n in link.split("-")) for link in line.split())

    def refused(match, **options):
        with pytest.raises(InputError, match=match) as error:
            analyze(model, **options)
        assert "\n" not in str(error.value)

    refused(r"base1, line 1: \S+ is outside of the sentences", gold=written("base1", *map(shifted, lines)))  # B12
    refused("outside of the sentences", gold=corpus / "test.align", gold_reversed=True)
    refused("59 lines for 60 sentences", gold=written("short", *lines[:-1]))
    refused("not UTF-8", gold=written("latin", "é", encoding="latin-1"))
    refused("cannot be read", gold=tmp_path / "nothere")
    # the words of the gold alignment differ from those of the prepared text
    texts = [list(read_lines(corpus / f"test.{lang}")) for lang in ("xa", "xb")]
    written("beside.xa", texts[0][0] + " and more", *texts[0][1:])
    written("beside.xb", *texts[1])
    refused(r"beside\.xa, line 1: \d+ words, but \d+ in the prepared text", gold=written("beside.align", *lines))
    plain = written("plain", *lines)
    files = (tmp_path / "beside.xa", tmp_path / "beside.xb")
    refused(r"beside\.xa, line 1", gold=plain, gold_sentences=files)
    refused("two files", gold=plain, gold_sentences=files[:1])
    for name, text in (("few.xa", texts[0]), ("few.xb", texts[1])):
        written(name, *text[1:])
    refused("59 sentences, but the subset 60", gold=plain, gold_sentences=(tmp_path / "few.xa", tmp_path / "few.xb"))
    assert analyze(model, gold=plain, gold_sentences=[corpus / "test.xa", corpus / "test.xb"])["alignment"]
    refused("tags has 1 lines for 60 sentences", tags=written("tags", "NOUN"))
    refused(r"tags, line 1: 1 tags for \d+ words", source_tags=written("tags", *["NOUN"] * SENTENCES))
    refused("no subset 'nothere'", subset="nothere")
    refused("examples", examples=-1)
    refused("temperatures", taus=(0.0,))


def test_a_model_that_diverged_is_refused(analyze, task):
    model = make_model("relu", task=task)
    with torch.no_grad():
        attention_modules(model)["cross"]["decoder.layers.1.encoder_attn"].q_proj.bias.fill_(torch.nan)
    with pytest.raises(InputError, match=r"decoder\.layers\.1\.encoder_attn are not finite.*diverged"):
        analyze(model)


def test_an_analysis_of_an_earlier_version_is_made_again(data, tmp_path, monkeypatch):
    """An earlier version wrote no word level and another variance. A complete analysis of the same inputs is kept."""
    (tmp_path / "average.pt").write_bytes(b"stands for the model")
    (tmp_path / "examples.json").write_text("{}")
    made_of = {"sha256": sha256(tmp_path / "average.pt"), "data": data_checksums(data, "test"), "gold": None}
    experiment = argparse.Namespace(
        run=tmp_path, data=data, average=tmp_path / "average.pt", test_links=None, open_gold_set=contextlib.nullcontext
    )
    made = []
    monkeypatch.setattr(analysis, "analyze", lambda *arguments, **options: made.append(arguments) or {})
    monkeypatch.setattr(record, "write", lambda *arguments: None)
    monkeypatch.setattr(record, "describe", lambda result: "")
    for done, times in ((made_of, 1), ({**made_of, "words": {}}, 1), ({**made_of, "words": {}, "sha256": "0"}, 2)):
        (tmp_path / "analysis.json").write_text(json.dumps(done))
        run_stages.analyze(experiment)
        assert len(made) == times


def test_words_that_unknown_pieces_hide_are_not_counted_against_gold(data, tmp_path, capsys):
    """Data of fairseq-preprocess have <unk>, which does not show whether its word continues."""
    dictionary = argparse.Namespace(unk_word="<unk>")
    cfg = argparse.Namespace(source_lang="xa", target_lang="xb")
    task = argparse.Namespace(cfg=cfg, source_dictionary=dictionary, target_dictionary=dictionary)
    known = [Sentence(["a@@", "b", "</s>"], ["c", "</s>"])] * 3
    hidden = [*known, Sentence(["a", "</s>"], ["<unk>", "c", "</s>"])]
    refuse_hidden_words(known, task, tmp_path, "test", True)
    with pytest.raises(InputError, match="1 sentences of test have unknown pieces.*--source and --target"):
        refuse_hidden_words(hidden, task, tmp_path, "test", True)
    refuse_hidden_words(hidden, task, tmp_path, "test", False)
    assert "words are inexact" in capsys.readouterr().err
    refuse_hidden_words(hidden, task, data, "test", True)  # which has bpe/
    assert capsys.readouterr().err == ""


def test_data_that_has_changed_is_refused(data, tmp_path):
    copy = tmp_path / "data"
    shutil.copytree(data, copy)
    assert data_checksums(copy, "test") == data_checksums(data, "test")
    with open(copy / "test.xa-xb.xa.bin", "ab") as file:
        file.write(b"more")
    with pytest.raises(InputError, match="has changed"):
        data_checksums(copy, "test")
    (copy / "prepare.json").unlink()  # data of fairseq-preprocess
    assert sorted(data_checksums(copy, "test")) == sorted(data_checksums(data, "test"))
