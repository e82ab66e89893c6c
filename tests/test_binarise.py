"""Binarised data equal those of fairseq-preprocess byte for byte."""

from types import SimpleNamespace

import pytest
from conftest import run_fairseq

from fairseq_rela.data.binarise import binarise, binarise_texts, count_sentences
from fairseq_rela.errors import InputError

LANGS = ("xa", "xb")


def pieces(folder, **texts):
    """Write files SPLIT.LANG; the target is the reversed source."""
    for split, lines in texts.items():
        (folder / f"{split}.xa").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        (folder / f"{split}.xb").write_text("".join(line[::-1] + "\n" for line in lines), encoding="utf-8")
    return {split: folder / split for split in texts}


def outputs(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".bin", ".idx", ".txt")}


@pytest.mark.slow
def test_the_files_equal_those_of_fairseq_preprocess(data, tmp_path):
    """A whole corpus is binarised by the command that `rela prepare` prints."""
    arguments = ["--source-lang", "xa", "--target-lang", "xb", "--destdir", tmp_path / "theirs"]
    for split in ("train", "valid", "test"):
        arguments += [f"--{split}pref", data / "bpe" / split]
    result = run_fairseq("preprocess", *arguments, "--thresholdsrc", 0, "--thresholdtgt", 0)
    assert result.returncode == 0, result.stderr[-2000:]
    assert outputs(tmp_path / "theirs") == outputs(data) and len(outputs(data)) == 14


@pytest.mark.slow
def test_given_dictionaries_unknown_pieces_and_empty_lines_give_the_same_files(tmp_path):
    """There are more lines than in a block, so that several processes take part."""
    train = ["a@@ b c", "", "b b ä 中", "d"] * 700
    prefixes = pieces(tmp_path, train=train, test=["a@@ x", "", "b new new"])
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    counts = binarise(ours, LANGS, prefixes, 2, tmp_path / "log")
    assert counts["test"]["xa"] == (3, 5, 3) and counts["train"]["xa"] == (2800, 700 * 8, 0)
    assert count_sentences(ours / "train.xa-xb.xb") == 2800
    arguments = ["--source-lang", "xa", "--target-lang", "xb", "--trainpref", tmp_path / "train"]
    arguments += ["--thresholdsrc", 0, "--thresholdtgt", 0]
    result = run_fairseq("preprocess", *arguments, "--testpref", tmp_path / "test", "--destdir", theirs)
    assert result.returncode == 0, result.stderr[-2000:]
    assert outputs(ours) == outputs(theirs)
    # the dictionary of another corpus, with only the source side
    again = tmp_path / "again"
    again.mkdir()
    data = SimpleNamespace(path=ours, languages=LANGS, pair="xa-xb")
    binarise_texts(again, data, {"xa": tmp_path / "test.xa"}, "test")
    assert not (again / "test.xa-xb.xb.bin").exists()
    for name in ("test.xa-xb.xa.bin", "test.xa-xb.xa.idx", "dict.xa.txt", "dict.xb.txt"):
        assert (again / name).read_bytes() == (ours / name).read_bytes()


@pytest.mark.slow
def test_a_large_dictionary_is_stored_in_32_bits(tmp_path):
    """fairseq changes from 16 to 32 bits at 65,500 pieces."""
    prefixes = pieces(tmp_path, train=[" ".join(f"w{i}w" for i in range(j, j + 700)) for j in range(0, 65_800, 700)])
    folder = tmp_path / "d"
    counts = binarise(folder, LANGS, prefixes, 1, tmp_path / "log")
    assert counts["train"]["xa"] == (94, 65_800, 0)
    from fairseq.data import Dictionary, data_utils

    dictionary = Dictionary.load(str(folder / "dict.xa.txt"))
    dataset = data_utils.load_indexed_dataset(str(folder / "train.xa-xb.xa"), dictionary)
    assert (folder / "train.xa-xb.xa.bin").stat().st_size == 4 * (65_800 + 94)
    assert dictionary.string(dataset[93]).split()[-1] == "w65799w"


def test_missing_files_are_named(tmp_path):
    with pytest.raises(InputError, match="nowhere.idx: cannot be read"):
        count_sentences(tmp_path / "nowhere")
    with pytest.raises(InputError, match="No such file or directory: '.*train.xa'"):
        binarise(tmp_path, LANGS, {"train": tmp_path / "train"}, 1, tmp_path / "log")
