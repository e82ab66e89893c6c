"""Ranking of files, against one sentence at a time through fairseq's own criterion; interruptions and bad pairs."""

import gzip
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from conftest import ROOT
from fairseq.criterions.cross_entropy import CrossEntropyCriterion

from fairseq_rela.analysis import damage, detection, pair_scorer, rank, score_file, scoring
from fairseq_rela.analysis.analyze import summarise
from fairseq_rela.analysis.capture import load_model, recorded_weights
from fairseq_rela.analysis.pair_encoder import PairEncoder
from fairseq_rela.data.folder import DataFolder
from fairseq_rela.errors import InputError
from fairseq_rela.files.lines import read_lines
from fairseq_rela.models.transformer_rela import attention_modules
from fairseq_rela.variants import find_variant

CPU = {"device": "cpu"}


@pytest.fixture(scope="module")
def checkpoint(trained):
    return trained / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def files(corpus):
    return corpus / "test.xa", corpus / "test.xb"


@pytest.fixture(scope="module")
def texts(files):
    return [list(read_lines(path)) for path in files]


@pytest.fixture(scope="module")
def scorer(checkpoint, data):
    return pair_scorer.load_scorer(checkpoint, DataFolder(data), "cpu")


@pytest.fixture(scope="module")
def expected(checkpoint, data, texts):
    """Return (null rate, log-probability, pieces) of the first 40 test pairs, computed one pair at a time."""
    model, task = load_model(checkpoint, data)
    criterion = CrossEntropyCriterion(task, sentence_avg=False)
    rows = []
    for pieces in list(zip(*(read_lines(data / "bpe" / f"test.{lang}") for lang in ("xa", "xb"))))[:40]:
        source, target = (
            dictionary.encode_line(line, add_if_not_exist=False).long().unsqueeze(0)
            for dictionary, line in zip((task.source_dictionary, task.target_dictionary), pieces)
        )
        inputs = {
            "src_tokens": source,
            "src_lengths": torch.tensor([source.size(1)]),
            "prev_output_tokens": target.roll(1, dims=1),
        }
        with torch.no_grad(), recorded_weights(attention_modules(model)) as weights:
            loss, size, _ = criterion(model, {"net_input": inputs, "target": target, "ntokens": target.numel()})
        cross = [w for name, w in weights.items() if name.endswith("encoder_attn")]
        nulls = [float(row.abs().sum()) == 0 for w in cross for head in w[0] for row in head]
        rows.append((sum(nulls) / len(nulls), -float(loss) / size, *(len(side.split()) for side in pieces)))
    return rows


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(scoring, "BLOCK", 16)


@pytest.mark.parametrize("max_tokens", [1, 100, 4096])
def test_scores_equal_those_of_one_sentence_at_a_time(scorer, texts, expected, max_tokens, monkeypatch):
    """Padding and batches change no score; text is processed like training text; 1 token gives one pair per batch."""
    monkeypatch.setattr(scorer, "max_tokens", max_tokens)
    scores = scorer.score(list(zip(*texts))[:40])
    assert 0 < sum(row[0] for row in expected) < 40
    for score, row in zip(scores, expected):
        assert score.reason == "" and score[2:4] == row[2:]
        assert score[:2] == pytest.approx(row[:2], abs=1e-5)


def test_small_limits_of_logits_and_weights_change_no_score(scorer, texts, expected, monkeypatch):
    monkeypatch.setattr(pair_scorer, "LOGITS", 1)
    monkeypatch.setattr(pair_scorer, "CELLS", 500)
    for score, row in zip(scorer.score(list(zip(*texts))[:40]), expected):
        assert score[:2] == pytest.approx(row[:2], abs=1e-5)


def test_null_rates_of_pairs_add_up_to_that_of_the_corpus(scorer, checkpoint, data, texts):
    scores = scorer.score(list(zip(*texts)))
    queries = [score.target_pieces + 1 for score in scores]
    together = sum(score.null_rate * n for score, n in zip(scores, queries)) / sum(queries)
    assert together == pytest.approx(summarise(checkpoint, data, "test")["sites"]["cross"]["null_rate"], abs=1e-6)


def read_rows(path):
    header, *rows = (line.split("\t") for line in read_lines(path))
    assert tuple(header) == score_file.COLUMNS
    return rows


@pytest.fixture
def ranked(checkpoint, data, files, tmp_path, small_blocks):
    """Return the bytes that one process writes without interruption."""
    result = rank.rank(checkpoint, data, *files, tmp_path / "whole.tsv", workers=1, **CPU)
    assert result == rank.Ranking(len(list(read_lines(files[0]))), 0)
    return (tmp_path / "whole.tsv").read_bytes()


def test_any_number_of_processes_gives_the_same_bytes(
    checkpoint, data, files, ranked, expected, tmp_path, monkeypatch, capsys
):
    threads = torch.get_num_threads()
    rank.rank(checkpoint, data, *files, tmp_path / "two.tsv", workers=2, **CPU)
    assert (tmp_path / "two.tsv").read_bytes() == ranked
    assert torch.get_num_threads() == threads
    assert " a second" in capsys.readouterr().out
    rows = read_rows(tmp_path / "two.tsv")
    assert [row[0] for row in rows] == [str(i) for i in range(len(rows))]
    for row, want in zip(rows, expected):
        assert [float(x) for x in row[1:3]] == pytest.approx(want[:2], abs=1e-5)
        assert [int(x) for x in row[3:5]] == list(want[2:]) and row[5] == ""
    # as on a GPU: two processes prepare pairs for one model, which gives other batches
    monkeypatch.setattr(scoring, "in_processes", lambda scorer: False)
    monkeypatch.setattr(scoring, "WINDOW", 3)
    packed = [tmp_path / f"{path.name}.gz" for path in files]
    for path, pack in zip(files, packed):
        pack.write_bytes(gzip.compress(path.read_bytes()))
    rank.rank(checkpoint, data, *packed, tmp_path / "fed.tsv", workers=2, **CPU)
    for row, want in zip(read_rows(tmp_path / "fed.tsv"), rows):
        assert [float(x) for x in row[1:3]] == pytest.approx([float(x) for x in want[1:3]], abs=1e-5)
    assert not list(tmp_path.glob("*.partial")) + list(tmp_path.glob(".*"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_same_scores(checkpoint, data, files, ranked, tmp_path):
    rank.rank(checkpoint, data, *files, tmp_path / "gpu.tsv", workers=2, device="cuda")
    for row, want in zip(read_rows(tmp_path / "gpu.tsv"), read_rows(tmp_path / "whole.tsv")):
        assert [float(x) for x in row[1:3]] == pytest.approx([float(x) for x in want[1:3]], abs=1e-4)


@pytest.mark.parametrize("tail", [b"", b"50\t0.1", b"48\t0.1\t-1.0\t3\t3\t\n\0\0\0\0", b"7\t0.1\t-1.0\t3\t3\t\n"])
def test_an_interrupted_run_is_continued(checkpoint, data, files, ranked, tmp_path, monkeypatch, tail, capsys):
    output = tmp_path / "again.tsv"
    whole = score_file.row

    def interrupted(number, score):
        if number == 52:
            raise KeyboardInterrupt
        return whole(number, score)

    monkeypatch.setattr(scoring, "row", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rank.rank(checkpoint, data, *files, output, workers=1, **CPU)
    assert not output.exists()
    with open(tmp_path / "again.tsv.partial", "ab") as file:
        file.write(tail)
    monkeypatch.setattr(scoring, "row", whole)
    rank.rank(checkpoint, data, *files, output, workers=1, **CPU)
    assert output.read_bytes() == ranked
    assert "48 of" in capsys.readouterr().out


def test_a_ranking_is_not_continued_with_other_input(checkpoint, trained, data, files, ranked, tmp_path, monkeypatch):
    """A partial or complete ranking belongs to its model and text; repeating a complete one computes nothing."""
    output = tmp_path / "whole.tsv"
    other = tmp_path / "other.xb"
    other.write_bytes(files[1].read_bytes().replace(b"a", b"e"))
    for partial in (False, True):
        if partial:
            output.rename(tmp_path / "whole.tsv.partial")
        with pytest.raises(InputError, match="another target text; remove it"):
            rank.rank(checkpoint, data, files[0], other, output, **CPU)
        with pytest.raises(InputError, match="another checkpoint; remove it"):
            rank.rank(trained / "checkpoint_1_2.pt", data, *files, output, **CPU)
    with pytest.raises(InputError, match="another max tokens; remove it"):
        rank.rank(checkpoint, data, *files, output, max_tokens=100, **CPU)
    rank.rank(checkpoint, data, *files, output, workers=1, **CPU)
    monkeypatch.setattr(rank, "score_corpus", None)
    rank.rank(checkpoint, data, *files, output, max_tokens=100, **CPU)
    assert output.read_bytes() == ranked
    (tmp_path / "whole.tsv.rank.json").unlink()
    with pytest.raises(InputError, match="was not made by `rela rank`"):
        rank.rank(checkpoint, data, *files, output, **CPU)


def test_pairs_without_a_score_shift_no_line(checkpoint, data, texts, tmp_path, scorer, monkeypatch):
    words = texts[0][0].split()
    bad = {
        3: ("", texts[1][3], "empty source"),
        5: (texts[0][5], " \t\u3000", "empty target"),
        6: ("", "", "empty source, empty target"),
        8: (" ".join(words * 1100), texts[1][8], "long source"),
        19: (texts[0][19], " ".join(["b"] * 1100), "long target"),
    }
    pairs = [bad.get(i, pair)[:2] for i, pair in enumerate(zip(*texts))][:20]
    source, target = tmp_path / "s", tmp_path / "t"
    source.write_text("".join(f"{pair[0]}\n" for pair in pairs), encoding="utf-8", newline="")
    target.write_text("\n".join(pair[1] for pair in pairs), encoding="utf-8", newline="")  # no LF at the end
    monkeypatch.setattr(scoring, "BLOCK", 7)
    result = rank.rank(checkpoint, data, source, target, tmp_path / "out", keep_best=1000, workers=1, **CPU)
    assert result == rank.Ranking(20, 5, 15)
    want = scorer.score(list(zip(*texts))[:20])
    for i, row in enumerate(read_rows(tmp_path / "out")):
        assert row[0] == str(i) and row[5] == (bad[i][2] if i in bad else "")
        if i in bad:
            assert row[1:3] == ["nan", "nan"]
        else:
            assert [float(x) for x in row[1:3]] == pytest.approx(want[i][:2], abs=1e-5)
    kept = [line for i, line in enumerate(texts[1][:20]) if i not in bad]
    assert list(read_lines(tmp_path / "out.xb")) == kept


def test_a_word_that_cannot_be_split_or_a_diverged_model_gives_no_score(scorer, texts, monkeypatch):
    def refuse(line):
        raise InputError("the word 'a@@' ...")

    preprocess, recase, segmenter = scorer.encode._sides[1]
    monkeypatch.setattr(segmenter, "process_line", refuse)
    assert scorer.score([(texts[0][0], "b a@@")])[0].reason == "unsplittable target"
    monkeypatch.undo()
    monkeypatch.setattr(scorer, "_score_batch", lambda pairs: [(0.5, math.nan)] * len(pairs))
    score = scorer.score([(texts[0][0], texts[1][0])])[0]
    assert math.isnan(score.null_rate) and score.reason == "not finite"


def test_the_best_pairs_are_written_unchanged(checkpoint, data, files, ranked, tmp_path):
    """The output has the raw lines of the pairs that come first in sorting."""
    raw = [path.read_bytes().split(b"\n")[:-1] for path in files]
    raw = [[b" " + line + b"  \x0b\xc2\x85\r" for line in side] for side in raw]
    source, target = tmp_path / "s", tmp_path / "t.gz"
    source.write_bytes(b"\n".join(raw[0]))
    target.write_bytes(gzip.compress(b"".join(line + b"\n" for line in raw[1])))
    output = tmp_path / "best"
    result = rank.rank(checkpoint, data, source, target, output, keep_best=25, by="null_rate", workers=1, **CPU)
    rows = [(float(row[1]), -float(row[2]), int(row[0])) for row in read_rows(output)]
    best = sorted(i for _, _, i in sorted(rows)[:25])
    assert result.kept == 25
    for lines, lang in zip(raw, ("xa", "xb")):
        assert (tmp_path / f"best.{lang}").read_bytes() == b"".join(lines[i] + b"\n" for i in best)
    # another selection from the same ranking
    middle = sorted(rows)[len(rows) // 2][0]
    result = rank.rank(checkpoint, data, source, target, output, max_null_rate=middle, **CPU)
    below = [i for null, _, i in rows if null <= middle]
    assert result.kept == len(below)
    assert (tmp_path / "best.xb").read_bytes() == b"".join(raw[1][i] + b"\n" for i in below)
    if min(rows)[0] > 0:
        with pytest.raises(InputError, match="nothing to select"):
            rank.rank(checkpoint, data, source, target, output, max_null_rate=0, **CPU)


def test_wrong_input_is_refused_in_one_line(checkpoint, data, files, tmp_path):
    short, latin, empty = tmp_path / "short", tmp_path / "latin", tmp_path / "empty"
    short.write_bytes(b"".join(files[1].read_bytes().splitlines(keepends=True)[:-1]))
    latin.write_bytes(files[1].read_bytes().replace(b"\n", b"\xe9\n", 1))
    empty.touch()
    (tmp_path / "empty too").touch()
    same = tmp_path / "out.xb"
    same.write_bytes(files[1].read_bytes())
    output = tmp_path / "out"
    for arguments, options, match in (
        ((checkpoint, data, files[0], short), {}, "must be of equal length"),
        ((checkpoint, data, files[0], latin), {}, "line 1: not UTF-8"),
        ((checkpoint, data, files[0], tmp_path / "none"), {}, "cannot be read"),
        ((checkpoint, data, empty, tmp_path / "empty too"), {}, "no lines to rank"),
        ((checkpoint, data, empty, empty), {}, "empty is given for both sides; give the source and its translation"),
        ((checkpoint, data, files[0], same), {}, "would be overwritten"),
        ((tmp_path / "none.pt", data, *files), {}, "no such checkpoint"),
        ((checkpoint, tmp_path, *files), {}, "not a data folder"),
        ((checkpoint, data, *files), {"keep_best": 0}, "--keep-best 0"),
        ((checkpoint, data, *files), {"max_null_rate": math.nan}, "--max-null-rate nan"),
        ((checkpoint, data, *files), {"workers": 0}, "--workers 0"),
        ((checkpoint, data, *files), {"max_tokens": 0}, "--max-tokens 0"),
        ((checkpoint, data, *files), {"device": "cuda:99"}, "--device cuda:99"),
        ((checkpoint, data, *files), {"device": "gpu"}, "--device gpu"),
    ):
        with pytest.raises(InputError, match=match) as error:
            rank.rank(*arguments, output, **{**CPU, **options})
        assert "\n" not in str(error.value)
    assert same.read_bytes() == files[1].read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "empty too", "latin", "out.xb", "short"]


def test_softmax_gives_a_warning(checkpoint, data, files, tmp_path, scorer, monkeypatch, capsys, small_blocks):
    assert scorer.label == "rela_g" and scorer.has_nulls
    for name, has_nulls in (("softmax", False), ("entmax15", False), ("rela_g_gelu", False), ("rela_i", True)):
        monkeypatch.setattr(scorer, "variants", [find_variant(name)])
        assert scorer.has_nulls == has_nulls
    monkeypatch.setattr(pair_scorer.PairScorer, "has_nulls", False)
    rank.rank(checkpoint, data, *files, tmp_path / "out", workers=1, **CPU)
    assert "only the log-probability distinguishes pairs" in capsys.readouterr().err


def test_already_tokenised_text_is_not_tokenised_again(scorer, checkpoint, data, files, tmp_path, monkeypatch, capsys):
    folder = DataFolder(data)
    folder.settings.tokenised = ["train"]
    folder.settings.truecase = True  # has no model, as such text is not truecased
    encode = PairEncoder(folder, scorer.encode._dictionaries, (1024, 1024))
    assert encode.tokenised
    assert encode._pieces(0, "ab &apos;s") != scorer.encode._pieces(0, "ab &apos;s")
    assert "".join(encode._pieces(0, "ab &apos;s")).replace("@@", "") == "ab&apos;s"


def test_the_detection_of_damaged_pairs_is_measured(checkpoint, data, files, tmp_path):
    output = tmp_path / "damage.json"
    result = detection.evaluate([checkpoint], DataFolder(data), *files, output, seed=2, device="cpu")
    assert json.loads(output.read_text()) == result
    assert list(result)[:4] == ["format", "label", "pairs", "kinds"] and result["label"] == "rela_g"
    assert tuple(result["kinds"]) == damage.KINDS and result["pairs"] == len(list(read_lines(files[0])))
    for areas in result["kinds"].values():
        assert list(areas) == ["null_rate_auc", "logprob_auc", "both_auc"]
        assert all(0 <= area <= 1 for area in areas.values())
    assert detection.evaluate([checkpoint], DataFolder(data), *files, seed=2, device="cpu") == result
    with pytest.raises(InputError, match="pairs can be scored"):
        (tmp_path / "s").write_text("a b\n\n")
        detection.evaluate([checkpoint], DataFolder(data), tmp_path / "s", tmp_path / "s", device="cpu")


SLOWLY = """
import sys, time
sys.argv[0] = "rela"
from pathlib import Path
from fairseq_rela.register import load_plugin
load_plugin()
from fairseq_rela.analysis import rank, scoring
from fairseq_rela.analysis.pair_scorer import PairScorer
scoring.BLOCK = 16
score = PairScorer._score_batch
def slowly(self, pairs):
    time.sleep(0.3)
    return score(self, pairs)
PairScorer._score_batch = slowly
rank.rank(*map(Path, sys.argv[1:]), workers=2, device="cpu")
"""


@pytest.mark.slow
def test_a_kill_at_any_time_does_not_change_the_bytes(checkpoint, data, files, ranked, tmp_path):
    """The parent is killed by kill -9 three times: no process is left, and the next run continues."""
    output = tmp_path / "killed.tsv"
    partial = tmp_path / "killed.tsv.partial"
    command = [sys.executable, "-W", "ignore", "-c", SLOWLY, checkpoint, data, *files, output]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    rows = 0
    for _ in range(3):
        process = subprocess.Popen(list(map(str, command)), env=environment)
        wait_for(lambda: partial.exists() and partial.read_bytes().count(b"\n") > rows + 16, process)  # noqa: B023
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert len(children) == 2
        wait_for(lambda: not any(map(is_running, children)))  # noqa: B023
        rows = partial.read_bytes().count(b"\n") - 1
        assert not output.exists()
    subprocess.run(list(map(str, command)), env=environment, check=True, timeout=120)
    assert output.read_bytes() == ranked


def wait_for(condition, process=None):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end and (process is None or process.poll() is None)
        time.sleep(0.05)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
