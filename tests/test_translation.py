"""The order of translations in fairseq's output, and settings of the search."""

import pytest

from fairseq_rela.errors import InputError
from fairseq_rela.experiment.decoding import load_decoding
from fairseq_rela.experiment.translation import Speed, _read_speed, read_hypotheses

OUTPUT = """INFO something
S-6\tsource
T-6\ttarget <<unk>>
H-6\t-0.5\tsix a
D-6\t-0.5\tsix a
P-6\t-0.1
H-6\t-0.7\tsix b
H-10\t-0.2\tten
H-2\t-0.2\t
H-0\t-0.1\tzero \u2028 x\ty
H-1\t-1\tone
"""


def write(path, text):
    path.write_text(text, encoding="utf-8", newline="\n")
    return path


def test_translations_are_sorted_by_number_and_the_best_comes_first(tmp_path):
    """B07: fairseq prints by length; sorting as text puts 10 before 2; a translation may be empty."""
    more = "".join(f"H-{i}\t0\tw{i}\n" for i in (3, 4, 5, 7, 8, 9, 11))
    hypotheses = read_hypotheses(write(tmp_path / "out", OUTPUT + more), 12)
    assert hypotheses[:3] == ["zero \u2028 x\ty", "one", ""]
    assert hypotheses[6] == "six a" and hypotheses[10] == "ten"
    assert hypotheses[3:6] == ["w3", "w4", "w5"]


@pytest.mark.parametrize(
    "text, sentences, message",
    [
        ("H-0\t0\ta\nH-2\t0\tc\n", 3, "no translation of sentence 1 "),
        ("", 30, "no translation of sentence 0, 1, 2, 3, 4 ..."),
        ("H-0\t0\ta\nH-1\t0\tb\n", 1, "unexpected sentence 1"),
        ("H-0\t0\ta\nH-1\t0\tb\nH-0\t0\ta\n", 2, "line 3: a second translation of sentence 0"),
        ("H-0\t0\ta\nH-1\n", 2, "line 2: not `H-ID, score, hypothesis`"),
        ("H-x\t0\ta\n", 1, "line 1: not `H-ID"),
    ],
)
def test_gaps_and_duplicates_are_named(tmp_path, text, sentences, message):
    """B01, B08: a lost sentence is an error."""
    with pytest.raises(InputError, match=message):
        read_hypotheses(write(tmp_path / "out", text), sentences)


@pytest.mark.parametrize(
    "options",
    [
        dict(beam=0),
        dict(max_tokens=0),
        dict(max_len_a=0, max_len_b=0),
        dict(max_len_b=-1),
        dict(gnmt_lenpen=float("nan")),
    ],
)
def test_invalid_decoding_settings_are_refused(options):
    with pytest.raises(InputError, match="--"):
        load_decoding(**options)


def test_the_speed_is_that_of_the_search_also_if_it_takes_no_tenth_of_a_second(tmp_path):
    """fairseq rounds the seconds to tenths, and its rates to hundredths."""
    line = "Translated 1,234 sentences (30,000 tokens) in 0.0s (41133.33 sentences/s, 1000000.00 tokens/s)\n"
    speed = _read_speed(write(tmp_path / "log", f"INFO\n{line}"))
    assert speed[:2] == (1234, 30000) and speed.seconds == pytest.approx(0.03)
    assert str(speed) == "1,234 sentences, 1,000,000 pieces a second"
    assert str(Speed(1, 0, 0.0)) == "1 sentences, 0 pieces a second"
