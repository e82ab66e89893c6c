"""The norms, against the formulas in numpy, also where half precision could overflow."""

import numpy as np
import pytest
import torch

from fairseq_rela.norms import GatedLayerNorm, GatedRMSNorm, RMSNorm
from fairseq_rela.variants import VARIANTS

NORMS = {"rms": RMSNorm, "gated_rms": GatedRMSNorm, "gated_layer": GatedLayerNorm}


def expected(name, z, g, w=None):
    centred = z - z.mean(-1, keepdims=True) if name == "gated_layer" else z
    y = g * centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-8)
    return y if w is None else y / (1 + np.exp(-w * z))


@pytest.mark.parametrize("name", NORMS)
def test_norms_equal_their_formulas(name):
    rng = np.random.default_rng(1)
    z, g, w = rng.normal(size=(3, 4, 8)), rng.normal(size=8), rng.normal(size=8)
    norm = NORMS[name](8).double()
    norm.weight.data = torch.from_numpy(g)
    if name != "rms":
        norm.gate.data = torch.from_numpy(w)
    got = norm(torch.from_numpy(z)).detach().numpy()
    np.testing.assert_allclose(got, expected(name, z, g, None if name == "rms" else w), rtol=1e-12)


@pytest.mark.parametrize("name", NORMS)
def test_gradients_equal_finite_differences(name):
    torch.manual_seed(0)
    norm = NORMS[name](5).double()
    assert torch.autograd.gradcheck(norm, torch.randn(3, 5, dtype=torch.float64, requires_grad=True))


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("size", [0.0, 1e-7, 1.0, 300.0, 1e4])
def test_finite_for_zero_tiny_and_large_inputs(name, dtype, size):
    torch.manual_seed(0)
    norm = NORMS[name](512).to(dtype)
    z = (size * torch.randn(2, 512)).to(dtype).requires_grad_()
    y = norm(z)
    y.sum().backward()
    assert y.dtype == torch.float32
    assert y.isfinite().all() and z.grad.isfinite().all()
    assert (y == 0).all() if size == 0 else y.abs().max() > 0


def test_gradient_at_a_null_row_is_bounded():
    """The bound is g * sigmoid(0) / sqrt(eps) = 5,000 at the start."""
    norm = GatedRMSNorm(16)
    z = torch.zeros(1, 16, requires_grad=True)
    norm(z)[0, 0].backward()
    torch.testing.assert_close(z.grad[0, 0], torch.tensor(0.5e4))


def test_norms_start_at_their_start_values():
    torch.manual_seed(0)
    bound = (3 / 512) ** 0.5
    gated = GatedRMSNorm(512)
    assert (gated.weight == 1).all()
    assert gated.gate.abs().max() <= bound and gated.gate.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)
    rela_i = VARIANTS["rela_i"].norm(512)
    assert rela_i.weight.abs().max() <= bound and rela_i.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)
    assert (VARIANTS["relu_rmsnorm"].norm(512).weight == 1).all()


def test_rms_norm_is_scale_invariant_and_the_gate_is_not():
    torch.manual_seed(0)
    z = torch.randn(2, 8)
    torch.testing.assert_close(RMSNorm(8)(3 * z), RMSNorm(8)(z))
    gated = GatedRMSNorm(8)
    assert not torch.allclose(gated(30 * z), gated(z), atol=1e-3)
