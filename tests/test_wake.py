"""The words for which a head is awake (has a weight above 0), against loops."""

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_rela.analysis.sparsity import awake_queries
from fairseq_rela.analysis.wake import WakeCounts, awake_words


def test_a_query_is_awake_if_any_allowed_weight_is_not_zero():
    weights = torch.tensor([[[[0.0, 0, 5], [0, 0, 0]], [[0.1, 0, 0], [0, -2, 0]]]])  # (1, 2, 2, 3)
    allowed = torch.tensor([[[True, True, False], [True, True, False]]])
    assert awake_queries(weights, allowed).tolist() == [[[False, False], [True, True]]]
    assert not awake_queries(weights, torch.zeros_like(allowed)).any()  # padded queries


def test_a_word_is_awake_if_any_piece_is():
    awake = torch.tensor([[True, False, False, False], [False, False, True, False]])
    assert awake_words(awake, [0, 1, 1, 2]).tolist() == [[True, False, False], [False, True, False]]
    assert awake_words(torch.zeros(2, 0, dtype=torch.bool), []).shape == (2, 0)
    with pytest.raises(ValueError, match="pieces"):
        awake_words(awake, [0, 1])


WORDS = st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans(), st.booleans()), max_size=12)


@settings(max_examples=60, deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=5), st.integers(1, 4))
def test_counts_equal_loops(sentences, minimum):
    counts = WakeCounts(2)
    for sentence in sentences:
        awake = torch.tensor([[item[1 + head] for item in sentence] for head in range(2)], dtype=torch.bool)
        counts.add([item[0] for item in sentence], awake.reshape(2, len(sentence)))
    everything = [item for sentence in sentences for item in sentence]
    seen = Counter(item[0] for item in everything)
    for head in range(2):
        woken = Counter(item[0] for item in everything if item[1 + head])
        got = counts.by_share(head, minimum)
        assert {item.key: (item.count, item.share) for item in got} == {
            word: (n, woken[word] / n) for word, n in seen.items() if n >= minimum
        }
        assert got == sorted(got, key=lambda item: (-item.share, -item.count, item.key))


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match="2 heads by 1 words"):
        WakeCounts(2).add(["a"], torch.ones(1, 2, dtype=torch.bool))
