"""Selections of a ranking, against sorting and loops."""

import json
import math
import statistics

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_rela.analysis import rank, score_file, selections
from fairseq_rela.analysis.orders import ORDERS, mean_ranks, sample_pairs, select_pairs, worst_pairs
from fairseq_rela.errors import InputError
from fairseq_rela.files.lines import read_lines

CPU = {"device": "cpu", "workers": 1}
scores = st.lists(
    st.tuples(st.sampled_from([0, 0.1, 0.5, math.nan]), st.sampled_from([-3, -2.5, -1, math.nan])), max_size=25
)


def columns(pairs):
    return [numpy.array(column, numpy.float32) for column in (zip(*pairs) if pairs else ((), ()))]


def scored(pairs):
    return [i for i, pair in enumerate(pairs) if not any(map(math.isnan, pair))]


def key(pairs, by):
    """Return the sort key of a pair, by loops over all other pairs."""
    there = scored(pairs)

    def rank_of(i, value):
        return sum((value(j) < value(i)) + (value(j) == value(i)) / 2 for j in there if j != i)

    def mean_rank(i):
        return rank_of(i, lambda j: pairs[j][0]) + rank_of(i, lambda j: -pairs[j][1])

    return {
        "log_probability": lambda i: (-pairs[i][1], pairs[i][0], i),
        "null_rate": lambda i: (pairs[i][0], -pairs[i][1], i),
        "both": lambda i: (mean_rank(i), -pairs[i][1], i),
    }[by]


@given(scores, st.sampled_from(ORDERS), st.integers(1, 12))
def test_best_and_worst_pairs_are_first_and_last_in_sorting(pairs, by, number):
    order = sorted(scored(pairs), key=key(pairs, by))
    best, worst = select_pairs(*columns(pairs), number, by=by), worst_pairs(*columns(pairs), number, by)
    assert numpy.flatnonzero(best).tolist() == sorted(order[:number])
    assert numpy.flatnonzero(worst).tolist() == sorted(order[-number:])
    if len(order) >= 2 * number:
        assert not (best & worst).any()


@given(scores)
def test_mean_ranks_equal_loops(pairs):
    ranks = mean_ranks(*columns(pairs))
    assert numpy.flatnonzero(~numpy.isnan(ranks)).tolist() == scored(pairs)
    for i in scored(pairs):
        assert ranks[i] == pytest.approx(key(pairs, "both")(i)[0] / 2)


def test_without_null_queries_both_orders_are_the_log_probability():
    null, log_probability = numpy.zeros(50, numpy.float32), numpy.random.RandomState(1).randn(50).astype("f")
    want = select_pairs(null, log_probability, 9, by="log_probability")
    assert (select_pairs(null, log_probability, 9, by="both") == want).all()
    assert (select_pairs(null, log_probability, 9) == want).all()  # the default


def test_the_sample_has_distinct_scored_pairs_and_depends_on_the_seed():
    null, log_probability = columns([(0.0, math.nan if i % 2 else -1.0) for i in range(2000)])
    one, other = (sample_pairs(null, log_probability, 100, seed) for seed in (1, 2))
    assert one.sum() == other.sum() == 100 and not one[1::2].any()
    assert (one == sample_pairs(null, log_probability, 100, 1)).all() and (one != other).any()
    assert sample_pairs(null, log_probability, 5000).sum() == 1000
    # every quarter of the corpus has its share: about 25 pairs, with a standard deviation of 4
    assert all(8 <= one[start : start + 500].sum() <= 42 for start in range(0, 2000, 500))


def test_impossible_selections_are_refused():
    two = numpy.zeros(2), numpy.zeros(2)
    for call in (lambda: worst_pairs(*two, 0), lambda: sample_pairs(*two, 0)):
        with pytest.raises(ValueError, match="at least 1"):
            call()
    with pytest.raises(ValueError, match="choose one of log_probability, null_rate, both"):
        select_pairs(*two, 1, by="length")


@pytest.fixture(scope="module")
def ranked(trained, data, corpus, tmp_path_factory):
    """Make a ranking with three selections; return the output, the rows of the ranking, the lines of both files."""
    output = tmp_path_factory.mktemp("rank") / "out.tsv"
    files = corpus / "test.xa", corpus / "test.xb"
    arguments = (trained / "checkpoint_last.pt", data, *files, output)
    result = rank.rank(*arguments, keep_best=30, keep_worst=20, sample=10, seed=3, **CPU)
    lines = [list(read_lines(path)) for path in files]
    assert result == rank.Ranking(len(lines[0]), 0, 30, 20, 10)
    rows = [line.split("\t") for line in read_lines(output)][1:]
    return output, rows, lines, arguments


def test_three_selections_are_written_with_unchanged_lines(ranked):
    output, rows, lines, arguments = ranked
    order = sorted(range(len(rows)), key=lambda i: (-float(rows[i][2]), float(rows[i][1]), i))
    record = json.loads((output.parent / "out.tsv.selections.json").read_text())
    files = selections.selection_files(output, ("xa", "xb"))
    kept = {"best": sorted(order[:30]), "worst": sorted(order[-20:])}
    for name, numbers in kept.items():
        for side in (0, 1):
            assert list(read_lines(files[name][side])) == [lines[side][i] for i in numbers]
    pairs = list(zip(*lines))
    drawn = list(zip(*map(read_lines, files["sample"])))
    assert len(drawn) == 10 and set(drawn) <= set(pairs)
    kept["all"] = range(len(rows))
    for name, numbers in kept.items():
        one = record["selections"][name]
        assert one["pairs"] == len(numbers)
        for place, what in enumerate(score_file.COLUMNS[1:5], 1):
            assert one[what] == pytest.approx(statistics.fmean(float(rows[i][place]) for i in numbers), rel=1e-6)
    assert list(record["selections"]) == ["all", "best", "worst", "sample"]
    assert (record["by"], record["pairs"], record["unscored"], record["seed"]) == ("log_probability", len(rows), 0, 3)
    for name in ("best", "worst"):
        examples = record["selections"][name]["examples"]
        assert len(examples) == selections.EXAMPLES and record["selections"][name]["files"][0] == files[name][0].name
        for example in examples:
            i = example["line"]
            assert i in kept[name] and (example["source"], example["target"]) == pairs[i]
            assert [example["null_rate"], example["log_probability"]] == [float(x) for x in rows[i][1:3]]


def test_another_order_of_the_same_ranking_needs_no_new_scores(ranked, monkeypatch, capsys):
    output, rows, lines, arguments = ranked
    monkeypatch.setattr(rank, "score_corpus", None)
    (arguments[0].parent / "rank.json").write_text('{"format": 1, "recommended": "log_probability"}')
    try:
        rank.rank(*arguments, keep_best=30, by="null_rate", **CPU)
    finally:
        (arguments[0].parent / "rank.json").unlink()
    order = sorted(range(len(rows)), key=lambda i: (float(rows[i][1]), -float(rows[i][2]), i))
    best = [lines[0][i] for i in sorted(order[:30])]
    assert list(read_lines(output.parent / "out.tsv.xa")) == best
    said = capsys.readouterr().out
    assert "30 of" in said and "the best by null_rate" in said
    assert "--by log_probability detects damaged pairs better than --by null_rate" in said


def test_a_new_ranking_has_no_selections_of_an_earlier_one(trained, data, corpus, tmp_path):
    output = tmp_path / "out.tsv"
    arguments = (trained / "checkpoint_last.pt", data, corpus / "test.xa", corpus / "test.xb", output)
    rank.rank(*arguments, sample=3, **CPU)
    assert selections.load_selections(output)["pairs"]
    output.unlink()
    rank.rank(*arguments, **CPU)
    with pytest.raises(InputError, match="out.tsv.selections.json: no such file"):
        selections.load_selections(output)


def test_wrong_options_are_refused(ranked):
    arguments = ranked[3]
    for options, match in (
        ({"keep_worst": 0}, "--keep-worst 0"),
        ({"sample": -1}, "--sample -1"),
        ({"by": "length"}, "--by length: choose one of log_probability, null_rate, both"),
    ):
        with pytest.raises(InputError, match=match):
            rank.rank(*arguments, **options, **CPU)
    own = ranked[0].parent / "x.worst.xa"
    own.write_bytes(arguments[2].read_bytes())
    with pytest.raises(InputError, match="would be overwritten"):
        rank.rank(*arguments[:2], own, arguments[3], ranked[0].parent / "x", **CPU)


def test_missing_or_malformed_records_are_refused(ranked, tmp_path):
    record = selections.load_selections(ranked[0])
    assert record == selections.load_selections(selections.selections_path(ranked[0]))
    assert "worst" in selections.describe({**record, "selections": {"worst": record["selections"]["all"]}}, tmp_path)
    for content, match in (
        (None, "no such file"),
        ("{}", "rank again"),
        ("[]", "rank again"),
        (json.dumps({**record, "selections": {"best": {"pairs": 1}}}), "rank again"),
    ):
        path = tmp_path / "r.selections.json"
        if content is not None:
            path.write_text(content)
        with pytest.raises(InputError, match=match):
            selections.load_selections(tmp_path / "r")
