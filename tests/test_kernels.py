"""The CPU kernels against autograd of the plain formula, and finite differences."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_rela.kernels import relu_attention
from fairseq_rela.kernels.backends import join_heads, split_heads
from fairseq_rela.kernels.rms_norm import rms_norm

EPS = 1e-8


def plain(z, weight, gate, eps=EPS):
    """Compute the formula of FIDELITY section 1 by autograd."""
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
def test_values_and_gradients_equal_those_of_autograd(dims, rows, size, gated, seed):
    arguments = inputs((rows,) * dims + (size,), gated, seed=seed)
    (ours, our_gradients), (theirs, their_gradients) = (gradients(f, arguments) for f in (rms_norm, plain))
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    for a, b in zip(our_gradients, their_gradients):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("gated", [True, False])
def test_gradients_equal_finite_differences(gated):
    z, weight, gate = inputs((3, 2, 5), gated)
    z.data[0, 0] = 0.3  # at a null row the curvature is about 1/sqrt(eps), too large for finite differences
    arguments = (z, weight) if gate is None else (z, weight, gate)
    assert torch.autograd.gradcheck(lambda *a: rms_norm(*(a if gated else (*a, None)), EPS), arguments)


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e-4, 1.0, 1e4, 1e18, 1e30])
def test_float32_values_of_any_size_match_float64(scale):
    arguments = inputs((4, 8), dtype=torch.float32, scale=scale)
    exact = [x.detach().double().requires_grad_() for x in arguments]
    ours, our_gradients = gradients(rms_norm, arguments)
    theirs, _ = gradients(plain, exact)
    torch.testing.assert_close(ours, theirs.float(), rtol=1e-5, atol=1e-6)
    assert all(bool(g.isfinite().all()) for g in our_gradients)


def test_decoding_and_training_give_the_same_values():
    arguments = inputs((1, 20, 16), dtype=torch.float32)
    with torch.no_grad():
        decoded = rms_norm(*arguments, EPS)
    assert torch.equal(decoded, rms_norm(*arguments, EPS).detach()) and not decoded.requires_grad
    with torch.inference_mode():
        rms_norm(*arguments, EPS)
    gradients(rms_norm, arguments)  # state kept by inference does not disturb training


def test_only_the_input_is_kept_for_the_gradient():
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

    assert kept(rms_norm) <= z.numel() + 2 * 32
    assert kept(plain) > 3 * z.numel()


def test_the_norms_backward_pass_under_autocast_stays_in_float32():
    z, weight, gate = inputs((6, 8), dtype=torch.float32)
    first, second = (rms_norm(z, weight, gate, EPS) for _ in range(2))
    want = torch.autograd.grad(first, (z, weight, gate), torch.ones_like(first))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = torch.autograd.grad(second, (z, weight, gate), torch.ones_like(second))
    assert all(torch.equal(a, b) for a, b in zip(got, want))


def test_sums_over_many_rows_are_as_exact_as_those_of_torch():
    arguments = inputs((30_000, 8), dtype=torch.float32)
    exact = [x.detach().double().requires_grad_() for x in arguments]
    _, ours = gradients(rms_norm, arguments)
    cotangent = torch.randn(30_000, 8, generator=torch.Generator().manual_seed(1))
    theirs = torch.autograd.grad(plain(*exact), exact, cotangent.double())
    for a, b in zip(ours[1:], theirs[1:]):
        assert (a - b).abs().max() <= 1e-5 * b.abs().max()


# -- rectified linear attention --


def attention_inputs(T=5, S=7, B=3, D=16, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, B, D, dtype=dtype, generator=generator).requires_grad_() for n in (T, S, S)]


def attend(q, k, v, *, num_heads, dropout=0.0, **options):
    """The kernel from fairseq's shapes to fairseq's shapes."""
    heads = (split_heads(x, num_heads) for x in (q, k, v))
    return join_heads(relu_attention.attend(*heads, dropout_p=dropout, **options))


def plain_attention(q, k, v, scale, num_heads, key_padding_mask=None, attn_mask=None, kept=None):
    """Compute attention by autograd for one sentence and head at a time; `kept`: factors of dropout, (B*H, T, S)."""
    T, B, D = q.shape
    size = D // num_heads
    context = []
    for b in range(B):
        heads = []
        for h in range(num_heads):
            part = slice(h * size, (h + 1) * size)
            scores = q[:, b, part] @ k[:, b, part].t() * scale
            if attn_mask is not None:
                scores = scores + attn_mask.to(scores.dtype)
            weights = torch.relu(scores)
            if key_padding_mask is not None:
                weights = weights * (~key_padding_mask[b].bool()).to(scores.dtype)
            if kept is not None:
                weights = weights * kept[b * num_heads + h]
            heads.append(weights @ v[:, b, part])
        context.append(torch.cat(heads, -1))
    return torch.stack(context, 1)


def tiled(monkeypatch, size=None):
    """Set the tile size in bytes for all sizes of scores; None turns tiles off."""
    monkeypatch.setattr(relu_attention, "TILED_FROM", 0 if size else 2**62)
    monkeypatch.setattr(relu_attention, "CACHED", 0)
    monkeypatch.setattr(relu_attention, "TILE", size)


def padding(B, S):
    mask = torch.zeros(B, S, dtype=torch.bool)
    mask[0, -2:] = True
    mask[-1] = True
    return mask


def future(T, S):
    return torch.triu(torch.full((T, S), -torch.inf), 1)


def bias(T, S):
    """Return a mask of finite numbers of both signs, which forbids nothing."""
    return torch.randn(T, S, generator=torch.Generator().manual_seed(5))


# no tiles; tiles of less than a row, of one row, of a few rows, of all rows of a sentence
TILES = (None, 8, 300, 900, 10**6)


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("mask", [None, future, bias])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_attention_equals_that_of_autograd(monkeypatch, tile, mask, padded, dtype):
    tiled(monkeypatch, tile)
    q, k, v = arguments = attention_inputs(dtype=dtype)
    masks = {
        "key_padding_mask": padding(3, 7) if padded else None,
        "attn_mask": None if mask is None else mask(5, 7),
    }
    ours = attend(*arguments, scale=0.5, num_heads=4, **masks)
    theirs = plain_attention(*arguments, 0.5, 4, **masks)
    tolerance = dict(rtol=1e-5, atol=1e-5) if dtype == torch.float32 else dict(rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(ours, theirs, **tolerance)
    cotangent = torch.randn_like(ours)
    for a, b in zip(torch.autograd.grad(ours, arguments, cotangent), torch.autograd.grad(theirs, arguments, cotangent)):
        torch.testing.assert_close(a, b, **tolerance)


@settings(max_examples=40, deadline=None)
@given(*map(st.integers, (1,) * 5, (6, 6, 3, 3, 400)))
def test_tiles_of_any_size_give_the_same_result(T, S, B, H, tile):
    arguments = attention_inputs(T, S, B, 2 * H)
    with pytest.MonkeyPatch.context() as patch:
        results = []
        for size in (None, tile):
            tiled(patch, size)
            context = attend(*arguments, scale=1.0, num_heads=H, key_padding_mask=padding(B, S))
            results.append([context, *torch.autograd.grad(context, arguments, torch.ones_like(context))])
    for whole, part in zip(*results):
        torch.testing.assert_close(whole, part, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("tile", [None, pytest.param(150, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_attention_gradients_equal_finite_differences(monkeypatch, tile, dropout):
    tiled(monkeypatch, tile)

    def function(q, k, v):
        torch.manual_seed(7)
        masks = dict(key_padding_mask=padding(3, 7), attn_mask=future(5, 7))
        return attend(q, k, v, scale=0.5, num_heads=4, dropout=dropout, **masks)

    assert torch.autograd.gradcheck(function, attention_inputs())


@pytest.mark.parametrize("mask", [None, bias])
def test_dropout_drops_weights_and_scales_the_rest(monkeypatch, mask):
    """The mask of the seed is used in autograd of the plain formula."""
    tiled(monkeypatch)
    arguments = attention_inputs()
    options = dict(scale=0.5, num_heads=4, attn_mask=None if mask is None else mask(5, 7))
    torch.manual_seed(11)
    ours = attend(*arguments, dropout=0.25, **options)
    torch.manual_seed(11)
    kept = torch.nn.functional.dropout(torch.ones(12, 5, 7, dtype=torch.float64), 0.25)
    assert 0 < kept.count_nonzero() < kept.numel()
    theirs = plain_attention(*arguments, kept=kept, **options)
    torch.testing.assert_close(ours, theirs)
    cotangent = torch.randn_like(ours)
    for a, b in zip(torch.autograd.grad(ours, arguments, cotangent), torch.autograd.grad(theirs, arguments, cotangent)):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("tile", [None, 40_000])
def test_dropout_keeps_the_mean_and_drops_the_requested_share(monkeypatch, tile):
    """All weights and values are 1 here, so that a context is the scaled share of the kept weights."""
    tiled(monkeypatch, tile)
    T, S, p = 200, 300, 0.1
    ones = torch.ones(T, 1, 4), torch.ones(S, 1, 4), torch.ones(S, 1, 4)
    torch.manual_seed(0)
    first = attend(*ones, scale=0.5, num_heads=2, dropout=p) / S
    deviation = (p / (1 - p) / S) ** 0.5  # of one row
    assert abs(first.mean() - 1) < 5 * deviation / (2 * T) ** 0.5
    assert 0.85 < first[:, 0, ::2].std() / deviation < 1.15
    again = attend(*ones, scale=0.5, num_heads=2, dropout=p) / S
    assert not torch.equal(first, again)
    torch.manual_seed(0)
    assert torch.equal(attend(*ones, scale=0.5, num_heads=2, dropout=p) / S, first)


@pytest.mark.parametrize("p", [1e-6, 2**-10, 0.25, 0.9999, 1.0])
def test_dropout_of_tiles_drops_the_share_and_scales_the_rest(monkeypatch, p):
    """Each value is 1 for one key only, so that contexts are weights; 143 is no multiple of the 4 in a drawn number."""
    tiled(monkeypatch, 4096)
    T = 143
    q, k, v = torch.ones(2, T, 3, 1).transpose(1, 2), torch.ones(2, T, 3, 1).transpose(1, 2), torch.eye(T)
    torch.manual_seed(0)
    weights = relu_attention.attend(q, k, v.expand(2, 3, T, T), scale=1.0, dropout_p=p)
    share = round(p * 65536) / 65536
    assert abs((weights == 0).double().mean() - share) <= 5 * (share * (1 - share) / weights.numel()) ** 0.5
    torch.testing.assert_close(weights[weights > 0], torch.full_like(weights[weights > 0], 1 / (1 - share or 1)))


def test_the_gradient_drops_the_same_weights_as_the_context(monkeypatch):
    """The context is linear in the values: the product of the values and their gradient is the context."""
    tiled(monkeypatch, 300)
    q, k, v = arguments = attention_inputs()
    context = attend(*arguments, scale=0.5, num_heads=4, dropout=0.3)
    cotangent = torch.randn_like(context)
    torch.randn(100)  # the generator advances between the two passes
    (grad,) = torch.autograd.grad(context, v, cotangent)
    torch.testing.assert_close((grad * v).sum(), (context * cotangent).sum())


def test_at_a_score_of_zero_there_is_no_gradient():
    q, k, v = attention_inputs()
    with torch.no_grad():
        q.zero_()
    attend(q, k, v, scale=0.5, num_heads=4).sum().backward()
    assert not q.grad.any() and not k.grad.any() and not v.grad.any()


def test_padded_keys_with_any_content_get_no_gradient():
    q, k, v = attention_inputs()
    mask = padding(3, 7)
    with torch.no_grad():
        k[mask.t()] = 1e6
    attend(q, k, v, scale=0.5, num_heads=4, key_padding_mask=mask).sum().backward()
    assert not k.grad[mask.t()].any() and not v.grad[mask.t()].any()
    assert k.grad[~mask.t()].abs().sum() > 0


def kept_bytes(function):
    """Return the bytes of the tensors that a pass keeps for its gradient, each counted once."""
    sizes = {}

    def pack(tensor):
        sizes[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        function()
    return sum(sizes.values())


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_no_more_memory_is_kept_than_by_softmax(monkeypatch, dropout):
    T = S = 64
    arguments = attention_inputs(T, S, 2, 32, torch.float32)
    inputs_bytes = 3 * arguments[0].numel() * 4
    scores_bytes = 2 * 4 * T * S * 4

    def softmax():
        q, k, v = (x.view(-1, 8, 8).transpose(0, 1) for x in arguments)
        weights = torch.softmax(torch.bmm(q * 0.5, k.transpose(1, 2)), -1)
        return torch.bmm(torch.nn.functional.dropout(weights, dropout), v)

    def ours():
        return attend(*arguments, scale=0.5, num_heads=4, dropout=dropout)

    tiled(monkeypatch)
    assert inputs_bytes + scores_bytes <= kept_bytes(ours) <= kept_bytes(softmax)
    tiled(monkeypatch, 4096)
    assert kept_bytes(ours) <= inputs_bytes


def test_long_inputs_are_tiled_and_short_ones_are_not(monkeypatch):
    """The number of keys and the bytes of the scores decide; the limits are those where tiles become faster."""
    calls = []
    monkeypatch.setattr(relu_attention, "_attend_to_all", lambda q, *args, **options: calls.append(q) or q)
    whole = ((32, 32, 128), (511, 511, 64), (512, 512, 3), (2048, 256, 64), (16, 2048, 4))
    in_tiles = ((512, 512, 4), (64, 1024, 32), (2048, 2048, 2), (8192, 8192, 1))
    for T, S, B in (*whole, *in_tiles):
        q, k = torch.empty(T, B, 512, device="meta"), torch.empty(S, B, 512, device="meta")
        calls.clear()
        with torch.no_grad():
            assert attend(q, k, k, scale=1.0, num_heads=8).shape == q.shape
        assert (len(calls) > 1) == ((T, S, B) in in_tiles)
        assert len(calls) == 1 or all(part.size(-2) * S * 8 * 4 <= relu_attention.TILE for part in calls)
