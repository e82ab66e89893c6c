"""The page: numbers of the runs and of the paper, hostile data, and missing parts."""

import base64
import csv
import html
import json
import re
import shutil
import struct
from html.parser import HTMLParser

import numpy
import pytest
from conftest import SHARED
from markupsafe import escape
from test_speed import benchmark

pytest.importorskip("matplotlib")

from fairseq_rela.errors import InputError
from fairseq_rela.report import figure_folder, paper, sentences
from fairseq_rela.report import page as report
from fairseq_rela.report.characters import visible
from fairseq_rela.report.groups import group_runs
from fairseq_rela.report.records import load_runs

SITES = ("encoder", "decoder", "cross")
HOSTILE = ["</script><script>alert(1)</script>", '"onmouseover=alert(1) x="', "a\u2028b", "<!--", "&amp;", "'", "</s>"]
SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
VOID = {"br", "img", "input", "meta"}


def analysis(attention, seed=1, sentences=40, gold=True):
    """Return the content of analysis.json with generated numbers."""
    rng = numpy.random.default_rng(seed)

    def number():
        return float(rng.random())

    def alignment():
        layers = [
            {
                "layer_attention": {"aer": number(), "precision": number(), "recall": number()},
                "heads": [{"aer": number()}, {"aer": number()}],
                "best_head": 1,
            }
            for _ in range(2)
        ]
        return {"layers": layers, "aol": number(), "aoh": number(), "best": {"layer": 1, "head": 1, "aer": number()}}

    taus = ("1.0",) if attention == "softmax" else ("1.0", "0.5", "0.25", "0.1")
    null = 0.0 if attention == "softmax" else 1.0
    sites, shuffled, wake = {}, {}, {}
    for site in SITES:
        sites[site] = {
            "layers": [
                {
                    **{"name": f"{site}.{i}", "variant": attention, "heads": 2, "sparsity": null * number()},
                    **{"null_rate": null * number(), "null_rate_by_head": [null * number(), null * number()]},
                    **{"null_rate_variance": null * number() / 4, "diversity": {tau: number() for tau in taus}},
                }
                for i in range(2)
            ]
        }
        shuffled[site] = {"layers": [{"null_rate": null * number(), "null_rate_variance": 0.1} for _ in range(2)]}
        wake[site] = [
            {
                **{"layer": 0, "head": 1, "null_rate": null * 0.5, "tags": {"<b>NOUN": 0.25}},
                "words": [{"word": word, "count": 5, "share": 0.75} for word in HOSTILE],
            }
        ]
    return {
        **{"format": 1, "label": attention, "sha256": "5" * 64, "subset": "test", "sentences": sentences},
        **{"parameters": 1234567, "attention": attention, "attention_sites": list(SITES), "languages": ["en", "de"]},
        **{"sites": sites, "shuffled": {"seed": 1, "sites": shuffled}, "wake": wake, "variance": "sample"},
        "alignment": {"gold": "g", "sentences": sentences, "normal": alignment(), "shifted": alignment()}
        if gold
        else None,
    }


def examples(attention, seed=2):
    rng = numpy.random.default_rng(seed)
    weights = rng.random((3, 2, 2, len(HOSTILE), len(HOSTILE)))
    weights[rng.random(weights.shape) < 0.4] = 0
    weights[2, 0, 1, 3] = 0
    sentence = {"id": 7, "source": HOSTILE, "target": HOSTILE, "weights": dict(zip(SITES, weights.tolist()))}
    return {"format": 1, "label": attention, "sentences": [sentence]}


def make_run(folder, attention, task="multi30k_en_de", **files):
    kinds = {kind: {"null_rate_auc": 0.625, "logprob_auc": 0.875} for kind in ("shuffled", "copied")}
    content = {
        "score": {"bleu": 31.726, "signature": SIGNATURE, "tokenised_bleu": 31.824, "sentences": 40},
        "train": {"task": task, "attention": attention, "overrides": [], "data": {"raw/test.de": "1"}, "updates": 99},
        "analysis": analysis(attention),
        "examples": examples(attention),
        "rank": {"format": 1, "label": attention, "pairs": 40, "kinds": kinds},
        **files,
    }
    folder.mkdir(parents=True)
    for name, value in content.items():
        if value is not None:
            (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Write two runs of one task and their page."""
    root = tmp_path_factory.mktemp("runs")
    runs = [make_run(root / name, name) for name in ("softmax", "rela_g")]
    report.write_report(runs, root / "out" / "report.html")
    return root / "out" / "report.html"


@pytest.fixture
def blank_figures(monkeypatch):
    """Replace the pictures of figures, not their numbers, where a test reads tables and numbers alone."""
    blank = {"svg": b"<svg/>", "png": bytes(16) + struct.pack(">II", 8, 6)}
    monkeypatch.setattr(figure_folder.plots, "render", lambda drawing, kind: blank[kind])


class Parser(HTMLParser):
    """Collects wrongly nested tags, addresses, and the text."""

    def __init__(self):
        super().__init__()
        self.open, self.wrong, self.addresses, self.handlers, self.text, self.scripts = [], [], [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.handlers += [name for name, _ in attrs if name.startswith("on") or name == "style"]
        self.addresses += [(tag, name, value) for name, value in attrs if name in ("src", "href", "action")]
        if tag == "script":
            self.scripts.append(dict(attrs))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        self.text.append(data)


def parse(path):
    parser = Parser()
    parser.feed(path.read_text(encoding="utf-8"))
    parser.close()
    return parser


def numbers(page, part):
    (path,) = (page.parent / "report_figures").glob(f"*{part}*.json")
    return json.loads(path.read_text(encoding="utf-8"))["rows"]


def test_the_page_needs_no_other_files(page):
    parser = parse(page)
    assert not parser.wrong and not parser.open
    for tag, name, value in parser.addresses:
        folder = value.startswith("report_figures/") and (page.parent / value).is_file()
        assert value.startswith(("data:image/", "#")) or value == paper.ADDRESS or folder, (tag, name, value[:80])
    outside = re.sub(r"http://www\.w3\.org/2000/svg", "", page.read_text(encoding="utf-8"))
    assert re.findall(r"https?://[^\"']+", outside) == [paper.ADDRESS]


def test_hostile_tokens_are_shown_as_text(page):
    parser = parse(page)
    assert not parser.handlers
    assert parser.scripts == [{"id": "examples", "type": "application/json"}, {}]
    content = page.read_text(encoding="utf-8")
    assert "alert(1)</script>" not in content and "\u2028" not in content and "<b>NOUN" not in content
    assert "</script><script>alert(1)</script>" in "".join(parser.text)  # also among the words that wake a head
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', content).group(1))
    assert policy.startswith("default-src 'none'; img-src data:;") and "unsafe" not in policy


def test_the_view_of_a_sentence_has_its_weights(page):
    content = re.search(r'<script id="examples" [^>]*>(.*?)</script>', page.read_text(encoding="utf-8")).group(1)
    runs = json.loads(content)
    assert [run["name"] for run in runs] == ["softmax", "rela_g"]
    (sentence,) = runs[1]["sentences"]
    assert sentence["source"][0] == HOSTILE[0] and sentence["source"][2] == "a\\u2028b"
    expected = examples("rela_g")["sentences"][0]["weights"]
    for site in SITES:
        for layer, wanted in zip(sentence["weights"][site], expected[site]):
            wanted = numpy.array(wanted)
            weights = numpy.frombuffer(base64.b64decode(layer["data"]), dtype="<f2").reshape(wanted.shape)
            assert layer["heads"] == 2 and numpy.array_equal(weights == 0, wanted == 0)
            assert numpy.allclose(weights, wanted, rtol=1e-3)


def test_rounding_to_16_bits_makes_no_zero_and_no_infinity():
    from fairseq_rela.report.run import Example

    weights = numpy.array([[[1e-12, 0.0, -1e-12, 1e9]]])
    packed = sentences.pack(Example(0, ["a"] * 4, ["b"], {"cross": [weights]}))
    data = numpy.frombuffer(base64.b64decode(packed["weights"]["cross"][0]["data"]), dtype="<f2")
    assert (numpy.sign(data) == [1, 0, -1, 1]).all() and numpy.isfinite(data).all()


def test_every_figure_has_the_numbers_of_the_runs(page):
    made = {name: analysis(name) for name in ("softmax", "rela_g")}
    layers = {(n, s, i + 1): x for n in made for s in SITES for i, x in enumerate(made[n]["sites"][s]["layers"])}
    rows = numbers(page, "figure-3")
    assert {(r["run"], r["site"], r["layer"]): r["sparsity"] for r in rows} == {
        key: layer["sparsity"] for key, layer in layers.items()
    }
    rows = numbers(page, "figure-5")
    assert {(r["run"], r["site"], r["layer"], r["tau"]): r["diversity"] for r in rows} == {
        (*key, tau): value for key, layer in layers.items() for tau, value in layer["diversity"].items()
    }
    for row in numbers(page, "figure-6"):
        layer = layers[row["run"], row["site"], row["layer"]]
        if row["targets"] == "shuffled":
            layer = made[row["run"]]["shuffled"]["sites"][row["site"]]["layers"][row["layer"] - 1]
        assert row["null_rate"] == layer["null_rate"] and row["null_rate_variance"] == layer["null_rate_variance"]
    for row in numbers(page, "figure-4"):
        layer = made[row["run"]]["alignment"][row["rows"]]["layers"][row["layer"] - 1]
        best = layer["heads"][layer["best_head"]]["aer"]
        assert row["aer"] == (best if row["weights"] == "best head" else layer["layer_attention"]["aer"])
    for row in numbers(page, "null-rate-by-head"):
        assert row["null_rate"] == layers["rela_g", row["site"], row["layer"]]["null_rate_by_head"][row["head"] - 1]
    assert {(r["kind"], r["score"]): r["auc"] for r in numbers(page, "ranking") if r["run"] == "rela_g"} == {
        (kind, score): auc
        for kind in ("shuffled", "copied")
        for score, auc in (("null rate", 0.625), ("log-probability", 0.875))
    }


def test_heat_maps_have_the_weights_of_the_examples(page):
    weights = {site: numpy.array(w) for site, w in examples("rela_g")["sentences"][0]["weights"].items()}
    rows = numbers(page, "2-rela_g-figures-7-10-cross") + numbers(page, "2-rela_g-figures-7-10-self")
    assert {row["site"] for row in rows} == set(SITES)
    for row in rows:
        layer = weights[row["site"]][row["layer"] - 1]
        head = layer.mean(axis=0) if row["head"] == "mean" else layer[row["head"] - 1]
        assert row["weight"] == head[row["query"] - 1, row["key"] - 1]
        assert row["site"] != "decoder" or row["key"] <= row["query"]


def test_every_figure_exists_in_four_formats(page):
    folder = page.parent / "report_figures"
    stems = {path.stem for path in folder.glob("*.png")}
    assert len(stems) >= 9
    for stem in stems:
        rows = json.loads((folder / f"{stem}.json").read_text(encoding="utf-8"))["rows"]
        with open(folder / f"{stem}.csv", encoding="utf-8", newline="") as file:
            table = list(csv.DictReader(file))
        assert [{k: "" if v is None else str(v) for k, v in row.items()} for row in rows] == table
        assert (folder / f"{stem}.svg").is_file()


def test_the_tables_have_our_numbers_beside_those_of_the_paper(page):
    text = " ".join("".join(parse(page).text).split())
    assert "another task, measured: multi30k_en_de, subset test, 40 sentences" in text
    assert "31.73 (31.82)" in text and SIGNATURE in text and "1,234,567" in text
    aol = analysis("rela_g")["alignment"]["normal"]["aol"]
    assert f"ReLA-g64.46{100 * aol:.2f}" in text.replace(" ", "")
    assert "Figure 2: decoding speed-up by source length Not measured yet" in text.replace("lengthNot", "length Not")


def test_the_page_compares_alignments_with_those_of_softmax(tmp_path, blank_figures):
    runs = []
    for name, rates in (("softmax", (0.5, 0.5, 0.5, 0.5)), ("rela_g", (0.3, 0.47, 0.49, 0.6))):
        result = analysis(name)
        for kind, (aol, aoh) in (("normal", rates[:2]), ("shifted", rates[2:])):
            result["alignment"][kind].update(aol=aol, aoh=aoh)
        runs.append(make_run(tmp_path / name, name, analysis=result, examples=None, rank=None))
    report.write_report(runs, tmp_path / "all.html")
    assert (
        "rela_g against softmax, measured: clearly below, by 2 points of AER or more, in normal AoL, normal AoH; "
        "not clearly below in shifted AoL (-1.0), shifted AoH (+10.0)." in (tmp_path / "all.html").read_text()
    )
    report.write_report(runs[1:], tmp_path / "one.html")
    assert "against softmax, measured" not in (tmp_path / "one.html").read_text()


def test_selections_of_a_ranking_are_shown(tmp_path):
    runs = [make_run(tmp_path / "rela_g", "rela_g", analysis=None, examples=None, rank=None)]
    means = {"null_rate": 0.125, "log_probability": -1.25, "source_pieces": 9.0, "target_pieces": 10.5}
    pairs = [{"line": 41, "null_rate": 0.5, "log_probability": -7.25, "source": s, "target": "t"} for s in HOSTILE]
    record = {
        **{"format": 1, "label": "rela_g", "by": "log_probability", "pairs": 1234567},
        "selections": {"all": {"pairs": 1234000, **means}, "worst": {"pairs": 10000, **means, "examples": pairs}},
    }
    (tmp_path / "ranked.tsv.selections.json").write_text(json.dumps(record))
    page = tmp_path / "report.html"
    report.write_report(runs, page, rankings=[tmp_path / "ranked.tsv"])
    shown = page.read_text()
    for part in ("Selections of ranked.tsv", "1,234,000", "10,000", "0.1250", "ranked by log probability", ">42<"):
        assert part in shown
    assert "<script>alert" not in shown and all(str(escape(visible(word))) in shown for word in HOSTILE)
    with pytest.raises(InputError, match="no such file"):
        report.write_report(runs, page, rankings=[tmp_path / "other.tsv"])
    assert page.read_text() == shown


def test_speeds_of_a_benchmark_are_shown(tmp_path):
    runs = [make_run(tmp_path / name, name, analysis=None, examples=None, rank=None) for name in ("softmax", "rela_g")]
    record = tmp_path / "benchmark.json"
    record.write_text(json.dumps(benchmark()))
    report.write_report(runs, tmp_path / "a.html", record)
    text = (tmp_path / "a.html").read_text()
    assert "measured: training speed" in text and "0.80×" in text and "Not measured yet. The paper divides" not in text
    assert "a chip, 2 threads of 2 cores" in text and "rela bench --output" not in text
    with open(tmp_path / "a_figures" / "figure-2-decoding.csv", newline="") as file:
        found = [row for row in csv.DictReader(file) if row["attention"] == "rela_g" and row["batch"] == "1"]
    assert [(row["source_length"], float(row["speed_over_softmax"])) for row in found] == [("8", 2.0), ("32", 0.5)]
    assert (tmp_path / "a_figures" / "figure-2-decoding.png").stat().st_size > 5000


def test_numbers_of_the_paper_equal_those_in_the_fidelity_notes():
    path = SHARED / "FIDELITY.md"
    if not path.is_file():
        pytest.skip("no FIDELITY.md")
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]

    def first(*cells):
        return next(row for row in rows if row[: len(cells)] == list(cells))

    for row in paper.TABLE_1:
        bleu = "training failed" if row.bleu is None else f"{row.bleu:.1f} ({row.tokenised_bleu:.2f})"
        assert first(str(row.row))[2] == bleu
    names = {"softmax": "softmax", "sparsemax": "sparsemax", "entmax15": "1.5-entmax", "rela_g": "ReLA-g"}
    for key, name in names.items():
        two, three, five = paper.TABLE_2[key], [f"{scores[key]:.1f}" for scores in paper.TABLE_3.values()], []
        assert [name, *three] in rows
        speeds = [f"{two.parameters:.2f}M", *(f"{value:.2f}x" for value in two[1:])]
        assert [name, *speeds] in rows
        five = [f"{value:.2f}" for value in paper.TABLE_5[key]]
        assert [name, *five] in rows
    for (key, tau), sites in paper.TABLE_6.items():
        name = names[key] + (f" tau={float(tau):.2f}" if tau else "")
        assert [name, *(f"{sites[site]:.2f}" for site in SITES)] in rows
    text = "\n".join(lines)
    assert "239K v 592K at T=100; 23.99M v 13.12M at T=1000" in text
    assert [round(f(100) / 1e3) for f in (paper.table_4_softmax, paper.table_4_rela_g)] == [239, 592]
    assert [round(f(1000) / 1e6, 2) for f in (paper.table_4_softmax, paper.table_4_rela_g)] == [23.99, 13.12]
    assert str(paper.NULL_RATE_VARIANCE) in text and paper.SIGNATURE in text


def test_missing_results_are_named_with_their_command(tmp_path):
    bare = tmp_path / "bare"
    bare.mkdir()
    with pytest.raises(InputError, match="nothing to report"):
        load_runs([bare])
    run = make_run(tmp_path / "run", "rela_g", analysis=None, examples=None, rank=None)
    report.write_report([run], tmp_path / "report.html")
    text = "".join(parse(tmp_path / "report.html").text)
    for command in ("rela analyze", "rela rank"):
        assert f"{command} {run}/average.pt" in text
    assert "No run has examples.json" in text


def test_changed_settings_are_marked(tmp_path):
    train = {"task": "wmt14_en_de", "attention": "rela_g", "overrides": ["run=cpu_smoke"], "updates": 2}
    run = make_run(tmp_path / "run", "rela_g", train=train, analysis=None, examples=None, rank=None)
    report.write_report([run], tmp_path / "report.html")
    text = "".join(parse(tmp_path / "report.html").text)
    assert "31.73 (31.82)\u2020" in text and "run=cpu_smoke" in text


def with_words(attention, layer_null_rate=0.0):
    """Return :func:`analysis` with other numbers for words."""
    result, words = analysis(attention), analysis(attention, seed=9)
    for site in SITES:
        for layer in (*result["sites"][site]["layers"], *words["sites"][site]["layers"]):
            layer["layer_null_rate"] = layer_null_rate
    return {**result, "level": "pieces", "words": {key: words[key] for key in ("sites", "shuffled")}}


def test_word_level_numbers_are_compared_with_the_paper(tmp_path, blank_figures):
    """The page uses and names the paper's level if every run has it, otherwise the level that all runs have."""
    new = make_run(tmp_path / "new", "rela_g", analysis=with_words("rela_g", 0.0123), examples=None)
    both = make_run(tmp_path / "both", "softmax", analysis=with_words("softmax"), examples=None)
    old = make_run(tmp_path / "old", "sparsemax", examples=None)
    output = tmp_path / "report.html"
    for runs, level, analyses in (
        ([new, both], "words", [with_words(name)["words"] for name in ("rela_g", "softmax")]),
        ([new, old], "pieces", [analysis(name) for name in ("rela_g", "sparsemax")]),
    ):
        report.write_report(runs, output)
        rows = numbers(output, "figure-3")
        assert [row["sparsity"] for row in rows] == [
            layer["sparsity"] for site in SITES for one in analyses for layer in one["sites"][site]["layers"]
        ]
        assert {row["level"] for row in rows} == {level}
        text = " ".join("".join(parse(output).text).split())
        assert f"The paper analyses words. Measured at the level of {level}." in text
        assert "Null rate of the attention averaged over the heads of a layer" in text and "1.23" in text
        assert "almost no null queries" in text
        lacks = "sparsity, null rates and head diversity of words, as in the paper"
        assert (lacks in text) == (level == "pieces")


def test_levels_that_differ_are_named(tmp_path, blank_figures):
    alone = {**with_words("rela_g"), "level": "words"}
    del alone["words"]
    runs = [
        make_run(tmp_path / "a", "rela_g", analysis=alone, examples=None),
        make_run(tmp_path / "b", "softmax", examples=None),
    ]
    report.write_report(runs, tmp_path / "report.html")
    text = " ".join("".join(parse(tmp_path / "report.html").text).split())
    assert "Measured at levels that differ: rela_g of words, softmax of pieces." in text
    runs = [make_run(tmp_path / "c", "rela_g", analysis={**analysis("rela_g"), "level": "syllables"})]
    with pytest.raises(InputError, match="syllables"):
        load_runs(runs)


def test_variances_are_sample_variances_and_one_head_has_none(tmp_path, blank_figures):
    other = analysis("rela_g")
    del other["variance"]
    with pytest.raises(InputError, match="not sample variances"):
        load_runs([make_run(tmp_path / "other", "rela_g", analysis=other)])
    one = analysis("rela_g")
    for site in SITES:
        for layer in (*one["sites"][site]["layers"], *one["shuffled"]["sites"][site]["layers"]):
            layer.update(null_rate_by_head=[0.5], null_rate_variance=None)
    run = make_run(tmp_path / "one", "rela_g", analysis=one, examples=None)
    report.write_report([run], tmp_path / "report.html")
    assert {row["null_rate_variance"] for row in numbers(tmp_path / "report.html", "figure-6")} == {None}


def test_statements_about_the_paper_are_on_the_page(page):
    text = " ".join("".join(parse(page).text).split())
    assert "The paper ranks the pairs of the WMT14 En-De training corpus by the null rate" in text
    assert "crawled" not in text and "highest variance" not in text
    assert "The paper reports a variance over heads of 0.256" in text
    for choice in ("once the weights on the end of the sentence are left out", "none its own", "weights as they are"):
        assert choice in text


def scored(bleu, *overrides, attention="rela_g", **train):
    train = {"task": "wmt14_en_de", "attention": attention, "overrides": list(overrides), "updates": 2, **train}
    score = {"bleu": bleu, "signature": SIGNATURE, "tokenised_bleu": bleu + 1, "sentences": 40}
    return {"train": train, "score": score, "analysis": None, "examples": None, "rank": None}


def cells(path, row):
    """Return the cells after the heading of a row of Table 1."""
    table = re.search(r"Table 1: .*?</table>", path.read_text(encoding="utf-8"), re.DOTALL).group(0)
    (found,) = (tr for tr in table.split("<tr>") if tr.startswith(f'<td class="n">{row}</td>'))
    return re.findall(r"<td[^>]*>([^<]*)</td>", found)[2:]


def test_seeds_are_averaged(tmp_path):
    """The page has mean, sample standard deviation and number of seeds; runs with other settings stay separate."""
    runs = [
        make_run(tmp_path / "1", "rela_g", **scored(30.0)),
        make_run(tmp_path / "2", "rela_g", **scored(31.0, "common.seed=2")),
        make_run(tmp_path / "3", "rela_g", **scored(33.5, "+common.seed=3")),
    ]
    output = tmp_path / "report.html"
    report.write_report(runs, output)
    assert cells(output, 7) == ["31.50 ± 1.80 (32.50 ± 1.80), 3 seeds"]  # sd of 30, 31, 33.5
    other = scored(40.0, "common.seed=2", "optimization.lr=[0.1]")
    runs.append(make_run(tmp_path / "lr", "rela_g", **other))
    runs.append(make_run(tmp_path / "configs", "rela_g", **scored(50.0, "common.seed=4", configs={"a.yaml": "1"})))
    runs.append(make_run(tmp_path / "again", "rela_g", **scored(31.5, "common.seed=2")))
    report.write_report(runs, output)
    assert cells(output, 7) == ["31.50 ± 1.47 (32.50 ± 1.47), 4 runs of 3 seeds; 40.00 (41.00)†; 50.00 (51.00)"]


@pytest.mark.parametrize(
    "override", ["model.attention_sites=cross", "sites=cross", "model.attention_sites=[cross]", "+sites=cross"]
)
def test_sites_are_rows_of_table_1_and_not_changed_settings(tmp_path, override):
    runs = [
        make_run(tmp_path / "1", "rela_g", **scored(30.0, override)),
        make_run(
            tmp_path / "2", "rela_g", **scored(31.0, "common.seed=2", "sites=cross", configs={"sites/a.yaml": "1"})
        ),
        make_run(tmp_path / "3", "rela_g", **scored(33.0, override, "run=cpu_smoke")),
        make_run(tmp_path / "4", "rela_g", **scored(20.0, "sites=encoder_decoder")),
    ]
    output = tmp_path / "report.html"
    report.write_report(runs, output)
    assert cells(output, 13) == ["30.50 ± 0.71 (31.50 ± 0.71), 2 seeds; 33.00 (34.00)†"]
    assert cells(output, 7) == ["-"]
    assert "Not in the paper: rela_g (encoder,decoder) 20.00 (21.00)." in "".join(parse(output).text)


def test_seeds_are_averaged_in_tables_5_and_6(tmp_path, blank_figures):
    rates, runs = {"softmax": (0.5, 0.7), "rela_g": (0.3, 0.4)}, []
    for name, errors in rates.items():
        for seed, error in enumerate(errors, 1):
            result = with_words(name, layer_null_rate=error)
            for kind in ("normal", "shifted"):
                result["alignment"][kind].update(aol=error, aoh=error)
            for site in SITES:
                for layer in result["words"]["sites"][site]["layers"]:
                    layer["diversity"] = dict.fromkeys(layer["diversity"], error)
            files = {**scored(30.0, f"common.seed={seed}", attention=name), "analysis": result}
            runs.append(make_run(tmp_path / f"{name}{seed}", name, **files))
    report.write_report(runs, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    tables = [
        re.search(rf"{title}.*?</table>", text, re.DOTALL).group(0) for title in ("Table 5", "Table 6", "Null rate of")
    ]
    for table, softmax, rela in zip(
        tables, ("60.00 ± 14.14", "0.60 ± 0.14", "60.00 ± 14.14"), ("35.00 ± 7.07", "0.35 ± 0.07", "35.00 ± 7.07")
    ):
        assert softmax in table and rela in table and ", 2 seeds</th>" in table
        assert table.count("ReLA-g") <= 4 and str(tmp_path) not in table
    assert (
        "rela_g against softmax, measured: clearly below, by 2 points of AER or more, in normal AoL, normal AoH, "
        "shifted AoL, shifted AoH." in text
    )


def test_one_site_is_not_counted_as_all_sites(tmp_path, blank_figures):
    """Tables 2 and 3 describe attention at all sites."""
    one, everywhere = scored(12.3, "sites=cross"), scored(23.4)
    for files, parameters in ((one, 111), (everywhere, 222)):
        files["train"]["task"] = "wmt14_en_fr"
        files["analysis"] = {**analysis("rela_g"), "parameters": parameters}
    one["analysis"]["attention_sites"] = ["cross"]
    runs = [make_run(tmp_path / str(i), "rela_g", **files) for i, files in enumerate((one, everywhere))]
    report.write_report(runs, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    for title, right, wrong in (("Table 2", "222", "111"), ("Table 3", "23.40", "12.30")):
        table = re.search(rf"{title}: .*?</table>", text, re.DOTALL).group(0)
        assert f">{right}<" in table and wrong not in table


def test_runs_of_other_tasks_have_their_own_section(tmp_path):
    one, two = make_run(tmp_path / "a", "rela_g"), make_run(tmp_path / "b", "rela_g", task="synthetic")
    three = make_run(tmp_path / "c", "rela_g")
    groups = group_runs(load_runs([one, two, three]))
    assert [[run.label for run in group.runs] for group in groups] == [["rela_g (a)", "rela_g (c)"], ["rela_g"]]


BROKEN = {
    "not valid JSON": lambda run: (run / "score.json").write_text("{"),
    "format 2": lambda run: (run / "rank.json").write_text('{"format": 2}'),
    "not in the format of `rela analyze`": lambda run: (run / "analysis.json").write_text('{"format": 1}'),
    "not a record": lambda run: (run / "score.json").write_text("[]"),
    "another checkpoint": lambda run: (run / "translate.json").write_text('{"checkpoint": "6"}'),
    "no such run folder": shutil.rmtree,
}


@pytest.mark.parametrize("message", BROKEN)
def test_bad_input_gives_one_line_and_leaves_no_files(tmp_path, message):
    run = make_run(tmp_path / "run", "rela_g")
    BROKEN[message](run)
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        report.write_report([run], tmp_path / "out" / "report.html")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_weights_of_another_shape_are_refused(tmp_path):
    bad = examples("rela_g")
    bad["sentences"][0]["source"] = ["a"]
    run = make_run(tmp_path / "run", "rela_g", examples=bad)
    with pytest.raises(InputError, match=r"examples\.json: not in the format of"):
        load_runs([run])


@pytest.mark.parametrize("files", [{"analysis": analysis("rela_g", sentences=41), "score": None}, {"train": None}])
def test_different_data_are_not_compared(tmp_path, files):
    train = {"task": "multi30k_en_de", "attention": "rela_g", "data": {"raw/test.de": "2"}}
    one, two = make_run(tmp_path / "a", "rela_g"), make_run(tmp_path / "b", "rela_g", **{**files, "train": train})
    with pytest.raises(InputError, match="different data"):
        group_runs(load_runs([one, two]))


def test_outputs_are_replaced_as_a_whole_and_foreign_folders_are_kept(tmp_path, page, monkeypatch):
    output = tmp_path / "report.html"
    run = make_run(tmp_path / "run", "rela_g", analysis=None, examples=None)
    report.write_report([run], output)
    before = sorted(path.name for path in (tmp_path / "report_figures").iterdir()), output.read_bytes()
    report.write_report([run], output)  # written a second time
    assert (sorted(path.name for path in (tmp_path / "report_figures").iterdir()), output.read_bytes()) == before

    def full(path):
        raise InputError(f"{path}: cannot be written (No space left on device)")

    with monkeypatch.context() as patch:
        patch.setattr(figure_folder, "write_whole", full)
        with pytest.raises(InputError, match="No space"):
            report.write_report([run], output)
    assert (sorted(path.name for path in (tmp_path / "report_figures").iterdir()), output.read_bytes()) == before
    (tmp_path / "report_figures" / "mine.txt").write_text("kept")
    with pytest.raises(InputError, match=r"mine\.txt"):
        report.write_report([run], output)
    assert (tmp_path / "report_figures" / "mine.txt").read_text() == "kept"
    (tmp_path / "other_figures").write_text("kept")
    with pytest.raises(InputError, match="other_figures is a file, but the figures need a folder of this name"):
        report.write_report([run], tmp_path / "other.html")


def test_the_output_must_be_an_html_file_and_runs_must_differ(tmp_path):
    run = make_run(tmp_path / "run", "rela_g")
    with pytest.raises(InputError, match="HTML"):
        report.write_report([run], tmp_path / "report")
    with pytest.raises(InputError, match="twice"):
        report.write_report([run, run], tmp_path / "report.html")
    with pytest.raises(InputError, match="no run"):
        report.write_report([], tmp_path / "report.html")


@pytest.mark.slow
def test_the_page_opens_without_an_error(page):
    sync_api = pytest.importorskip("playwright.sync_api")
    browser_path = shutil.which("chromium")
    if browser_path is None:
        pytest.skip("no chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 420, "height": 900})
        trouble = []
        tab.on("console", lambda message: trouble.append(message.text))
        tab.on("pageerror", lambda error: trouble.append(str(error)))
        tab.on("dialog", lambda dialog: trouble.append(dialog.message))
        tab.goto(page.as_uri())
        tab.focus(".map svg")
        tab.keyboard.press("ArrowRight")
        assert "key 2" in tab.inner_text("#readout-0")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 420
        assert trouble == []
        browser.close()
