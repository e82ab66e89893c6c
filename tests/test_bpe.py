"""BPE is learnt and applied exactly as by subword-nmt; inputs on which subword-nmt fails give an error."""

import gzip
import io
import pickle
import sys
from collections import Counter
from contextlib import redirect_stderr

import pytest
from conftest import SHARED, run
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from subword_nmt import apply_bpe
from subword_nmt.learn_bpe import learn_bpe as subword_nmt_learns

from fairseq_rela.errors import InputError
from fairseq_rela.text import bpe, learn_bpe
from fairseq_rela.text.learn_bpe import learn
from fairseq_rela.text.preprocess import Preprocessor

LINES = ["low lower lowest newer newest wider", "new low wide widest", "slow newest @-@ low"] * 5
SUBWORD_NMT = (sys.executable, "-W", "ignore", "-c", "from subword_nmt.subword_nmt import main; main()")


def learn_theirs(counts, merges):
    output = io.StringIO()
    with redirect_stderr(io.StringIO()):
        subword_nmt_learns([f"{word} {count}" for word, count in counts.items()], output, merges, is_dict=True)
    return output.getvalue().splitlines()


def make_segmenter(folder, merges=12, threshold=1, lines=LINES):
    words = bpe.count_words(lines)
    codes = folder / "codes"
    codes.write_text("\n".join(learn(words, merges)) + "\n", encoding="utf-8")
    plain = bpe.load_segmenter(codes)
    bpe.write_vocabulary(folder / "vocab", bpe.count_pieces((plain[word], count) for word, count in words.items()))
    return bpe.load_segmenter(codes, folder / "vocab", threshold)


def make_theirs(folder, threshold=1):
    with open(folder / "codes", encoding="utf-8") as codes, open(folder / "vocab", encoding="utf-8") as vocabulary:
        return apply_bpe.BPE(codes, vocab=apply_bpe.read_vocabulary(vocabulary, threshold))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Make a folder with the codes and the vocabulary of ``LINES``."""
    path = tmp_path_factory.mktemp("bpe")
    make_segmenter(path)
    return path


# --- learning ----------------------------------------------------------------------------------------------------

# few letters, so that pairs tie and overlap with themselves; repeated units, so that merges also overlap
LETTERS = st.sampled_from(["a", "b", "c", "é", "\\", ".", "😀"])
PERIODIC = st.builds(
    lambda unit, times, rest: unit * times + rest, st.text("ab", min_size=1), st.integers(1, 6), LETTERS
)
WORDS = st.one_of(st.text(LETTERS, min_size=1, max_size=12), st.text("ab", min_size=1, max_size=9), PERIODIC)


@settings(deadline=None, max_examples=300)
@given(
    counts=st.dictionaries(WORDS, st.integers(1, 5), min_size=1, max_size=30),
    merges=st.integers(1, 300),
)
def test_learns_what_subword_nmt_learns(counts, merges):
    assume(any(len(word) > 1 for word in counts))
    want = learn_theirs(counts, merges)
    if len(want) == 1:
        with pytest.raises(InputError, match="no two letters occur together twice"):
            learn(counts, merges)
    else:
        assert learn(counts, merges) == want


def learn_slowly(counts, merges):
    """Yield the merges by the definition: count all pairs again before each merge."""
    words = [([*word[:-1], word[-1] + "</w>"], count) for word, count in counts.items()]
    for _ in range(merges):
        pairs = Counter()
        for word, count in words:
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        best = max(pairs, key=lambda pair: (pairs[pair], pair), default=None)
        if best is None or pairs[best] < 2:
            return
        yield " ".join(best)
        for word, _ in words:
            position = 0
            while position < len(word) - 1:
                if (word[position], word[position + 1]) == best:
                    word[position : position + 2] = ["".join(best)]
                position += 1


MARKED = st.lists(st.sampled_from(["a", "b", "w", ">", "</w>", "a</w>", "</w"]), min_size=2, max_size=7).map("".join)


@settings(deadline=None, max_examples=150)
@given(counts=st.dictionaries(MARKED, st.integers(2, 5), min_size=1, max_size=12))
def test_learns_exactly_from_text_that_contains_the_end_of_word_mark(counts):
    """subword-nmt does not, because several merges spell the same symbol."""
    assert learn(counts, 100)[1:] == list(learn_slowly(counts, 100))


@settings(deadline=None, max_examples=300)
@given(st.dictionaries(WORDS, st.integers(1, 60), min_size=3, max_size=30), st.integers(1, 12))
def test_pairs_that_are_never_merged_are_pruned(counts, merges):
    """Most pairs are never merged where there are more words than merges."""
    assume(sum(len(word) > 1 and count > 1 for word, count in counts.items()) >= merges)
    pairs = learn_bpe._Pairs({word: count for word, count in counts.items() if len(word) > 1}, merges)
    codes = []
    for _ in range(merges):
        pair = pairs.most_frequent()
        assert min(pairs.frequency.values()) >= pairs.least >= 2
        codes.append(" ".join(pair))
        pairs.merge(pair)
    assert codes == learn_theirs(counts, merges)[1:]


def test_rare_pairs_are_pruned_below_a_safe_frequency():
    counts = {"ab": 9, "cd": 5, "ef": 3, "gh": 3, "ij": 2}
    assert [learn_bpe._Pairs(counts, merges).least for merges in range(1, 7)] == [9, 5, 3, 3, 2, 1]
    assert [len(learn_bpe._Pairs(counts, merges).frequency) for merges in range(1, 7)] == [1, 2, 4, 4, 5, 5]
    assert learn_bpe._Pairs({**counts, "x</w>y": 1}, 1).least == 1  # where several merges may spell the same symbol


@pytest.mark.skipif(not (SHARED / "data" / "multi30k").is_dir(), reason="needs shared/data")
def test_learns_what_subword_nmt_learns_from_real_text():
    """There are enough words and merges for subword-nmt to prune its statistics and to restore pruned pairs."""
    counts = Counter()
    for lang in ("de", "en"):
        with gzip.open(SHARED / "data" / "multi30k" / f"val.{lang}.gz", "rt", encoding="utf-8") as file:
            counts += bpe.count_words(map(Preprocessor(lang), file))
    codes = learn(counts, 4000)
    assert codes == learn_theirs(counts, 4000)
    assert len(codes) == 4001
    every = learn(counts, 100_000)  # until no pair is left
    assert codes == every[:4001] and 4001 < len(every) < 20_000


def test_more_merges_than_one_queue_holds_are_learnt():
    """The frequencies span many orders of magnitude, so that the queue is refilled several times."""
    counts = {f"{chr(97 + index)}{chr(98 + index)}x": 3**index for index in range(20)}
    assert learn(counts, 100) == learn_theirs(counts, 100)


def test_words_of_one_letter_or_none_change_no_merges():
    assert learn({"": 9, "a": 8, "b": 9, "ab": 2}, 5) == ["#version: 0.2", "a b</w>"]


def test_the_greatest_of_equally_frequent_pairs_is_merged():
    """Pairs are ordered by the letters of the first symbol, then the second; a prefix is the smaller symbol."""
    assert learn({"ax": 3, "bx": 3, "by": 3}, 3)[1:] == ["b y</w>", "b x</w>", "a x</w>"]
    counts = {"pax": 2, "pq": 5, "pqax": 2}
    assert learn(counts, 9) == learn_theirs(counts, 9)


@pytest.mark.parametrize(
    "counts, message",
    [
        ({}, "no word of two letters"),
        ({"a": 5, "b": 7}, "no word of two letters"),
        ({"ab": 1, "cd": 1}, "no two letters occur together twice"),
    ],
)
def test_text_without_repeated_pairs_is_refused(counts, message):
    with pytest.raises(InputError, match=message):
        learn(counts, 10)


def test_a_progress_bar_is_shown_only_in_a_terminal(capsys):
    learn({"ab": 2}, 1)
    assert capsys.readouterr() == ("", "")


# --- applying ----------------------------------------------------------------------------------------------------

LINE = st.lists(st.text("lowernwsti@-ß", max_size=9), max_size=8).map(" ".join)
EDGE = st.text("\r\n ", max_size=3)


@pytest.mark.parametrize("threshold", [1, 11, 20])
@settings(deadline=None, max_examples=200)
@given(line=LINE, start=EDGE, end=EDGE)
def test_applies_like_subword_nmt(folder, threshold, line, start, end):
    """Also with spaces at the ends and several spaces between words."""
    segmenter = bpe.load_segmenter(folder / "codes", folder / "vocab", threshold)
    theirs = make_theirs(folder, threshold)
    assume("@@" not in line)
    line = start + line + end
    for _ in range(2):  # the second time from the cache
        assert segmenter.process_line(line) == theirs.process_line(line)
        assert segmenter.segment_tokens(line.split(" ")) == theirs.segment_tokens(line.split(" "))


@settings(deadline=None, max_examples=200)
@given(line=st.text(st.characters(blacklist_categories=("Cs",)), max_size=60))
def test_segmentation_is_undone(folder, line):
    tokens = Preprocessor("en")(line)
    pieces = bpe.load_segmenter(folder / "codes", folder / "vocab").process_line(tokens)
    assert bpe.undo(pieces) == tokens
    assert pieces == make_theirs(folder).process_line(tokens)


@pytest.mark.parametrize("threshold", [1, 11, 20])
def test_words_whose_pieces_are_in_the_vocabulary_are_not_split_again(folder, threshold, monkeypatch):
    plain = bpe.load_segmenter(folder / "codes")
    words = [*bpe.count_words(LINES), "wet", "lowing", "x", "ß"]
    merged = {word: plain[word] for word in words}
    vocabulary = dict(bpe.read_vocabulary(folder / "vocab"))
    limited, theirs = plain.limit(vocabulary, threshold), make_theirs(folder, threshold)
    frequent = {piece for piece, count in vocabulary.items() if count >= threshold}
    known = [word for word in words if frequent.issuperset(merged[word].split())]
    assert len(known) < len(words)  # otherwise nothing is tested
    assert known or threshold == 20
    assert [limited[word] for word in words] == [theirs.process_line(word) for word in words]
    assert [limited[word] for word in words] != [merged[word] for word in words]
    limited = plain.limit(vocabulary, threshold)
    monkeypatch.setattr(limited._bpe, "segment_tokens", None)  # must not be called
    assert [limited[word] for word in known] == [theirs.process_line(word) for word in known]
    assert plain.process_line("lowest") == bpe.load_segmenter(folder / "codes").process_line("lowest")


@settings(deadline=None, max_examples=60)
@given(
    counts=st.dictionaries(st.one_of(WORDS, MARKED, st.text("ab@")), st.integers(1, 9), min_size=5, max_size=20),
    threshold=st.integers(2, 12),
)
def test_a_vocabulary_limits_pieces_as_in_subword_nmt(tmp_path_factory, counts, threshold):
    folder = tmp_path_factory.mktemp("limit")
    try:
        make_segmenter(folder, 30, threshold, [f"{word} " * count for word, count in counts.items()])
    except InputError:  # no pair to merge, a word that cannot be restored, or no frequent piece
        assume(False)
    plain, theirs = bpe.load_segmenter(folder / "codes"), make_theirs(folder, threshold)
    words = list(filter(None, counts))
    for word in words:
        assert plain[word]
    limited = plain.limit(dict(bpe.read_vocabulary(folder / "vocab")), threshold)
    for word in words:
        try:
            want = theirs.process_line(word)
        except RecursionError:
            want = ""
        if bpe.undo(want) == word:
            assert limited.process_line(word) == want
        else:  # as can be with </w>
            with pytest.raises(InputError, match="cannot be split|do not join to this word"):
                limited.process_line(word)


def test_a_word_on_which_subword_nmt_never_ends_is_refused(tmp_path):
    """``</w>`` inside words makes merges that split into themselves."""
    words = {"aa": 6, "a</w></wa</w>": 5, "</w>b</w>a": 3, "a</w>></wa</w></w": 9, "</w>></w>w": 1, "w>": 6}
    segmenter = make_segmenter(tmp_path, 30, 4, [f"{word} " * count for word, count in words.items()])
    with pytest.raises(RecursionError):
        make_theirs(tmp_path, 4).process_line("</w>b</w>a")
    with pytest.raises(InputError, match="the word '</w>b</w>a' cannot be split"):
        segmenter.process_line("aa </w>b</w>a")


def test_a_word_that_cannot_be_restored_is_refused(tmp_path):
    """Such a word ends in the mark of a continued word; it is harmless where it is split inside the mark."""
    (tmp_path / "codes").write_text("#version: 0.2\n@ @</w>\na b</w>\n")
    segmenter = bpe.load_segmenter(tmp_path / "codes")
    for word in ("c@@", "@@"):
        for _ in range(2):
            with pytest.raises(InputError, match=f"of '{word}' do not join to this word"):
                segmenter.process_line(f"ab {word} ab")
        with pytest.raises(InputError, match=f"of '{word}' do not join to this word"):
            segmenter[word]
    assert segmenter.process_line("ab @@c") == "ab @@@ @@@ c"
    assert bpe.undo("ab @@@ @@@ c") == "ab @@c"


def test_codes_and_pieces_equal_those_of_subword_nmts_commands(tmp_path):
    """The commands are learn-joint-bpe-and-vocab and apply-bpe --vocabulary-threshold."""
    text, theirs, vocab = tmp_path / "text", tmp_path / "theirs", tmp_path / "vocab.theirs"
    text.write_text("\n".join(LINES) + "\n")
    learn = ("learn-joint-bpe-and-vocab", "--input", text, "-s", 12, "-o", theirs, "--write-vocabulary", vocab)
    result = run(*SUBWORD_NMT, *learn)
    assert result.returncode == 0, result.stderr
    segmenter = make_segmenter(tmp_path, threshold=11)
    assert (tmp_path / "codes").read_text() == theirs.read_text()
    assert sorted(bpe.read_vocabulary(vocab)) == sorted(bpe.read_vocabulary(tmp_path / "vocab"))
    apply = ("apply-bpe", "-c", theirs, "-i", text, "--vocabulary", vocab, "--vocabulary-threshold", 11)
    applied = run(*SUBWORD_NMT, *apply).stdout.splitlines()
    assert [segmenter.process_line(line) for line in LINES] == applied
    assert "@@" in " ".join(applied)
    # the threshold has an effect here
    assert [make_segmenter(tmp_path).process_line(line) for line in LINES] != applied


@pytest.mark.parametrize("threshold", [1, 5, 11, 15])
def test_a_threshold_splits_rare_pieces_until_they_are_frequent(tmp_path, threshold):
    """Every output piece reaches the threshold, or is a single letter, which cannot be split."""
    segmenter = make_segmenter(tmp_path, 40, threshold)
    frequent = {piece for piece, count in bpe.read_vocabulary(tmp_path / "vocab") if count >= threshold}
    pieces = set(segmenter.segment_tokens(" ".join(LINES).split(" ")))
    assert all(piece in frequent or len(piece.replace("@@", "")) == 1 for piece in pieces)
    assert pieces <= frequent or threshold > 1


def test_a_threshold_that_no_piece_reaches_is_refused(tmp_path):
    with pytest.raises(InputError, match="no piece occurs 1000 times; lower --vocabulary-threshold"):
        make_segmenter(tmp_path, threshold=1000)


def test_each_word_is_split_once(folder, monkeypatch):
    segmenter = bpe.load_segmenter(folder / "codes")
    split, segment = [], segmenter._bpe.segment_tokens
    monkeypatch.setattr(segmenter._bpe, "segment_tokens", lambda words: split.extend(words) or segment(words))
    for _ in range(3):
        segmenter.process_line("low lower low")
        segmenter.process_line(" low  lower ")
    assert split == ["low", "lower"]


def test_the_cache_is_bounded(folder, monkeypatch):
    monkeypatch.setattr(bpe, "MAX_CACHED", 3)
    segmenter, theirs = bpe.load_segmenter(folder / "codes"), make_theirs(folder, 1)
    for line in LINES:
        assert segmenter.process_line(line) == theirs.process_line(line)
        assert len(segmenter) <= 3 and not segmenter._bpe.cache


def test_the_segmenter_is_pickled_without_its_cache(folder):
    segmenter = bpe.load_segmenter(folder / "codes", folder / "vocab", 11)
    want = [segmenter.process_line(line) for line in LINES]
    again = pickle.loads(pickle.dumps(segmenter))
    assert segmenter and not again
    assert [again.process_line(line) for line in LINES] == want


# --- counting and files ------------------------------------------------------------------------------------------


def test_words_are_counted_between_spaces_only():
    assert bpe.count_words(["a b\u2028c a", "", "b\tb  a"]) == {"a": 3, "b\u2028c": 1, "b\tb": 1}


def test_pieces_are_counted_as_in_the_segmented_text(folder):
    segmenter = bpe.load_segmenter(folder / "codes")
    want = Counter(piece for line in LINES for piece in segmenter.process_line(line).split(" "))
    words = bpe.count_words(LINES)
    assert bpe.count_pieces((segmenter[word], count) for word, count in words.items()) == want


def test_swapped_codes_and_vocabulary_are_refused(folder):
    with pytest.raises(InputError, match="not a BPE codes file"):
        bpe.load_segmenter(folder / "vocab")
    with pytest.raises(InputError, match="line 1: not a piece and its frequency"):
        bpe.load_segmenter(folder / "codes", folder / "codes")


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "not a BPE codes file"),
        ("#version: 0.2\n", "holds no BPE merges"),
        ("#version: 0.2\na b</w>\nab\n", "line 3: not two symbols"),
        ("#version: 0.2\na b c\n", "line 2: not two symbols"),
    ],
)
def test_damaged_codes_are_refused(tmp_path, text, message):
    (tmp_path / "codes").write_text(text)
    with pytest.raises(InputError, match=message):
        bpe.load_segmenter(tmp_path / "codes")
