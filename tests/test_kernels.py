"""Hand-written gradients against autograd of the plain formula, and finite differences."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_rela.kernels.rms_norm import rms_norm

EPS = 1e-8


def plain(z, weight, gate, eps=EPS):
    """The formula of FIDELITY section 1, by autograd."""
    normed = weight * z * torch.rsqrt(z.square().mean(dim=-1, keepdim=True) + eps)
    return normed if gate is None else torch.sigmoid(gate * z) * normed


def inputs(shape, gated=True, dtype=torch.float64, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    z = scale * torch.randn(*shape, dtype=dtype, generator=generator)
    z.view(-1, shape[-1])[0] = 0  # a null row
    vectors = [torch.randn(shape[-1], dtype=dtype, generator=generator) for _ in range(2)]
    return [x.requires_grad_() for x in (z, vectors[0])] + [vectors[1].requires_grad_() if gated else None]


def gradients(function, arguments, seed=1):
    output = function(*arguments, EPS)
    cotangent = torch.randn(output.shape, dtype=output.dtype, generator=torch.Generator().manual_seed(seed))
    wanted = [x for x in arguments if x is not None]
    return output, torch.autograd.grad(output, wanted, cotangent)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 3), st.integers(1, 4), st.integers(1, 9), st.booleans(), st.integers(0, 999))
def test_values_and_gradients_are_those_of_autograd(dims, rows, size, gated, seed):
    arguments = inputs((rows,) * dims + (size,), gated, seed=seed)
    (ours, our_gradients), (theirs, their_gradients) = (gradients(f, arguments) for f in (rms_norm, plain))
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    for a, b in zip(our_gradients, their_gradients):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("gated", [True, False])
def test_finite_differences(gated):
    z, weight, gate = inputs((3, 2, 5), gated)
    z.data[0, 0] = 0.3  # at a null row the curvature is that of 1/sqrt(eps), too much for differences
    arguments = (z, weight) if gate is None else (z, weight, gate)
    assert torch.autograd.gradcheck(lambda *a: rms_norm(*(a if gated else (*a, None)), EPS), arguments)


@pytest.mark.parametrize("scale", [1e-20, 1e-4, 1.0, 1e4, 1e18])
def test_float32_of_any_size_is_as_good_as_float64(scale):
    arguments = inputs((4, 8), dtype=torch.float32, scale=scale)
    exact = [x.detach().double().requires_grad_() for x in arguments]
    ours, our_gradients = gradients(rms_norm, arguments)
    theirs, _ = gradients(plain, exact)
    torch.testing.assert_close(ours, theirs.float(), rtol=1e-5, atol=1e-6)
    assert all(bool(g.isfinite().all()) for g in our_gradients)


def test_decoding_and_training_give_the_same():
    arguments = inputs((1, 20, 16), dtype=torch.float32)
    with torch.no_grad():
        decoded = rms_norm(*arguments, EPS)
    assert torch.equal(decoded, rms_norm(*arguments, EPS).detach()) and not decoded.requires_grad
    with torch.inference_mode():
        rms_norm(*arguments, EPS)
    gradients(rms_norm, arguments)  # nothing that inference has kept is in the way


def test_what_is_kept_for_the_gradient_is_the_input_and_a_number_a_row():
    """Autograd of the plain formula keeps five tensors of the input's size."""
    z, weight, gate = inputs((6, 7, 32), dtype=torch.float32)

    def kept(function):
        sizes = {}

        def pack(tensor):
            sizes[tensor.data_ptr()] = tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            output = function(z, weight, gate, EPS)
        output.sum().backward()
        return sum(sizes.values())

    assert kept(rms_norm) == z.numel() + 6 * 7 + 2 * 32
    assert kept(plain) > 3 * z.numel()


def test_it_is_differentiated_once_only():
    z, weight, gate = inputs((2, 4))
    (grad,) = torch.autograd.grad(rms_norm(z, weight, gate, EPS).sum(), z, create_graph=True)
    with pytest.raises(RuntimeError):
        grad.sum().backward()
