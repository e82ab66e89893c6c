"""fairseq's --tokenizer and --bpe give what `rela prepare` gave."""

import argparse
import json
import shutil

import pytest

from fairseq_rela import encoders
from fairseq_rela.data import bpe
from fairseq_rela.data.lines import read_lines
from fairseq_rela.errors import InputError


def test_pieces_are_those_of_the_data(corpus, data):
    """With fairseq's own subword_nmt, which knows no vocabulary threshold, pieces would come out unknown."""
    tokenizer = encoders.RelaMosesTokenizer(argparse.Namespace(source_lang="xa", target_lang="xb"))
    segmenter = encoders.RelaBPE(argparse.Namespace(bpe_codes=str(data / "bpecodes")))
    raw, want = list(read_lines(corpus / "test.xa")), list(read_lines(data / "bpe" / "test.xa"))
    assert [segmenter.encode(tokenizer.encode(line)) for line in raw] == want
    assert [tokenizer.decode(segmenter.decode(line)) for line in want] == raw


def test_the_threshold_of_the_data_is_kept(corpus, data, tmp_path):
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


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(InputError, match="--source-lang and --target-lang"):
        encoders.RelaMosesTokenizer(argparse.Namespace(source_lang=None, target_lang="de"))
    with pytest.raises(InputError, match="--bpe-codes"):
        encoders.RelaBPE(argparse.Namespace(bpe_codes=None))
    with pytest.raises(InputError, match="not a data folder"):
        encoders.RelaBPE(argparse.Namespace(bpe_codes=str(tmp_path / "bpecodes")))
