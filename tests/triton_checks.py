"""The Triton kernels against float64 in Triton's interpreter; test_triton.py runs this file in its own process."""

import itertools
import sys

import numpy as np
import pytest
import torch
import triton_oracle as oracle

from fairseq_rela.attention import build_attention
from fairseq_rela.errors import InputError

IMPORTED_EARLY = "triton" in sys.modules

from fairseq_rela.kernels import backends, triton_attention  # noqa: E402
from fairseq_rela.kernels.gpu import INTERPRETED  # noqa: E402
from fairseq_rela.kernels.triton_attention import attend  # noqa: E402
from fairseq_rela.kernels.triton_norm import gated_rms_norm  # noqa: E402
from fairseq_rela.ops import rela_attention  # noqa: E402

assert INTERPRETED, "run test_triton.py, or set TRITON_INTERPRET=1"
# bfloat16 has 8 bits, and the interpreter truncates where a GPU rounds
TOLERANCE = {torch.float32: 2e-6, torch.float16: 3e-3, torch.bfloat16: 3e-2}


def tensors(*lengths, bsz=2, size=32, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, bsz, size, generator=generator).to(dtype).requires_grad_() for n in lengths]


def padding(bsz, src_len):
    """Return padding at the end of the first sentence and at the beginning of the last, as fairseq has both."""
    mask = torch.zeros(bsz, src_len, dtype=torch.bool)
    mask[0, -(src_len // 3) :] = True
    mask[-1, : src_len // 4] = True
    return mask


def check(q, k, v, tolerance, num_heads=2, mask=None, seed=3, grad=None, **options):
    """Compare context and gradients with the oracle; return the context."""
    scale = (q.size(-1) // num_heads) ** -0.5
    context = attend(q, k, v, scale=scale, num_heads=num_heads, key_padding_mask=mask, seed=seed, **options)
    assert context.dtype == torch.float32 and context.shape == q.shape
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    expected = oracle.attention(*exact, scale, num_heads, mask, seed=seed, **options)
    assert oracle.error(context, expected) < tolerance
    grad = torch.randn(q.shape, generator=torch.Generator().manual_seed(9)) if grad is None else grad
    gradients = torch.autograd.grad(context, (q, k, v), grad)
    for got, right, x in zip(gradients, torch.autograd.grad(expected, exact, grad.double()), (q, k, v)):
        assert got.dtype == x.dtype and oracle.error(got, right) < tolerance
    return context


VARIANTS = [
    *itertools.product([torch.float32], (False, True), (False, True), (0.0, 0.3)),
    *itertools.product([torch.float16, torch.bfloat16], [True], [True], [0.3]),
    *itertools.product([torch.float16, torch.bfloat16], [False], [False], [0.0]),
]


def test_the_plugin_does_not_import_triton():
    assert not IMPORTED_EARLY


@pytest.mark.parametrize("dtype, causal, padded, dropout", VARIANTS)
def test_every_variant_of_the_kernels_equals_the_oracle(dtype, causal, padded, dropout):
    q, k, v = tensors(37, *((37, 37) if causal else (50, 50)), size=16, dtype=dtype)
    mask = padding(2, k.size(0)) if padded else None
    check(q, k, v, TOLERANCE[dtype], num_heads=1, mask=mask, causal=causal, dropout=dropout)


@pytest.mark.parametrize(
    "dtype, causal, padded, dropout",
    [(torch.float32, False, True, 0.3), (torch.float32, True, False, 0.0), (torch.float16, True, True, 0.3)],
)
def test_a_threshold_and_its_gradient_equal_the_oracle(dtype, causal, padded, dropout):
    q, k, v = tensors(37, *((37, 37) if causal else (50, 50)), dtype=dtype)
    options = dict(mask=padding(2, k.size(0)) if padded else None, causal=causal, dropout=dropout, seed=3)
    threshold = torch.tensor([0.5, -0.75], requires_grad=True)  # the second would give weight to padded keys
    exact = [x.detach().double().requires_grad_() for x in (q, k, v, threshold)]
    wanted = oracle.attention(*exact[:3], 0.25, 2, threshold=exact[3], **options)
    options["key_padding_mask"] = options.pop("mask")
    context = attend(q, k, v, scale=0.25, num_heads=2, threshold=threshold, **options)
    assert oracle.error(context, wanted) < TOLERANCE[dtype]
    grad = torch.randn(q.shape, generator=torch.Generator().manual_seed(9))
    gradients = torch.autograd.grad(context, (q, k, v, threshold), grad)
    for got, right in zip(gradients, torch.autograd.grad(wanted, exact, grad.double())):
        assert oracle.error(got, right) < TOLERANCE[dtype]


def test_a_threshold_of_0_gives_the_bits_of_no_threshold():
    q, k, v = tensors(37, 37, 37, dtype=torch.bfloat16)
    options = dict(scale=0.25, num_heads=2, causal=True, dropout=0.3, seed=3, key_padding_mask=padding(2, 37))
    results = []
    for threshold in (None, torch.zeros(2, requires_grad=True)):
        context = attend(q, k, v, threshold=threshold, **options)
        results.append((context, *torch.autograd.grad(context.square().sum(), (q, k, v))))
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("tgt_len, src_len", [(1, 1), (1, 40), (40, 1), (32, 64)])
def test_all_lengths_equal_the_oracle(tgt_len, src_len):
    check(*tensors(tgt_len, src_len, src_len, bsz=1), 2e-6, dropout=0.2)


@pytest.mark.parametrize("size, num_heads", [(12, 4), (40, 2), (64, 1)])
def test_heads_of_any_size_equal_the_oracle(size, num_heads):
    q, k, v = tensors(20, 21, 21, size=size)
    check(q, k, v, 2e-6, num_heads, mask=padding(2, 21), dropout=0.1)


@pytest.mark.parametrize("layout", ["one projection", "batch first", "columns apart", "one for all sentences"])
def test_views_are_read_without_copies(layout):
    generator = torch.Generator().manual_seed(1)
    if layout == "one projection":
        qkv = torch.randn(20, 2, 96, generator=generator).split(32, dim=-1)
    elif layout == "batch first":
        qkv = torch.randn(3, 2, 20, 32, generator=generator).transpose(1, 2)
    elif layout == "columns apart":
        qkv = torch.randn(3, 20, 2, 64, generator=generator)[..., ::2]
    else:
        qkv = torch.randn(3, 20, 1, 32, generator=generator).expand(3, 20, 2, 32)
    q, k, v = (x.requires_grad_() for x in qkv)
    assert not q.is_contiguous()
    mask = padding(20, 2).t()
    grad = torch.randn(2, 20, 32, generator=generator).transpose(0, 1)
    check(q, k, v, 2e-6, mask=mask, grad=grad)


def test_queries_without_allowed_keys_give_zeros():
    q, k, v = tensors(10, 12, 12, dtype=torch.float16)
    mask = torch.zeros(2, 12, dtype=torch.bool)
    mask[1] = True
    context = attend(q, k, v, scale=1.0, num_heads=2, key_padding_mask=mask)
    gradients = torch.autograd.grad(context.sum(), (q, k, v))
    for x in (context, *gradients):
        assert (x[:, 1] == 0).all() and x[:, 0].abs().max() > 0
    empty = attend(q, k[:0], v[:0], scale=1.0, num_heads=2)
    assert (empty == 0).all()
    assert all((x == 0).all() for x in torch.autograd.grad(empty.sum(), (q, k, v)))
    assert attend(q[:, :0], k[:, :0], v[:, :0], scale=1.0, num_heads=2).shape == (10, 0, 32)


def test_padding_is_never_read():
    q, k, v = tensors(10, 40, 40)
    mask = padding(2, 40)
    clean = attend(q, k, v, scale=1.0, num_heads=2, key_padding_mask=mask)
    with torch.no_grad():
        for x in (k, v):
            x[mask.t()] = torch.nan
    dirty = attend(q, k, v, scale=1.0, num_heads=2, key_padding_mask=mask)
    assert torch.equal(clean, dirty)
    gradients = torch.autograd.grad(dirty.sum(), (q, k, v))
    assert all(x.isfinite().all() for x in gradients)
    assert all((x[mask.t()] == 0).all() for x in gradients[1:])


def test_nan_is_passed_on():
    q, k, v = tensors(10, 10, 10)
    with torch.no_grad():
        q[3, 1, 0] = torch.nan
    context = attend(q, k, v, scale=1.0, num_heads=2)
    assert context[3, 1, :16].isnan().all() and context.isnan().sum() == 16


def test_no_gradient_where_the_score_is_exactly_0():
    q, k, v = tensors(10, 10, 10)
    with torch.no_grad():
        q[::2] = 0
    context = attend(q, k, v, scale=1.0, num_heads=2)
    grad_q, grad_k, grad_v = torch.autograd.grad(context[::2].sum(), (q, k, v))
    assert all((x == 0).all() for x in (context[::2], grad_q, grad_k, grad_v))
    assert context[1::2].abs().max() > 0


def test_only_the_requested_gradients_are_computed():
    q, k, v = tensors(10, 10, 10)
    everything = torch.autograd.grad(attend(q, k, v, scale=1.0, num_heads=2).sum(), (q, k, v))
    for index, wanted in enumerate((q, k, v)):
        inputs = [x if x is wanted else x.detach() for x in (q, k, v)]
        (alone,) = torch.autograd.grad(attend(*inputs, scale=1.0, num_heads=2).sum(), wanted)
        assert torch.equal(alone, everything[index])


def test_results_repeat_and_tiles_do_not_change_the_dropped_weights(monkeypatch):
    q, k, v = tensors(40, 40, 40, bsz=1)
    options = dict(scale=0.25, num_heads=2, causal=True, dropout=0.4, seed=11)

    def results():
        context = attend(q, k, v, **options)
        return context, *torch.autograd.grad(context.square().sum(), (q, k, v))

    first = results()
    assert all(torch.equal(a, b) for a, b in zip(first, results()))
    for tiles in ((16, 64), (64, 32)):
        monkeypatch.setattr(
            triton_attention, "default_tiles", lambda *_, tiles=tiles: triton_attention.Tiles(*tiles, 4, 1)
        )
        for a, b in zip(first, results()):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-4)


def test_the_generator_equals_the_published_one():
    """Known answers of Random123's kat_vectors, and the kernel's own mask, which v = 1 makes visible."""
    zero, ones = torch.zeros(1, dtype=torch.int64), torch.full((1,), 0xFFFFFFFF)
    answers = {
        (0, 7): (0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48),
        (0, 10): (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
        (0xFFFFFFFF, 10): (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    }
    for (start, rounds), answer in answers.items():
        counter = (ones if start else zero,) * 4
        assert tuple(word.item() for word in oracle.philox(counter, (start, start), rounds)) == answer
    seed, dropout = 2**40 + 12345, 0.25
    q, k = torch.ones(40, 2, 32), torch.ones(16, 2, 32)
    v = torch.eye(16).repeat(1, 2)[:, None].expand(16, 2, 32)
    context = attend(q, k, v, scale=1 / 16, num_heads=2, dropout=dropout, seed=seed)
    weights = context.view(40, 2, 2, 16).permute(1, 2, 0, 3).reshape(4, 40, 16)
    torch.testing.assert_close(weights, oracle.kept(seed, 4, 40, 16, dropout) / (1 - dropout))


def test_dropout_has_the_right_rate_and_is_independent():
    for dropout in (0.1, 0.5):
        keep = oracle.kept(7, 8, 128, 128, dropout).double()
        assert abs(keep.mean().item() - (1 - dropout)) < 5 * (dropout * (1 - dropout) / keep.numel()) ** 0.5
        other = oracle.kept(8, 8, 128, 128, dropout).double()
        for a, b in (
            (keep, other),
            (keep[:, 1:], keep[:, :-1]),
            (keep[..., 1:], keep[..., :-1]),
            (keep[1:], keep[:-1]),
        ):
            correlation = np.corrcoef(a.flatten(), b.flatten())[0, 1]
            assert abs(correlation) < 5 / a.numel() ** 0.5


def test_seeds_come_from_torch_or_the_argument():
    q, k, v = (x.detach() for x in tensors(10, 20, 20))

    def dropped(seed=None, dropout=0.5):
        return attend(q, k, v, scale=1.0, num_heads=2, dropout=dropout, seed=seed)

    torch.manual_seed(5)
    first, second = dropped(), dropped()
    assert not torch.equal(first, second)
    torch.manual_seed(5)
    assert torch.equal(dropped(), first) and torch.equal(dropped(), second)
    assert torch.equal(dropped(seed=5), dropped(seed=torch.tensor(5)))
    assert not torch.equal(dropped(seed=5), dropped(seed=5 + 2**32))
    state = torch.get_rng_state()
    dropped(dropout=0.0)
    assert torch.equal(torch.get_rng_state(), state)
    # almost all weights are dropped, and the others are divided by 1 - 0.99999
    assert dropped(dropout=0.99999).isfinite().all()


def test_float16_saturates_and_keeps_the_gradients_of_null_rows():
    q, k, v = tensors(10, 10, 10, dtype=torch.float16)
    with torch.no_grad():
        q[0], k[0] = 300, 300  # a score of 300 * 300 * 16
    context = attend(q, k, v, scale=1.0, num_heads=2)
    assert context.isfinite().all() and context.abs().max() > 65504
    q, k, v = tensors(10, 10, 10, dtype=torch.float16)
    with torch.no_grad():
        q.abs_()
        k.abs_()
        q[3].neg_()
    grad = torch.randn(10, 2, 32)
    ordinary = check(q, k, v, 3e-3, grad=grad)
    assert (ordinary[3] == 0).all()
    grad[3] *= 1e7  # infinite in float16
    check(q, k, v, 3e-3, grad=grad)
    # and small gradients of other rows keep their bits beside a large one
    grad[5] *= 1e-6
    check(q, k, v, 3e-3, grad=grad)


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(q=torch.zeros(4, 2, 33)), "reshape"),
        (dict(k=torch.zeros(5, 2, 32)), "reshape"),
        (dict(num_heads=3), "reshape"),
        (dict(v=torch.zeros(4, 2, 32, dtype=torch.float16)), "differ in type"),
        (dict.fromkeys("qkv", torch.zeros(4, 2, 32, dtype=torch.float64)), "not float64"),
        (dict(dict.fromkeys("qkv", torch.zeros(4, 2, 257)), num_heads=1), "larger than 256"),
        (dict(key_padding_mask=torch.zeros(2, 4)), "torch.bool"),
        (dict(key_padding_mask=torch.zeros(4, 2, dtype=torch.bool)), r"give \(2, 4\)"),
        (dict(q=torch.zeros(3, 2, 32), causal=True), "as many keys"),
        (dict(dropout=1.0), "probability"),
        (dict(dropout=-0.1), "probability"),
    ],
)
def test_unsupported_arguments_are_refused(changes, message):
    arguments = {**dict.fromkeys("qkv", torch.zeros(4, 2, 32)), "scale": 1.0, "num_heads": 2, **changes}
    with pytest.raises(InputError, match=message):
        attend(arguments.pop("q"), arguments.pop("k"), arguments.pop("v"), **arguments)


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("shape", [(1, 512), (11, 3, 48), (5, 7), (2, 3000)])
def test_the_norm_equals_the_oracle(shape, gated):
    check_norm(torch.randn(shape, generator=torch.Generator().manual_seed(0)), gated, 2e-6)


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-20, 1e-5, 1e10, 1e30])
def test_the_norm_of_extreme_values_is_finite(size, gated):
    z = size * torch.randn(5, 48, generator=torch.Generator().manual_seed(0))
    y = check_norm(z, gated, 2e-6)
    assert (y == 0).all() if size == 0 else y.abs().max() > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_norm_reads_and_writes_half_precision(dtype):
    z = 300 * torch.randn(5, 48, generator=torch.Generator().manual_seed(0))
    for result in (dtype, torch.float32):
        assert check_norm(z.to(dtype), True, TOLERANCE[dtype], result).dtype == result
        assert check_norm(z, True, TOLERANCE[dtype], result).dtype == result
    assert gated_rms_norm(z.to(dtype), torch.ones(48), None, 1e-8).dtype == dtype


def check_norm(z, gated, tolerance, dtype=None):
    generator = torch.Generator().manual_seed(2)
    size = z.size(-1)
    gain, gate = torch.randn(size, generator=generator), torch.randn(size, generator=generator)
    inputs = [x.requires_grad_() for x in ((z, gain, gate) if gated else (z, gain))]
    y = gated_rms_norm(*inputs, *(() if gated else (None,)), 1e-8, dtype)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    expected = oracle.gated_rms_norm(*exact, *(() if gated else (None,)), 1e-8)
    assert oracle.error(y, expected) < tolerance
    grad = torch.randn(y.shape, generator=generator)
    gradients = torch.autograd.grad(y, inputs, grad.to(y.dtype))
    for got, right, x in zip(gradients, torch.autograd.grad(expected, exact, grad.double()), inputs):
        assert got.dtype == x.dtype and oracle.error(got, right) < tolerance
    return y


def test_the_norm_of_views_and_of_empty_tensors():
    z = torch.randn(48, 6).t()
    assert torch.equal(
        gated_rms_norm(z, torch.ones(48), None, 1e-8), gated_rms_norm(z.clone(), torch.ones(48), None, 1e-8)
    )
    none = torch.zeros(0, 48, requires_grad=True)
    gain = torch.ones(48, requires_grad=True)
    gated_rms_norm(none, gain, gain, 1e-8).sum().backward()
    assert none.grad.shape == (0, 48) and (gain.grad == 0).all()


@pytest.mark.parametrize(
    "z, gain, gate, message",
    [
        (torch.zeros(2, 8), torch.zeros(7), None, "gain"),
        (torch.zeros(2, 8), torch.zeros(8), torch.zeros(1), "gate"),
        (torch.zeros(2, 8, dtype=torch.float64), torch.zeros(8), None, "float64"),
        (torch.zeros(1, 20000), torch.zeros(20000), None, "larger than"),
    ],
)
def test_unsupported_inputs_of_the_norm_are_refused(z, gain, gate, message):
    with pytest.raises(InputError, match=message):
        gated_rms_norm(z, gain, gate, 1e-8)


@pytest.mark.parametrize("name", ["rela_g", "relu_rmsnorm"])
def test_kernels_equal_the_module_on_the_plain_path(name):
    torch.manual_seed(0)
    module = build_attention(name, 32, 2, self_attention=True)
    x = torch.randn(9, 3, 32)
    mask = padding(3, 9)
    expected, _ = module(x, x, x, key_padding_mask=mask)
    q, k, v = module.q_proj(x), module.k_proj(x), module.v_proj(x)
    context = attend(q, k, v, scale=16**-0.5, num_heads=2, key_padding_mask=mask)
    norm = module.attn_norm
    y = gated_rms_norm(context, norm.weight, getattr(norm, "gate", None), 1e-8)
    torch.testing.assert_close(module.out_proj(y), expected)


@pytest.mark.parametrize("name", ["rela_g", "rela_i", "relu", "rela_g_layernorm"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_module_gives_the_same_by_kernel_and_plain_path(name, dtype, monkeypatch):
    """As on a GPU: VariantAttention with both kernels has the same gradients, and makes no copy in float32."""
    monkeypatch.setattr(backends, "find", lambda query, head_dim, attn_mask: (backends._triton(), ""))
    modules = []
    for backend, precision in (("auto", dtype), ("plain", torch.float64)):
        torch.manual_seed(2)
        modules.append(build_attention(name, 32, 2, self_attention=True, backend=backend).to(precision))
    seen = []
    fused, plain = modules
    monkeypatch.setattr(
        triton_attention, "attend", lambda q, *args, **options: (seen.append(q.dtype), attend(q, *args, **options))[1]
    )
    torch.manual_seed(3)
    x, grad = torch.randn(9, 3, 32).to(dtype), torch.randn(9, 3, 32).to(dtype)
    future = backends.mark_future(torch.triu(torch.full((9, 9), -torch.inf), 1))
    outputs = []
    for module in modules:
        y = x.to(module.q_proj.weight.dtype).clone().requires_grad_()
        options = dict(key_padding_mask=padding(3, 9), attn_mask=future.to(y.dtype) if module is plain else future)
        output, _ = module(y, y, y, need_weights=False, **options)
        output.backward(grad.to(output.dtype))
        outputs.append([output, y.grad, *(parameter.grad for parameter in module.parameters())])
    assert fused.last_backend == "triton" and plain.last_backend == "plain" and seen == [dtype]
    for got, right in zip(*outputs):
        assert got.dtype == dtype and oracle.error(got, right) < 3 * TOLERANCE[dtype]


def test_the_module_under_autocast_keeps_the_norm_in_float32(monkeypatch):
    """The kernel receives the projections in half precision, as in softmax attention; the norm is in float32."""
    monkeypatch.setattr(backends, "find", lambda query, head_dim, attn_mask: (backends._triton(), ""))
    modules = []
    for backend in ("auto", "plain"):
        torch.manual_seed(2)
        modules.append(build_attention("rela_g", 32, 2, self_attention=True, backend=backend))
    seen = []
    norm = modules[0].attn_norm.by
    monkeypatch.setattr(
        triton_attention, "attend", lambda q, *args, **options: (seen.append(q.dtype), attend(q, *args, **options))[1]
    )
    monkeypatch.setattr(modules[0].attn_norm, "by", lambda kernel, z: (seen.append(z.dtype), norm(kernel, z))[1])
    torch.manual_seed(3)
    x, grad = torch.randn(9, 3, 32), torch.randn(9, 3, 32)
    outputs = []
    for module in modules:
        y = x.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output, _ = module(y, y, y, need_weights=False, key_padding_mask=padding(3, 9))
        output.backward(grad.to(output.dtype))
        outputs.append([output.float(), y.grad, *(parameter.grad for parameter in module.parameters())])
    assert seen == [torch.bfloat16, torch.float32] and modules[0].last_backend == "triton"
    for got, right in zip(*outputs):
        assert got.dtype == torch.float32 and oracle.error(got, right.double()) < 3 * TOLERANCE[torch.bfloat16]


def test_dropout_of_a_module_follows_torchs_seed(monkeypatch):
    monkeypatch.setattr(backends, "find", lambda query, head_dim, attn_mask: (backends._triton(), ""))
    module = build_attention("rela_g", 32, 2, self_attention=True, dropout=0.3).train()
    x = torch.randn(9, 3, 32)
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(module(x, x, x, need_weights=False)[0])
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_the_operator_by_kernel_and_by_torch(causal, padded, monkeypatch):
    torch.manual_seed(3)
    q, k, v = arguments = [torch.randn(2, 3, 9, 8, requires_grad=True) for _ in range(3)]
    options = dict(is_causal=causal, key_padding_mask=padding(2, 9) if padded else None)
    results = []
    for kernel in (backends._triton(), backends.CPU):
        monkeypatch.setattr(backends, "find", lambda *_, kernel=kernel: (kernel, ""))
        context = rela_attention(q, k, v, **options)
        results.append([context, *torch.autograd.grad(context.square().sum(), arguments)])
    for got, right in zip(*results):
        assert oracle.error(got, right.double()) < 3 * TOLERANCE[torch.float32]
