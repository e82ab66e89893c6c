"""Truecasing, against Moses' Perl scripts and sacremoses.

The strings below are output of the scripts; ``MOSES=<checkout of moses-smt/mosesdecoder>`` runs them again.
"""

import pickle
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacremoses import MosesTruecaser
from test_text import needs_moses, perl

from fairseq_rela.errors import InputError
from fairseq_rela.text import truecase
from fairseq_rela.text.truecase import Truecaser, detruecase

TEXT = [
    "&quot; The cat saw The cat . The end : A cat , iPhone",
    "- A dog saw the the dog of NATO",
    "( Yes ) &quot; NATO or nato NATO ( x/y )",
    "the Y said 5 / ( 6 ) : NATO &lt; x",
]
# train-truecaser.perl's lines, sorted
MODEL = """\
&lt; (1/1)
&quot; (1/1)
( (2/2)
) (3/3)
, (1/1)
. (1/1)
/ (1/1)
5 (1/1)
6 (1/1)
: (2/2)
A (1/1)
NATO (3/4) nato (1)
Y (1/1)
cat (3/3)
dog (2/2)
end (1/1)
iPhone (1/1)
of (1/1)
or (1/1)
said (1/1)
saw (2/2)
the (2/3) The (1)
x (1/1)
x/y (1/1)
"""
WORDS = ["the", "The", "THE", "nato", "NATO", "x/y", "(5/6)", "éa", "Éa", "ß", "Σας", "ΣΑΣ", "İ", "ǆ", "&lt;", "5"]
LINES = st.lists(st.sampled_from([*WORDS, *'.:?!([)"', "'", "&quot;", "&apos;", "&#91;"]), max_size=20).map(" ".join)


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model"
    truecase.write(path, truecase.count_casings(TEXT))
    return path


def made_up_lines(number, seed=0):
    pick = random.Random(seed)
    marks = [".", ":", "?", "!", "(", "[", "&quot;", "&apos;", "&#91;", ","]
    return [" ".join(pick.choices(WORDS * 2 + marks, k=pick.randrange(25))) for _ in range(number)]


def test_the_model_equals_that_of_moses(model):
    assert sorted(model.read_text(encoding="utf-8").splitlines()) == sorted(MODEL.splitlines())


@pytest.mark.parametrize(
    "line, cased",
    [
        (
            "&quot; The Dog and The y . &quot; IPHONE : Nato ( nato )",
            "&quot; the dog and The Y . &quot; iPhone : NATO ( nato )",
        ),
        ("NATO Saw THE unknown Unknown", "NATO saw the unknown Unknown"),
        ("A  cat ? ( &apos; The end", "A cat ? ( &apos; the end"),
    ],
)
def test_truecased_text_equals_that_of_moses(model, line, cased):
    """The lines are output of truecase.perl with the same model."""
    assert Truecaser.load(model)(line) == cased


def test_detruecased_text_equals_that_of_moses():
    """The lines are output of detruecase.perl."""
    assert (
        detruecase("&quot; the cat . ( &#91; the end ? ßa x : éa &lt; a")
        == "&quot; The cat . ( &#91; The end ? SSa x : Éa &lt; a"
    )


@settings(deadline=None, max_examples=100)
@given(lines=st.lists(LINES, min_size=1, max_size=8))
def test_truecased_text_equals_sacremoses_with_the_same_model(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("truecase") / "model"
    lines = [line.replace("Σ", "") for line in lines]  # its lower case differs between Perl and Python
    truecase.write(path, truecase.count_casings(lines))
    ours, theirs = Truecaser.load(path), MosesTruecaser(load_from=str(path))
    for line in lines:
        assert ours(line) == theirs.truecase(line, return_str=True, use_known=True)


@settings(deadline=None, max_examples=100)
@given(lines=st.lists(LINES, max_size=8), seed=st.integers(0, 99))
def test_the_model_does_not_depend_on_the_blocks(tmp_path_factory, lines, seed):
    folder = tmp_path_factory.mktemp("truecase")
    truecase.write(folder / "whole", truecase.count_casings(lines))
    blocks = [pickle.loads(pickle.dumps(truecase.count_casings([line]))) for line in lines]
    random.Random(seed).shuffle(blocks)
    truecase.write(folder / "summed", sum(blocks, Counter()))
    assert (folder / "whole").read_bytes() == (folder / "summed").read_bytes()


@settings(deadline=None, max_examples=200)
@given(line=LINES | st.text(st.characters(blacklist_categories=("Cs",)), max_size=40))
def test_only_the_case_of_words_changes(line):
    recase = Truecaser({"the": "the", "nato": "NATO", "ß": "ß"}, {"the", "The", "NATO"})
    for changed in (recase(line), detruecase(line)):
        assert len(changed.split()) == len(line.split())
        # casefold alone is not enough: capitals of some letters, such as ŉ, are two characters
        assert changed.upper().casefold() == " ".join(line.split()).upper().casefold()


def test_lower_case_is_chosen_in_ties():
    assert truecase.choose({"The": 2, "the": 2, "THE": 3, "A": 1, "a": 1}) == [
        [("a", 1), ("A", 1)],
        [("THE", 3), ("the", 2), ("The", 2)],
    ]


@pytest.mark.parametrize("line", ["", "the", "the 5", "the (5", "the (5/6) The", "the (x/6)", "the (5/6) The 1"])
def test_files_that_are_not_models_are_refused(tmp_path, line):
    path = tmp_path / "model"
    path.write_text(f"a (1/1)\n{line}\n")
    with pytest.raises(InputError, match='model, line 2: not "word'):
        Truecaser.load(path)


def test_a_missing_model_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        Truecaser.load(tmp_path / "none")


@needs_moses
def test_model_and_text_equal_the_perl_scripts(tmp_path):
    lines = made_up_lines(1000)
    text, theirs, ours = tmp_path / "text", tmp_path / "theirs", tmp_path / "ours"
    text.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    perl("recaser/train-truecaser.perl", "--model", theirs, "--corpus", text, lines=[])
    truecase.write(ours, truecase.count_casings(lines))

    def forms(path):
        return {frozenset(line.replace("/", " ").split()) for line in path.read_text(encoding="utf-8").splitlines()}

    assert forms(ours) == forms(theirs)
    for model in (theirs, ours):
        recase = Truecaser.load(model)
        cased = [recase(line) for line in lines]
        assert cased == [
            " ".join(line.split()) for line in perl("recaser/truecase.perl", "--model", model, lines=lines)
        ]
    assert [detruecase(line) for line in cased] == perl("recaser/detruecase.perl", lines=cased)
