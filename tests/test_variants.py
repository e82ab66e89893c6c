"""The table of variants holds the rows of the paper's Table 1."""

import pytest
import torch
from omegaconf import OmegaConf
from test_functional import on_rows

from fairseq_rela.errors import InputError
from fairseq_rela.norms import GatedLayerNorm, GatedRMSNorm, RMSNorm
from fairseq_rela.variants import VARIANTS, find_variant, parse_sites

ROWS = {
    "softmax": (1, "softmax", None),
    "sparsemax": (2, "sparsemax", None),
    "entmax15": (3, "entmax15", None),
    "relu": (4, "relu", None),
    "relu_rmsnorm": (5, "relu", RMSNorm),
    "rela_i": (6, "relu", RMSNorm),
    "rela_g": (7, "relu", GatedRMSNorm),
    "rela_g_layernorm": (8, "relu", GatedLayerNorm),
    "rela_g_gelu": (9, "gelu", GatedRMSNorm),
    "rela_g_leaky_relu": (10, "leaky_relu", GatedRMSNorm),
}


def test_variants_have_their_rows_of_table_1():
    found = {
        name: (v.row, v.weights.__name__, type(v.norm(8)) if v.norm is not None else None)
        for name, v in VARIANTS.items()
        if v.row is not None
    }
    assert found == ROWS


@pytest.mark.parametrize("name", VARIANTS)
def test_properties_hold_for_the_weights(name):
    variant = VARIANTS[name]
    assert variant.name == name
    weights = on_rows(variant)
    scores = torch.randn(200, 17, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    sums = weights(scores.clone()).sum(-1)
    assert variant.sums_to_one == torch.allclose(sums, torch.ones_like(sums), atol=1e-9)
    negative = weights(-scores.abs() - 1.1)  # smaller than the thresholds, which start at -1
    assert variant.can_be_null == bool((negative == 0).all())
    start = 1.0 if name == "rela_g_threshold" else 0.0
    assert not variant.is_relu or torch.equal(weights(scores.clone()), (scores + start).clamp(min=0))


def test_variants_have_different_styles():
    assert len({variant.style for variant in VARIANTS.values()}) == len(VARIANTS)
    assert len({variant.label for variant in VARIANTS.values()}) == len(VARIANTS)


def test_unknown_names_are_refused():
    with pytest.raises(InputError, match="--attention relu2: no such variant; choose one of softmax"):
        find_variant("relu2")


@pytest.mark.parametrize(
    "text",
    [
        *("encoder,decoder,cross", "cross,encoder,decoder", " decoder , cross,encoder,"),
        ["cross", "encoder", "decoder"],
        OmegaConf.create(["cross", "encoder", "decoder"]),  # the form in which Hydra passes a list
    ],
)
def test_sites_are_parsed(text):
    assert parse_sites(text) == {"encoder", "decoder", "cross"}


@pytest.mark.parametrize("text", ["", ",", "encoder,both", "Encoder"])
def test_unknown_sites_are_refused(text):
    with pytest.raises(InputError, match="--attention-sites"):
        parse_sites(text)
