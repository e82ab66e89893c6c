"""The page and figures of a study: the drawn numbers, partial studies, no addresses of other files."""

import csv
import json
import re

import numpy
import pytest
from study_records import SITES, make_study, t_interval
from test_report import parse
from test_study_tables import full_study

pytest.importorskip("matplotlib")

from fairseq_rela.errors import InputError
from fairseq_rela.report import plots
from fairseq_rela.study import claims, figures, tables, text, values
from fairseq_rela.study.page import write_study

HOSTILE = '</td><script>alert("1")</script>'


@pytest.fixture(scope="module")
def study():
    return full_study()


@pytest.fixture(scope="module")
def written(study, tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    write_study(study, folder)
    return folder


def quick_study(bleu):
    """Return a study without analyses, which has one figure to draw."""
    study = make_study(bleu, gold_kind=None)
    for row in study["rows"]:
        for run in row["runs"]:
            run["analysis"] = {}
    return study


def figure(study, name):
    return next(one for one in figures.all_figures(study) if one.name == name)


def layer_values(study, number, site, key, block="sites"):
    """Return an array (seeds, layers) read from the runs of a row."""
    runs = [run["analysis"] for run in values.find_row(study, number)["runs"]]
    entries = [run["sites"] if block == "sites" else run["shuffled"]["sites"] for run in runs]
    return numpy.array([[layer[key] for layer in entry[site]["layers"]] for entry in entries])


def test_error_bars_are_the_standard_deviations_over_the_seeds(study):
    drawing = figure(study, "figure-3-sparsity").draw()
    expected = 100 * layer_values(study, 7, "cross", "sparsity")
    colour = plots.choose_styles([("", "rela_g")])[""].colour
    axis = drawing.axes[SITES.index("cross")]
    line = next(line for line in axis.get_lines() if line.get_color() == colour and len(line.get_xdata()) == 2)
    assert line.get_ydata() == pytest.approx(expected.mean(axis=0))
    segments = [
        numpy.asarray(segment)[:, 1]
        for bars in axis.containers
        if bars.lines[2][0].get_color()[0] == pytest.approx(_rgba(colour))
        for segment in bars.lines[2][0].get_segments()
    ]
    half = [float(top - bottom) / 2 for bottom, top in segments]
    assert half == pytest.approx(expected.std(axis=0, ddof=1))


def _rgba(colour):
    from matplotlib.colors import to_rgba

    return to_rgba(colour)


def test_lines_without_errors_are_drawn_as_before():
    panel = plots.Panel("t", "%", [plots.Line("rela_g", [1.0, 2.0])])
    styles = plots.choose_styles([("rela_g", "rela_g")])
    assert not plots.draw_layer_lines([[panel]], styles).axes[0].containers


def test_the_axis_holds_the_error_bars():
    panel = plots.Panel("t", "%", [plots.Line("rela_g", [10.0, None], errors=[5.0, None])])
    drawing = plots.draw_layer_lines([[panel]], plots.choose_styles([("rela_g", "rela_g")]))
    assert drawing.axes[0].get_ylim()[1] > 15


def test_the_files_of_a_figure_have_every_row_and_seed(study, written):
    with open(written / "figures" / "figure-6-null-rate.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["row"] for row in rows} == {row["label"] for row in study["rows"]}
    for targets, block in (("true", "sites"), ("shuffled", "shuffled")):
        expected = layer_values(study, 7, "cross", "null_rate", block)
        found = [row for row in rows if (row["row"], row["site"], row["targets"]) == ("rela_g", "cross", targets)]
        assert [float(row["null_rate"]) for row in found] == pytest.approx(expected.mean(axis=0))
        assert [float(row["sd"]) for row in found] == pytest.approx(expected.std(axis=0, ddof=1))
        assert [len(row["seeds"].split()) for row in found] == [4, 4]
    content = json.loads((written / "figures" / "figure-6-null-rate.json").read_text(encoding="utf-8"))
    assert content["figure"] == "Figure 6" and len(content["rows"]) == len(rows)


def test_bleu_has_a_point_for_each_seed_and_the_interval_of_the_mean(study):
    scores, against = figure(study, "bleu-by-row").draw().axes
    names = [label.get_text() for label in scores.get_yticklabels()]
    height = names.index("ReLA-g")
    sample = [run["score"]["bleu"] for run in values.find_row(study, 7)["runs"]]
    softmax = [run["score"]["bleu"] for run in values.find_row(study, 1)["runs"]]
    for axis, found in ((scores, sample), (against, [a - b for a, b in zip(sample, softmax)])):
        lines = [line for line in axis.get_lines() if list(line.get_ydata())[:1] == [height]]
        points = [line.get_xdata()[0] for line in lines if line.get_marker() == "o"]
        bar = [line.get_xdata()[0] for line in lines if line.get_marker() == "|"]
        (interval,) = [list(line.get_xdata()) for line in lines if len(line.get_xdata()) == 2]
        mean, _, expected = t_interval(found)
        assert sorted(points) == pytest.approx(sorted(found)) and bar == pytest.approx([mean])
        assert interval == pytest.approx(expected)
    hollow = [line for line in against.get_lines() if line.get_marker() == "D" and line.get_ydata()[0] == height]
    assert [line.get_xdata()[0] for line in hollow] == pytest.approx([26.6 - 26.9])


def test_a_row_that_failed_does_not_flatten_the_others_and_is_named():
    study = make_study({"softmax": [34.0, 34.2], "relu": [2.0, 3.0], "rela_g": [33.0, 33.2], "rela_i": [None]})
    one = figure(study, "bleu-by-row")
    names = [label.get_text() for label in one.draw().axes[0].get_yticklabels()]
    assert names == ["softmax", "ReLA-g"]
    assert "Too low for this scale: ReLU alone 2.50" in one.caption and "Without a finished run: ReLA-i" in one.caption
    assert {row["row"] for row in one.rows} == {"softmax", "rela_g", "relu"}


def test_rows_of_one_attention_have_one_colour_different_from_others():
    study = quick_study({"softmax": [34.0], "rela_g": [33.0], "rela_g-cross": [33.5], "rela_i": [32.0]})
    study["rows"][3]["attention"] = "sigmoid"  # a variant that the paper does not have
    axis = figure(study, "bleu-by-row").draw().axes[0]
    colours = [line.get_color() for line in axis.get_lines() if line.get_marker() == "o"]
    names = [label.get_text() for label in axis.get_yticklabels()]
    colour = dict(zip(names, colours))
    assert colour["ReLA-g"] == colour["ReLA-g, cross only"]
    assert len(set(colour.values())) == 3


def test_a_long_interval_of_two_seeds_ends_at_the_frame():
    spreads = [plots.Spread("a", [30.0, 31.0], 30.5, (24.1, 36.9))]
    drawing = plots.draw_spreads([("t", "BLEU", spreads)], plots.choose_styles([("a", "softmax")]))
    low, high = drawing.axes[0].get_xlim()
    assert 29 < low < 30 and 31 < high < 32


def test_a_study_without_rows_of_table_1_judges_no_claim(tmp_path):
    study = quick_study({"softmax": [34.0, 35.0], "rela_g": [33.0, 32.0]})
    write_study(study, tmp_path / "with")
    for row in study["rows"]:
        row["table_1"] = None
    write_study(study, tmp_path / "without")
    for name in ("study.html", "study.md"):
        pages = [(tmp_path / folder / name).read_text(encoding="utf-8") for folder in ("with", "without")]
        assert ["cannot be told" in page for page in pages] == [True, False]
        assert ["claims" in page.split("</style>")[-1] for page in pages] == [True, False]
    assert "every row is compared with softmax." in pages[1]


def test_names_in_figures_fit_and_differ():
    study = make_study({"softmax": [34.0], "rela_g": [33.0], "rela_g-lr5e-3": [33.0]})
    study["rows"][2].update(label="rela_g-learning-rate-5e-3", table_1=None)
    study["rows"].append({**study["rows"][1], "label": "rela_g-again"})
    names = text.figure_names(study["rows"])
    assert names["softmax"] == "softmax" and len(set(names.values())) == 4
    assert names["rela_g"] == "rela_g" and names["rela_g-again"] == "rela_g-again"
    assert names["rela_g-learning-rate-5e-3"] == "rela_g-learning-rate-5e-3"


def test_everything_is_written_and_listed(written):
    assert {path.name for path in written.iterdir()} == {"study.html", "study.md", "figures"}
    names = {path.name for path in (written / "figures").iterdir()} - {"figures.json"}
    stems = {"bleu-by-row", "figure-3-sparsity", "figure-5-diversity", "figure-6-null-rate"}
    assert names == {f"{stem}.{kind}" for stem in stems for kind in ("png", "svg", "csv", "json")}
    assert set(json.loads((written / "figures" / "figures.json").read_text())["files"]) == names


def test_the_page_is_complete_and_needs_no_other_files(study, written):
    parser = parse(written / "study.html")
    assert not parser.wrong and not parser.open and not parser.handlers and not parser.scripts
    outside = [value for tag, name, value in parser.addresses if tag != "a" and not value.startswith("data:")]
    assert not outside
    links = [value for tag, _, value in parser.addresses if tag == "a" and not value.startswith(("#", "https://arxiv"))]
    assert links and all((written / link).is_file() for link in links)
    content = " ".join(parser.text)
    for claim in claims.judge(study):
        assert claim.claim in content and claim.sentence in content
    assert tables.sentence(study) in content


def test_the_markdown_has_the_full_tables_and_its_pictures(study, written):
    markdown = (written / "study.md").read_text(encoding="utf-8")
    assert tables.full(study) in markdown
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", markdown)
    assert len(pictures) == 4 and all((written / picture).is_file() for picture in pictures)


def test_the_page_has_every_table_of_the_markdown(tmp_path):
    study = full_study()
    for run in values.find_row(study, 7)["runs"]:
        run["analysis"]["sparsity_target"] = 0.7
    write_study(study, tmp_path)
    captions = [name for name in re.findall(r"^### (.+)$", tables.full(study), re.MULTILINE) if "claims" not in name]
    assert {"Table 1: translation quality", "Sparsity beside its target"} <= set(captions)
    content = " ".join(parse(tmp_path / "study.html").text)
    assert [caption for caption in captions if caption not in content] == []


def test_the_same_study_gives_the_same_bytes(tmp_path):
    study = quick_study({"softmax": [34.0, 34.2], "rela_g": [33.0, 33.1]})
    contents = []
    for _ in range(2):
        write_study(study, tmp_path)
        contents.append({path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()})
    assert contents[0] == contents[1] and len(contents[0]) == 7


def test_one_analysed_run_has_every_figure(tmp_path):
    study = make_study({"softmax": [], "rela_g": [33.0]}, gold_kind=None)
    assert [one.name for one in figures.all_figures(study)] == [
        "bleu-by-row",
        "figure-3-sparsity",
        "figure-5-diversity",
        "figure-6-null-rate",
    ]
    assert not any(axis.containers for axis in figure(study, "figure-3-sparsity").draw().axes)  # one seed has no bars


@pytest.mark.parametrize(
    "bleu",
    [
        {},
        {"softmax": [], "rela_g": []},
        {"softmax": [None], "rela_g": [None, 33.0]},
        {"rela_g": [33.0]},
        {"rela_g-lr5e-3": [33.0, 33.5]},
    ],
)
def test_partial_studies_have_a_page(bleu, tmp_path):
    write_study(quick_study(bleu), tmp_path)
    parser = parse(tmp_path / "study.html")
    content = " ".join(parser.text)
    assert not parser.wrong and "Table 1" in content and tables.NO_ALIGNMENT in content
    assert " nan" not in content.lower() and "None" not in content


def test_a_label_cannot_break_the_page(tmp_path):
    study = quick_study({"softmax": [34.0, 34.1], "rela_g-lr5e-3": [33.0, None]})
    study["rows"][1]["label"] = HOSTILE
    study["rows"][1]["runs"][1]["reason"] = HOSTILE
    write_study(study, tmp_path)
    parser = parse(tmp_path / "study.html")
    assert not parser.wrong and not parser.scripts


def test_figures_of_other_programs_are_not_overwritten(tmp_path, study):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "mine.png").write_bytes(b"x")
    with pytest.raises(InputError, match=r"mine\.png"):
        write_study(study, tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["figures", "mine.png"]
