"""Scoring: the strings that are compared, and the inputs that are refused."""

import pytest
import sacrebleu
from conftest import SHARED, run, sys

from fairseq_rela.errors import InputError
from fairseq_rela.experiment.scoring import score
from fairseq_rela.files.lines import read_lines
from fairseq_rela.text.preprocess import Preprocessor

RAW = [
    "He said: \"It's a well-known fact (isn't it?).\"",
    "Prices rose 3.5% & fell <again> in the U.S. market.",
    "Zürich's naïve co-operation cost $1,000.",
]


def pieces(lines, lang="en"):
    """Return tokens in which every long word is split with BPE's mark."""
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
    # the score of the model's tokens against the raw text
    assert sacrebleu.corpus_bleu(tokenised, [RAW]).score < 90


def test_the_score_equals_that_of_sacrebleus_command(tmp_path):
    references = [line + " And more." for line in RAW] * 3
    hypotheses = pieces([line.replace("a", "o", 1) for line in references])
    scores = score(hypotheses, references, "en")
    from fairseq_rela.text import bpe
    from fairseq_rela.text.preprocess import Detokeniser

    detokenise = Detokeniser("en")
    (tmp_path / "hyp").write_text("".join(detokenise(bpe.undo(h)) + "\n" for h in hypotheses), encoding="utf-8")
    (tmp_path / "ref").write_text("".join(r + "\n" for r in references), encoding="utf-8")
    result = run(
        sys.executable, "-m", "sacrebleu", tmp_path / "ref", "-i", tmp_path / "hyp", "-tok", "13a", "-b", "-w", 6
    )
    assert 10 < scores["bleu"] < 99
    assert float(result.stdout) == pytest.approx(scores["bleu"], abs=1e-5)


def test_empty_hypotheses_lower_the_score(tmp_path):
    scores = score(["", *pieces(RAW[1:])], RAW, "en")
    assert scores["bleu"] < 80 and scores["sentences"] == 3


def test_unequal_numbers_of_lines_are_refused():
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
