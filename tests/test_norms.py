"""The norms, against the formulas in numpy, and where half precision would break them."""

import copy

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
def test_formula(name):
    rng = np.random.default_rng(1)
    z, g, w = rng.normal(size=(3, 4, 8)), rng.normal(size=8), rng.normal(size=8)
    norm = NORMS[name](8).double()
    norm.weight.data = torch.from_numpy(g)
    if name != "rms":
        norm.gate.data = torch.from_numpy(w)
    got = norm(torch.from_numpy(z)).detach().numpy()
    np.testing.assert_allclose(got, expected(name, z, g, None if name == "rms" else w), rtol=1e-12)


@pytest.mark.parametrize("name", NORMS)
def test_gradients(name):
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
    """g * sigmoid(0) / sqrt(eps) = 5,000 at the start."""
    norm = GatedRMSNorm(16)
    z = torch.zeros(1, 16, requires_grad=True)
    norm(z)[0, 0].backward()
    torch.testing.assert_close(z.grad[0, 0], torch.tensor(0.5e4))


def test_start_values():
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


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 2e-6), (torch.bfloat16, 2e-6)])
@pytest.mark.parametrize("size", [0.0, 1e-7, 1.0, 300.0, 1e4])
def test_made_ready_for_generation_it_computes_the_same(size, dtype, tolerance):
    """With gates of 0, next to 0 and of either sign; and no more than the plain formula where it has a gradient."""
    torch.manual_seed(3)
    norm = GatedRMSNorm(64).to(dtype)
    with torch.no_grad():
        norm.gate[:6] = torch.tensor([0.0, 1e-30, -1e-13, 1e-6, 3.0, -3.0])
    z = (torch.randn(7, 64) * size).to(dtype)
    want = norm(z)
    norm.make_generation_fast_(name="")
    assert torch.equal(norm(z), want) and want.requires_grad
    with torch.no_grad():
        got = norm(z)
    assert got.dtype == want.dtype
    torch.testing.assert_close(got, want.detach(), rtol=tolerance, atol=tolerance * float(want.detach().abs().max()))


def test_made_ready_for_generation_it_follows_its_parameters():
    """Changed, loaded and converted after fairseq has said that the model will only generate."""
    torch.manual_seed(4)
    norm, other, z = GatedRMSNorm(16), GatedRMSNorm(16), torch.randn(3, 16)
    norm.make_generation_fast_()

    def same():
        with torch.no_grad():
            fresh = GatedRMSNorm(16).to(norm.weight.dtype)
            fresh.load_state_dict(norm.state_dict())
            torch.testing.assert_close(norm(z.to(norm.weight.dtype)), fresh(z.to(norm.weight.dtype)))

    same()
    with torch.no_grad():
        norm.gate.add_(1)
    same()
    norm.load_state_dict(other.state_dict())
    same()
    norm.double()
    same()
    assert set(norm.state_dict()) == {"weight", "gate"}
    copied = copy.deepcopy(norm)
    with torch.no_grad():
        copied.gate.zero_()
        torch.testing.assert_close(copied(z.double()), norm.weight * z / z.square().mean(-1, True).sqrt() / 2)
