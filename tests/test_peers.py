"""Attention functions other than ReLA, each against a loop over rows and keys with its formula."""

import math

import entmax
import numpy
import pytest
import torch
from scipy.optimize import brentq

from fairseq_rela import peers
from fairseq_rela.threshold import LearntThreshold

HEADS = 3


def sigmoid(row, head):
    return [1 / (1 + math.exp(-(s - math.log(len(row))))) for s in row]


def softmax_plus_one(row, head):
    total = 1 + sum(map(math.exp, row))
    return [math.exp(s) / total for s in row]


def softpick(row, head):
    total = sum(abs(math.exp(s) - 1) for s in row)
    return [max(math.exp(s) - 1, 0) / total for s in row]


def top_k(row, head):
    kept = sorted(row, reverse=True)[:8]
    return [math.exp(s) / sum(map(math.exp, kept)) if s >= kept[-1] else 0.0 for s in row]


def threshold(row, head):
    return [max(s + [1.0, 0.0, -0.5][head], 0.0) for s in row]


def alpha_entmax(row, head):
    """Solve sum [(alpha - 1) s - tau]_+^(1 / (alpha - 1)) = 1 (Peters et al. 2019) for tau by Brent's method."""
    alpha = 1 + 1 / (1 + math.exp(-[0.0, 1.5, -1.0][head]))
    z = (alpha - 1) * numpy.array(row)

    def weights(tau):
        return numpy.clip(z - tau, 0, None) ** (1 / (alpha - 1))

    tau = brentq(lambda tau: weights(tau).sum() - 1, z.max() - 1, z.max(), xtol=1e-15)
    return list(weights(tau))


def scalable_softmax(row, head):
    powers = [len(row) ** ([0.43, 1.0, -0.3][head] * s) for s in row]
    return [power / sum(powers) for power in powers]


def with_values(module, values):
    (parameter,) = module.double().parameters()
    torch.nn.init.zeros_(parameter).data.add_(torch.tensor(values))
    return module


PEERS = {
    "sigmoid": (peers.sigmoid, sigmoid),
    "softmax_plus_one": (peers.softmax_plus_one, softmax_plus_one),
    "softpick": (peers.softpick, softpick),
    "relu_length": (peers.relu_length, lambda row, head: [max(s, 0) / len(row) for s in row]),
    "relu_squared": (peers.relu_squared, lambda row, head: [max(s, 0) ** 2 / len(row) for s in row]),
    "top_k": (peers.top_k, top_k),
    "relu_constant": (peers.relu_constant, lambda row, head: [max(s + 1, 0) for s in row]),
    "threshold": (with_values(LearntThreshold(HEADS, 4), [1.0, 0.0, -0.5]), threshold),
    "alpha_entmax": (with_values(peers.LearntEntmax(HEADS, 4), [0.0, 1.5, -1.0]), alpha_entmax),
    "scalable_softmax": (with_values(peers.ScalableSoftmax(HEADS, 4), [0.43, 1.0, -0.3]), scalable_softmax),
}


def masked_scores(sentences=2, queries=5, keys=13):
    """Return scores with padding and masked future; the first query of the last sentence has no allowed key."""
    scores = 2 * torch.randn(sentences, HEADS, queries, keys, dtype=torch.float64)
    scores += torch.full((queries, keys), -torch.inf, dtype=torch.float64).triu(keys - queries + 1)
    scores[-1, ..., 10:] = -torch.inf
    scores[-1, :, 0] = -torch.inf
    return scores


@pytest.mark.parametrize("name", PEERS)
def test_weights_equal_a_loop_with_the_formula(name):
    function, expected = PEERS[name]
    scores = masked_scores()
    weights = function(scores)
    assert weights.shape == scores.shape and (weights[scores == -torch.inf] == 0).all()
    for place in numpy.ndindex(*scores.shape[:-1]):
        allowed = scores[place] != -torch.inf
        if allowed.any():
            wanted = torch.tensor(expected(scores[place][allowed].tolist(), place[1]), dtype=torch.float64)
            torch.testing.assert_close(weights[place][allowed], wanted, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("name", PEERS)
def test_gradients_of_scores_and_parameters(name):
    function, _ = PEERS[name]
    scores = masked_scores(queries=2).requires_grad_()
    inputs = [scores, *(function.parameters() if isinstance(function, torch.nn.Module) else ())]
    tolerance = {"atol": 1e-4} if name == "alpha_entmax" else {}
    finite = scores != -torch.inf

    def of_finite(values, *parameters):
        return function(torch.where(finite, values, -torch.inf))

    start = torch.where(finite, scores, 0.0).detach().requires_grad_()
    assert torch.autograd.gradcheck(of_finite, (start, *inputs[1:]), **tolerance)


@pytest.mark.parametrize("name", PEERS)
def test_extreme_scores_give_finite_weights_and_gradients(name):
    function, _ = PEERS[name]
    scores = torch.tensor([[-1e4, 0.0, 1e4], [1e4, 1e4, 1e4], [-1e4, -1e4, -1e4], [0.0, 0.0, 0.0]]).double()
    scores = scores.expand(1, HEADS, 4, 3).clone().requires_grad_()
    weights = function(scores)
    weights.sum().backward()
    assert weights.isfinite().all() and (weights >= 0).all() and scores.grad.isfinite().all()


def test_learnt_entmax_starts_as_entmax15_and_meets_sparsemax():
    scores = torch.randn(2, HEADS, 4, 9, dtype=torch.float64)
    module = peers.LearntEntmax(HEADS, 4).double()
    torch.testing.assert_close(module(scores), entmax.entmax15(scores, dim=-1), atol=1e-9, rtol=0)
    module.alpha_logit.data.fill_(40.0)
    torch.testing.assert_close(module(scores), entmax.sparsemax(scores, dim=-1), atol=1e-9, rtol=0)


def test_threshold_of_zero_is_relu():
    scores = masked_scores()
    module = with_values(LearntThreshold(HEADS, 4), [0.0, 0.0, 0.0])
    assert torch.equal(module(scores), scores.clamp(min=0))
    assert torch.equal(LearntThreshold(HEADS, 4)(scores.float()), peers.relu_constant(scores.float()))


def test_equal_scores_are_all_kept_by_top_k():
    weights = peers.top_k(torch.zeros(1, 20, dtype=torch.float64))
    torch.testing.assert_close(weights, torch.full((1, 20), 0.05, dtype=torch.float64))
