"""Head diversity: against loops, its bounds, and the effect of null rows."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_rela.analysis.diversity import (
    DiversityCount,
    count_diversity,
    entropy,
    head_diversity,
    normalised,
    tempered,
)

TAUS = (1.0, 0.5, 0.25, 0.1)


def random_weights(seed, zeros=0.5, heads=3, negative=False):
    """Return (2, heads, 4, 5) weights with null rows, a random mask, and a padded last query in a sentence."""
    generator = torch.Generator().manual_seed(seed)
    weights = 3 * torch.rand(2, heads, 4, 5, generator=generator)
    if negative:
        weights -= 1.5
    weights[torch.rand(weights.shape, generator=generator) < zeros] = 0
    weights[torch.rand(weights.shape[:3], generator=generator) < 0.3] = 0
    allowed = torch.rand(2, 4, 5, generator=generator) < 0.7
    allowed[:, :, 0] = True
    allowed[1, 3] = False
    return weights, allowed


def by_loops(weights, allowed, tau):
    """Return the sum over queries in plain Python; keys have names, and the dummy key is an additional one."""
    total = queries = 0
    for b in range(weights.size(0)):
        for t in range(weights.size(2)):
            keys = [s for s in range(weights.size(3)) if allowed[b, t, s]]
            if not keys:
                continue
            heads = []
            for h in range(weights.size(1)):
                row = {s: float(weights[b, h, t, s]) for s in keys}
                if not any(row.values()):
                    heads.append({"nothing": 1.0})
                    continue
                powers = {s: math.exp(math.copysign(abs(w) ** tau, w)) for s, w in row.items()}
                heads.append({s: p / sum(powers.values()) for s, p in powers.items()})
            mean = {k: sum(p.get(k, 0) for p in heads) / len(heads) for k in {k for p in heads for k in p}}

            def h_of(p):
                return -sum(x * math.log(x) for x in p.values() if x)

            total += h_of(mean) - sum(map(h_of, heads)) / len(heads)
            queries += 1
    return total, queries


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(TAUS), st.booleans())
def test_diversity_equals_loops_and_stays_within_its_bounds(seed, tau, negative):
    weights, allowed = random_weights(seed, negative=negative)
    p = tempered(weights, allowed, tau)
    torch.testing.assert_close(p.sum(-1), torch.ones(p.shape[:3]))
    assert float(p[..., :-1].masked_fill(allowed.unsqueeze(1), 0).sum()) == 0
    count = count_diversity(p, allowed)
    total, queries = by_loops(weights, allowed, tau)
    assert count.queries == queries and count.total == pytest.approx(total, abs=1e-5)
    d = head_diversity(p)
    assert d.min() >= 0 and d.max() <= math.log(3) + 1e-6 and torch.isfinite(d).all()


def test_diversity_of_three_kinds_of_queries_by_hand():
    """B14: null heads agree with each other, differ fully from attending heads, and never give NaN."""
    allowed = torch.ones(1, 1, 2, dtype=torch.bool)

    def diversity(*heads):
        weights = torch.tensor(heads).view(1, len(heads), 1, 2)
        return count_diversity(tempered(weights, allowed, 1.0), allowed).mean

    assert diversity([0.0, 0.0], [0.0, 0.0]) == 0
    assert diversity([1.0, 2.0], [1.0, 2.0]) == pytest.approx(0, abs=1e-6)
    assert diversity([1.0, 2.0], [0.0, 0.0]) == pytest.approx(math.log(2))  # disjoint supports: the upper bound
    p = 1 / (1 + math.e)
    one = -(p * math.log(p) + (1 - p) * math.log(1 - p))
    assert diversity([1.0, 0.0], [0.0, 1.0]) == pytest.approx(math.log(2) - one)  # exp(0) is not 0


def test_normalised_weights_are_used_unchanged():
    weights = torch.tensor([[[[1.0, 0, 0]], [[0, 1.0, 0]], [[0, 0, 1.0]], [[1.0, 0, 0]]]])
    allowed = torch.ones(1, 1, 3, dtype=torch.bool)
    want = -(0.5 * math.log(0.5) + 2 * 0.25 * math.log(0.25))
    assert count_diversity(normalised(weights, allowed), allowed).mean == pytest.approx(want)
    assert float(entropy(torch.full((4,), 0.25))) == pytest.approx(math.log(4))
    # any values in cells that are not allowed
    wider = torch.cat((weights, torch.rand(1, 4, 1, 2)), dim=-1)
    mask = torch.tensor([[[True, True, True, False, False]]])
    assert count_diversity(normalised(wider, mask), mask).mean == pytest.approx(want)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(TAUS))
def test_padding_does_not_change_the_diversity(seed, tau):
    weights, allowed = random_weights(seed)
    alone = DiversityCount(0.0, 0)
    for b in range(2):
        rows = allowed[b].any(-1)
        part = weights[b : b + 1, :, rows], allowed[b : b + 1, rows]
        alone = alone + count_diversity(tempered(*part, tau), part[1])
    padded = torch.full((2, 3, 6, 8), 7.0)
    padded[:, :, :4, :5] = weights
    mask = torch.zeros(2, 6, 8, dtype=torch.bool)
    mask[:, :4, :5] = allowed
    together = count_diversity(tempered(padded, mask, tau), mask)
    assert together.queries == alone.queries and together.mean == pytest.approx(alone.mean, abs=1e-6)
