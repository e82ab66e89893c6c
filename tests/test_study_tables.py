"""A study's numbers and Markdown: means, intervals and differences by scipy, and messages for missing numbers."""

import json
import re

import numpy
import pytest
from conftest import ROOT
from study_records import ROWS, SITES, make_study, noise, t_interval

from fairseq_rela.errors import InputError
from fairseq_rela.files.records import read_json
from fairseq_rela.report import paper
from fairseq_rela.study import claims, docs, gold_set, paper_tables, tables, text, values

STUDIES = sorted(ROOT.glob("studies/*/study.json"))


def scores(mean, n, name):
    """Return BLEU of n seeds around a mean."""
    return [mean + 0.4 * noise(seed, name) for seed in range(n)]


def full_study(**options):
    """Return all rows, four seeds for the paper's four and two for the others."""
    four = {"softmax": 34.2, "sparsemax": 33.9, "entmax15": 34.1, "rela_g": 32.6}
    return make_study(
        {label: scores(four.get(label, 33.0), 4 if label in four else 2, label) for label in ROWS}, **options
    )


def cells(markdown, title):
    """Return the rows of the table below a title, cell by cell."""
    body = markdown.split(f"### {title}", 1)[1].split("\n### ", 1)[0]
    lines = [line for line in body.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_the_gold_set_has_a_table_of_its_own():
    study = full_study()
    assert gold_set.table(study) == []
    errors = {
        str(seed): {kind: {"aol": 0.4 + seed / 10, "aoh": 0.3} for kind in ("normal", "shifted")} for seed in (1, 2)
    }
    side = {"total": 200, "unknown": 30}
    study["gold_set"] = {
        "gold": {"file": "x.talp"},
        "sentences": 508,
        "text": {"source": side, "target": {**side, "unknown": 1}},
        "rows": {"rela_g": errors},
    }
    shown = tables.full(study)
    assert cells(shown, "Alignment error rate against a gold alignment of other text")[2:] == [
        ["7", "ReLA-g", "55.0 ± 7.1", "30.0 ± 0.0", "55.0 ± 7.1", "30.0 ± 0.0"]
    ]
    assert "508 sentence pairs of x.talp" in shown
    assert "30 of 200 source words (15.0%) and 1 of 200 target words (0.5%) have pieces" in shown


def numbers(cell):
    return [float(number) for number in re.findall(r"[+-]?\d+\.?\d*", cell.replace("\u2212", "-"))]


@pytest.mark.parametrize("n", [2, 3, 4, 9])
def test_the_interval_of_a_summary_equals_that_of_scipy(n):
    sample = scores(30, n, "summary")
    mean, sd, interval = t_interval(sample)
    found = values.summarise(sample)
    assert (found.mean, found.sd, found.n) == (pytest.approx(mean), pytest.approx(sd), n)
    assert found.interval == pytest.approx(interval)


def test_one_seed_has_no_interval_and_no_seed_has_no_summary():
    assert values.summarise([30.0]) == (30.0, None, 1, None) and values.summarise([]) is None


def test_a_difference_is_paired_over_the_seeds_of_both_rows():
    study = make_study({"softmax": [34, 35, 36, 37], "rela_g": [33, 33.5, 34.8], "rela_i": [None, 32, 33]})
    rela_g, rela_i = values.find_row(study, 7), values.find_row(study, 6)
    mean, _, interval = t_interval([33.5 - 32, 34.8 - 33])
    found = values.difference(rela_g, rela_i, "bleu")
    assert (found.mean, found.n) == (pytest.approx(mean), 2) and found.interval == pytest.approx(interval)
    assert values.difference(rela_g, values.baseline(study), "bleu").n == 3
    assert values.difference(rela_g, rela_g, "bleu") is None
    assert values.difference(rela_g, None, "bleu") is None


def test_measures_computed_from_runs_equal_those_of_the_record():
    study = full_study()
    for row in study["rows"]:
        known = dict(row["mean"])
        for measure, expected in known.items():
            found = values.summarise(list(values.values(row, measure).values()))
            assert found.mean == pytest.approx(expected["mean"]) and found.n == expected["n"], measure


def test_rates_count_words_if_every_analysis_has_them():
    study, pieces = full_study(words=True), full_study()
    assert (values.level(study), values.level(pieces)) == ("words", "pieces")
    row = values.find_row(study, 7)
    expected = [run["analysis"]["words"]["sites"]["cross"]["sparsity"] for run in row["runs"]]
    assert values.mean(row, values.at_level(study, "sparsity.cross")).mean == pytest.approx(numpy.mean(expected))
    assert "of words" in tables.full(study) and "of pieces" in tables.full(pieces)
    del row["runs"][0]["analysis"]["words"]
    assert values.level(study) == "pieces"


def test_table_1_has_every_row_with_the_paper_beside_it():
    study = full_study()
    head, _, *rows = cells(tables.full(study), "Table 1: translation quality")
    assert len(rows) == len(ROWS) and all(len(row) == len(head) for row in rows)
    published = {row.row: row.bleu for row in paper.TABLE_1}
    reference = {run["seed"]: run["score"]["bleu"] for run in study["rows"][0]["runs"]}
    for row, line in zip(paper_tables.in_order(study), rows):
        sample = {run["seed"]: run["score"]["bleu"] for run in row["runs"]}
        assert numbers(line[3]) == pytest.approx(
            [numpy.mean(list(sample.values())), numpy.std(list(sample.values()), ddof=1)], abs=0.005
        )
        if row["label"] != "softmax":
            mean, _, interval = t_interval([sample[seed] - reference[seed] for seed in sample])
            assert numbers(line[5]) == pytest.approx([mean, *interval], abs=0.005)
        if row["table_1"] in (None, 4):
            assert line[4] == ("-" if row["table_1"] is None else "training failed") and line[6] == "-"
        else:
            assert numbers(line[4]) == [published[row["table_1"]]]
        if row["table_1"] not in (None, 1, 4):
            assert numbers(line[6]) == pytest.approx([published[row["table_1"]] - published[1]], abs=0.05)


def test_a_difference_over_fewer_seeds_than_the_row_names_their_number():
    study = make_study({"softmax": [34, 35], "rela_g": [33, 33.5, 34.8]})
    line = cells(tables.full(study), "Table 1: translation quality")[3]
    assert line[5].endswith("(n = 2)") and line[2] == "3 of 4"


@pytest.mark.parametrize(
    "found,expected",
    [
        ([(-1, 0.01), (-2, 0.2), (-1, 0.04)], "2 of 3, lower"),
        ([(1, 0.01)], "1 of 1, higher"),
        ([(1, 0.01), (-1, 0.01)], "2 of 2 (1 lower, 1 higher)"),
        ([(1, 0.05)], "0 of 1"),
        ([], "-"),
    ],
)
def test_the_bootstrap_gives_the_number_of_seeds_and_the_direction(found, expected):
    row = {"bootstrap": {str(seed): {"difference": d, "p": p} for seed, (d, p) in enumerate(found)}}
    assert paper_tables.bootstrap(row) == expected


def test_table_5_is_in_percent_and_names_silver_links():
    study = full_study()
    title = "Table 5: alignment error rate against a silver alignment"
    rows = {line[1]: line for line in cells(tables.full(study), title)[2:]}
    found = [run["analysis"]["alignment"]["shifted"]["aoh"] for run in values.find_row(study, 7)["runs"]]
    assert numbers(rows["ReLA-g"][8])[0] == pytest.approx(100 * numpy.mean(found), abs=0.05)
    assert numbers(rows["ReLA-g"][9]) == [paper.TABLE_5["rela_g"].shifted_aoh]
    assert rows["ReLA-g, cross only"][9] == "-"
    differences = cells(tables.full(study), "Table 5, difference to softmax, against a silver alignment")[2:]
    line = next(line for line in differences if line[1] == "ReLA-g")
    assert numbers(line[3]) == pytest.approx([64.46 - 75.95], abs=0.05)
    gold = tables.full(full_study(gold_kind="gold"))
    assert "against a gold alignment" in gold and "silver" not in gold
    assert "silver" in tables.full(study)


def test_table_6_has_the_temperatures_of_the_paper():
    study = full_study()
    rows = {line[1]: line for line in cells(tables.full(study), "Table 6: head diversity")[2:]}
    for tau in ("1.0", "0.5", "0.25", "0.1"):
        line = rows[f"ReLA-g, \u03c4 = {tau}"]
        for place, site in enumerate(SITES):
            runs = values.find_row(study, 7)["runs"]
            found = [run["analysis"]["sites"][site]["diversity"][tau] for run in runs]
            assert numbers(line[2 + 2 * place])[0] == pytest.approx(numpy.mean(found), abs=0.0005)
            assert numbers(line[3 + 2 * place]) == [paper.TABLE_6["rela_g", tau][site]]
    assert numbers(rows["softmax"][3]) == [0.56] and rows["sparsemax"][3] == "-"


def test_missing_and_diverged_runs_are_named():
    study = make_study({"softmax": [34.0], "relu": [None, None], "rela_i": [], "rela_g": [33.0, None]}, gold_kind=None)
    markdown = tables.full(study)
    lines = {line[1]: line for line in cells(markdown, "Table 1: translation quality")[2:]}
    assert lines["softmax"][2:4] == ["1 of 4", "34.00 (n = 1)"]
    assert lines["ReLU alone"][2:4] == ["0 of 4, 2 diverged", "diverged"]
    assert lines["ReLA-i"][2:4] == ["0 of 4", "-"]
    assert lines["ReLA-g"][2:4] == ["1 of 4, 1 diverged", "33.00 (n = 1)"] and lines["ReLA-g"][5].endswith("(n = 1)")
    assert "2 of 16 runs done, 3 diverged. 11 are left" in markdown
    assert "rela_g with seed 2 (the loss is not finite after 300 updates)" in markdown
    assert "Table 5:" not in markdown and tables.NO_ALIGNMENT in markdown
    assert "nan" not in markdown.lower() and "None" not in markdown


@pytest.mark.parametrize("bleu", [{}, {"softmax": []}, {"rela_g": [33.0]}, {"softmax": [None], "rela_g": [None]}])
def test_studies_with_almost_no_runs_have_tables(bleu):
    study = make_study(bleu, gold_kind=None)
    assert "Table 1" in tables.full(study) and tables.short(study)


def test_a_row_without_analysis_has_a_score_and_no_rates():
    study = make_study({"softmax": [34.0, 34.5], "rela_g": [33.0, 33.2]}, gold_kind=None)
    for row in study["rows"]:
        row["difference"] = {}
        for run in row["runs"]:
            run["analysis"] = {}
    lines = cells(tables.full(study), "Figures 3 and 6: sparsity and null rates")[2:]
    assert all(cell == "-" for line in lines for cell in line[2:])


def test_cells_cannot_break_the_table():
    study = make_study({"softmax": [34.0], "rela_g-lr5e-3": [33.0]})
    study["rows"][1]["label"] = "a|b\nc"
    head, _, *rows = cells(tables.full(study), "Table 1: translation quality")
    assert len(rows) == 2 and all(len(row) == len(head) for row in rows)


def test_rows_beyond_the_paper_are_also_compared_at_their_own_settings():
    faster = {"softmax": [36.6, 35.6], "rela_g": [33.5, 32.5]}
    study = make_study({"softmax": [35.3, 34.6], "rela_g": [32.2, 31.4], "rela_g-lr5e-3": faster["rela_g"]})
    for row in study["rows"]:
        row["table_1"] = None
    other = json.loads(json.dumps(study["rows"][0]))
    other.update(label="softmax-lr5e-3", overrides=study["rows"][2]["overrides"])
    for run, bleu in zip(other["runs"], faster["softmax"]):
        run["score"]["bleu"] = bleu
    study["rows"].append(other)
    head, *lines = tables.rows(study).split("\n\n")[1].splitlines()
    assert head.endswith("| difference to the same with softmax |") and "paper" not in head
    found = {line.split("|")[1].strip(): line.split("|")[-2].strip() for line in lines[1:]}
    differences = [x - y for x, y in zip(faster["rela_g"], faster["softmax"])]
    mean, _, interval = t_interval(differences)
    assert numbers(found["ReLA-g (rela_g-lr5e-3)"]) == pytest.approx([mean, *interval], abs=0.005)
    assert found["softmax"] == found["softmax (softmax-lr5e-3)"] == "-"
    assert head.split("|")[-3].strip() == "difference to its usual settings"
    usual = {line.split("|")[1].strip(): line.split("|")[-3].strip() for line in lines[1:]}
    mean, _, interval = t_interval([x - y for x, y in zip(faster["rela_g"], [32.2, 31.4])])
    assert numbers(usual["ReLA-g (rela_g-lr5e-3)"]) == pytest.approx([mean, *interval], abs=0.005)
    assert usual["ReLA-g"] == usual["softmax"] == "-"
    shown = tables.rows(study)
    for row in study["rows"]:
        row["overrides"] = ["model.dropout=0.2", *row["overrides"]]  # of the whole study
    assert tables.rows(study) == shown


def test_rows_beyond_the_paper_have_their_sparsity_and_no_empty_lines():
    study = make_study({"softmax": [35.3, 34.6], "rela_g": [32.2, 31.4], "rela_g-lr5e-3": []})
    quality, training, rates = (part for part in tables.rows(study).split("\n\n") if part.startswith("|"))
    assert "0 of 4" in quality and "lr5e-3" not in training + rates
    cells = [cell.strip() for cell in next(line for line in rates.splitlines() if "ReLA-g" in line).split("|")[3:-1]]
    rela = next(row for row in study["rows"] if row["label"] == "rela_g")
    expected = [values.mean(rela, f"words.sparsity.{site}") or values.mean(rela, f"sparsity.{site}") for site in SITES]
    assert [numbers(cell)[0] for cell in cells[:3]] == pytest.approx([100 * one.mean for one in expected], abs=0.05)


def test_a_study_without_a_finished_run_has_one_table():
    markdown = tables.rows(make_study({"softmax": [], "rela_g": []}))
    assert markdown.count("| model |") == 1 and "0 of 4" in markdown and "Null:" not in markdown


def test_the_time_of_interrupted_runs_is_not_claimed():
    study = make_study({"softmax": [34.0, 34.5], "rela_g": [32.0, 32.5]})
    assert "took 15 minutes (median), all 4 together 60 minutes" in tables.effort(study)
    study["rows"][0]["runs"][0]["seconds"] = {}
    study["rows"][1]["runs"][0]["seconds"] = {"train": 1800.0}
    assert "15 minutes (median of the 3 of 4 runs with a recorded time); machine" in tables.effort(study)


def test_the_short_table_has_four_rows_and_a_sentence():
    markdown = tables.short(full_study())
    table, sentence = markdown.split("\n\n")
    rows = [line.split("|")[1].strip() for line in table.splitlines()[2:]]
    assert rows == ["softmax", "sparsemax", "1.5-entmax", "ReLA-g"]
    assert len(sentence.splitlines()) == 1 and "behind softmax" in sentence and "4 seeds" in sentence


@pytest.mark.parametrize(
    "rela_g,expected",
    [
        ([33.0, 33.1, 32.9, 33.0], "ReLA-g is 1.00 BLEU behind softmax (95 % interval"),
        ([35.0, 35.1, 34.9, 35.0], "ReLA-g is 1.00 BLEU ahead of softmax (95 % interval"),
        ([33.0, 35.1, 33.9, 33.2], "ReLA-g is 0.20 BLEU behind softmax on average, which cannot be told from chance"),
        ([33.0], "ReLA-g is 1.00 BLEU behind softmax with the one seed that both have, which cannot be told"),
        ([None], "every run of ReLA-g so far diverged"),
        ([], "ReLA-g is not measured against the baseline yet"),
    ],
)
def test_the_sentence_claims_no_more_than_the_interval(rela_g, expected):
    study = make_study({"softmax": [34.0, 34.1, 33.9, 34.0], "rela_g": rela_g})
    assert expected in tables.sentence(study)


@pytest.mark.parametrize(
    "task,languages,title",
    [
        ("multi30k_en_de", ["en", "de"], "Multi30k En-De"),
        ("wmt14_en_de", ["en", "de"], "WMT14 En-De"),
        ("synthetic", ["src", "tgt"], "Synthetic Src-Tgt"),
    ],
)
def test_titles_have_readable_names_of_tasks(task, languages, title):
    assert text.study_title({"task": task, "languages": languages}) == title


def test_numbers_have_a_minus_sign_and_no_negative_zero():
    assert text.number(-1.256) == "\u22121.26" and text.number(-0.001, sign=True) == "0.00"
    assert text.number(0.5, 1, sign=True) == "+0.5"


# ---------------------------------------------------------------------------------------------------------- documents


def test_filling_replaces_only_the_text_between_the_markers():
    before, after = "# Title\n\n<!-- study:a begin -->", "<!-- study:a end -->\n\nText about a.\n"
    filled = docs.fill(f"{before}\nold\n\nold\n{after}", "a", "", "new")
    assert filled == f"{before}\nnew\n{after}"
    assert docs.fill(filled, "a", "", "new") == filled and docs.between(filled, "a") == "new"
    assert docs.between(filled, "a", "short") is None


@pytest.mark.parametrize(
    "document",
    [
        "",
        "<!-- study:a begin -->",
        "<!-- study:a end --><!-- study:a begin -->",
        "<!-- study:a begin --><!-- study:a begin --><!-- study:a end -->",
        "<!-- study:ab begin --><!-- study:ab end -->",
    ],
)
def test_a_document_without_its_markers_is_refused(document):
    with pytest.raises(InputError, match="<!-- study:a begin -->"):
        docs.fill(document, "a", "", "new")


def test_documents_with_markers_are_filled_and_others_are_unchanged(tmp_path):
    study = full_study()
    name = study["study"]
    (tmp_path / "README.md").write_text(f"a\n<!-- study:{name}:short begin -->\n<!-- study:{name}:short end -->\nb\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "results.md").write_text("nothing\n")
    assert docs.fill_documents(study, tmp_path) == [tmp_path / "README.md"]
    assert docs.between((tmp_path / "README.md").read_text(encoding="utf-8"), name, "short") == tables.short(study)
    assert (tmp_path / "docs" / "results.md").read_text() == "nothing\n"
    assert docs.fill_documents(study, tmp_path) == []


@pytest.mark.parametrize("document,kind", docs.DOCUMENTS)
def test_documents_equal_the_output_of_the_studies(document, kind):
    """Parts of README.md and docs/results.md are generated; `rela study NAME --collect` writes them again."""
    path = ROOT / document
    checked = 0
    for study in map(read_json, STUDIES):
        found = docs.between(path.read_text(encoding="utf-8"), study["study"], kind) if path.is_file() else None
        if found is not None:
            assert found == docs.KINDS[kind](study)
            checked += 1
    if not checked:
        pytest.skip(f"{document} shows no study yet")


def test_the_areas_of_ranking_are_the_means_of_the_study():
    kinds = {"targets shuffled": "shuffled", "source copied": "copied", "wrong language": "wrong_language"}
    kinds.update({"words inserted": "inserted", "words deleted": "deleted", "cut in half": "truncated"})
    study = read_json(ROOT / "studies" / "multi30k_en_de" / "study.json")
    page = (ROOT / "docs" / "ranking.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| (\w+ \w+(?: \w+)?) \| (.*) \|$", page, re.MULTILINE))
    for name, kind in kinds.items():
        expected = []
        for label, score in (("rela_g", "null_rate_auc"), ("rela_g", "logprob_auc"), ("softmax", "logprob_auc")):
            row = next(row for row in study["rows"] if row["label"] == label)
            areas = [run["ranking"][kind][score] for run in row["runs"]]
            assert len(areas) == 4
            expected.append(f"{numpy.mean(areas):.2f}")
        assert shown[name].split(" | ") == expected


def test_the_recommended_setting_is_told_as_it_was_measured():
    study = read_json(ROOT / "studies" / "multi30k_en_de_gap" / "study.json")
    rows = {row["label"]: row for row in study["rows"]}
    rela, softmax = rows["rela_g-after_10epochs"], rows["softmax-after_10epochs"]
    found = values.difference(rela, softmax, "bleu")
    bleu = {row["label"]: [run["score"]["bleu"] for run in row["runs"]] for row in (rela, softmax)}
    differences = [ours - theirs for ours, theirs in zip(*bleu.values())]
    assert found.n == len(differences) == 4 and found.mean == pytest.approx(sum(differences) / 4)
    for document in ("README.md", "docs/results.md"):
        page = (ROOT / document).read_text(encoding="utf-8")
        assert f"by {text.mean_interval(found, sign=True)} BLEU" in page and "4 seeds" in page
        zeros = [values.mean(rela, values.at_level(study, f"sparsity.{site}")).mean for site in SITES]
        assert f"{min(zeros):.0%} to {max(zeros):.0%} of its weights".replace("%", " %") in page
    assert f"as many updates: {text.number(found.mean)} BLEU {text.interval(found)}" in page  # "In short"
    both, same = rows["rela_g-lr5e-3-after_10epochs"], rows["softmax-lr5e-3-after_10epochs"]
    together = text.mean_interval(values.difference(both, same, "bleu"), sign=True)
    own = values.mean(both, "bleu").mean
    assert f"ReLA-g has {own:.2f} BLEU, the highest mean of its rows, and differs" in page
    assert f"with the same settings by {together} BLEU" in page
    seeds = values.difference(both, same, "bleu").n
    assert f"(`lr5e-3-after_10epochs`, {seeds} seeds)" in page
    others = [values.mean(row, "bleu") for row in rows.values() if row["attention"] == "rela_g"]
    assert own == max(found.mean for found in others if found)
    half = values.difference(rows["rela_g-after_5epochs"], rows["softmax"], "bleu")
    assert f"the difference to softmax is {text.mean_interval(half, sign=True)} BLEU" in page
    scratch = values.difference(rows["rela_g"], rows["softmax"], "bleu")
    assert f"from scratch: {text.mean_interval(scratch, sign=True)}" in page
    errors = [
        text.mean_interval(values.difference(*pair, "aer.normal.aol"), 1, 100, sign=True)
        for pair in ((rela, softmax), (rows["rela_g"], rows["softmax"]))
    ]
    low, high = errors[0].split(" "), errors[1]
    shown = f"differs from that of this softmax model by {low[0]} points {' '.join(low[1:])}, after a training from"
    assert f"{shown} scratch by {high}." in page
    settings = page.split("No other setting closed the gap.")[1].split("So this is our recommendation")[0]
    for label, base, words in (
        ("softmax-20epochs", "softmax", "(`20epochs`): softmax {}, "),
        ("rela_g-20epochs", "rela_g", ", ReLA-g {}. ReLA-g differs"),
        ("rela_g-20epochs", "softmax-20epochs", "with as many epochs by {}.\n"),
        ("softmax-lr5e-3", "softmax", "of 0.005: softmax {} (4 seeds), "),
        ("rela_g-lr5e-3", "rela_g", ", ReLA-g {}.\n- A learning rate of 0.008"),
        ("softmax-lr8e-3", "softmax", "- A learning rate of 0.008: softmax {}, "),
        ("rela_g-lr8e-3", "rela_g", ", ReLA-g {}.\n- A warm-up"),
        ("rela_g-warmup600", "rela_g", "600 updates: ReLA-g {}.\n"),
        ("rela_g-no_attention_dropout", "rela_g", "weights: ReLA-g {}.\n"),
        ("softmax-init_paper", "softmax", "code: softmax {}, "),
        ("rela_g-init_paper", "rela_g", ", ReLA-g {}.\n- ReLA-g only"),
        ("rela_g-decoder_cross", "rela_g", "cross-attention: {}.\n"),
        ("softmax-lr5e-3", "rela_g-after_10epochs", "with 0.003 by {} BLEU (4 seeds)"),
    ):
        found = values.difference(rows[label], rows[base], "bleu")
        assert words.format(text.mean_interval(found, sign=True)) in settings
        assert found.n == (4 if "(4 seeds)" in words else 2)
    longest = values.mean(rows["softmax-20epochs"], "bleu").mean
    assert f"20 epochs it has {longest:.2f} BLEU, the highest mean of this study" in settings
    assert longest == max(values.mean(row, "bleu").mean for row in rows.values())


def test_the_summary_of_the_results_is_what_was_measured():
    study = read_json(ROOT / "studies" / "multi30k_en_de" / "study.json")
    rows = {row["label"]: row for row in study["rows"]}
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8").split("## The study")[0]

    def less(first, second, name="bleu", digits=2, scale=1):
        found = values.difference(rows[first], rows[second], name)
        return f"{text.number(scale * found.mean, digits)}", text.interval(found, digits, scale)

    assert f"behind softmax by {' BLEU '.join(less('softmax', 'rela_g'))}" in page
    assert f"1.5-entmax by {' '.join(less('entmax15', 'rela_g'))}" in page
    assert f"on par with sparsemax: {' '.join(less('rela_g', 'sparsemax'))}" in page
    assert f"the norm alone by {' '.join(less('rela_g', 'relu_rmsnorm'))}, with two seeds" in page
    assert f"error is {' points '.join(less('rela_g', 'softmax', 'aer.normal.aol', 1, 100))} higher" in page
    low, high = values.difference(rows["rela_g"], rows["sparsemax"], "bleu").interval
    assert low > -claims.margin() and low < 0 < high
    for label in ("rela_g_layernorm", "rela_g_gelu", "rela_g_leaky_relu"):  # "no difference that two seeds can show"
        found = values.difference(rows[label], rows["rela_g"], "bleu")
        assert found.n == 2 and found.interval[0] < 0 < found.interval[1]
    zeros = [values.mean(rows["rela_g"], values.at_level(study, f"sparsity.{site}")).mean for site in SITES]
    assert f"{min(zeros):.0%} to {max(zeros):.0%} of the weights".replace("%", " %") in page
    for run in rows["rela_g"]["runs"]:  # "less well than the model's log-probability"
        assert all(one["null_rate_auc"] < one["logprob_auc"] for one in run["ranking"].values())


def test_what_is_said_of_the_sparsity_without_a_target_is_what_was_measured():
    study = read_json(ROOT / "studies" / "sparsity" / "study.json")
    rows = {row["label"]: row for row in study["rows"]}
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    zeros = [values.mean(rows["rela_g"], f"sparsity.{site}").mean for site in SITES]
    assert f"has {min(zeros):.0%} to {max(zeros):.0%} zeros, of pieces".replace("%", " %") in page
    half = values.difference(rows["rela_g-50"], rows["rela_g"], "bleu")
    assert f"without a target by {text.mean_interval(half, sign=True)} BLEU" in page


def test_what_is_said_of_other_attention_functions_is_what_was_measured():
    study = read_json(ROOT / "studies" / "peers" / "study.json")
    rows = {row["label"]: row for row in study["rows"]}
    behind = {
        label: values.difference(row, rows["softmax"], "bleu") for label, row in rows.items() if label != "softmax"
    }
    near = {label for label, found in behind.items() if found.mean > -0.7}
    assert near == {"entmax_alpha", "scalable_softmax", "softmax_plus_one"}  # "keep up with softmax"
    assert behind["top_k"].mean == pytest.approx(-1, abs=0.3)
    far = [found.mean for label, found in behind.items() if label not in near | {"top_k"}]
    assert -3.25 < min(far) < max(far) < -1.95
    shares = [values.mean(rows["entmax_alpha"], values.at_level(study, f"sparsity.{site}")).mean for site in SITES]
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    constant, learnt = (
        text.mean_interval(values.difference(rows[label], rows["rela_g"], "bleu"), sign=True)
        for label in ("rela_g_constant", "rela_g_threshold")
    )
    assert f"by {constant} if it is constant, and by {learnt} if it is the start of a learnt one" in page
    assert (
        "{:.0%} in the encoder, {:.0%} in the decoder and {:.0%} in the cross".format(*shares).replace("%", " %")
        in page
    )
    assert f"learnt for each head ({text.mean_interval(behind['entmax_alpha'], sign=True)} BLEU with two seeds)" in page
    lowest = min(values.mean(rows["rela_g"], values.at_level(study, f"sparsity.{site}")).mean for site in SITES)
    assert max(shares) < lowest
