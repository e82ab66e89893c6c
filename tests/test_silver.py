"""Silver alignments: grow-diag-final as published, and the words and pairs of the data folder."""

import itertools
import json
import random
import sys
import types

import numpy
import pytest
from conftest import ROOT, run

from fairseq_rela.analysis.aer import Gold, count, read_links
from fairseq_rela.analysis.silver import align, as_gold_line, combine, grow_diag_final, write_silver
from fairseq_rela.errors import InputError
from fairseq_rela.files.lines import read_lines


def literal_grow_diag_final(e2f, f2e):
    """Run the published pseudo-code on matrices (foreign, English), with its loops over all cells."""
    foreign, english = e2f.shape
    union, alignment = e2f | f2e, e2f & f2e

    def unaligned(f, e):
        return not alignment[f, :].any() or not alignment[:, e].any()

    before = -1
    while before != alignment.sum():
        before = alignment.sum()
        for e in range(english):
            for f in range(foreign):
                if alignment[f, e]:
                    for df, de in ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)):
                        fn, en = f + df, e + de
                        if 0 <= fn < foreign and 0 <= en < english and unaligned(fn, en) and union[fn, en]:
                            alignment[fn, en] = True
    for direction in (e2f, f2e):
        for e in range(english):
            for f in range(foreign):
                if direction[f, e] and unaligned(f, e):
                    alignment[f, e] = True
    return alignment


def test_grow_diag_final_equals_the_published_pseudo_code():
    chance = numpy.random.RandomState(1)
    for _ in range(400):
        shape = tuple(chance.randint(1, 8, size=2))
        density = chance.uniform(0.05, 0.6)
        matrices = [chance.uniform(size=shape) < density for _ in range(2)]
        links = [set(zip(*map(list, numpy.nonzero(matrix)))) for matrix in matrices]
        expected = set(zip(*map(list, numpy.nonzero(literal_grow_diag_final(*matrices)))))
        assert grow_diag_final(*links) == expected


def test_grow_diag_final_worked_by_hand():
    # from the intersection (0, 0), growing takes (1, 0), as source word 1 is free, then (1, 1), as target word 1 is;
    # (4, 4) has no neighbour: the final step takes it, and not (4, 1) after it, whose words both have a link
    forward, reverse = {(0, 0), (1, 1), (4, 4)}, {(0, 0), (1, 0), (4, 1)}
    assert grow_diag_final(forward, reverse) == {(0, 0), (1, 0), (1, 1), (4, 4)}
    assert grow_diag_final(set(), {(2, 3)}) == {(2, 3)} and grow_diag_final(set(), set()) == set()
    # an empty intersection does not grow; the final step is ordered by target word, so (2, 2) comes too late
    assert grow_diag_final({(0, 0)}, {(0, 2), (2, 0), (2, 2)}) == {(0, 0), (0, 2), (2, 0)}


def test_the_links_are_between_the_intersection_and_the_union():
    chance = random.Random(2)
    for _ in range(50):
        cells = list(itertools.product(range(6), range(5)))
        forward, reverse = (set(chance.sample(cells, chance.randint(0, 12))) for _ in range(2))
        silver = combine(forward, reverse)
        assert silver.sure == forward & reverse and silver.sure <= silver.possible <= forward | reverse
        assert read_links([as_gold_line(silver)], "f") == [silver]


class FakeAligner:
    """Write in the form of eflomal: the diagonal, and in reverse also a link of the first source word to the last."""

    calls = []

    def align(self, sources, targets, links_filename_fwd, links_filename_rev, quiet):
        sides = [[line.split() for line in side] for side in (sources, targets)]
        self.calls.append(sides)
        for name, last in ((links_filename_fwd, False), (links_filename_rev, True)):
            with open(name, "w") as file:
                for source, target in zip(*sides):
                    links = {(i, i) for i in range(min(len(source), len(target)))}
                    links |= {(0, len(target) - 1)} if last else set()
                    file.write(" ".join(f"{i}-{j}" for i, j in sorted(links)) + "\n")


@pytest.fixture
def eflomal(monkeypatch):
    monkeypatch.setitem(sys.modules, "eflomal", types.SimpleNamespace(Aligner=FakeAligner))
    monkeypatch.setattr(FakeAligner, "calls", [])
    return FakeAligner


def test_silver_links_use_the_words_of_the_test_set_and_all_pairs_for_training(data, tmp_path, eflomal):
    record = write_silver(data, tmp_path / "silver.test.talp")
    texts = {s: [list(read_lines(data / "text" / f"{s}.{lang}")) for lang in ("xa", "xb")] for s in ("train", "valid")}
    test = [list(read_lines(data / "text" / f"test.{lang}")) for lang in ("xa", "xb")]
    assert record["trained_on"] == {**{s: len(both[0]) for s, both in texts.items()}, "test": len(test[0])}
    assert [len(side) for side in eflomal.calls[0]] == [sum(record["trained_on"].values())] * 2
    lengths = [(len(a.split()), len(b.split())) for a, b in zip(*test)]
    silver = read_links(read_lines(tmp_path / "silver.test.talp"), "silver", lengths=lengths)
    assert [line.sure for line in silver] == [{(i, i) for i in range(min(pair))} for pair in lengths]
    assert record["links"]["sure"] == sum(map(min, lengths)) and record["sentences"] == len(test[0])
    assert json.loads((tmp_path / "silver.test.talp.json").read_text()) == record and record["seed"] is None


def test_other_sentences_are_aligned_with_the_data(data, tmp_path, eflomal):
    (tmp_path / "other").write_text("a b ||| c d e\n ||| f\ng ||| h\n")
    record = write_silver(data, tmp_path / "out.silver", sentences=tmp_path / "other")
    lines = list(read_lines(tmp_path / "out.silver"))
    # a pair with an empty side has no links and is not given to eflomal
    assert lines == ["0-0 0p2 1-1", "", "0-0"] and record["trained_on"]["sentences"] == 3
    assert len(eflomal.calls[0][0]) == sum(record["trained_on"].values()) - 1
    (tmp_path / "other").write_text("a b\n")
    with pytest.raises(InputError, match='other, line 1: not "source ||| target"'):
        write_silver(data, tmp_path / "out.silver", sentences=tmp_path / "other")
    with pytest.raises(InputError, match="--subset dev: choose one of train, valid, test"):
        write_silver(data, tmp_path / "out.silver", "dev")
    with pytest.raises(InputError, match='--output .*test.talp: give the name of a file with "silver" in it'):
        write_silver(data, tmp_path / "test.talp")


@pytest.mark.slow
def test_without_eflomal_the_script_names_its_installation(data, tmp_path):
    (tmp_path / "eflomal.py").write_text("raise ImportError('not here')\n")
    script = ROOT / "scripts" / "silver_alignment.py"
    env = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    result = run(sys.executable, "-W", "ignore", script, data, "--output", tmp_path / "out.silver", env=env)
    assert result.returncode == 2 and not list(tmp_path.glob("out*"))
    assert result.stderr.splitlines()[-1] == (
        "silver_alignment: error: silver alignments need eflomal (not here); run: pip install eflomal"
    )


def test_eflomal_finds_the_words_of_a_generated_corpus(corpus, data):
    pytest.importorskip("eflomal")
    texts = [
        list(read_lines(data / "text" / f"{split}.{lang}")) for split in ("train", "test") for lang in ("xa", "xb")
    ]
    pairs = [*zip(*texts[:2]), *zip(*texts[2:])]
    silver = [combine(*links) for links in align(pairs)[len(texts[0]) :]]
    gold = read_links(read_lines(corpus / "test.align"), "gold")
    assert count(gold, [line.sure for line in silver]).aer < 0.2
    assert all(isinstance(line, Gold) for line in silver)
