"""Alignment error rates: by hand, by brute force, and as published."""

import pytest
from conftest import SHARED, run_rela
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_rela.analysis.aer import Gold, count, fits_better, read_links
from fairseq_rela.errors import InputError

LINKS = st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8)
SENTENCES = st.lists(st.tuples(LINKS, LINKS, LINKS), min_size=1, max_size=5)
ALIGNMENTS = SHARED / "data" / "word_alignment"


def gold_of(sure, possible=()):
    return Gold(frozenset(sure), frozenset(sure) | frozenset(possible))


def test_error_rates_by_hand():
    """Compare four links, of which two are sure and one is possible in the gold, with three sure gold links."""
    gold = [gold_of({(0, 0), (1, 1), (2, 3)}, {(2, 2)})]
    counts = count(gold, [{(0, 0), (1, 1), (2, 2), (5, 5)}])
    assert counts == (4, 3, 2, 3)
    assert counts.aer == pytest.approx(1 - 5 / 7)
    assert (counts.precision, counts.recall) == (3 / 4, 2 / 3)


@settings(max_examples=100, deadline=None)
@given(SENTENCES)
def test_error_rates_equal_brute_force_and_stay_within_bounds(sentences):
    gold = [gold_of(sure, possible) for sure, possible, _ in sentences]
    hypothesis = [links for _, _, links in sentences]
    if not any(g.sure for g in gold) and not any(hypothesis):
        with pytest.raises(InputError, match="neither alignment has a link"):
            count(gold, hypothesis)
        return
    everything = [(n, i, j) for n in range(len(gold)) for i in range(6) for j in range(6)]
    a = sum((i, j) in hypothesis[n] for n, i, j in everything)
    s = sum((i, j) in gold[n].sure for n, i, j in everything)
    both = sum((i, j) in hypothesis[n] and (i, j) in gold[n].sure for n, i, j in everything)
    may = sum((i, j) in hypothesis[n] and (i, j) in gold[n].possible for n, i, j in everything)
    counts = count(gold, hypothesis)
    assert counts.aer == pytest.approx(1 - (both + may) / (a + s)) and -1e-12 <= counts.aer <= 1
    if any(g.sure for g in gold):
        assert count(gold, [g.sure for g in gold]).aer == 0
        assert count(gold, [set() for _ in gold]).aer == 1  # without any link there is no division by zero
        worse = [links | {(9, 9)} for links in hypothesis]
        assert count(gold, worse).aer >= counts.aer


@settings(max_examples=50, deadline=None)
@given(st.lists(LINKS, min_size=1, max_size=4), st.integers(0, 1), st.booleans())
def test_files_that_count_from_0_or_1_in_either_direction_read_the_same(sentences, base, swap):
    lines = []
    for links in sentences:
        pairs = [(j, i) if swap else (i, j) for i, j in sorted(links)]
        lines.append(" ".join(f"{a + base}{'p' if a % 2 else '-'}{b + base}" for a, b in pairs))
    for links, gold in zip(sentences, read_links(lines, "f", base, swap)):
        assert gold.possible == links and gold.sure <= links


@pytest.mark.parametrize(
    "lines, options, message",
    [
        (["0-0 1:2"], {}, "line 1: '1:2' is not a link"),
        (["0-0", "x"], {}, "line 2: 'x' is not a link"),
        (["0-1"], {"base": 1}, "0-1 is outside of the sentences; check whether words count from 0 or 1"),
        (["3-1"], {"lengths": [(3, 5)]}, "3-1 is outside of the sentences of 3 and 5 words"),  # counts from 1
        (["1-4"], {"lengths": [(5, 3)]}, "which side comes first"),
        (["0-0", "0-0"], {"lengths": [(1, 1)]}, "more lines than the 1 sentences"),
        (["0-0"], {"lengths": [(1, 1), (1, 1)]}, "has 1 lines for 2 sentences"),
    ],
)
def test_impossible_links_are_refused(lines, options, message):
    with pytest.raises(InputError, match=message):
        read_links(lines, "f", **options)


def test_the_command_counts_from_the_stated_base(tmp_path):
    (tmp_path / "gold").write_text("1-1 2p2\n\n3-1\n")
    (tmp_path / "ours").write_text("0-0 1-1\n0-0\n2-0\n")
    (tmp_path / "text").write_text("a b ||| c d\nx ||| y\na b c ||| d\n")
    arguments = ["aer", tmp_path / "gold", tmp_path / "ours", "--gold-base", 1, "--sentences", tmp_path / "text"]
    result = run_rela(*arguments)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("AER 16.7   precision 75.0%   recall 100.0%   4 links")  # 1 - (2 + 3) / (4 + 2)
    wrong = run_rela(*arguments[:4], "0", *arguments[5:])
    assert wrong.returncode == 2 and "outside of the sentences of 2 and 2 words" in wrong.stderr


@pytest.mark.skipif(not ALIGNMENTS.is_dir(), reason="no shared data")
@pytest.mark.parametrize("output, aer", [("fast_align", "27.0"), ("giza", "21.4")])
def test_error_rates_equal_published_ones(output, aer):
    """German-English, RWTH's gold alignment."""
    files = [ALIGNMENTS / "deen.talp", ALIGNMENTS / f"{output}.deen.grow-diagonal.talp"]
    result = run_rela("aer", *files, "--gold-base", 1, "--sentences", ALIGNMENTS / "test.de-en")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"AER {aer} ")
    # without options: a gold alignment that has no 0 anywhere is taken to count from 1
    assert run_rela("aer", *files).stdout.startswith(f"AER {aer} ")


@settings(deadline=None, max_examples=50)
@given(sentences=st.lists(st.sets(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=6), min_size=1, max_size=6))
def test_a_file_that_fits_better_transposed_or_shifted_gives_a_warning(sentences):
    """B12: a transposed file, or one that counts from another base, against the rates of all four readings."""
    readings = {
        "swapped": [{(j, i) for i, j in links} for links in sentences],
        "from 1 more": [{(i + 1, j + 1) for i, j in links} for links in sentences],
        "from 1 less": [{(i - 1, j - 1) for i, j in links} for links in sentences],
    }
    if not any(sentences):
        return
    gold = [gold_of(links) for links in sentences]
    assert fits_better(gold, sentences) is None
    for what, hypothesis in readings.items():
        given_rate, said = count(gold, hypothesis).aer, fits_better(gold, hypothesis)
        # with the right reading the rate is 0
        assert (said is not None) == (given_rate > 0.05), what
        assert said is None or said.startswith("the AER would be 0.0 ")


def test_the_command_warns_of_a_file_that_fits_better_otherwise(tmp_path, capsys):
    from fairseq_rela import cli

    (tmp_path / "gold").write_text("0-1 1-2 2-3\n0-2 1-0\n")
    (tmp_path / "hyp").write_text("1-0 2-1 3-2\n2-0 0-1\n")
    assert cli.main(["aer", str(tmp_path / "gold"), str(tmp_path / "hyp")]) == 0
    output = capsys.readouterr()
    assert (
        "AER 100.0" in output.out
        and "warning: the AER would be 0.0 with the two sides of one file swapped" in output.err
    )
    assert cli.main(["aer", str(tmp_path / "gold"), str(tmp_path / "hyp"), "--hypothesis-swapped"]) == 0
    assert "warning" not in capsys.readouterr().err


def test_a_file_against_itself_has_rate_0_with_any_base(tmp_path, capsys):
    """B12: the base of two equal files does not matter."""
    from fairseq_rela import cli

    (tmp_path / "gold").write_text("1-1 2p2\n3-1\n")
    assert cli.main(["aer", str(tmp_path / "gold"), str(tmp_path / "gold")]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("AER 0.0") and "warning" not in said.err
