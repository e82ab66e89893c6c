"""Weights from scores: against entmax's second algorithm and brute force, with masks."""

import entmax
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fairseq_rela import functional
from fairseq_rela.variants import VARIANTS


def on_rows(variant):
    """Return the weights of a variant as a function of scores (T, S) of one sentence and head."""
    weights = variant.make_weights(1, 4)
    if not isinstance(weights, torch.nn.Module):
        return weights
    return lambda scores: weights.to(functional.at_least_float32(scores).dtype)(scores[None, None])[0, 0]


FUNCTIONS = {name: on_rows(variant) for name, variant in VARIANTS.items()}
NORMALISED = ("softmax", "sparsemax", "entmax15")  # written out as a check of the table


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=30, deadline=None)
@given(
    scores=hnp.arrays("float64", (3, 7), elements=st.floats(-8, 8)),
    allowed=hnp.arrays("bool", (7,)),
)
def test_masking_equals_deleting(name, scores, allowed):
    scores, allowed = torch.from_numpy(scores), torch.from_numpy(allowed)
    weights = FUNCTIONS[name](scores.masked_fill(~allowed, -torch.inf))
    assert (weights[:, ~allowed] == 0).all()
    if allowed.any():
        torch.testing.assert_close(weights[:, allowed], FUNCTIONS[name](scores[:, allowed]))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_fully_masked_row_is_zero_with_finite_gradient(name):
    scores = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)
    mask = torch.zeros(2, 5, dtype=torch.bool)
    mask[0] = True
    weights = FUNCTIONS[name](scores.masked_fill(mask, -torch.inf))
    weights.square().sum().backward()
    assert (weights[0] == 0).all()
    assert (scores.grad[0] == 0).all() and scores.grad.isfinite().all()


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(name, dtype):
    scores = torch.randn(4, 9).to(dtype)
    weights = FUNCTIONS[name](scores)
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights, FUNCTIONS[name](scores.float()))
    if name in NORMALISED:
        torch.testing.assert_close(weights.sum(-1), torch.ones(4), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name, bisect", [("sparsemax", entmax.sparsemax_bisect), ("entmax15", entmax.entmax_bisect)])
def test_sparse_normalisers_equal_bisection(name, bisect):
    scores = 3 * torch.randn(50, 13, dtype=torch.float64)
    torch.testing.assert_close(FUNCTIONS[name](scores), bisect(scores, dim=-1, n_iter=80), atol=1e-8, rtol=0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_equal_finite_differences(name):
    scores = torch.randn(3, 6, dtype=torch.float64)
    scores = torch.where(scores.abs() < 0.05, scores + 0.1, scores).requires_grad_()
    assert torch.autograd.gradcheck(FUNCTIONS[name], scores)


def test_elementwise_variants_equal_their_formulas():
    scores = torch.linspace(-3, 3, 41, dtype=torch.float64)
    normal = torch.distributions.Normal(0.0, 1.0).cdf(scores)
    torch.testing.assert_close(functional.relu(scores), scores.clamp(min=0))
    torch.testing.assert_close(functional.gelu(scores), scores * normal)
    torch.testing.assert_close(functional.leaky_relu(scores), torch.maximum(scores, 0.01 * scores))
