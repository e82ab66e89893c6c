"""Random text in every command: no traceback, no shifted line, and clean text comes back unchanged.

``FUZZ_EXAMPLES`` sets the number of examples of each test; without it there are few. Statistics of a large run::

    FUZZ_EXAMPLES=2000 pytest tests/test_fuzz.py --hypothesis-show-statistics
"""

import contextlib
import io
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest
from conftest import run_rela
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from fairseq_rela import cli
from fairseq_rela.alignment import as_pharaoh, word_ids
from fairseq_rela.analysis import aer, rank
from fairseq_rela.analysis.pair_scorer import load_scorer
from fairseq_rela.data.folder import DataFolder
from fairseq_rela.errors import InputError
from fairseq_rela.text import bpe
from fairseq_rela.text.preprocess import Detokeniser, Preprocessor

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))


def examples(few):
    """Return the settings of a test: ``few`` examples by default; no examples are saved between runs."""
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
    how = dict(deadline=None, database=None, derandomize=not EXAMPLES, suppress_health_check=checks)
    return settings(max_examples=EXAMPLES or few, **how)


# text with a meaning for some program: separators, escapes, special symbols, marks of formats
MARKS = (
    *("@@", "@@ ", " @@", "@", "|||", " ||| ", "|", "&amp;", "&", "&lt;", "&apos;", "&#124;", "& quot ;"),
    *("<unk>", "<<unk>>", "<s>", "</s>", "<pad>", "</w>", "a<unk>", "madeupword0000", "#fairseq:overwrite"),
    *("H-0\t", "T-1", "\t", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\ufeff", "\x00", "\x7f"),
    *("\xa0", "\u3000", " ", "  ", "\u202e", "\u0301", "\ue000", "\ue001", "\U0010ffff", "\ufffe", "0-0", "-", "--"),
    *("...", "\u200b", "##AT##-##AT##", "#version: 0.2", "DOTMULTI", "THISISPROTECTED000", "b<pad>", "c</s>"),
    *("%s", "{}", "\\n", "\\1"),
    *("$1", "'", '"', "’", "Σ", "ς", "İ", "ß", "中", "😀"),
)
CHARACTERS = st.characters(blacklist_categories=("Cs",), blacklist_characters="\n")  # Unicode without surrogates, LF
PARTS = st.one_of(
    st.sampled_from(MARKS), st.text(CHARACTERS, max_size=8), st.sampled_from(("a", "ab", "the", "damok "))
)
LINES = st.builds("".join, st.lists(PARTS, max_size=12))
# without lines that are refused as text: pieces of words, numbered lines of fairseq-generate
NO_TEXT = re.compile(r"\w@@ \w|^[A-Z]-\d+(_\d+)?\t|[\u2581\u0120]|\w ##(?!AT##)")
TEXT = LINES.filter(lambda line: not NO_TEXT.search(line) and not NO_TEXT.search(f"ab {line}"))
LONG = st.builds(lambda part, times: part * times, PARTS, st.integers(500, 5000))
# bytes that are not UTF-8: a surrogate, a single byte, a truncated and an overlong sequence, one beyond Unicode
NO_UTF8 = st.sampled_from([b"\xed\xa0\x80", b"\xff", b"\x80", b"\xc3", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"a\xe4b"])


def write(path, lines):
    """Write lines of any content, each followed by LF."""
    path.write_bytes(b"".join((line if isinstance(line, bytes) else line.encode("utf-8")) + b"\n" for line in lines))
    return path


def lines_of(path):
    """Return the lines that ``wc -l`` counts."""
    content = Path(path).read_bytes()
    assert content.endswith(b"\n") or not content
    return content.decode("utf-8").split("\n")[:-1]


@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory(prefix=f"fuzz-{os.getpid()}-") as name:
        yield Path(name)


def rela(*arguments):
    """Return the exit code, the output, and the one error line of a failure."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main([str(argument) for argument in arguments])
    assert code in (0, 2)
    if code == 2:
        assert len(err.getvalue().splitlines()) == 1 and err.getvalue().startswith("rela "), err.getvalue()
    return code, out.getvalue(), err.getvalue()


# --- text and pieces ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def segmenters(data):
    """Return segmenters with the full vocabulary and with a data folder's, which splits rare words into letters."""
    return (
        bpe.load_segmenter(data / "bpecodes"),
        bpe.load_segmenter(data / "bpecodes", data / "vocab.xa", 8),
    )


@examples(60)
@given(line=st.one_of(LINES, LONG), language=st.sampled_from(("en", "de", "fr", "fi", "ro")))
def test_a_line_stays_one_line_through_preprocessing_and_back(segmenters, line, language):
    for tokeniser in ("moses", "none"):
        tokens = Preprocessor(language, tokeniser)(line)
        # cleaning twice equals cleaning once
        assert tokens == " ".join(tokens.split()) and len(tokens.splitlines()) <= 1
        assert not any(symbol in tokens for symbol in ("<s>", "<pad>", "</s>", "<unk>", "@@"))
        for segmenter in segmenters:
            pieces = segmenter.process_line(tokens)
            assert bpe.undo(pieces) == tokens
            # a piece is a word of fairseq's dictionary, and none of its special symbols
            assert not {"<s>", "<pad>", "</s>", "<unk>"} & set(pieces.split())
            # the code for alignments splits words in the same way
            words = word_ids(pieces.split())
            assert (words[-1] + 1 if words else 0) == len(tokens.split())
        text = Detokeniser(language, tokeniser)(tokens)
        assert "\n" not in text and len(text.splitlines()) <= 1


CLEAN = st.lists(
    st.text(st.characters(whitelist_categories=("Lu", "Ll", "Lo", "Nd")), min_size=1, max_size=9),
    min_size=1,
    max_size=9,
)


@pytest.mark.slow
@examples(4)  # each starts fairseq-preprocess
@given(sentences=st.lists(CLEAN, min_size=1, max_size=60))
def test_clean_text_is_binarised_and_comes_back(data, segmenters, sentences):
    """fairseq's own reader and dictionary are used."""
    from fairseq.data import Dictionary, data_utils

    from fairseq_rela.data.binarise import binarise

    texts = [" ".join(words) for words in sentences]
    pieces = [segmenters[0].process_line(text) for text in texts]
    with folder() as work, contextlib.redirect_stdout(io.StringIO()):
        for lang in ("xa", "xb"):
            write(work / f"train.{lang}", pieces)
        counts = binarise(work / "bin", ("xa", "xb"), {"train": work / "train"}, 1, work / "log")
        dictionary = Dictionary.load(str(work / "bin" / "dict.xa.txt"))
        dataset = data_utils.load_indexed_dataset(str(work / "bin" / "train.xa-xb.xb"), dictionary, "mmap")
        assert counts["train"]["xb"].unknown == 0 and len(dataset) == len(texts)
        assert [dictionary.string(ids, bpe_symbol="@@ ") for ids in dataset] == texts


# --- prepare -----------------------------------------------------------------------------------------------------

PAIRS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=12)


def write_corpus(raw, splits):
    """Write lines that begin with their number, so that shifts are found; some plain pairs make BPE possible."""
    for split, pairs in splits.items():
        for lang, side in (("en", 0), ("de", 1)):
            write(raw / f"{split}.{lang}", [f"n{i} ab {pair[side]}" for i, pair in enumerate(pairs)])


def prepare(raw, output, *options):
    arguments = ["prepare", "-s", "en", "-t", "de", "--merges", 20, "--vocabulary-threshold", 1, "--workers", 1]
    splits = [part for split in ("train", "valid", "test") for part in (f"--{split}", raw / split)]
    return rela(*arguments, *splits, "--output", output, *options)


def first_words(lines):
    return [line.split()[0] for line in lines]


@pytest.mark.slow
@examples(6)
@given(train=PAIRS, test=PAIRS, tokeniser=st.sampled_from(("moses", "none")), truecase=st.booleans())
def test_prepare_shifts_no_line(train, test, tokeniser, truecase):
    from fairseq.data import Dictionary, data_utils

    with folder() as work:
        write_corpus(work, {"train": train, "valid": test[:1], "test": test})
        options = ["--tokeniser", tokeniser, *(["--truecase"] if truecase else [])]
        code, _, error = prepare(work, work / "data", *options)
        assert code == 0, error
        data = work / "data"
        kept = DataFolder(data).record["splits"]["train"]["kept"]
        for split, pairs in (("train", train), ("valid", test[:1]), ("test", test)):
            sides = [lines_of(data / "text" / f"{split}.{lang}") for lang in ("en", "de")]
            numbers = [first_words(side) for side in sides]
            assert numbers[0] == numbers[1] and len(numbers[0]) == (kept if split == "train" else len(pairs))
            order = [int(number[1:]) for number in numbers[0]]
            assert order == sorted(set(order))
            if split != "train":
                assert order == list(range(len(pairs)))
                for lang in ("en", "de"):
                    raw = (data / "raw" / f"{split}.{lang}").read_bytes()
                    assert raw == (work / f"{split}.{lang}").read_bytes()
            for lang, side in zip(("en", "de"), sides):
                pieces = lines_of(data / "bpe" / f"{split}.{lang}")
                assert [bpe.undo(line) for line in pieces] == side
                dictionary = Dictionary.load(str(data / f"dict.{lang}.txt"))
                dataset = data_utils.load_indexed_dataset(str(data / f"{split}.en-de.{lang}"), dictionary, "mmap")
                assert len(dataset) == len(side)
                if split == "train":  # all of its pieces are known, and only the end of a sentence is special
                    assert all(min(ids[:-1].tolist()) >= dictionary.nspecial for ids in dataset)
                    assert [dictionary.string(ids) for ids in dataset] == pieces


@examples(15)
@given(lines=st.lists(st.one_of(LINES, NO_UTF8), min_size=2, max_size=9), side=st.sampled_from(("en", "de")))
def test_prepare_names_the_line_that_is_not_utf8(lines, side):
    def is_utf8(line):
        return isinstance(line, str)

    assume(not all(map(is_utf8, lines)))
    with folder() as work:
        write_corpus(work, dict.fromkeys(("train", "valid", "test"), [("ba", "ba")] * len(lines)))
        write(work / f"train.{side}", lines)
        code, _, error = prepare(work, work / "data")
        bad = list(map(is_utf8, lines)).index(False) + 1
        assert code == 2 and f"train.{side}, line {bad}: not UTF-8" in error
        # neither the folder nor its lock is left
        assert sorted(path.name for path in work.iterdir()) == sorted(
            f"{split}.{lang}" for split in ("train", "valid", "test") for lang in ("en", "de")
        )


@examples(10)
@given(data=st.data(), lines=st.lists(TEXT, min_size=2, max_size=9))
def test_prepare_refuses_sides_of_unequal_length(data, lines):
    fewer = data.draw(st.integers(1, len(lines) - 1))
    with folder() as work:
        write_corpus(work, dict.fromkeys(("train", "valid", "test"), [("ba", "ba")]))
        side = data.draw(st.sampled_from(("en", "de")))
        for lang in ("en", "de"):
            write(work / f"test.{lang}", lines[: fewer if lang == side else None])
        code, _, error = prepare(work, work / "data")
        assert code == 2 and f"test.{side} has {fewer} lines" in error and f"has {len(lines)}:" in error


# --- score -------------------------------------------------------------------------------------------------------


@examples(40)
@given(
    pairs=st.lists(st.tuples(st.one_of(TEXT, NO_UTF8), st.one_of(TEXT, LONG)), min_size=1, max_size=8),
    last=st.booleans(),
)
def test_score_compares_line_with_line(pairs, last):
    """The score equals that of sacreBLEU on the lines of the bytes."""
    from sacrebleu.metrics import BLEU

    with folder() as work:
        hypotheses = write(work / "hyp", [pair[0] for pair in pairs])
        references = write(work / "ref", [pair[1] for pair in pairs])
        if last and pairs[-1][1]:  # the last LF may be missing; an empty last line then does not count
            references.write_bytes(references.read_bytes()[:-1])
        arguments = ["score", "--hypotheses", hypotheses, "--reference", references, "-t", "de"]
        code, out, error = rela(*arguments, "--output", work / "score.json")
        if any(isinstance(pair[0], bytes) for pair in pairs):
            assert code == 2 and "not UTF-8" in error
        elif not any(pair[1].strip() for pair in pairs):
            assert code == 2 and "no text" in error
        elif 10 * sum("@@ " in pair[1] or pair[1].endswith("@@") for pair in pairs) >= len(pairs):
            assert code == 2 and "BPE pieces" in error
        else:
            assert code == 0, error
            detokenise = Detokeniser("de")
            texts = [detokenise(bpe.undo(pair[0])) for pair in pairs]
            assert all("\n" not in text for text in texts)
            bleu = BLEU(tokenize="13a").corpus_score(texts, [[pair[1] for pair in pairs]]).score
            assert f"sacreBLEU {bleu:.2f} " in out
        assert (work / "score.json").exists() == (code == 0)


@examples(20)
@given(texts=st.lists(st.text(CHARACTERS, max_size=30), min_size=2, max_size=6), data=st.data())
def test_score_refuses_texts_of_unequal_length(texts, data):
    other = data.draw(st.lists(TEXT.filter(lambda line: "@@" not in line), min_size=1, max_size=8))
    assume(len(other) != len(texts))
    with folder() as work:
        hypotheses, references = write(work / "hyp", texts), write(work / "ref", ["a text", *other[1:]])
        code, _, error = rela("score", "--hypotheses", hypotheses, "--reference", references, "-t", "de")
        assert code == 2 and f"{len(texts)} hypotheses, {len(other)} lines of reference" in error


# --- alignments --------------------------------------------------------------------------------------------------

POSITIONS = st.integers(0, 12)
LINKS = st.builds(lambda i, kind, j: f"{i}{kind}{j}", POSITIONS, st.sampled_from("--p"), POSITIONS)
ODD_LINKS = ("1--2", "-1-2", "1-", "٣-٤", "9" * 5000 + "-1", "1-2-3", "1p", "1:2", "0x1-2")
NO_LINKS = st.one_of(LINES, st.sampled_from(ODD_LINKS))
SPACES = st.sampled_from((" ", "\t", "  ", "\xa0", "\r"))


@examples(60)
@given(
    gold=st.lists(st.lists(LINKS, max_size=6), min_size=1, max_size=5),
    wild=st.lists(st.one_of(LINKS, NO_LINKS), max_size=4),
    space=SPACES,
    base=st.sampled_from((0, 1)),
)
def test_alignment_files_are_read_or_refused_with_their_line(gold, wild, space, base):
    """Text that is not a link is named with its line; the counts of links equal loops."""
    is_link = all(
        a.isascii() and a.isdecimal() and b.isascii() and b.isdecimal() and len(a) < 10 and len(b) < 10
        for field in "".join(space.join(wild)).split()
        for a, _, b in [field.partition("p" if "p" in field else "-")]
    )
    with folder() as work:
        path = write(work / "gold", [space.join(links) for links in gold])
        hypothesis = write(work / "hyp", [space.join(wild), *(space.join(links[:2]) for links in gold[1:])])
        options = ["--gold-base", base, "--hypothesis-base", base]
        code, out, error = rela("aer", path, hypothesis, *options)
        numbers = [
            [tuple(map(int, f.replace("p", "-").split("-"))) for f in space.join(line).split()]
            for line in ([*gold] if not is_link else [*gold, wild])
        ]
        in_range = all(min(link) >= base for line in numbers for link in line)
        if not in_range:
            assert code == 2 and "is outside of the sentences" in error or "is not a link" in error
        elif not is_link:
            assert code == 2 and "hyp, line 1:" in error
        else:
            sure = [{f for f in line if "-" in f} for line in gold]
            possible = [{f.replace("p", "-") for f in line} for line in gold]
            mine = [
                {f.replace("p", "-") for f in space.join(line).split()} for line in [wild, *(g[:2] for g in gold[1:])]
            ]
            size = sum(map(len, mine)) + sum(map(len, sure))
            if not size:
                assert code == 2 and "neither alignment has a link" in error
                return
            right = sum(len(m & s) + len(m & p) for m, s, p in zip(mine, sure, possible))
            assert code == 0 and f"AER {100 * (1 - right / size):.1f} " in out


@examples(60)
@given(sentences=st.lists(st.sets(st.tuples(POSITIONS, POSITIONS)), max_size=8))
def test_written_links_are_read_back(sentences):
    read = aer.read_links(map(as_pharaoh, sentences), "made")
    assert [set(line.sure) for line in read] == sentences


@examples(60)
@given(lines=st.lists(LINES, max_size=6))
def test_any_text_gives_links_or_an_error_in_one_line(lines):
    try:
        read = aer.read_links(lines, "wild")
    except InputError as error:
        assert len(str(error).splitlines()) == 1
        assert any(f"line {i + 1}:" in str(error) for i in range(len(lines)))
    else:
        assert len(read) == len(lines)
    assert aer.guess_base(lines) in (0, 1)


# --- rank --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkpoint(trained):
    return trained / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def scorer(checkpoint, data):
    return load_scorer(checkpoint, DataFolder(data), "cpu")


@examples(6)
@given(pairs=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=10), last=st.booleans())
def test_rank_scores_every_line_as_if_it_were_alone(scorer, checkpoint, data, pairs, last, monkeypatch):
    monkeypatch.setattr(rank, "load_scorer", lambda *_: scorer)
    with folder() as work:
        source, target = (write(work / name, [pair[side] for pair in pairs]) for side, name in enumerate("st"))
        if last and pairs[-1][0]:
            source.write_bytes(source.read_bytes()[:-1])
        arguments = ["rank", checkpoint, source, target, "--data", data, "--output", work / "out"]
        code, _, error = rela(*arguments, "--workers", 1, "--device", "cpu", "--keep-best", 3)
        rows = [line.split("\t") for line in lines_of(work / "out")][1:]
        assert [row[0] for row in rows] == [str(i) for i in range(len(pairs))]
        alone = [scorer.score([pair])[0] for pair in pairs]
        for row, score in zip(rows, alone):
            assert row[5] == score.reason and row[3:5] == [str(score.source_pieces), str(score.target_pieces)]
            assert [float(x) for x in row[1:3]] == pytest.approx(score[:2], abs=1e-4, nan_ok=True)
        scored = [pair for pair, score in zip(pairs, alone) if not score.reason]
        if not scored:
            assert code == 2 and "no pair has a score" in error
            return
        kept = list(zip(lines_of(work / "out.xa"), lines_of(work / "out.xb")))
        assert len(kept) == min(3, len(scored))
        # the lines are unchanged and in their order
        positions = iter(pairs)
        assert all(pair in positions for pair in kept)


@examples(10)
@given(lines=st.lists(st.one_of(LINES, NO_UTF8), min_size=1, max_size=6))
def test_rank_refuses_bad_input_before_it_starts(scorer, checkpoint, data, lines, monkeypatch):
    monkeypatch.setattr(rank, "load_scorer", lambda *_: scorer)
    assume(any(isinstance(line, bytes) for line in lines))
    with folder() as work:
        source, target = write(work / "s", lines), write(work / "t", ["a"] * len(lines))
        code, _, error = rela("rank", checkpoint, source, target, "--data", data, "--output", work / "out")
        bad = [isinstance(line, bytes) for line in lines].index(True) + 1
        assert code == 2 and f"s, line {bad}: not UTF-8" in error
        assert sorted(path.name for path in work.iterdir()) == ["s", "t"]


# --- translate ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_translate_gives_one_line_for_each_line_independent_of_its_neighbours(checkpoint, corpus, data, tmp_path):
    clean = lines_of(corpus / "test.xa")[:40]
    wild = [mark * times for mark in MARKS for times in (1, 3)]
    mixed = [line for pair in zip(wild, [*clean, *[""] * len(wild)]) for line in pair]
    for name, lines in (("clean", clean), ("mixed", mixed)):
        write(tmp_path / f"{name}.in", lines)
        arguments = ["translate", data, "--checkpoint", checkpoint, "--output", tmp_path / name]
        result = run_rela(*arguments, "--input", tmp_path / f"{name}.in", "--beam", 2)
        assert result.returncode == 0, result.stderr
        for kind in ("bpe", "tok", "txt"):
            assert len(lines_of(tmp_path / f"{name}.{kind}")) == len(lines)
    assert lines_of(tmp_path / "mixed.txt")[1:80:2] == lines_of(tmp_path / "clean.txt")


def test_no_temporary_folders_are_left():
    left = [path for path in Path(tempfile.gettempdir()).glob(f"fuzz-{os.getpid()}-*") if path.is_dir()]
    for path in left:
        shutil.rmtree(path, ignore_errors=True)
    assert not left
