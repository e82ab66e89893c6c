"""The operator and its norm against a loop over single numbers, torch's own formula, and finite differences."""

import math
import sys

import pytest
import torch
import torch.nn.functional as F
from conftest import run

from fairseq_rela.errors import InputError
from fairseq_rela.kernels import relu_attention
from fairseq_rela.ops import gated_rms_norm, rela_attention, rela_weights

B, H, T, S, D = 2, 3, 4, 5, 6
NEW = hasattr(torch.library, "custom_op")  # torch 2.4: what older versions of compile and export do is not promised
needs_new_torch = pytest.mark.skipif(not NEW, reason="torch before 2.4")


def tensors(*shapes, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, dtype=dtype, generator=generator).requires_grad_() for shape in shapes]


def qkv(dtype=torch.float64, seed=0, value_size=D):
    return tensors((B, H, T, D), (B, H, S, D), (B, H, S, value_size), dtype=dtype, seed=seed)


def loop(q, k, v, allowed=None, added=None, scale=None):
    """Sum weight by weight; ``allowed`` and ``added`` have the shape of the scores."""
    out = torch.zeros(*q.shape[:-1], v.size(-1), dtype=q.dtype)
    scale = 1 / math.sqrt(q.size(-1)) if scale is None else scale
    for b in range(q.size(0)):
        for h in range(q.size(1)):
            for i in range(q.size(2)):
                for j in range(k.size(2)):
                    score = sum(float(q[b, h, i, c]) * float(k[b, h, j, c]) for c in range(q.size(3))) * scale
                    score += 0 if added is None else float(added[b, h, i, j])
                    if score > 0 and (allowed is None or bool(allowed[b, h, i, j])):
                        out[b, h, i] += score * v[b, h, j].detach()
    return out


def masks():
    generator = torch.Generator().manual_seed(3)
    for shape in ((T, S), (B, 1, T, S), (1, H, 1, S), (B, H, T, S), (S,)):
        yield torch.rand(shape, generator=generator) > 0.4
        yield torch.randn(shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("mask", list(masks()), ids=lambda m: f"{m.dtype}-{tuple(m.shape)}".replace("torch.", ""))
def test_masks_of_every_shape_are_those_of_a_loop(mask):
    q, k, v = qkv(value_size=7)
    full = mask.expand(B, H, T, S)
    expected = loop(q, k, v, full) if mask.dtype == torch.bool else loop(q, k, v, added=full)
    torch.testing.assert_close(rela_attention(q, k, v, mask).detach(), expected)


@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("size", [S, T])
def test_padding_and_the_future_are_those_of_a_loop(scale, size):
    q, k, v = tensors((B, H, T, D), (B, H, size, D), (B, H, size, D))
    padding = torch.zeros(B, size, dtype=torch.bool)
    padding[0, -2:] = padding[1, 0] = True
    allowed = torch.ones(T, size).tril().bool() & ~padding[:, None, None]
    expected = loop(q, k, v, allowed.expand(B, H, T, size), scale=scale)
    added = torch.zeros(B, size).masked_fill(padding, -torch.inf)
    for mask in (padding, added):
        ours = rela_attention(q, k, v, is_causal=True, scale=scale, key_padding_mask=mask)
        torch.testing.assert_close(ours.detach(), expected)


@pytest.mark.skipif(not hasattr(F, "scaled_dot_product_attention"), reason="torch before 2.0")
def test_the_arguments_mean_what_they_mean_in_torchs_function():
    """Of one allowed key softmax makes the weight 1; its own context, times the rectified score, is ours."""
    q, k, v = (x.detach() for x in qkv())
    for i in range(S):
        one = torch.zeros(T, S, dtype=torch.bool)
        one[:, i] = True
        scores = (q @ k.transpose(-2, -1) / D**0.5)[..., i : i + 1]
        expected = F.scaled_dot_product_attention(q, k, v, one) * scores.relu()
        torch.testing.assert_close(rela_attention(q, k, v, one), expected)
    q, k, v = (x[..., :4, :] for x in (q, k, v))
    torch.testing.assert_close(
        rela_attention(q, k, v, is_causal=True), rela_attention(q, k, v, torch.ones(4, 4).tril().bool())
    )


def test_a_query_without_an_allowed_key_gives_zero_and_no_gradient():
    for options in (
        dict(attn_mask=torch.zeros(T, S, dtype=torch.bool)),
        dict(attn_mask=torch.full((T, S), -torch.inf)),
        dict(key_padding_mask=torch.ones(B, S, dtype=torch.bool)),
    ):
        q, k, v = qkv()
        context = rela_attention(q, k, v, **options)
        assert not context.any()
        normed = gated_rms_norm(context, *tensors((D,), (D,)), 1e-8)
        assert not normed.any()
        for gradient in torch.autograd.grad(normed.sum(), (q, k, v)):
            assert not gradient.any()


def test_a_threshold_is_subtracted_from_the_scores_of_its_head():
    q, k, v = qkv()
    threshold = torch.tensor([0.5, -0.25, 0.0], dtype=torch.float64, requires_grad=True)
    expected = loop(q, k, v, added=-threshold[:, None, None].expand(B, H, T, S))
    torch.testing.assert_close(rela_attention(q, k, v, threshold=threshold).detach(), expected)
    torch.testing.assert_close(
        rela_weights(q, k, threshold=threshold) @ v, rela_attention(q, k, v, threshold=threshold)
    )
    assert torch.autograd.gradcheck(lambda *a: rela_attention(*a[:3], threshold=a[3]), (q, k, v, threshold))


def test_other_numbers_of_dimensions():
    q, k, v = (x.detach() for x in qkv())
    full = rela_attention(q, k, v)
    padding = torch.zeros(B, S, dtype=torch.bool)
    padding[0, 3:] = True
    torch.testing.assert_close(rela_attention(q[0, 0], k[0, 0], v[0, 0]), full[0, 0])
    torch.testing.assert_close(rela_attention(q[:, 0], k[:, 0], v[:, 0]), full[:, 0])
    torch.testing.assert_close(
        rela_attention(q[:, 0], k[:, 0], v[:, 0], key_padding_mask=padding),
        rela_attention(q, k, v, key_padding_mask=padding)[:, 0],
    )
    torch.testing.assert_close(rela_attention(q[:, None], k[:, None], v[:, None]), full[:, None])
    torch.testing.assert_close(rela_attention(q, k[:1], v[:1])[0], full[0])  # keys of one sentence for all
    torch.testing.assert_close(rela_attention(q, k[:, :1], v[:, :1])[:, 0], full[:, 0])  # keys of one head for all


def test_dropout_keeps_the_expectation():
    ones = torch.ones(1, 1, 200, 4)
    torch.manual_seed(0)
    context = rela_attention(ones, ones, ones, dropout_p=0.25)  # weights 2, values 1
    deviation = (0.25 / 0.75 / 200) ** 0.5 / 200**0.5  # of the mean of 200 independent rows
    assert abs(context[..., 0].mean() / 400 - 1) < 5 * deviation and context.std() > 0


@pytest.mark.parametrize(
    "options",
    [
        {},
        dict(attn_mask=torch.rand(T, S, generator=torch.Generator().manual_seed(1)) > 0.3),
        dict(key_padding_mask=torch.tensor([[False] * 3 + [True] * 2, [False] * 5])),
        dict(is_causal=True, scale=0.7),
    ],
    ids=lambda options: "-".join(options) or "plain",
)
def test_gradients_and_second_gradients_by_finite_differences(options):
    arguments = qkv()
    assert torch.autograd.gradcheck(lambda *a: rela_attention(*a, **options), arguments)
    assert torch.autograd.gradgradcheck(lambda *a: rela_attention(*a, **options), arguments)


def test_the_gradient_of_an_added_mask_by_finite_differences():
    (mask,) = tensors((1, H, T, S), seed=2)
    assert torch.autograd.gradcheck(lambda *a: rela_attention(*a), (*qkv(), mask))


@pytest.mark.parametrize("mask", [None, (T, S), (B, 1, T, S)])
@pytest.mark.parametrize("padded", [False, True])
def test_tiles_of_long_inputs_are_the_whole(monkeypatch, mask, padded):
    arguments = qkv()
    options = {}
    if mask is not None:
        options["attn_mask"] = torch.rand(mask, generator=torch.Generator().manual_seed(1)) > 0.3
    if padded:
        options["key_padding_mask"] = torch.tensor([[False] * 3 + [True] * 2, [False] * 5])
    results = []
    for first in (2**62, 0):
        monkeypatch.setattr(relu_attention, "TILED_FROM", first)
        monkeypatch.setattr(relu_attention, "CACHED", 0)
        monkeypatch.setattr(relu_attention, "TILE", 2 * H * S * 8)
        context = rela_attention(*arguments, **options)
        results.append([context, *torch.autograd.grad(context.square().sum(), arguments)])
    for whole, part in zip(*results):
        torch.testing.assert_close(whole, part)


def test_tensors_without_data_give_the_shape():
    q, k, v = (x.to("meta") for x in qkv(value_size=7))
    assert rela_attention(q, k, v).shape == (B, H, T, 7)
    assert gated_rms_norm(q, q[0, 0, 0]).shape == q.shape


def test_weights_times_values_are_the_context():
    q, k, v = qkv()
    mask = torch.rand(T, S, generator=torch.Generator().manual_seed(1)) > 0.3
    weights = rela_weights(q, k, mask)
    assert not weights[..., ~mask].any() and (weights >= 0).all()
    torch.testing.assert_close(weights @ v, rela_attention(q, k, v, mask))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_and_autocast_are_computed_in_float32(dtype):
    """Weights of 2,000 and values of 100: their sum is infinite in float16."""
    half = [torch.full((1, 1, 8, 4), x, dtype=dtype) for x in (32.0, 32.0, 100.0)]
    context = rela_attention(*half)
    assert context.dtype == torch.float32
    torch.testing.assert_close(context, torch.full((1, 1, 8, 4), 8 * 2048.0 * 100))
    normed = gated_rms_norm(context.half(), torch.ones(4).to(dtype), None)
    assert normed.dtype == torch.float32
    q, k, v = qkv(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(rela_attention(q, k, v), rela_attention(*qkv(torch.float32)))


def test_the_gated_norm_is_that_of_a_loop():
    x, gain, gate = tensors((2, 3, 5), (5,), (5,))
    for row, ours in zip(x.view(-1, 5), gated_rms_norm(x, gain, gate, 1e-3).view(-1, 5)):
        root = math.sqrt(sum(float(z) ** 2 for z in row) / 5 + 1e-3)
        for z, g, w, y in zip(row, gain, gate, ours):
            assert float(y) == pytest.approx(float(g) * float(z) / root / (1 + math.exp(-float(w * z))), abs=1e-12)
    torch.testing.assert_close(gated_rms_norm(x, gain) * gate.mul(x).sigmoid(), gated_rms_norm(x, gain, gate))
    assert torch.autograd.gradcheck(gated_rms_norm, (x, gain, gate))
    assert torch.autograd.gradgradcheck(gated_rms_norm, (x, gain, gate))


@pytest.mark.parametrize(
    "shapes, options, message",
    [
        (((2, 3, 4), (2, 3, 5), (2, 3, 5)), {}, "are not"),
        (((2, 3, 4), (2, 5, 4), (2, 6, 4)), {}, "are not"),
        (((2, 3, 4), (3, 5, 4), (3, 5, 4)), {}, "do not broadcast"),
        (((2, 3, 4), (2, 5, 4), (2, 5, 4)), dict(attn_mask=torch.ones(3, 4)), "attn_mask"),
        (((2, 3, 4), (2, 5, 4), (2, 5, 4)), dict(attn_mask=torch.ones(3, 5), is_causal=True), "exclude"),
        (((2, 3, 4), (2, 5, 4), (2, 5, 4)), dict(key_padding_mask=torch.ones(5, 2)), "key_padding_mask"),
        (((2, 3, 4), (2, 5, 4), (2, 5, 4)), dict(dropout_p=1.5), "dropout_p"),
        (((2, 3, 4), (2, 5, 4), (2, 5, 4)), dict(threshold=torch.ones(2)), "threshold"),
        (((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4)), dict(threshold=torch.ones(3)), "threshold"),
        (((2, 3, 4), (2, 5, 4), (2, 5, 4)), dict(attn_mask=torch.ones(3, 5, dtype=torch.uint8)), "attn_mask is"),
    ],
)
def test_wrong_arguments_give_one_line(shapes, options, message):
    with pytest.raises(InputError, match=message) as caught:
        rela_attention(*tensors(*shapes), **options)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="gate"):
        gated_rms_norm(torch.ones(2, 3), torch.ones(3), torch.ones(4))


# -- traced by torch --


@needs_new_torch
@pytest.mark.parametrize("options", [{}, dict(is_causal=True), dict(dropout_p=0.0, scale=0.3)])
def test_compiled_without_a_break_it_gives_the_same(options):
    def function(q, k, v, gain, gate, padding):
        context = rela_attention(q, k, v, key_padding_mask=padding, **options)
        return gated_rms_norm(context, gain, gate)

    padding = torch.tensor([[False] * 3 + [True] * 2, [False] * 5])
    arguments = (*qkv(torch.float32), *tensors((D,), (D,), dtype=torch.float32))
    results = []
    for f in (function, torch.compile(function, fullgraph=True, backend="aot_eager")):
        y = f(*arguments, padding)
        results.append([y, *torch.autograd.grad(y.square().sum(), arguments)])
    for eager, compiled in zip(*results):
        torch.testing.assert_close(compiled, eager, rtol=1e-5, atol=1e-5)


@needs_new_torch
@pytest.mark.parametrize(
    "options",
    [
        dict(is_causal=True, dropout_p=0.3),
        dict(attn_mask=torch.rand(T, T, generator=torch.Generator().manual_seed(1)) > 0.3, scale=0.4),
        dict(key_padding_mask=torch.tensor([[False] * 2 + [True] * 2, [False] * 4])),
    ],
    ids=lambda options: "-".join(options),
)
def test_the_registered_operators_pass_torchs_own_checks_and_give_the_same(options):
    q, k, v = tensors(*3 * [(B, H, T, D)], dtype=torch.float32)
    operator = torch.ops.fairseq_rela.rela_attention
    results = torch.library.opcheck(operator.default, (q, k, v), options)
    norm = torch.ops.fairseq_rela.gated_rms_norm
    arguments = (q, *tensors((D,), (D,), dtype=torch.float32))
    results.update({f"norm: {key}": value for key, value in torch.library.opcheck(norm.default, arguments).items()})
    assert len(results) == 8 and set(results.values()) == {"SUCCESS"}
    torch.manual_seed(0)
    expected = rela_attention(q, k, v, **options)
    torch.manual_seed(0)
    assert torch.equal(operator(q, k, v, **options), expected)
    assert torch.equal(norm(*arguments), gated_rms_norm(*arguments))
    with pytest.raises(InputError, match="are not"):
        operator(q, k[..., :3, :], v)


@needs_new_torch
def test_vmap_gives_the_same_as_the_batch():
    q, k, v = (x.detach() for x in qkv())
    gain, gate = (x.detach() for x in tensors((D,), (D,)))
    mask = torch.ones(T, S).tril().bool()

    def single(q, k, v):
        return gated_rms_norm(rela_attention(q, k, v, mask), gain, gate)

    torch.testing.assert_close(torch.func.vmap(single)(q, k, v), single(q, k, v))
    gradient = torch.func.vmap(torch.func.grad(lambda *a: single(*a).square().sum()))(q, k, v)
    whole = torch.func.grad(lambda *a: single(*a).square().sum())(q, k, v)
    torch.testing.assert_close(gradient, whole)


# -- torch alone --

BLOCKED = ("fairseq", "entmax", "omegaconf", "hydra", "numpy", "triton", "yaml", "tqdm", "regex")
ALONE = f"""
from importlib.machinery import PathFinder
find = PathFinder.find_spec
def find_spec(cls, name, *arguments):  # as where they are not installed
    return None if name.split(".")[0] in {BLOCKED} else find(name, *arguments)
PathFinder.find_spec = classmethod(find_spec)
"""


def test_torch_is_all_that_the_operator_and_the_module_need():
    code = ALONE + (
        "import fairseq_rela, torch\n"
        "from fairseq_rela.ops import rela_attention, gated_rms_norm\n"
        "from fairseq_rela.nn import RectifiedLinearAttention\n"
        "x = torch.ones(2, 3, 8)\n"
        "y, w = RectifiedLinearAttention(8, 2, batch_first=True)(x, x, x)\n"
        "y.sum().backward()\n"
        "assert y.shape == x.shape and w.shape == (2, 3, 3)\n"
        "assert gated_rms_norm(rela_attention(x, x, x), torch.ones(8), None).shape == x.shape\n"
        "import sys\n"
        f"assert not [name for name in sys.modules if name.split('.')[0] in {BLOCKED}]\n"
    )
    result = run(sys.executable, "-W", "ignore", "-c", code)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("call", ["register", "load_plugin"])
def test_without_fairseq_what_needs_it_says_so_in_one_line(call):
    code = f"{ALONE}\nfrom fairseq_rela.register import {call}\n{call}()"
    result = run(sys.executable, "-W", "ignore", "-c", code)
    last = result.stderr.strip().splitlines()[-1]
    assert result.returncode != 0 and last.startswith("ImportError: fairseq_rela needs fairseq, which is not installed")


def test_without_fairseq_the_command_says_so_in_one_line(tmp_path):
    code = (
        ALONE.replace(str(BLOCKED), "('fairseq',)")
        + "import sys; sys.argv[0] = 'rela'\n"
        + "from fairseq_rela.cli import main; sys.exit(main())"
    )
    result = run(sys.executable, "-W", "ignore", "-c", code, "attention", "x.pt", "--data", tmp_path)
    assert result.returncode == 2 and len(result.stderr.strip().splitlines()) == 1
    assert "needs fairseq, which is not installed" in result.stderr
