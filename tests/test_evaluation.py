"""Hypotheses in order, scores on the right strings."""

import pytest
import sacrebleu
from conftest import SHARED, run, sys

from fairseq_rela.errors import InputError
from fairseq_rela.experiment.decoding import load_decoding
from fairseq_rela.experiment.scoring import score
from fairseq_rela.experiment.translation import read_hypotheses
from fairseq_rela.files.lines import read_lines
from fairseq_rela.text.preprocess import Preprocessor

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


def test_order_is_by_number_and_the_best_comes_first(tmp_path):
    """B07: fairseq prints by length; text order would put 10 before 2; a translation may be empty."""
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
    """B01, B08: a sentence that is lost is an error."""
    with pytest.raises(InputError, match=message):
        read_hypotheses(write(tmp_path / "out", text), sentences)


RAW = [
    "He said: \"It's a well-known fact (isn't it?).\"",
    "Prices rose 3.5% & fell <again> in the U.S. market.",
    "Zürich's naïve co-operation cost $1,000.",
]


def pieces(lines, lang="en"):
    """Tokens with every long word cut by BPE's mark."""
    preprocess = Preprocessor(lang)
    return [
        " ".join(w if len(w) < 5 or "&" in w or "@" in w else f"{w[:2]}@@ {w[2:]}" for w in preprocess(line).split())
        for line in lines
    ]


def test_a_perfect_translation_scores_100():
    """B06: escapes, @-@ and BPE undone before scoring against the raw reference."""
    hypotheses = pieces(RAW)
    assert any("@@ " in h for h in hypotheses) and any("&apos;" in h for h in hypotheses)
    tokenised = [Preprocessor("en")(line) for line in RAW]
    scores = score(hypotheses, RAW, "en", tokenised_references=tokenised)
    assert scores["bleu"] == pytest.approx(100) and scores["tokenised_bleu"] == pytest.approx(100)
    assert "tok:13a" in scores["signature"] and "smooth:exp" in scores["signature"]
    assert f"version:{sacrebleu.__version__}" in scores["signature"]
    assert "tok:none" in scores["tokenised_signature"]
    # what a person gets who scores the model's tokens against the raw text
    assert sacrebleu.corpus_bleu(tokenised, [RAW]).score < 90


def test_the_score_is_that_of_sacrebleus_command(tmp_path):
    references = [line + " And more." for line in RAW] * 3
    hypotheses = pieces([line.replace("a", "o", 1) for line in references])
    scores = score(hypotheses, references, "en")
    from fairseq_rela.text import bpe
    from fairseq_rela.text.preprocess import Detokeniser

    detokenise = Detokeniser("en")
    write(tmp_path / "hyp", "".join(detokenise(bpe.undo(h)) + "\n" for h in hypotheses))
    write(tmp_path / "ref", "".join(r + "\n" for r in references))
    result = run(
        sys.executable, "-m", "sacrebleu", tmp_path / "ref", "-i", tmp_path / "hyp", "-tok", "13a", "-b", "-w", 6
    )
    assert 10 < scores["bleu"] < 99
    assert float(result.stdout) == pytest.approx(scores["bleu"], abs=1e-5)


def test_empty_hypotheses_count(tmp_path):
    scores = score(["", *pieces(RAW[1:])], RAW, "en")
    assert scores["bleu"] < 80 and scores["sentences"] == 3


def test_other_numbers_of_lines_are_refused():
    with pytest.raises(InputError, match="2 hypotheses, 3 lines of reference"):
        score(pieces(RAW)[:2], RAW, "en")
    with pytest.raises(InputError, match="tokenised reference"):
        score(pieces(RAW), RAW, "en", tokenised_references=RAW[:2])
    with pytest.raises(InputError, match="the reference has no text"):
        score([], [], "en")
    with pytest.raises(InputError, match="the reference has no text"):
        score(["", ""], ["", " "], "en")
    with pytest.raises(InputError, match="the reference holds BPE pieces"):
        score(RAW, pieces(RAW), "en")
    with pytest.raises(InputError, match="--tokeniser Moses"):
        score(pieces(RAW), RAW, "en", tokeniser="Moses")


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
def test_decoding_that_cannot_be(options):
    with pytest.raises(InputError, match="--"):
        load_decoding(**options)


WMT = SHARED / "data" / "wmt_newstest"


@pytest.mark.skipif(not WMT.is_dir(), reason="no WMT test sets beside the checkout")
@pytest.mark.parametrize(
    "name, lang, length",
    [
        ("newstest2014.en-de.de", "de", 62688),
        ("newstest2014.en-fr.fr", "fr", 77306),
        ("newstest2018.en-fi.fi", "fi", 44836),
        ("newstest2018.zh-en.en", "en", 109936),
        ("newstest2016.ro-en.en", "en", 47562),
    ],
)
def test_reference_lengths_of_the_paper_s_test_sets(name, lang, length):
    references = list(read_lines(WMT / name))
    assert score([""] * len(references), references, lang)["reference_length"] == length
