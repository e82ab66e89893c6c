"""Text files as binary data: against subword-nmt and fairseq-preprocess; word numbers against known splits."""

import json

import pytest
from conftest import run_fairseq
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_rela.data.folder import DataFolder, make_preprocessor
from fairseq_rela.data.pairs import binarised_pairs, describe_words, number_tokens
from fairseq_rela.data.settings import Settings
from fairseq_rela.errors import InputError
from fairseq_rela.files.lines import read_lines

UNKNOWN = "ψωξ"  # letters that are not in the corpus


def write(path, lines):
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.text("abc&'-\"", min_size=1, max_size=4), min_size=1, max_size=3), max_size=8))
def test_tokens_of_split_and_escaped_words_keep_their_numbers(words):
    """Each word is generated as a list of its tokens."""
    escape = {"&": "&amp;", "'": "&apos;", '"': "&quot;"}
    tokens = ["".join(escape.get(c, c) for c in part) for parts in words for part in parts]
    tokens = ["@-@" if token == "-" else token for token in tokens]
    numbers = [number for number, parts in enumerate(words) for _ in parts]
    assert number_tokens("  ".join("".join(parts) for parts in words), tokens) == numbers


@pytest.mark.parametrize(
    "lang, line, expected",
    [
        ("de", "„Haus“ und „Hof“, sagt’s.", ["Haus:0", "und:1", "Hof:2", "sagt:3"]),
        ("en", "Mr. O'Neill's well-known plan … isn't ready .", ["Mr.:0", "O:1", "well:2", "plan:3", "...:4", "isn:5"]),
        ("en", "a\u200bb c\u00a0d <s> &amp; x@@y", ["a:0", "b:0", "c:1", "d:2", "x:5", "y:5"]),
    ],
)
def test_tokens_of_moses_keep_the_numbers_of_their_words(lang, line, expected):
    tokens = make_preprocessor(Settings("de", "en"), lang)(line).split()
    numbers = number_tokens(line, tokens)
    assert len(numbers) == len(tokens) and numbers == sorted(numbers)
    found = {f"{token}:{number}" for token, number in zip(tokens, numbers)}
    assert set(expected) <= found, (tokens, numbers)
    assert set(numbers) == set(range(len(line.split())))


def test_a_token_made_of_several_words_belongs_to_the_first():
    assert number_tokens("it & apos ; s no", ["it", "&apos;s", "no"]) == [0, 1, 5]
    assert number_tokens("\u200b x", ["x"]) == [1]
    assert number_tokens(" ", []) == []


@pytest.fixture(scope="module")
def texts(data, tmp_path_factory):
    """Make tokenised text of both sides with unknown words and with lines that are empty on one or both sides."""
    folder = tmp_path_factory.mktemp("texts")
    sides = [list(read_lines(data / "text" / f"test.{lang}"))[:40] for lang in ("xa", "xb")]
    sides[0][3] = f"{UNKNOWN} {sides[0][3]} {UNKNOWN}a"
    sides[1][7] += f" {UNKNOWN}"
    sides[0][5] = sides[1][5] = sides[1][6] = ""
    return [write(folder / f"new.{lang}", side) for lang, side in zip(("xa", "xb"), sides)]


def by_hand(data, texts, folder, languages=("xa", "xb")):
    """Run subword-nmt and fairseq-preprocess with the codes, vocabularies and dictionaries of a data folder."""
    from subword_nmt.apply_bpe import BPE, read_vocabulary

    (folder / "bpe").mkdir(parents=True)
    threshold = json.loads((data / "prepare.json").read_text())["settings"]["vocabulary_threshold"]
    for lang, path in zip(languages, texts):
        with open(data / "bpecodes", encoding="utf-8") as codes, open(data / f"vocab.{lang}", encoding="utf-8") as file:
            bpe = BPE(codes, vocab=read_vocabulary(file, threshold))
        write(folder / "bpe" / f"test.{lang}", [bpe.process_line(line) for line in read_lines(path)])
    source, target = languages
    arguments = ["-s", source, "-t", target, "--testpref", folder / "bpe" / "test", "--destdir", folder]
    dictionaries = ["--srcdict", data / f"dict.{source}.txt", "--tgtdict", data / f"dict.{target}.txt"]
    result = run_fairseq("preprocess", *arguments, *dictionaries)
    assert result.returncode == 0, result.stderr[-2000:]
    return folder


def test_tokenised_text_gives_the_bytes_of_subword_nmt_and_fairseq_preprocess(data, texts, tmp_path):
    hand = by_hand(data, texts, tmp_path / "hand")
    with binarised_pairs(*texts, DataFolder(data), tokenised=True) as pairs:
        names = [f"test.xa-xb.{lang}.{kind}" for lang in ("xa", "xb") for kind in ("bin", "idx")]
        for name in [*names, "bpe/test.xa", "bpe/test.xb", "dict.xa.txt", "dict.xb.txt"]:
            assert (pairs.folder / name).read_bytes() == (hand / name).read_bytes(), name
        record, words, folder = pairs.record, pairs.words, pairs.folder
    assert not folder.exists()
    for side, path in enumerate(texts):
        lines = [line.split() for line in read_lines(path)]
        assert [pair[side] for pair in words] == [(len(line), list(range(len(line)))) for line in lines]
    assert [record[name]["unknown"] for name in ("source", "target")] == [2, 1]
    assert record["source"]["examples"] == [UNKNOWN, f"{UNKNOWN}a"]
    assert record["source"]["total"] == len(texts[0].read_text().split())
    assert f"1 (0.3%) with pieces unknown to the model, such as {UNKNOWN}" in describe_words(record).split("\n")[1]


def test_unusable_text_is_refused(data, texts, tmp_path):
    def refused(match, source, target, folder=data):
        with pytest.raises(InputError, match=match) as error, binarised_pairs(source, target, DataFolder(folder)):
            pass
        assert "\n" not in str(error.value)

    source, target = texts
    refused("the two sides of a corpus must be of equal length", write(tmp_path / "short", ["x"]), target)
    refused("are the two sides swapped", target, source)
    refused("given for both sides", write(tmp_path / "one", ["x"]), tmp_path / "one")
    refused("no lines", write(tmp_path / "none", []), write(tmp_path / "none2", []))
    refused("cannot be read", tmp_path / "nothere", target)
    long = write(tmp_path / "long", ["x", "x " * 1100])
    refused(r"long, line 2: \d+ pieces; shorten", long, write(tmp_path / "fine", ["x", "x"]))
    refused("no prepare.json", source, target, folder=tmp_path)


def test_raw_chinese_is_refused(data, texts, tmp_path):
    """Raw Chinese words have no numbers, as jieba's words are not in the file."""
    record = json.loads((data / "prepare.json").read_text())
    record["settings"]["source_lang"] = "zh"
    for name in ("vocab.", "dict."):
        for path in data.glob(f"{name}xa*"):
            new = path.name.replace("xa", "zh")
            (tmp_path / new).write_bytes(path.read_bytes())
            record["outputs"][new] = record["outputs"][path.name]
    for path in (*data.glob("*.xb"), *data.glob("*.xb.txt"), data / "bpecodes"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "prepare.json").write_text(json.dumps(record))
    source = write(tmp_path / "text", read_lines(texts[0]))
    folder = DataFolder(tmp_path)
    with pytest.raises(InputError, match="raw Chinese.*--tokenised"), binarised_pairs(source, texts[1], folder):
        pass
    with binarised_pairs(source, texts[1], folder, tokenised=True) as pairs:
        assert pairs.languages == ("zh", "xb")
