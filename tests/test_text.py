"""Raw text to tokens and back."""

import re
import sys

import pytest
from conftest import run
from hypothesis import given, settings
from hypothesis import strategies as st
from test_lines import BREAKS

from fairseq_rela.data import bpe
from fairseq_rela.data.text import Detokeniser, Preprocessor, clean_characters

WILD = st.text(st.characters(blacklist_categories=("Cs",)), max_size=60)


@settings(deadline=None, max_examples=200)
@given(line=WILD)
def test_one_line_of_anything_stays_one_line(line):
    """B04: nothing is left at which fairseq, Python or subword-nmt would end a line or split a token."""
    for tokeniser in ("moses", "none"):
        tokens = Preprocessor("de", tokeniser)(line)
        assert tokens == " ".join(tokens.split()) == " ".join(re.split(r"\s+", tokens))
        assert len(tokens.splitlines()) <= 1
        assert not set(tokens) & set(BREAKS)
        assert not {"<s>", "</s>", "<pad>", "<unk>"} & set(tokens.split())
        assert "@@" not in tokens


@pytest.mark.parametrize("character", BREAKS)
def test_characters_that_break_lines_become_spaces(character):
    assert clean_characters(f" a{character}b{character}") == "a b"


@pytest.mark.parametrize(
    "lang, text, tokens",
    [
        # Moses moves the stop behind the quote, in German also at the end of the line
        ("de", 'Er sagte: "Ja, gut."', "Er sagte : &quot; Ja , gut &quot; ."),
        ("en", 'He said: "Yes."', "He said : &quot; Yes . &quot;"),
        ("en", "It's a well-known fact.", "It &apos;s a well @-@ known fact ."),
        ("de", "Art.", "Art ."),  # Moses splits the last period of a line even after an abbreviation
        ("en", "A & B | C <unk> [x]", "A &amp; B &#124; C &lt; unk &gt; &#91; x &#93;"),
        ("de", "„So“ – ja…", "&quot; So &quot; - ja ..."),
        ("en", "so ... and so.. .", "so ... and so .. ."),
        ("fi", '"ja," hän', "&quot; ja &quot; , hän"),
    ],
)
def test_moses_tokens(lang, text, tokens):
    assert Preprocessor(lang)(text) == tokens


@pytest.mark.parametrize(
    "lang, text",
    [
        ("de", 'Er sagte: "Ja, gut".'),
        ("en", "It's a well-known fact, isn't it?"),
        ("en", "A & B < C > D (x), 50% of $3."),
        ("fr", "L'homme n'est pas là."),
        ("de", "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche."),
    ],
)
def test_what_is_tokenised_is_detokenised(lang, text):
    assert Detokeniser(lang)(Preprocessor(lang)(text)) == text


def test_unknown_languages_are_treated_as_english():
    assert Preprocessor("xa")("a b's.") == Preprocessor("en")("a b's.") == "a b &apos;s ."


def test_text_that_is_tokenised_already():
    assert Preprocessor("de", "none")(" a  b. <unk> c@@ ") == "a b. &lt;unk&gt; c@ @"
    assert Detokeniser("de", "none")("a b. &lt;x") == "a b. &lt;x"


LINES = ["low lower lowest newer newest wider", "new low wide widest", "slow newest @-@ low"] * 5


def segmenter(tmp_path, merges=12, threshold=1):
    words = bpe.count_words(LINES)
    codes = tmp_path / "codes"
    codes.write_text("\n".join(bpe.learn(words, merges)) + "\n")
    bpe.write_vocabulary(tmp_path / "vocab", bpe.count_pieces(bpe.load_segmenter(codes), words))
    return bpe.load_segmenter(codes, tmp_path / "vocab", threshold)


@settings(deadline=None, max_examples=200)
@given(line=WILD)
def test_bpe_is_undone(tmp_path_factory, line):
    split = segmenter(tmp_path_factory.mktemp("bpe"))
    tokens = Preprocessor("en")(line)
    assert bpe.undo(split.process_line(tokens)) == tokens


def test_the_same_as_subword_nmts_own_command(tmp_path):
    """learn-joint-bpe-and-vocab and apply-bpe --vocabulary-threshold, by their command line."""
    text = tmp_path / "text"
    text.write_text("\n".join(LINES) + "\n")
    command = (sys.executable, "-W", "ignore", "-c", "from subword_nmt.subword_nmt import main; main()")
    theirs, vocab = tmp_path / "theirs", tmp_path / "vocab.theirs"
    result = run(
        *(*command, "learn-joint-bpe-and-vocab", "--input", text, "-s", 12, "-o", theirs, "--write-vocabulary", vocab)
    )
    assert result.returncode == 0, result.stderr
    split = segmenter(tmp_path, threshold=11)
    assert (tmp_path / "codes").read_text() == theirs.read_text()
    assert sorted(bpe.read_vocabulary(vocab)) == sorted(bpe.read_vocabulary(tmp_path / "vocab"))
    applied = run(
        *(*command, "apply-bpe", "-c", theirs, "-i", text, "--vocabulary", vocab, "--vocabulary-threshold", 11)
    )
    assert [split.process_line(line) for line in LINES] == applied.stdout.splitlines()
    assert "@@" in applied.stdout
    # the threshold matters here
    assert [segmenter(tmp_path).process_line(line) for line in LINES] != applied.stdout.splitlines()


def test_codes_and_vocabulary_mixed_up(tmp_path):
    from fairseq_rela.errors import InputError

    segmenter(tmp_path)
    with pytest.raises(InputError, match="not a BPE codes file"):
        bpe.load_segmenter(tmp_path / "vocab")
    with pytest.raises(InputError, match="line 1: not a piece and its frequency"):
        bpe.load_segmenter(tmp_path / "codes", tmp_path / "codes")
