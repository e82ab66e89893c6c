"""fairseq's --tokenizer and --bpe give the same pieces as `rela prepare`."""

import argparse
import json
import shutil

import pytest

from fairseq_rela import encoders
from fairseq_rela.data.prepare import Corpus, prepare
from fairseq_rela.data.settings import Settings
from fairseq_rela.errors import InputError
from fairseq_rela.files.lines import read_lines
from fairseq_rela.text import bpe


def test_pieces_equal_those_of_the_data(corpus, data):
    """fairseq's own subword_nmt has no vocabulary threshold and would give unknown pieces."""
    tokenizer = encoders.RelaMosesTokenizer(argparse.Namespace(source_lang="xa", target_lang="xb"))
    segmenter = encoders.RelaBPE(argparse.Namespace(bpe_codes=str(data / "bpecodes")))
    raw, want = list(read_lines(corpus / "test.xa")), list(read_lines(data / "bpe" / "test.xa"))
    assert [segmenter.encode(tokenizer.encode(line)) for line in raw] == want
    assert [tokenizer.decode(segmenter.decode(line)) for line in want] == raw


def test_the_vocabulary_threshold_of_the_data_is_used(corpus, data, tmp_path):
    shutil.copytree(data, tmp_path / "data")
    record = json.loads((tmp_path / "data" / "prepare.json").read_text())
    assert record["settings"]["vocabulary_threshold"] == 8
    cfg = argparse.Namespace(bpe_codes=str(tmp_path / "data" / "bpecodes"))

    def pieces(threshold):
        record["settings"]["vocabulary_threshold"] = threshold
        (tmp_path / "data" / "prepare.json").write_text(json.dumps(record))
        segmenter = encoders.RelaBPE(cfg)
        return {p for line in read_lines(data / "text" / "train.xa") for p in segmenter.encode(line).split()}

    frequent = {piece for piece, count in bpe.read_vocabulary(data / "vocab.xa") if count >= 100}
    assert all(piece in frequent or len(piece.replace("@@", "")) == 1 for piece in pieces(100))
    assert not all(piece in frequent or len(piece.replace("@@", "")) == 1 for piece in pieces(1))
    with pytest.raises(InputError, match="no piece occurs 1000000000 times; lower --vocabulary-threshold"):
        pieces(10**9)


def test_missing_files_and_packages_are_named(tmp_path):
    with pytest.raises(InputError, match="--source-lang and --target-lang"):
        encoders.RelaMosesTokenizer(argparse.Namespace(source_lang=None, target_lang="de"))
    with pytest.raises(InputError, match="--bpe-codes"):
        encoders.RelaBPE(argparse.Namespace(bpe_codes=None))
    with pytest.raises(InputError, match="not a data folder"):
        encoders.RelaBPE(argparse.Namespace(bpe_codes=str(tmp_path / "bpecodes")))


@pytest.mark.slow
def test_text_with_diacritics_reaches_a_model_without_them(tmp_path):
    """B48: rela_moses needs --prepared to find the data folder; without it rela_bpe refuses unknown letters."""
    files = {}
    for split in ("train", "valid", "test"):
        lines = [f"{word} şi ţară. Ana are mere." for word in ("Sînt", "Mâine", "Când")] * 20
        for lang, prefix in (("ro", ""), ("en", "And ")):
            (tmp_path / f"{split}.{lang}").write_text("".join(prefix + line + "\n" for line in lines), encoding="utf-8")
        files[split] = (tmp_path / f"{split}.ro", tmp_path / f"{split}.en")
    settings = Settings("ro", "en", merges=30, vocabulary_threshold=1, remove_diacritics=True, truecase=True)
    prepare(Corpus(files), settings, tmp_path / "data", 1)
    languages = dict(source_lang="ro", target_lang="en")
    told = encoders.RelaMosesTokenizer(argparse.Namespace(prepared=str(tmp_path / "data"), **languages))
    not_told = encoders.RelaMosesTokenizer(argparse.Namespace(**languages))
    bpe = encoders.RelaBPE(argparse.Namespace(bpe_codes=str(tmp_path / "data" / "bpecodes")))
    raw = list(read_lines(tmp_path / "test.ro"))
    assert [bpe.encode(told.encode(line)) for line in raw] == list(read_lines(tmp_path / "data" / "bpe" / "test.ro"))
    with pytest.raises(InputError, match="add --tokenizer rela_moses --prepared"):
        bpe.encode(not_told.encode(raw[0]))
    # and back, with a capital at the start
    assert told.decode(bpe.decode("a@@ nd so .")) == "And so."
