"""The scripts that fill tables of the documentation: the commands they run, and the numbers that they write."""

import argparse
import importlib.util
import json
import statistics
import sys
from unittest import mock

import pytest
from conftest import ROOT

from fairseq_rela.errors import InputError


def load(name):
    """Return a script as a module, without a folder of compiled code beside it."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    with mock.patch.object(sys, "dont_write_bytecode", True):
        spec.loader.exec_module(module)
    return module


def cells(markdown):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in markdown.splitlines()]


# --- from_softmax ------------------------------------------------------------------------------------------------


def test_the_documentation_has_the_measured_table_of_softmax_models():
    script = load("from_softmax")
    record = json.loads((ROOT / "benchmarks" / "from_softmax" / "from_softmax.json").read_text())
    page = (ROOT / "docs" / "operator.md").read_text(encoding="utf-8")
    shown = page.split("<!-- from_softmax begin -->\n")[1].split("<!-- from_softmax end -->")[0]
    assert shown == script.markdown(record["rows"])
    bleu = {(row["attention"], row["updates"]): row["bleu"] for row in record["rows"]}
    behind = bleu["softmax", 45] - bleu["rela_g", 45]
    assert f"After 45 updates ReLA-g is {behind:.1f} BLEU behind softmax with as many updates" in page
    assert bleu["rela_g", 0] / bleu["softmax", 0] == pytest.approx(2 / 3, abs=0.03)  # "two thirds of the BLEU remain"


@pytest.mark.parametrize("updates, lr", [(0, 0), (45, 0.0015)])
def test_a_model_starts_from_the_checkpoint_and_trains_for_the_given_updates(monkeypatch, tmp_path, updates, lr):
    """Without updates, fairseq makes one with a learning rate of 0."""
    script = load("from_softmax")
    called = []
    monkeypatch.setattr(script, "call", lambda *words: called.extend(map(str, words)))
    monkeypatch.setattr(script.checkpoints, "load", lambda path: {"cfg": {"common": {"seed": 7}}})
    checkpoint = tmp_path / "average.pt"
    options = argparse.Namespace(task="synthetic", checkpoint=checkpoint, data=tmp_path / "data", lr=0.0015)
    script.train(options, "rela_g", updates, tmp_path / "run")
    for word in (
        *("attention=rela_g", f"checkpoint.finetune_from_model={checkpoint}", "common.seed=7"),
        *(f"optimization.max_update={max(updates, 1)}", f"optimization.lr=[{lr}]"),
    ):
        assert word in called
    assert "lr_scheduler.warmup_init_lr=" + ("0.0001" if updates else "0.0") in called


# --- lm_table ----------------------------------------------------------------------------------------------------


def lm_record(corpus, attention, seed, perplexity):
    shares = {"sparsity": 0.5, "null_rate": 0.125}
    measured = {"valid": perplexity, "test": perplexity + 1}
    return {"corpus": corpus, "attention": attention, "seed": seed, "perplexity": measured, **shares}


def test_the_table_of_language_models_has_means_and_paired_differences():
    script = load("lm_table")
    softmax, rela = {1: 30.0, 2: 31.0}, {1: 32.0, 2: 34.0}
    records = [lm_record("a", "softmax", seed, value) for seed, value in softmax.items()]
    records += [lm_record("a", "rela_g", seed, value) for seed, value in rela.items()]
    records += [lm_record("b", "softmax", 1, 50.0)]
    head, _, *rows = cells(script.markdown(records))
    assert head[3:5] == ["perplexity, valid", "perplexity, test"] and [row[0] for row in rows] == 3 * ["a"] + 3 * ["b"]
    assert rows[0][1:] == ["`softmax`", "2", "30.5 ± 0.7", "31.5 ± 0.7", "50.0 ± 0.0 %", "12.5 ± 0.0 %"]
    low, high = (
        2.5 + sign * 12.706 * statistics.stdev([2, 3]) / 2**0.5 for sign in (-1, 1)
    )  # t of 1 degree of freedom
    assert rows[2][3] == rows[2][4] == f"+2.5 [{low:.1f}, {high:.1f}]".replace("-", "\u2212")
    assert rows[4][2:5] == ["0", "-", "-"] and rows[5][3] == "-"


def test_the_documentation_has_the_measured_perplexities():
    records = json.loads((ROOT / "benchmarks" / "lm" / "lm.json").read_text())["runs"]
    page = (ROOT / "docs" / "language-models.md").read_text(encoding="utf-8")
    shown = page.split("<!-- lm begin -->\n")[1].split("<!-- lm end -->")[0]
    assert shown == load("lm_table").markdown(records)
    for corpus in ("multi30k", "news"):
        values = [
            one["perplexity"]["test"] for one in records if one["corpus"] == corpus and one["attention"] == "rela_g"
        ]
        assert f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}" in shown


def test_a_language_model_that_is_there_is_not_trained_again(monkeypatch, tmp_path):
    script = load("lm_table")
    options = argparse.Namespace(output=tmp_path, updates=3, jobs=1)
    data = tmp_path / "prepared"
    data.mkdir()
    (data / "prepare.json").write_text("{}")
    called = []

    def call(module, *words):
        called.append(module)
        if module.endswith("cli"):
            (tmp_path / "a.rela_g.seed-1").mkdir()
            site = {"sparsity": 0.5, "null_rate": 0.1}
            (tmp_path / "a.rela_g.seed-1" / "analysis.json").write_text(json.dumps({"sites": {"decoder": site}}))
        return "Loss (base 2): 5.0, Perplexity: 32.00"

    monkeypatch.setattr(script, "call", call)
    for _ in range(2):
        script.binarise(data, "en", tmp_path / "a")
        script.measure_all([script.Run("a", "rela_g", 1)], script.measure, options)
    with pytest.raises(InputError, match="a.rela_g.seed-1.json was made with another updates; remove it, or give"):
        other = argparse.Namespace(output=tmp_path, updates=4, jobs=1)
        script.measure_all([script.Run("a", "rela_g", 1)], script.measure, other)
    (data / "prepare.json").write_text('{"other": 1}')
    with pytest.raises(InputError, match="made_of.json was made with another data"):
        script.binarise(data, "en", tmp_path / "a")
    assert called.pop(0) == "fairseq_cli.preprocess"
    assert called == ["fairseq_cli.train", "fairseq_cli.eval_lm", "fairseq_cli.eval_lm", "fairseq_rela.cli"]
    record = json.loads((tmp_path / "runs" / "a.rela_g.seed-1.json").read_text())
    assert record["perplexity"] == {"valid": 32.0, "test": 32.0} and record["null_rate"] == 0.1


def test_wrong_corpora_give_one_line(monkeypatch, tmp_path, capsys):
    script = load("lm_table")
    monkeypatch.setattr(script.sys, "argv", ["lm_table.py", "--corpus", "a", "--output", str(tmp_path)])
    assert script.main() == 2
    assert capsys.readouterr().err.startswith("lm_table: error: ")


# --- lm_contexts -------------------------------------------------------------------------------------------------


def test_perplexity_time_and_memory_by_the_length_of_a_context(monkeypatch, tmp_path):
    """The text has other perplexities at each length, and a benchmark without 8,192 leaves a gap."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    script = load("lm_contexts")
    contexts = []

    def fairseq(command, *words):
        if command == "eval_lm":
            contexts.append(words[words.index("--tokens-per-sample") + 1])
            return f"Perplexity: {len(contexts)}.5"

    monkeypatch.setattr("lm_table.fairseq", fairseq)
    options = argparse.Namespace(output=tmp_path, updates=3, jobs=1)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "made_of.json").write_text('{"made_of": {"data": "1", "lang": "en"}}')
    runs = [script.Run("text", attention, 1) for attention in ("softmax", "rela_g")]
    for _ in range(2):
        records = script.measure_all(runs, script.measure, options)
    assert contexts == 2 * [256, 512, 1024, 2048, 4096, 8192]
    cells_ = [
        {
            "length": length,
            "seconds": {"softmax": {"median": 2.0}, "rela_g": {"median": 3.0}},
            "ratio": {"rela_g": {"median": 1.5}},
            "peak_bytes": {"softmax": 2**20, "rela_g": 2**21},
        }
        for length in script.CONTEXTS[:-1]
    ]
    table = {row[0]: row[1:] for row in cells(script.markdown(records, cells_))}
    assert table["perplexity, softmax"] == [f"{n}.5 (n = 1)" for n in range(1, 7)]
    assert table["perplexity, ReLA-g"][0] == "7.5 (n = 1)"
    assert table["difference"][0] == "+6.0 (n = 1)"
    assert table["time of ReLA-g, divided by softmax"] == [*5 * ["1.50"], ""]
    assert table["peak memory, ReLA-g, MiB"] == [*5 * ["2"], ""]
    pytest.importorskip("matplotlib")
    assert script.draw(records, cells_).startswith(b"\x89PNG")


def test_the_documentation_has_the_perplexities_by_the_length_of_a_context(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    records = json.loads((ROOT / "benchmarks" / "lm_contexts" / "contexts.json").read_text())["runs"]
    bench = json.loads((ROOT / "benchmarks" / "cpu-quick-lm" / "benchmark.json").read_text())["lm"]
    page = (ROOT / "docs" / "language-models.md").read_text(encoding="utf-8")
    shown = page.split("<!-- contexts begin -->\n")[1].split("<!-- contexts end -->")[0]
    assert shown == load("lm_contexts").markdown(records, bench)
    # independent of the script: the last column
    last = {row[0]: row[-1] for row in cells(shown)}
    for name, label in (("softmax", "softmax"), ("rela_g", "ReLA-g")):
        values = [one["perplexity"]["8192"] for one in records if one["attention"] == name]
        assert last[f"perplexity, {label}"] == f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"
        assert last[f"peak memory, {label}, MiB"] == f"{bench[-1]['peak_bytes'][name] / 2**20:.0f}"
    assert {one["made_of"]["updates"] for one in records} == {300} and "for 300 updates" in page
    ratios = [cell["ratio"]["rela_g"]["median"] for cell in bench]
    assert all(ratio > 1.065 for ratio in ratios[:3]) and all(ratio < 1 for ratio in ratios[3:])
    assert f"takes 7 to {max(ratios) - 1:.0%} longer".replace("%", " %") in page and 0.6 < ratios[-1] < 0.7
    by_seed = [[one["perplexity"] for one in records if one["attention"] == name] for name in ("softmax", "rela_g")]
    for softmax, rela in zip(*by_seed):
        assert all(rela[length] < softmax[length] for length in ("512", "1024", "2048", "4096", "8192"))


# --- performance_tables ------------------------------------------------------------------------------------------


def test_the_documentation_has_the_measured_times_and_memory():
    script = load("performance_tables")
    quick, op, peers = (
        json.loads((ROOT / "benchmarks" / name / "benchmark.json").read_text()) for name in script.RECORDS
    )
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    shown = script.tables(quick, op, peers)
    for name, table in shown.items():
        assert page.split(f"<!-- {name} begin -->\n")[1].split(f"\n<!-- {name} end -->")[0] == table, name
    training, one, many = ({row[0]: row for row in cells(shown["peers"])}["`entmax_alpha`"])[1:]
    assert (
        training == f"{peers['training']['ratio']['entmax_alpha']['median']:.2f}" and 2 < float(many) < float(one) < 4
    )
    results = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert f"training steps take {training} times as long as with softmax, and decoding 2 to 4 times" in results
    # independent of the script: the sentences of the page, and one column of the record
    alone = {
        cell["length"]: cell for cell in quick["core"] if not (cell["causal"] or cell["padded"] or cell["dropout"])
    }
    ratios = {length: cell["passes"]["forward_backward"]["ratio"] for length, cell in alone.items()}
    column = [row[1] for row in cells(shown["times"]) if row[0] in [f"attention alone, {length:,}" for length in alone]]
    assert column == [f"{ratio['rela_g']['median']:.2f}" for ratio in ratios.values()]
    to_sdpa = [ratios[n]["rela_g"]["median"] / ratios[n]["sdpa"]["median"] for n in (512, 1024, 2048)]
    assert f"ReLA-g takes {min(to_sdpa):.1f} to {max(to_sdpa):.1f} times its time at lengths 512 to 2,048" in page
    saved = [1 - ratios[n]["rela_g"]["median"] for n in (1024, 2048)]
    assert saved == pytest.approx([0.15, 0.15], abs=0.035) and "takes 15 % less time than softmax by matrix" in page


# --- length_penalty ----------------------------------------------------------------------------------------------


@pytest.fixture
def penalties(monkeypatch, tmp_path):
    """The script, with models that are best at 1.5 (softmax) and at 3 (ReLA-g) on the dev set, and what it translated.

    BLEU of the test set is 30 plus the penalty; ReLA-g is 2 behind. Of seed 1 there is only softmax.
    """
    script = load("length_penalty")
    best, done = {"softmax": 1.5, "rela_g": 3.0}, []

    def translated(data, checkpoint, prefix, subset, penalty):
        label = checkpoint.parent.name.split(".")[0]
        assert checkpoint.read_text() == label and prefix.name == f"{label}.seed-2"
        done.append((label, subset, penalty))
        bleu = 30.0 - abs(penalty - best[label]) if subset == "valid" else 30.0 + penalty - 2 * (label == "rela_g")
        return {"bleu": bleu, "hypothesis_length": 9 + penalty, "reference_length": 10}

    monkeypatch.setattr(script, "translated", translated)
    monkeypatch.setattr(script, "DataFolder", lambda path: path)
    for name in ("softmax.seed-1", "softmax.seed-2", "rela_g.seed-2"):
        average = tmp_path / "experiments" / "synthetic" / name / "average.pt"
        average.parent.mkdir(parents=True)
        average.write_text(name.split(".")[0])
    words = ["--study", "synthetic", "--root", str(tmp_path / "experiments"), "--pair", "softmax", "rela_g"]
    return script, [*words, "--output", str(tmp_path / "out")], done


def test_each_model_gets_the_length_penalty_that_is_best_on_the_dev_set(monkeypatch, tmp_path, penalties):
    script, words, done = penalties
    for arguments in (words, words, words[-2:]):  # measured once, and the table alone
        monkeypatch.setattr(sys, "argv", ["length_penalty.py", *arguments])
        assert script.main() == 0
    assert [one[2] for one in done if one[:2] == ("softmax", "valid")] == list(script.PENALTIES)
    assert {one for one in done if one[1] == "test"} == {
        *(("softmax", "test", 0.6), ("softmax", "test", 1.5)),
        *(("rela_g", "test", 0.6), ("rela_g", "test", 3.0)),
    }
    assert len(done) == 2 * len(script.PENALTIES) + 4
    head, _, *rows = cells((tmp_path / "out" / "length_penalty.md").read_text())
    assert head[3:] == [f"{name}, {one}" for one in ("0.6", "best") for name in ("BLEU", "length ratio", "difference")]
    usual, best = ["30.60 (n = 1)", "0.960 (n = 1)", "-"], ["31.50 (n = 1)", "1.050 (n = 1)", "-"]
    assert rows[0] == ["`softmax`", "1", "1.5", *usual, *best]
    differences = ["\u22122.00 (n = 1)", "\u22120.50 (n = 1)"]
    assert [rows[1][0], rows[1][2], rows[1][5], rows[1][8]] == ["`rela_g`", "3", *differences]


@pytest.mark.parametrize(
    "pair,message",
    [
        (("softmax", "rela"), "--pair rela: not a row of synthetic; choose of softmax, "),
        (("softmax", "entmax15"), "average.pt: no model of softmax and entmax15 is there; train them"),
    ],
)
def test_absent_models_are_named_before_any_is_measured(monkeypatch, capsys, penalties, pair, message):
    script, words, done = penalties
    monkeypatch.setattr(sys, "argv", ["length_penalty.py", *words, "--pair", *pair])
    assert script.main() == 2
    assert message in capsys.readouterr().err and not done


def test_a_model_that_was_trained_again_is_not_mixed_with_earlier_results(monkeypatch, tmp_path, capsys, penalties):
    script, words, done = penalties
    monkeypatch.setattr(sys, "argv", ["length_penalty.py", *words])
    assert script.main() == 0
    monkeypatch.setattr(script, "sha256", lambda path: "another")
    assert script.main() == 2
    assert "softmax.seed-2.json was made with another model; remove it" in capsys.readouterr().err


def test_the_length_penalty_is_that_of_the_search(monkeypatch, tmp_path):
    """The penalty reaches fairseq-generate, and the scores are those of the subset's own reference."""
    script = load("length_penalty")
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "valid.de").write_text("Ein Hund läuft durch den Schnee .\n", encoding="utf-8")
    asked = []

    def translate(data, checkpoint, output, decoding, subset):
        asked.append((decoding, subset))
        output.parent.mkdir(parents=True)
        output.with_name(output.name + ".bpe").write_text("ein Hund läuft durch den Sch@@ nee .\n", encoding="utf-8")

    monkeypatch.setattr(script, "translate", translate)
    settings = argparse.Namespace(target_lang="de", tokeniser="none", truecase=False)
    data = argparse.Namespace(path=tmp_path, settings=settings)
    scores = script.translated(data, tmp_path / "average.pt", tmp_path / "out" / "softmax.seed-1", "valid", 1.5)
    assert [(decoding.gnmt_lenpen, decoding.beam, subset) for decoding, subset in asked] == [(1.5, 4, "valid")]
    assert scores["hypothesis_length"] == 7 and 70 < scores["bleu"] < 100
    assert (tmp_path / "out" / "softmax.seed-1.valid.1.5.bpe").is_file()


def test_the_documentation_has_the_measured_length_penalties():
    found = json.loads((ROOT / "benchmarks" / "length_penalty" / "length_penalty.json").read_text())
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    shown = page.split("<!-- length_penalty begin -->\n")[1].split("<!-- length_penalty end -->")[0]
    assert shown == load("length_penalty").markdown(found["pairs"], found["runs"])
    rows = {row[0].strip("`"): row[1:] for row in cells(shown)[2:]}
    for softmax, rela in found["pairs"]:
        assert f"--pair {softmax} {rela}" in page
        assert f"from {rows[rela][4]} to {rows[rela][7]} BLEU" in page
        for label in (softmax, rela):  # independent of the script
            runs = [run for run in found["runs"] if run["label"] == label]
            assert len(runs) == 2
            best = [max(run["valid"].values(), key=lambda one: one["bleu"]) for run in runs]
            assert [run["valid"][run["best"]] for run in runs] == best
            mean = statistics.mean(run["test"][run["best"]]["bleu"] for run in runs)
            assert rows[label][5].startswith(f"{mean:.2f} ±")
            for run in runs:
                record = ROOT / "studies" / found["study"] / "runs" / f"{label}.seed-{run['seed']}.json"
                measured = json.loads(record.read_text())["score"]["bleu"]
                assert run["test"][run["usual"]]["bleu"] == pytest.approx(measured, abs=0.2)
