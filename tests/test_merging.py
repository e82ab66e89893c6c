"""Word-level weights against loops in numpy: random words, null rows, one-piece words, sentences of one word."""

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_rela.alignment import merge_subwords
from fairseq_rela.analysis.diversity import count_diversity, normalised, tempered
from fairseq_rela.analysis.merging import layer_attention, memberships, merge_words, sum_to_one
from fairseq_rela.analysis.sparsity import count_sparsity

HEADS = 3


def random_words(rng, first):
    """Return the word number of each piece of a random sentence, after ``first`` positions without a word."""
    return [-1] * first + [word for word in range(rng.integers(1, 5)) for _ in range(rng.integers(1, 4))]


def random_batch(seed, site, negative=False):
    """Return padded sentences with the end at the last (or first) position; forbidden cells hold random weights."""
    rng = numpy.random.default_rng(seed)
    first = int(site == "decoder")
    queries = [random_words(rng, first) for _ in range(3)]
    keys = queries if site != "cross" else [random_words(rng, 0) for _ in range(3)]
    rows, columns = (max(map(len, side)) + 1 - first for side in (queries, keys))
    weights = rng.random((3, HEADS, rows, columns)) - 0.5 * negative
    weights[rng.random(weights.shape) < 0.5] = 0
    weights[rng.random(weights.shape[:3]) < 0.3] = 0
    allowed = numpy.zeros((3, rows, columns), dtype=bool)
    for b, (query, key) in enumerate(zip(queries, keys)):
        allowed[b, : len(query) + 1 - first, : len(key) + 1 - first] = True
    if site == "decoder":
        allowed &= numpy.tril(numpy.ones((rows, columns), dtype=bool))
    weights[~numpy.broadcast_to(allowed[:, None], weights.shape)] = 7
    return queries, keys, weights.astype(numpy.float32), allowed


def by_loops(queries, keys, weights, allowed):
    """Return (sentence, head, query word) to the weights of the words that it may attend to."""
    rows = {}
    for b, (query, key) in enumerate(zip(queries, keys)):
        for h in range(HEADS):
            for i in range(max(query) + 1):
                row = {}
                for j in range(max(key) + 1):
                    pieces = [t for t, word in enumerate(query) if word == i]
                    pairs = [(t, s) for t in pieces for s, word in enumerate(key) if word == j and allowed[b, t, s]]
                    if pairs:
                        row[j] = sum(float(weights[b, h, t, s]) for t, s in pairs) / len(pieces)
                rows[b, h, i] = row
    return rows


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 100_000), st.sampled_from(["encoder", "decoder", "cross"]), st.booleans())
def test_word_level_figures_equal_loops(seed, site, negative):
    """The figures are weights, cells, zeros, null words and head diversity."""
    queries, keys, weights, allowed = random_batch(seed, site, negative)
    want = by_loops(queries, keys, weights, allowed)
    members = memberships(queries, weights.shape[2]), memberships(keys, weights.shape[3])
    merged, cells = merge_words(torch.from_numpy(weights), torch.from_numpy(allowed), *members)
    for (b, h, i), row in want.items():
        assert {j for j in range(cells.shape[2]) if cells[b, i, j]} == set(row)
        assert [float(merged[b, h, i, j]) for j in row] == pytest.approx(list(row.values()), abs=1e-12)
    assert int(cells.sum()) * HEADS == sum(map(len, want.values()))
    counts = count_sparsity(merged, cells)
    assert counts.queries * HEADS == len(want)
    for h in range(HEADS):
        rows = [row for (_, head, _), row in want.items() if head == h]
        assert int(counts.zeros[h]) == sum(value == 0 for row in rows for value in row.values())
        assert int(counts.nulls[h]) == sum(not any(row.values()) for row in rows)
    for distributions, of_row in ((normalised(merged, cells), shares), (tempered(merged, cells, 0.5), softmax)):
        if of_row is softmax or not negative:
            total = sum(diversity([of_row(want[b, h, i]) for h in range(HEADS)]) for b, h, i in want if h == 0)
            assert count_diversity(distributions, cells).total == pytest.approx(total, abs=1e-6)


def shares(row):
    total = sum(row.values())
    return {j: value / total for j, value in row.items()} if total else {"nothing": 1.0}


def softmax(row):
    if not any(row.values()):
        return {"nothing": 1.0}
    powers = {j: numpy.exp(numpy.sign(value) * abs(value) ** 0.5) for j, value in row.items()}
    return {j: power / sum(powers.values()) for j, power in powers.items()}


def diversity(heads):
    def entropy(p):
        return -sum(x * numpy.log(x) for x in p.values() if x)

    mean = {key: sum(p.get(key, 0) for p in heads) / len(heads) for p in heads for key in p}
    return entropy(mean) - sum(map(entropy, heads)) / len(heads)


@given(st.integers(0, 100_000))
@settings(max_examples=30, deadline=None)
def test_batched_merging_equals_merge_subwords(seed):
    """The same words come from padded batches as from single sentences in ``merge_subwords``."""
    queries, keys, weights, allowed = random_batch(seed, "cross")
    members = memberships(queries, weights.shape[2]), memberships(keys, weights.shape[3])
    merged, _ = merge_words(torch.from_numpy(weights), torch.from_numpy(allowed), *members)
    for b, (query, key) in enumerate(zip(queries, keys)):
        want = merge_subwords(torch.from_numpy(weights[b, :, : len(query), : len(key)]).double(), key, query)
        torch.testing.assert_close(merged[b, :, : want.shape[1], : want.shape[2]], want)


def test_division_makes_no_zeros():
    """Half of the smallest float32 number is 0 in float32."""
    weights = torch.tensor([[[[1e-45], [0.0]]]])
    assert float((weights.sum(dim=2) / 2).sum()) == 0
    allowed = torch.ones(1, 2, 1, dtype=torch.bool)
    merged, cells = merge_words(weights, allowed, memberships([[0, 0]], 2), memberships([[0]], 1))
    assert count_sparsity(merged, cells).sparsity == 0


def test_sentences_without_words_have_no_cells():
    allowed = torch.ones(2, 3, 2, dtype=torch.bool)
    members = memberships([[], [0, 0]], 3), memberships([[0], [0]], 2)
    merged, cells = merge_words(torch.ones(2, 1, 3, 2), allowed, *members)
    assert cells.tolist() == [[[False]], [[True]]] and merged.flatten().tolist() == [0, 1]
    merged, cells = merge_words(torch.ones(2, 1, 3, 2), allowed, memberships([[], []], 3), members[1])
    assert merged.shape == (2, 1, 0, 1) and count_sparsity(merged, cells).queries == 0


def test_the_mean_of_heads_by_hand():
    """One large head outweighs two small equal ones, unless rows are normalised; null rows stay null."""
    weights = torch.tensor([[[9.0, 0.0]], [[0.0, 1.0]], [[0.0, 2.0]]])  # (H, T, S)
    assert layer_attention(weights).tolist() == [[[3.0, 1.0]]]
    third = 1 / 3
    torch.testing.assert_close(layer_attention(sum_to_one(weights)), torch.tensor([[[third, 2 * third]]]))
    assert sum_to_one(torch.tensor([0.0, 0.0])).tolist() == [0, 0]
    assert sum_to_one(torch.tensor([3.0, -1.0])).tolist() == [0.75, -0.25]
    softmax_rows = torch.softmax(torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0)), dim=-1)
    torch.testing.assert_close(sum_to_one(softmax_rows), softmax_rows)
