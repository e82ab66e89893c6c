"""Links from weights: null rows, ties, words of several pieces, and the alignments that fairseq prints."""

import argparse

import pytest
import torch
from conftest import make_dictionary, make_model
from fairseq import utils
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tasks import GENERATION, sample, task_with

from fairseq_rela.alignment import (
    as_pharaoh,
    merge_subwords,
    normal_rows,
    shifted_rows,
    strongest_links,
    strongest_sources,
    word_ids,
)
from fairseq_rela.analysis.aer import read_links


def test_null_rows_give_no_links():
    """B10: of three targets only one attends to a source word; fairseq's own function gives (0, 0), (2, 1), (0, 2)."""
    weights = torch.tensor([[0.0, 0, 0], [0, 0, 2.5], [0, 0, 0]])
    assert strongest_links(weights) == [(2, 1)]
    assert strongest_links(torch.tensor([[1.0, 3, 3]])) == [(1, 0)]  # the first of equal weights
    assert strongest_links(torch.zeros(0, 3)) == strongest_links(torch.zeros(3, 0)) == []


def test_negative_weights_give_no_links():
    """The variants of rows 9 and 10 of Table 1 have negative weights."""
    assert strongest_links(torch.tensor([[-0.1, -0.2], [-1.0, 0.1], [-0.1, 0.0]])) == [(1, 1)]


def test_normal_and_shifted_rows_take_the_right_steps():
    """fairseq feeds </s> first: step t predicts piece t and consumes piece t - 1. Two pieces and </s> need 3 steps."""
    weights = torch.tensor([[0.0, 1.0, 9.0], [1.0, 0.0, 9.0], [0.0, 2.0, 9.0]])  # (3 steps, 2 source pieces and </s>)
    assert strongest_links(normal_rows(weights)) == [(1, 0), (0, 1)]  # steps 0 and 1; the end gets no word
    assert strongest_links(shifted_rows(weights)) == [(0, 0), (1, 1)]  # steps 1 and 2, which predicts </s>
    assert normal_rows(weights).shape == shifted_rows(weights).shape == (2, 2)
    only_end = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    assert strongest_links(normal_rows(only_end)) == []  # a row that attends only to the end gives no link


@settings(deadline=None)
@given(st.lists(st.booleans(), max_size=6), st.lists(st.booleans(), max_size=6), st.integers(0, 100))
def test_all_heads_at_once_equal_each_head_alone(source_goes_on, target_goes_on, seed):
    """The leading dimensions are layers and heads; a sentence may be empty."""
    source = word_ids(["a@@" if more else "a" for more in source_goes_on])
    target = word_ids(["a@@" if more else "a" for more in target_goes_on])
    weights = torch.rand(2, 3, len(target), len(source), generator=torch.Generator().manual_seed(seed))
    weights = weights * (torch.rand(weights.shape, generator=torch.Generator().manual_seed(seed + 1)) < 0.5)
    merged = merge_subwords(weights, source, target)
    assert merged.shape == (2, 3, len(set(target)), len(set(source)))
    positions = strongest_sources(merged)
    for layer in range(2):
        for head in range(3):
            want = merge_subwords(weights[layer, head], source, target)
            torch.testing.assert_close(merged[layer, head], want)
            links = [(s, t) for t, s in enumerate(positions[layer, head].tolist()) if s >= 0]
            assert links == strongest_links(want)


@given(st.lists(st.sets(st.tuples(st.integers(0, 30), st.integers(0, 30))), min_size=1, max_size=4))
def test_written_alignments_are_read_back(sentences):
    read = read_links(map(as_pharaoh, sentences), "file")
    assert [gold.sure for gold in read] == sentences
    assert as_pharaoh([(10, 1), (2, 3)]) == "2-3 10-1"


def test_links_of_words_of_several_pieces():
    """B11: a source word of three pieces, a target word of two."""
    source, target = ["un@@", "be@@", "kannt", "."], ["un@@", "known", "."]
    assert word_ids(source) == [0, 0, 0, 1] and word_ids(target) == [0, 0, 1]
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.0, 0.0, 0.0, 1.2], [0.5, 0.5, 0.5, 1.0]])
    merged = merge_subwords(weights, word_ids(source), word_ids(target))
    torch.testing.assert_close(merged, torch.tensor([[0.3, 0.8], [1.5, 1.0]]))
    assert strongest_links(merged) == [(1, 0), (0, 1)]
    with pytest.raises(ValueError, match="pieces"):
        merge_subwords(weights, [0, 1], [0, 0, 1])


def test_words_without_pieces_get_no_weight():
    """Words 0 and 2 of the source and 1 of the target have no piece."""
    merged = merge_subwords(torch.tensor([[0.25, 0.75], [0.5, 0.5]]), [1, 3], [0, 2])
    assert merged.tolist() == [[0, 0.25, 0, 0.75], [0, 0, 0, 0], [0, 0.5, 0, 0.5]]
    assert strongest_links(merged) == [(3, 0), (1, 2)]


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.lists(st.booleans(), min_size=1, max_size=8))
def test_merging_equals_loops(source_goes_on, target_goes_on):
    source = word_ids(["a@@" if more else "a" for more in source_goes_on])
    target = word_ids(["a@@" if more else "a" for more in target_goes_on])
    weights = torch.rand(len(target), len(source), generator=torch.Generator().manual_seed(0))
    merged = merge_subwords(weights, source, target)
    for t in range(target[-1] + 1):
        rows = [i for i, word in enumerate(target) if word == t]
        for s in range(source[-1] + 1):
            columns = [j for j, word in enumerate(source) if word == s]
            want = sum(float(weights[i, j]) for i in rows for j in columns) / len(rows)
            assert float(merged[t, s]) == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize("gnmt_lenpen", [None, 0.6])
def test_print_alignment_gives_no_link_for_a_null_row(gnmt_lenpen):
    """B10: the option is fairseq-generate --print-alignment hard."""
    model = make_model("rela_g").float()
    with torch.no_grad():  # scores far below 0: the last layer's cross-attention has null rows only
        attention = model.decoder.layers[-1].encoder_attn
        attention.q_proj.weight.zero_()
        attention.k_proj.weight.zero_()
        attention.q_proj.bias.fill_(1.0)
        attention.k_proj.bias.fill_(-1.0)
    task = task_with(gnmt_lenpen=gnmt_lenpen)
    args = argparse.Namespace(**GENERATION, print_alignment="hard")
    finished = task.build_generator([model], args).generate([model], sample())
    assert all(h["alignment"] == [] for hypotheses in finished for h in hypotheses)


def test_print_alignment_without_null_rows_agrees_with_fairseq():
    dictionary = make_dictionary()
    pad, eos = dictionary.pad(), dictionary.eos()
    generator = task_with().build_generator(
        [make_model().float()], argparse.Namespace(**GENERATION, print_alignment="hard")
    )
    torch.manual_seed(0)
    source, target = torch.tensor([pad, 5, 6, 7, eos]), torch.tensor([8, 9, eos, pad])
    weights = torch.rand(4, 5)
    want = utils.extract_hard_alignment(weights.clone(), source, target, pad, eos)
    got = generator.extract_alignment(weights.clone(), source, target, pad, eos)
    assert sorted((int(s), int(t)) for s, t in want) == sorted(got) and len(got) == 2
