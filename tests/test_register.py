"""User-defined variants: the accepted ones, and those that are refused in one line."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fairseq_rela import variants
from fairseq_rela.errors import InputError
from fairseq_rela.norms import RMSNorm
from fairseq_rela.testing import check_variant
from fairseq_rela.variants import VARIANTS, find_variant, register_variant


@pytest.fixture(autouse=True)
def table(monkeypatch):
    monkeypatch.setattr(variants, "VARIANTS", dict(VARIANTS))


class Temperature(nn.Module):
    """Softmax with a learnt temperature for each head."""

    masked = -1e9

    def __init__(self, num_heads, head_dim):
        super().__init__()
        self.temperature = nn.Parameter(torch.full((num_heads, 1, 1), head_dim**0.5))

    def forward(self, scores):
        forbidden = scores == -torch.inf
        scores = scores.masked_fill(forbidden, self.masked)
        return F.softmax(scores / self.temperature, dim=-1).nan_to_num().masked_fill(forbidden, 0.0)


class DividesInfinity(Temperature):
    """The weights are right, and the gradient of the temperature is -inf times 0."""

    masked = -torch.inf


def test_a_function_and_a_module_are_registered():
    register_variant("cubed", lambda scores: F.relu(scores) ** 3, RMSNorm, label="ReLU³", can_be_null=True)
    register_variant("temperature", Temperature, sums_to_one=True, style=("#123456", "o"))
    assert find_variant("cubed").row is None and find_variant("cubed").label == "ReLU³"
    assert find_variant("temperature").style.colour == "#123456"


def test_only_the_same_variant_can_be_registered_again_under_its_name():
    def cubed(scores):
        return F.relu(scores) ** 3

    first = register_variant("cubed", cubed)
    assert register_variant("cubed", cubed) == first
    for name in ("cubed", "rela_g", "softmax"):
        with pytest.raises(InputError, match=f"variant {name}: the name is taken"):
            register_variant(name, F.relu)


@pytest.mark.parametrize("name", ["", "Mine", "my-own", "1st", "a b"])
def test_names_are_safe_in_paths_and_options(name):
    with pytest.raises(InputError, match="lower-case"):
        register_variant(name, F.relu)


def no_tensor(scores):
    return scores.tolist()


def broken_gradient(scores):
    weights = F.relu(scores)
    weights.register_hook(lambda gradient: gradient * float("nan"))
    return weights


@pytest.mark.parametrize(
    "weights, fault",
    [
        (lambda scores: F.softmax(scores, dim=-1), "NaN or infinite in a row without an allowed key"),
        (lambda scores: F.relu(scores + 1).nan_to_num() + 0.1, "must be exactly 0"),
        (lambda scores: F.relu(scores).sum(-1), r"weights of shape \(2, 2, 3\) for scores of shape \(2, 2, 3, 5\)"),
        (lambda scores: F.relu(scores) / 0.0, "NaN or infinite"),
        (lambda scores: scores @ scores, "cannot be computed"),
        (no_tensor, "weights of shape list"),
        (broken_gradient, "gradient of the scores is NaN"),
        (DividesInfinity, "gradient of temperature is NaN"),
    ],
)
def test_broken_weights_are_refused(weights, fault):
    with pytest.raises(InputError, match=f"variant broken: .*{fault}") as error:
        register_variant("broken", weights)
    assert "\n" not in str(error.value) and "broken" not in variants.VARIANTS


def test_weights_declared_as_normalised_must_sum_to_one():
    with pytest.raises(InputError, match="not to 1"):
        register_variant("broken", F.relu, sums_to_one=True)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_of_the_table_passes_the_checks(name):
    check_variant(name)


class Counts(nn.Module):
    """Divide by the length of the padded batch: right in training, wrong with padding and step by step."""

    def __init__(self, num_heads, head_dim):
        super().__init__()

    def forward(self, scores):
        return F.relu(scores) / scores.size(-1)


class Unused(Temperature):
    def forward(self, scores):
        return F.relu(scores)


@pytest.mark.parametrize(
    "weights, fault", [(Counts, "padding must give"), (Unused, "gradient of .*temperature is missing")]
)
def test_check_variant_finds_wrong_padding_and_unused_parameters(weights, fault):
    register_variant("broken", weights)
    with pytest.raises(InputError, match=f"variant broken: .*{fault}"):
        check_variant("broken")
