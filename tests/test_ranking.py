"""Ranking of pairs and known damages, against loops, sorting and scikit-learn."""

import math
import random

import numpy
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fairseq_rela.analysis.comparison import roc_auc
from fairseq_rela.analysis.damage import KINDS, Pair, damage
from fairseq_rela.analysis.orders import select_pairs
from fairseq_rela.analysis.sparsity import count_nulls, count_sparsity

# few values, so that there are ties
scores = st.lists(st.sampled_from([-math.inf, -1.5, -1.0, 0.0, 0.25, 2.0, math.inf]), min_size=1, max_size=30)


def random_weights(seed):
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(3, 2, 4, 5, generator=generator)
    weights[torch.rand(weights.shape, generator=generator) < 0.8] = 0
    return weights, torch.rand(3, 4, 5, generator=generator) < 0.6


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_null_rates_equal_loops(seed):
    weights, allowed = random_weights(seed)
    want = []
    for b in range(3):
        queries = [t for t in range(4) if allowed[b, t].any()]
        want.append(sum(not weights[b, h, t][allowed[b, t]].any() for h in range(2) for t in queries))
    assert count_nulls(weights, allowed).tolist() == want
    assert sum(want) == int(count_sparsity(weights, allowed).nulls.sum())


def test_half_precision_and_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match="float32"):
        count_nulls(torch.zeros(1, 2, 3, 4).half(), torch.ones(1, 3, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"\(B, H, T, S\)"):
        count_nulls(torch.zeros(2, 3, 4), torch.ones(2, 3, 4, dtype=torch.bool))


@given(scores, scores)
def test_auc_equals_the_count_over_all_pairs(good, bad):
    want = sum((g > b) + (g == b) / 2 for g in good for b in bad) / (len(good) * len(bad))
    assert roc_auc(good, bad) == pytest.approx(want, abs=1e-12)
    # with swapped sides the areas sum to 1
    assert roc_auc(good, bad) + roc_auc(bad, good) == pytest.approx(1)
    assert roc_auc(good, good) == pytest.approx(0.5)


@given(scores, scores)
def test_auc_depends_only_on_the_order_of_scores(good, bad):
    def moved(values):
        return [math.atan(value) * 3 - 7 for value in values]

    assert roc_auc(moved(good), moved(bad)) == roc_auc(good, bad)


@settings(deadline=None)
@given(st.lists(st.floats(-4, 4), min_size=1, max_size=40), st.lists(st.floats(-4, 4), min_size=1, max_size=40))
def test_auc_equals_that_of_scikit_learn(good, bad):
    metrics = pytest.importorskip("sklearn.metrics")
    good, bad = numpy.round(good, 1), numpy.round(bad, 1)
    labels = [1] * len(good) + [0] * len(bad)
    assert roc_auc(good, bad) == pytest.approx(metrics.roc_auc_score(labels, [*good, *bad]), abs=1e-12)


def test_auc_of_large_lists_is_fast_and_exact():
    generator = numpy.random.default_rng(1)
    good, bad = generator.integers(0, 1000, 200_000), generator.integers(0, 1000, 200_000)
    counts = [numpy.bincount(values, minlength=1000).astype(object) for values in (good, bad)]
    below = numpy.concatenate([[0], numpy.cumsum(counts[1])[:-1]])
    want = (2 * (counts[0] * below).sum() + (counts[0] * counts[1]).sum()) / (2 * 200_000**2)
    assert roc_auc(good, bad) == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize("good, bad", [([], [1]), ([1], []), ([math.nan], [1]), ([1], [math.nan]), ([[1]], [1])])
def test_auc_of_empty_lists_is_refused(good, bad):
    with pytest.raises(ValueError, match="AUC of"):
        roc_auc(good, bad)


@given(
    st.lists(st.tuples(st.sampled_from([0, 0.1, 0.5, math.nan]), st.sampled_from([-3, -2.5, -1, math.nan]))),
    st.none() | st.integers(1, 12),
    st.none() | st.sampled_from([0, 0.1, 0.3]),
)
def test_selection_equals_sorting(pairs, number, highest):
    null, log_probability = (numpy.array(column, numpy.float32) for column in (zip(*pairs) if pairs else ((), ())))
    left = [
        (n, -p, i)
        for i, (n, p) in enumerate(pairs)
        if not math.isnan(n) and not math.isnan(p) and (highest is None or n <= highest)
    ]
    want = sorted(i for _, _, i in sorted(left)[:number])
    chosen = select_pairs(null, log_probability, number, highest, by="null_rate")
    assert chosen.dtype == bool and chosen.shape == (len(pairs),)
    assert numpy.flatnonzero(chosen).tolist() == want


def test_selection_of_less_than_one_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        select_pairs(numpy.zeros(2), numpy.zeros(2), 0)


WORDS = ["der", "Hund", "und", "die", "Katze", "sehen", "ein", "rotes", "Haus", "am", "See", "im", "Wald"]
sentence = st.lists(st.sampled_from(WORDS), min_size=2, max_size=12).map(" ".join)


@settings(max_examples=60)
@given(st.lists(sentence, min_size=2, max_size=12, unique=True), st.sampled_from(KINDS), st.integers(0, 99))
def test_damaged_pairs_differ_as_described(targets, kind, seed):
    pairs = [Pair(f"s{i} {target.upper()}", target) for i, target in enumerate(targets)]
    damaged = damage(pairs, kind, random.Random(seed))
    assert damage(pairs, kind, random.Random(seed)) == damaged
    assert [pair.source for pair in damaged] == [pair.source for pair in pairs]
    assert all(new.target != old.target for new, old in zip(damaged, pairs))
    if kind == "shuffled":
        assert sorted(pair.target for pair in damaged) == sorted(targets)
    for new, old in zip(damaged, pairs):
        words, before = new.target.split(), old.target.split()
        some = max(1, round(0.3 * len(before)))
        if kind == "copied":
            assert new.target == old.source
        elif kind == "wrong_language":
            assert new.target in {pair.source for pair in pairs} - {old.source}
        elif kind == "inserted":
            assert len(words) == len(before) + some and is_part(before, words)
            assert set(words) <= {word for target in targets for word in target.split()}
        elif kind == "deleted":
            assert len(words) == len(before) - some and is_part(words, before)
        elif kind == "truncated":
            assert words == before[: (len(before) + 1) // 2]


def is_part(some, words):
    """Return whether all of ``some`` are in ``words`` in the same order."""
    rest = iter(words)
    return all(word in rest for word in some)


@given(st.lists(st.sampled_from("abc"), min_size=2, max_size=20), st.integers(0, 99))
def test_equal_sentences_are_not_exchanged(targets, seed):
    assume(max(targets.count(target) for target in targets) <= len(targets) // 2)
    damaged = damage([Pair("s", target) for target in targets], "shuffled", random.Random(seed))
    assert sorted(pair.target for pair in damaged) == sorted(targets)
    assert all(pair.target != target for pair, target in zip(damaged, targets))


@pytest.mark.parametrize("targets", [["a"], ["a", "a"], ["a", "a", "b"]])
def test_pairs_that_cannot_be_shuffled_are_refused(targets):
    with pytest.raises(ValueError, match="cannot shuffle"):
        damage([Pair("s", target) for target in targets], "shuffled", random.Random(1))


def test_deleting_and_truncating_keep_one_word_and_split_chinese():
    rng = random.Random(1)
    assert damage([Pair("s", "w")], "deleted", rng)[0].target == "w"
    assert damage([Pair("s", "w")], "truncated", rng)[0].target == "w"
    assert damage([Pair("s", "他在GitHub上看书了")], "truncated", rng)[0].target == "他在GitHub上"
    assert len(damage([Pair("s", "他们都在家里看书了")], "deleted", rng)[0].target) == 6
    with pytest.raises(ValueError, match="choose one of"):
        damage([], "burnt", rng)
