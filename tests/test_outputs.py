"""Every input of text refuses what is not text and sorts numbered lines of fairseq-generate."""

import random

import pytest
from conftest import SHARED

from fairseq_rela import cli
from fairseq_rela.data.folder import DataFolder
from fairseq_rela.data.pairs import binarised_pairs
from fairseq_rela.data.prepare import Corpus, prepare
from fairseq_rela.data.settings import Settings
from fairseq_rela.errors import InputError
from fairseq_rela.experiment.scoring import score, suspect_order
from fairseq_rela.files.lines import read_lines
from fairseq_rela.files.plain_text import in_order, refuse_not_text

WORDS = ["a", "the", "fox", "over", "dog", "while", "seven", "bears", "sleep", "in", "their", "cave"]


def sentences(size=120, seed=1):
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(3, 20))) + " ." for _ in range(size)]


def write(path, lines):
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")
    return path


def rela_score(capsys, hypotheses, reference, *more):
    arguments = ["score", "--hypotheses", hypotheses, "--reference", reference, "-t", "en", *more]
    code = cli.main([str(argument) for argument in arguments])
    return (code, *capsys.readouterr())


def generated(lines, letter="H"):
    """Return lines in the form of fairseq-generate: the shortest sentence first."""
    order = sorted(range(len(lines)), key=lambda index: len(lines[index].split()))
    return [f"{letter}-{index}\t-0.5\t{lines[index]}" for index in order]


@pytest.mark.parametrize("letter", "HD")
def test_numbered_hypotheses_are_scored_in_the_order_of_the_reference(letter, tmp_path, capsys):
    lines = sentences()
    reference = write(tmp_path / "ref", [line.replace(" .", ".") for line in lines])
    sorted_by_length = generated(lines, letter)
    assert [line.split("\t")[2] for line in sorted_by_length] != lines
    code, out, error = rela_score(capsys, write(tmp_path / "hyp", sorted_by_length), reference)
    assert code == 0 and "sacreBLEU 100.00" in out and not error


def test_numbered_lines_are_sorted_by_number_not_by_text():
    lines = [f"line {index}" for index in range(11)]
    assert in_order([f"H-{index}\t0\t{lines[index]}" for index in (10, 2, 0, 1, *range(3, 10))], "f") == lines


def test_lines_without_numbers_are_unchanged():
    lines = ["H-0 a text", "", "a\tH-1\tb", "H-x\t0\tb"]
    assert in_order(lines, "f") == lines


@pytest.mark.parametrize(
    "lines, message",
    [
        (["H-0\t0\ta", "H-2\t0\tc"], "f: no line H-1; numbers run from 0, and 2 lines are there"),
        (["H-1\t0\ta", "H-2\t0\tc"], "f: no line H-0"),
        (["H-0\t0\ta", "H-0\t1\tb"], "f, line 2: a second line H-0; give one for each sentence"),
        (["H-0\t0\ta", "H-1\t0\tb", "H-0\t1\tb"], "f, line 3: a second line H-0"),
        (["H-0\t0\ta", "H-1\tb"], "f, line 2: not `H-NUMBER, score, hypothesis` in 3 columns"),
        (["H-0\t0\ta", "b"], "f, line 2: a line without a number .* grep .H- f"),
        (["INFO", "H-0\t0\ta"], "f, line 1: a line without a number"),
        (["S-0\ta", "T-0\tb", "H-0\t0\ta", "D-0\t0\ta", "P-0\t-1"], "f, line 1: a line S- of .* its H- lines alone"),
        (["H-0\t0\ta", "D-0\t0\ta"], "f, line 2: a line D- of"),
        (["T-0\ta", "T-1\tb"], "f, line 1: a line T- of"),
        (["P-0\t-0.1 -0.2"], "f, line 1: a line P- of"),
        (["E-0_1\ta"], "f, line 1: a line E- of"),
    ],
)
def test_numbered_lines_with_gaps_or_repetitions_are_refused(lines, message):
    with pytest.raises(InputError, match=message):
        in_order(lines, "f")


SENTENCEPIECE = [" ".join("\u2581" + word for word in line.split()) for line in sentences(20)]
NO_TEXT = {
    "SentencePiece pieces": SENTENCEPIECE,
    "byte-level BPE pieces": [line.replace("\u2581", "\u0120") for line in SENTENCEPIECE],
    "WordPiece pieces": ["play ##ing a sleep ##less bear"] * 20,
    "numbered lines of fairseq-generate": [f"S-{index}\t{line}" for index, line in enumerate(sentences(20))],
    "BPE pieces": ["play@@ ing a sleep@@ less bear"] * 20,
}


@pytest.mark.parametrize("what", sorted(NO_TEXT))
def test_files_that_are_not_text_are_refused(what, tmp_path):
    path = write(tmp_path / "input.en", NO_TEXT[what])
    with pytest.raises(InputError, match=f"input.en, line 1: {what}.*; give "):
        refuse_not_text(path)
    references = sentences(20)
    with pytest.raises(InputError, match="the reference"):
        score(references, NO_TEXT[what], "en")
    with pytest.raises(InputError, match=f"the tokenised reference, line 1: {what}"):
        score(references, references, "en", tokenised_references=NO_TEXT[what])
    if what != "BPE pieces":  # a model's output has pieces, which are joined
        with pytest.raises(InputError, match=f"the hypotheses, line 1: {what}"):
            score(NO_TEXT[what], references, "en")
    files = {split: (path, write(tmp_path / f"{split}.de", sentences(20))) for split in ("train", "valid", "test")}
    with pytest.raises(InputError, match=f"input.en, line 1: {what}"):
        prepare(Corpus(files), Settings("en", "de", merges=10, vocabulary_threshold=1), tmp_path / "data", workers=1)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("what", sorted(NO_TEXT))
def test_align_and_analyze_refuse_files_that_are_not_text(what, side, data, tmp_path):
    """`rela align`, `rela analyze --source` and gold sets read their text by this function."""
    lines = [sentences(20), sentences(20)]
    lines[side] = NO_TEXT[what]
    files = [write(tmp_path / f"{name}.txt", side) for name, side in zip(("source", "target"), lines)]
    for tokenised in (False, True):
        with pytest.raises(InputError, match=f"{files[side]}, line 1: {what}"), binarised_pairs(
            *files, DataFolder(data), tokenised
        ):
            pass


@pytest.mark.parametrize(
    "line",
    [
        "see H-0\tabove",
        "\u2581\u2582\u2583 bars",
        "## a heading",
        "x ##AT##-##AT## y",
        "@@ -1,3 +1,4 @@",
        "\u0120urnata tajba",
    ],
)
def test_text_with_characters_of_marks_is_accepted(line, tmp_path):
    refuse_not_text(write(tmp_path / "input", [line]))


def test_a_file_with_a_few_marked_lines_is_accepted(tmp_path):
    refuse_not_text(write(tmp_path / "input", [*sentences(100), "a \u2581mark and play@@ ing"]))


def test_translate_and_rank_refuse_pieces(data, trained, tmp_path, capsys):
    source = write(tmp_path / "input.xa", NO_TEXT["SentencePiece pieces"])
    checkpoint = trained / "checkpoint_last.pt"
    target = write(tmp_path / "input.xb", sentences(20))
    rank = ["rank", checkpoint, source, target, "--data", data, "--output", tmp_path / "out"]
    for command in (
        ["translate", data, "--checkpoint", checkpoint, "--input", source, "--output", tmp_path / "out"],
        rank,
        [*rank, "--damage"],
    ):
        assert cli.main([str(part) for part in command]) == 2
        error = capsys.readouterr().err.strip()
        assert "input.xa, line 1: SentencePiece pieces" in error.splitlines()[-1]
    assert not list(tmp_path.glob("out*"))


def test_alignments_that_fairseq_generate_numbers_are_sorted(tmp_path, capsys):
    gold = write(tmp_path / "gold", ["0-0 1-1", "0-1 1-0", "0-2 2-0", "1-1"])
    mixed = write(tmp_path / "hyp", ["A-3\t1-1", "A-1\t0-1 1-0", "A-0\t0-0 1-1", "A-2\t0-2 2-0"])
    assert cli.main(["aer", str(gold), str(mixed)]) == 0
    assert "AER 0.0 " in capsys.readouterr().out
    assert cli.main(["aer", str(gold), str(write(tmp_path / "hyp", ["H-0\t0\ta b"]))]) == 2
    assert "line 1: a line H- of" in capsys.readouterr().err


def test_hypotheses_in_another_order_give_a_hint(tmp_path, capsys):
    lines = sentences(200)
    reference = write(tmp_path / "ref", lines)
    moved = [line.split("\t")[2] for line in generated(lines)]
    code, _, error = rela_score(capsys, write(tmp_path / "hyp", moved), reference)
    assert code == 0 and error.startswith("warning: lines of ") and error.count("\n") == 1
    assert not suspect_order(lines, lines) and not suspect_order(["a"] * 200, lines)
    assert not suspect_order(moved[:99], lines[:99])


@pytest.mark.skipif(not SHARED.is_dir(), reason="no shared data beside the checkout")
@pytest.mark.parametrize(
    "path", sorted((SHARED / "data").glob("wmt_newstest/*")) + sorted(SHARED.glob("data/multi30k/*"))
)
def test_published_test_sets_are_accepted_as_text(path):
    if path.suffix.lstrip(".") in ("en", "de", "fr", "fi", "ro", "zh"):
        assert next(read_lines(path))
        refuse_not_text(path)
