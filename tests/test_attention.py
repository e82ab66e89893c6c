"""The attention module against the released code's arrays and an independent formula, on every computation path."""

import copy
import math
import types
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.modules import MultiheadAttention
from torch import nn

from fairseq_rela.attention import VariantAttention, announcement, attention_name, build_attention
from fairseq_rela.errors import InputError
from fairseq_rela.kernels import backends
from fairseq_rela.variants import VARIANTS

REFERENCE = Path(__file__).parent / "reference"
SITES = ("encoder", "decoder", "cross")
T, B, S, D, H = 5, 3, 6, 16, 4


def module(name, site="encoder", dtype=torch.float64, seed=0, **options):
    torch.manual_seed(seed)
    attention = build_attention(
        name, D, H, self_attention=site != "cross", encoder_decoder_attention=site == "cross", **options
    )
    with torch.no_grad():
        for parameter in attention.parameters():
            if parameter.dim() == 1:
                parameter.uniform_(-1, 1)
    return attention.to(dtype).eval()


def tolerance(name):
    """Return tolerances; fairseq computes softmax in float32 even for float64 scores."""
    return {"atol": 1e-6, "rtol": 1e-4} if name == "softmax" else {"atol": 1e-10, "rtol": 1e-8}


def by_formula(m, name, query, memory, forbidden):
    """Compute one head at a time without fairseq: (B, T, D), (B, S, D), (B, T, S) where True is forbidden."""
    q, k, v = (
        torch.nn.functional.linear(x, p.weight, p.bias)
        for x, p in ((query, m.q_proj), (memory, m.k_proj), (memory, m.v_proj))
    )
    size = D // H
    contexts, all_weights = [], []
    for h in range(H):
        part = slice(h * size, (h + 1) * size)
        scores = q[..., part] @ k[..., part].transpose(1, 2) / math.sqrt(size)
        weights = torch.zeros_like(scores)
        for b in range(scores.shape[0]):
            for t in range(scores.shape[1]):
                keys = ~forbidden[b, t]
                if keys.any():
                    row = scores[b, t, keys].expand(1, H, 1, -1)
                    weights[b, t, keys] = getattr(m, "attn_weights", VARIANTS[name].weights)(row)[0, h, 0]
        contexts.append(weights @ v[..., part])
        all_weights.append(weights)
    z = torch.cat(contexts, -1)
    if VARIANTS[name].norm is not None:
        g, w = m.attn_norm.weight, getattr(m.attn_norm, "gate", None)
        centred = z - z.mean(-1, keepdim=True) if name == "rela_g_layernorm" else z
        y = g * centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-8).sqrt()
        z = y if w is None else y * torch.sigmoid(w * z)
    return torch.nn.functional.linear(z, m.out_proj.weight, m.out_proj.bias), torch.stack(all_weights)


def inputs(site, dtype=torch.float64):
    torch.manual_seed(1)
    query = torch.randn(T, B, D, dtype=dtype)
    memory = torch.randn(S, B, D, dtype=dtype) if site == "cross" else query
    pad = torch.zeros(B, memory.shape[0], dtype=torch.bool)
    if site != "decoder":
        pad[1, -2:] = True
        pad[2, :1] = True
    future = torch.triu(torch.full((T, T), -torch.inf, dtype=dtype), 1) if site == "decoder" else None
    return query, memory, pad, future


@pytest.mark.parametrize("file", sorted(REFERENCE.glob("rela_g_*.npz")), ids=lambda f: f.stem)
@pytest.mark.parametrize("need_weights", [True, False])
def test_outputs_equal_the_released_code(file, need_weights):
    r = {key: torch.tensor(value) for key, value in np.load(file).items()}
    heads, x = int(r["num_heads"]), r["query"]
    dim, cross = x.shape[-1], "memory" in r
    m = build_attention("rela_g", dim, heads, self_attention=not cross, encoder_decoder_attention=cross).eval()
    if cross:
        maps = [(r[f"var.{n}_map.W_0_0"], r[f"var.{n}_map.b_0"]) for n in "qkv"]
        grads = [(r[f"grad.{n}_map.W_0_0"], r[f"grad.{n}_map.b_0"]) for n in "qkv"]
    else:
        maps = list(zip(r["var.qkv_map.W_0_0"].split(dim, 1), r["var.qkv_map.b_0"].split(dim)))
        grads = list(zip(r["grad.qkv_map.W_0_0"].split(dim, 1), r["grad.qkv_map.b_0"].split(dim)))
    projections = (m.q_proj, m.k_proj, m.v_proj, m.out_proj)
    with torch.no_grad():
        for p, (weight, bias) in zip(projections, [*maps, (r["var.o_map.W_0_0"], r["var.o_map.b_0"])]):
            p.weight.copy_(weight.t())
            p.bias.copy_(bias)
        m.attn_norm.weight.copy_(r["var.post.scale"])
        m.attn_norm.gate.copy_(r["var.post.gate"])
    query = x.transpose(0, 1).clone().requires_grad_()
    memory = r["memory"].transpose(0, 1).clone().requires_grad_() if cross else query
    future = torch.triu(torch.full((x.shape[1],) * 2, -torch.inf), 1) if "causal" in file.stem else None
    output, weights = m(
        query,
        memory,
        memory,
        key_padding_mask=r.get("pad_mask"),
        attn_mask=future,
        need_weights=need_weights,
        need_head_weights=need_weights,
    )
    (output.transpose(0, 1) * r["cotangent"]).sum().backward()

    def close(got, want):
        assert (got - want).abs().max() <= 1e-5 * want.abs().max().clamp_min(1e-6)

    close(output.transpose(0, 1), r["output"])
    if need_weights:
        close(weights.transpose(0, 1), r["weights"])
    close(query.grad.transpose(0, 1), r["grad_query"])
    if cross:
        close(memory.grad.transpose(0, 1), r["grad_memory"])
    for p, (weight, bias) in zip(projections, [*grads, (r["grad.o_map.W_0_0"], r["grad.o_map.b_0"])]):
        close(p.weight.grad.t(), weight)
        # the key bias of self-attention gets a small gradient; measure it by the size of the others
        assert (p.bias.grad - bias).abs().max() <= 1e-5 * r["grad.o_map.b_0"].abs().max().clamp_min(1.0)
    close(m.attn_norm.weight.grad, r["grad.post.scale"])
    close(m.attn_norm.gate.grad, r["grad.post.gate"])


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("name", VARIANTS)
def test_outputs_equal_an_independent_formula(name, site):
    m = module(name, site)
    query, memory, pad, future = inputs(site)
    output, weights = m(query, memory, memory, key_padding_mask=pad, attn_mask=future, need_head_weights=True)
    forbidden = pad[:, None, :].expand(B, T, -1)
    if future is not None:
        forbidden = forbidden | (future < 0)
    want, want_weights = by_formula(m, name, query.transpose(0, 1), memory.transpose(0, 1), forbidden)
    torch.testing.assert_close(output.transpose(0, 1), want)
    if name == "softmax":  # B50: fairseq's fast path averages the heads away
        torch.testing.assert_close(weights, want_weights.mean(0))
    else:
        torch.testing.assert_close(weights, want_weights)
        averaged = m(query, memory, memory, key_padding_mask=pad, attn_mask=future, need_weights=True)[1]
        torch.testing.assert_close(averaged, want_weights.mean(0))
        assert m(query, memory, memory, need_weights=False)[1] is None


def test_softmax_equals_fairseqs_own_module():
    m = build_attention("softmax", D, H, self_attention=True)
    assert type(m) is MultiheadAttention and attention_name(m) == "softmax" and not m.skip_embed_dim_check


@pytest.mark.parametrize("name", [n for n in VARIANTS if n != "softmax"])
def test_parameter_names_are_those_of_fairseq_and_the_norm(name):
    names = {k for k, _ in build_attention(name, D, H).named_parameters()}
    theirs = {k for k, _ in MultiheadAttention(D, H).named_parameters()}
    norm = {"attn_norm.weight"} if VARIANTS[name].norm else set()
    gate = {"attn_norm.gate"} if name.startswith("rela_g") else set()
    weights = VARIANTS[name].make_weights(H, D // H)
    own = {f"attn_weights.{k}" for k, _ in weights.named_parameters()} if isinstance(weights, nn.Module) else set()
    assert names == theirs | norm | gate | own


@pytest.mark.parametrize("name", VARIANTS)
def test_step_by_step_with_reordered_beams_equals_parallel(name):
    """B03, B27: cached decoder self-attention; the cache is reordered together with the beams."""
    m = module(name, "decoder")
    torch.manual_seed(2)
    x = torch.randn(T, 4, D, dtype=torch.float64)
    orders = [torch.tensor(order) for order in ([0, 0, 1, 3], [2, 1, 1, 0], [3, 2, 1, 0], [0, 1, 2, 3])]
    state, rows = {}, torch.arange(4).expand(T, 4).clone()  # rows[t, b]: the sentence whose step t is in row b now
    for t in range(T):
        history = torch.stack([x[s, rows[s]] for s in range(t)] + [x[t]])  # (t+1, 4, D)
        future = torch.triu(torch.full((t + 1, t + 1), -torch.inf, dtype=torch.float64), 1)
        want = m(history, history, history, attn_mask=future)[0][-1]
        got = m(x[t : t + 1], x[t : t + 1], x[t : t + 1], incremental_state=state)[0][0]
        torch.testing.assert_close(got, want, **tolerance(name))
        if t < T - 1:
            m.reorder_incremental_state(state, orders[t])
            rows[: t + 1] = rows[: t + 1, orders[t]]


@pytest.mark.parametrize("name", VARIANTS)
def test_cached_cross_attention_equals_parallel(name):
    m = module(name, "cross")
    query, memory, pad, _ = inputs("cross")
    want = m(query, memory, memory, key_padding_mask=pad)[0]
    state = {}
    for t in range(T):
        got = m(query[t : t + 1], memory, memory, key_padding_mask=pad, incremental_state=state, static_kv=True)[0]
        torch.testing.assert_close(got[0], want[t], **tolerance(name))


@pytest.mark.parametrize("name", VARIANTS)
def test_beams_can_share_one_copy_of_the_source(name):
    """With set_beam_size fairseq caches keys and values once per sentence, not once per beam."""
    beam = 2
    m = module(name, "cross")
    torch.manual_seed(3)
    query = torch.randn(1, B * beam, D, dtype=torch.float64)
    memory = torch.randn(S, B, D, dtype=torch.float64).repeat_interleave(beam, dim=1)
    pad = torch.zeros(B, S, dtype=torch.bool)
    pad[1, -2:] = True
    pad = pad.repeat_interleave(beam, dim=0)
    want, want_weights = m(query, memory, memory, key_padding_mask=pad, need_head_weights=True)
    m.set_beam_size(beam)
    got, weights = m(
        query, memory, memory, key_padding_mask=pad, incremental_state={}, static_kv=True, need_head_weights=True
    )
    torch.testing.assert_close(got, want)
    if name != "softmax":
        torch.testing.assert_close(weights, want_weights)


def test_newly_built_modules_do_not_share_a_cache():
    """B27: a deep copy has the id of the original; each newly built module has its own id."""
    first, second = module("rela_g", "decoder"), module("rela_g", "decoder", seed=1)
    x, state = torch.randn(1, 2, D, dtype=torch.float64), {}
    first(x, x, x, incremental_state=state)
    alone = second(x, x, x, incremental_state={})[0]
    torch.testing.assert_close(second(x, x, x, incremental_state=state)[0], alone)


@pytest.mark.parametrize("site", ("encoder", "cross"))
@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("side", ("left", "right"))
def test_padding_does_not_change_the_output(name, site, side):
    """B26: a sentence alone, left-padded or right-padded in a batch; padded keys hold large values."""
    m = module(name, site)
    query, memory, _, _ = inputs(site)
    alone = memory[:3, :1]
    rest = 100 * torch.randn(2, 1, D, dtype=torch.float64)
    padded = torch.cat([rest, alone] if side == "left" else [alone, rest])
    pad = torch.zeros(1, 5, dtype=torch.bool)
    pad[0, :2] = side == "left"
    pad[0, 3:] |= side == "right"
    q_alone = query[:, :1] if site == "cross" else alone
    want = m(q_alone, alone, alone)[0]
    q_padded = query[:, :1] if site == "cross" else padded
    got = m(q_padded, padded, padded, key_padding_mask=pad)[0]
    if site == "encoder":
        got = got[2:] if side == "left" else got[:3]
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("name", [n for n in VARIANTS if n != "softmax"])
def test_fully_masked_rows_give_zeros(name):
    m = module(name, "cross", dropout=0.0)
    query, memory, pad, _ = inputs("cross")
    pad[0] = True
    query.requires_grad_()
    output, weights = m(query, memory, memory, key_padding_mask=pad, need_head_weights=True)
    output.square().sum().backward()
    assert (weights[:, 0] == 0).all()
    torch.testing.assert_close(output[:, 0], m.out_proj.bias.expand(T, D))  # z = 0
    assert query.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in m.parameters())


def cpu_computes_in_half():
    try:
        return bool((torch.ones(1, 1).half() @ torch.ones(1, 1).half()).isfinite())
    except RuntimeError:
        return False


HALF = pytest.param(
    torch.float16, marks=pytest.mark.skipif(not cpu_computes_in_half(), reason="this torch has no float16 on CPU")
)


@pytest.mark.parametrize("size", [1.0, 1e4])
@pytest.mark.parametrize("dtype", [HALF, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", [n for n in VARIANTS if n != "softmax"])
def test_half_precision_and_large_inputs_stay_finite(name, dtype, size):
    """B40: for inputs of 1e4 the scores exceed 65504, the limit of float16, a thousand times."""
    torch.manual_seed(0)
    m = build_attention(name, 512, 8, self_attention=True).to(dtype)
    x = (size * torch.randn(9, 2, 512)).clamp(-5e4, 5e4).to(dtype).requires_grad_()
    pad = torch.zeros(2, 9, dtype=torch.bool)
    pad[1, -3:] = True
    output, weights = m(x, x, x, key_padding_mask=pad, need_head_weights=True)
    output.float().mean().backward()
    assert output.dtype == dtype and weights.dtype == torch.float32
    assert output.isfinite().all() and weights.isfinite().all() and x.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in m.parameters())


@pytest.mark.skipif(not cpu_computes_in_half(), reason="this torch has no float16 on CPU")
def test_long_sentences_stay_finite_in_float16():
    torch.manual_seed(0)
    m = build_attention("rela_g", 64, 4, self_attention=True).half()
    x = (30 * torch.randn(1024, 1, 64)).half().requires_grad_()
    output = m(x, x, x, need_weights=False)[0]
    output.float().sum().backward()
    assert output.isfinite().all() and x.grad.isfinite().all()


@pytest.mark.parametrize("name", [n for n in VARIANTS if n != "softmax"])
def test_half_precision_agrees_with_float32(name):
    m = module(name, dtype=torch.float32)
    query, _, pad, _ = inputs("encoder", torch.float32)
    want = m(query, query, query, key_padding_mask=pad)[0]
    got = m.bfloat16()(query.bfloat16(), None, None, key_padding_mask=pad, incremental_state=None, static_kv=False)
    torch.testing.assert_close(got[0].float(), want, atol=0.15, rtol=0.1)


def test_autocast_keeps_the_scores_in_float32():
    m = module("rela_g", dtype=torch.float32)
    query, _, pad, _ = inputs("encoder", torch.float32)
    want = m(query, query, query, key_padding_mask=pad)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = m(query.bfloat16().float(), query, query, key_padding_mask=pad)[0]
    with torch.no_grad():
        rounded = m(query.bfloat16().float(), query, query, key_padding_mask=pad)[0]
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, rounded)
    torch.testing.assert_close(got, want, atol=0.1, rtol=0.1)


@pytest.mark.parametrize("name", [n for n in VARIANTS if n != "softmax"])
def test_masks_of_every_kind_give_the_same_output(name):
    """Minus infinity, -1e8 (fairseq's encoder layer) and booleans mean the same."""
    m = module(name)
    query, _, _, _ = inputs("encoder")
    forbidden = torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
    want = m(query, query, query, attn_mask=torch.zeros(T, T).masked_fill(forbidden, -torch.inf))[0]
    for mask in (forbidden, torch.zeros(T, T).masked_fill(forbidden, -1e8)):
        torch.testing.assert_close(m(query, query, query, attn_mask=mask)[0], want)


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("name", VARIANTS)
def test_every_parameter_gets_a_gradient(name, site):
    m = module(name, site).train()
    query, memory, pad, future = inputs(site)
    output = m(query, memory, memory, key_padding_mask=pad, attn_mask=future)[0]
    (output * torch.randn_like(output)).sum().backward()
    without = [n for n, p in m.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    # adding a constant to all scores of a row does not change normalised rows
    assert without in ([], ["k_proj.bias"]) or name not in ("softmax", "sparsemax", "entmax15")
    assert name in ("softmax", "sparsemax", "entmax15") or without == []
    assert all(p.grad is not None for p in m.parameters())


def test_weights_are_returned_before_dropout_and_dropout_acts_on_them():
    m = module("rela_g", dropout=0.5)
    query, _, _, _ = inputs("encoder")
    want_output, want = m(query, query, query, need_head_weights=True)
    m.train()
    torch.manual_seed(4)
    output, weights = m(query, query, query, need_head_weights=True)
    torch.testing.assert_close(weights, want)
    assert not torch.allclose(output, want_output)


def test_deepcopy_makes_no_second_copy_of_the_norm():
    m = module("rela_g")
    assert set(copy.deepcopy(m).state_dict()) == set(m.state_dict())


RECTIFIED = [name for name, variant in VARIANTS.items() if variant.is_relu]


def values_and_gradients(m, site, dtype=torch.float64, autocast=False, **masks):
    query, memory, pad, future = inputs(site, dtype)
    query = query.clone().requires_grad_()
    memory = memory.clone().requires_grad_() if site == "cross" else query
    m.zero_grad()
    masks = {"key_padding_mask": pad, "attn_mask": future, **masks}
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        output, weights = m(query, memory, memory, need_weights=False, static_kv=site == "cross", **masks)
    assert weights is None
    torch.manual_seed(6)
    (output * torch.randn(output.shape).to(dtype)).sum().backward()
    return [output, query.grad, memory.grad, *(p.grad for p in m.parameters())]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("name", RECTIFIED)
def test_fused_equals_plain(name, site, dtype):
    fused, plain = (module(name, site, dtype, backend=backend) for backend in ("fused", "plain"))
    ours, theirs = (values_and_gradients(m, site, dtype) for m in (fused, plain))
    assert (fused.last_backend, plain.last_backend) == ("cpu", "plain")
    tolerance = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 1e-2}[dtype]
    for a, b in zip(ours, theirs):
        assert a.dtype == b.dtype
        assert (a - b).abs().max() <= tolerance * b.abs().max().clamp_min(1e-3)


@pytest.mark.parametrize("name", RECTIFIED)
def test_fused_equals_plain_under_autocast(name):
    fused, plain = (module(name, dtype=torch.float32, backend=backend) for backend in ("fused", "plain"))
    ours, theirs = (values_and_gradients(m, "encoder", torch.float32, autocast=True) for m in (fused, plain))
    assert fused.last_backend == "cpu"
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_fused_equals_plain_with_masks_of_every_kind():
    fused, plain = (module("rela_g", backend=backend) for backend in ("fused", "plain"))
    forbidden = torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
    numbers = torch.randn(T, T, generator=torch.Generator().manual_seed(0))
    masks = (
        *(None, forbidden, numbers, torch.zeros(T, T).masked_fill(forbidden, -1e8)),
        torch.zeros(T, T).masked_fill(forbidden, -torch.inf).half(),
    )
    for mask in masks:
        for pad in (None, torch.zeros(B, T, dtype=torch.uint8), torch.eye(B, T), torch.ones(B, T, dtype=torch.bool)):
            given = dict(attn_mask=mask, key_padding_mask=pad)
            ours, theirs = (values_and_gradients(m, "encoder", **given) for m in (fused, plain))
            for a, b in zip(ours, theirs):
                torch.testing.assert_close(a, b)
    assert fused.last_backend == "cpu"


def test_fused_dropout_has_the_same_mean_as_plain_dropout():
    """ReLU attention without a norm is used, as rela_g is not linear in the weights."""
    m = module("relu", dropout=0.3).train()
    query, _, pad, _ = inputs("encoder")
    with torch.no_grad():
        want = m.eval()(query, query, query, key_padding_mask=pad, need_weights=False)[0]
        m.train()
        draws = torch.stack([m(query, query, query, key_padding_mask=pad, need_weights=False)[0] for _ in range(3000)])
    error = draws.std(0) / len(draws) ** 0.5
    assert m.last_backend == "cpu" and (draws.std(0) > 0).all()
    assert ((draws.mean(0) - want).abs() <= 5 * error).all()
    m.eval()
    m.dropout_module.apply_during_inference = True  # fairseq's --retain-dropout
    assert not torch.equal(m(query, query, query, need_weights=False)[0], m(query, query, query, need_weights=False)[0])


def test_step_by_step_equals_the_fused_path():
    m = module("rela_g", "decoder", backend="fused")
    query, _, _, future = inputs("decoder")
    want = m(query, query, query, attn_mask=future, need_weights=False)[0]
    assert m.last_backend == "cpu"
    state = {}
    for t in range(T):
        step = query[t : t + 1]
        torch.testing.assert_close(m(step, step, step, incremental_state=state, need_weights=False)[0][0], want[t])
        assert m.last_backend == "plain"


def test_a_step_has_a_gradient():
    """The gradient of the second position with the cache equals that of one pass."""
    m = module("rela_g", "decoder")
    query, _, _, future = inputs("decoder")
    query.requires_grad_()
    (want,) = torch.autograd.grad(m(query, query, query, attn_mask=future)[0][1].sum(), query)
    state = {}
    m(query[:1], query[:1], query[:1], incremental_state=state)
    (got,) = torch.autograd.grad(m(query[1:2], None, None, incremental_state=state)[0].sum(), query)
    torch.testing.assert_close(got, want)


def test_reading_the_autocast_state_gives_no_warning():
    m = module("rela_g", dtype=torch.float32)
    query = inputs("encoder", torch.float32)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        m(query, query, query)


def plain_call(m, **options):
    x = torch.randn(T, B, D, dtype=torch.float64)
    m(x, x, x, **{"need_weights": False, **options})
    return m.last_backend


@pytest.mark.parametrize(
    "options",
    [
        dict(need_weights=True),
        dict(need_head_weights=True),
        dict(before_softmax=True),
        dict(incremental_state={}),
        dict(attn_mask=torch.zeros(T, T, dtype=torch.float64, requires_grad=True)),
        dict(key_padding_mask=torch.tensor(0)),
    ],
)
def test_calls_that_no_kernel_supports_use_the_plain_path(options):
    assert plain_call(module("rela_g"), **options) == "plain"
    assert plain_call(module("rela_g")) == "cpu"


def test_attentions_without_a_kernel_use_the_plain_path():
    for name in VARIANTS:
        if name not in (*RECTIFIED, "softmax"):
            assert plain_call(module(name)) == "plain"
    assert plain_call(module("rela_g", backend="plain")) == "plain"
    shared = module("rela_g", "cross")
    shared.set_beam_size(3)  # fairseq then takes each third sentence's keys
    assert plain_call(shared, incremental_state={}, static_kv=True) == "plain"
    traced = module("rela_g")
    traced.prepare_for_onnx_export_()
    assert plain_call(traced) == "plain"


def test_fused_is_refused_where_no_kernel_exists():
    for name in VARIANTS:
        if name not in (*RECTIFIED, "softmax"):
            with pytest.raises(InputError, match=f"fused: attention {name} has no kernel"):
                module(name, backend="fused")
    for option in ("add_bias_kv", "add_zero_attn"):
        with pytest.raises(InputError, match="no kernel for add_bias_kv"):
            module("rela_g", backend="fused", **{option: True})
    with pytest.raises(InputError, match="--rela-backend fast: choose one of auto, fused, plain"):
        module("rela_g", backend="fast")
    with pytest.raises(InputError, match="fused: no kernel has a gradient for the attention mask"):
        plain_call(module("rela_g", backend="fused"), attn_mask=torch.zeros(T, T, requires_grad=True))
    with pytest.raises(InputError, match="fused: no kernel for the device meta"):
        x = torch.randn(T, B, D, device="meta")
        module("rela_g", backend="fused", dtype=torch.float32).to("meta")(x, x, x, need_weights=False)


def test_wrong_masks_are_refused_by_fairseq_itself():
    with pytest.raises(AssertionError):
        plain_call(module("rela_g"), key_padding_mask=torch.zeros(B, T + 1, dtype=torch.bool))
    with pytest.raises(RuntimeError):
        plain_call(module("rela_g"), attn_mask=torch.zeros(T, T + 1))


def test_the_backend_is_logged_once_and_only_in_training(caplog, monkeypatch):
    monkeypatch.setattr(announcement, "_announced", set())
    with caplog.at_level("INFO", logger="fairseq_rela.attention"):
        plain_call(module("rela_g"))
        assert not caplog.messages
        for _ in range(2):
            plain_call(module("rela_g").train())
            plain_call(module("rela_g").train(), need_weights=True)
        plain_call(module("rela_g", backend="plain").train())
    assert caplog.messages == ["attention: computed by the kernel cpu", "attention: computed by plain PyTorch"]


def test_supported_calls_run_a_kernel_on_a_gpu(monkeypatch):
    """The results of the kernels themselves are tested in triton_checks.py."""
    query = types.SimpleNamespace(device=torch.device("cuda"), dtype=torch.float16)
    future = torch.triu(torch.full((T, T), -torch.inf), 1)
    why = "on a GPU only the decoder's mask of the future has a kernel"
    assert backends.find(query, 64, future) == (None, why)
    monkeypatch.setattr(backends.gpu, "_missing", lambda device: "Triton is not installed")
    assert backends.find(query, 64, None) == (None, "Triton is not installed")
    monkeypatch.setattr(backends.gpu, "_missing", lambda device: None)
    monkeypatch.setattr(backends, "_triton", lambda: "the kernel")
    assert backends.find(query, 64, None) == ("the kernel", "")
    assert backends.find(query, 64, backends.mark_future(future)) == ("the kernel", "")
    assert backends.find(query, 512, None)[0] is None  # heads that are too large
    double = types.SimpleNamespace(device=torch.device("cuda"), dtype=torch.float64)
    assert backends.find(double, 64, None)[0] is None
    other = types.SimpleNamespace(device=torch.device("meta"), dtype=torch.float32)
    assert backends.find(other, 64, None) == (None, "no kernel for the device meta")


def test_the_norm_is_that_of_the_released_code():
    """B28: the norm is over the concatenated heads, before the output projection, with per-channel vectors."""
    m = module("rela_g")
    assert m.attn_norm.weight.shape == m.attn_norm.gate.shape == (D,)
    assert isinstance(m, VariantAttention)
    query, _, _, _ = inputs("encoder")
    before = m(query, query, query)[0]
    with torch.no_grad():
        m.v_proj.weight.mul_(7)
        m.v_proj.bias.mul_(7)
        m.attn_norm.gate.div_(7)
    torch.testing.assert_close(m(query, query, query)[0], before, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("nonsense", 16, 4), "no such variant"),
        (("rela_g", 16, 3), "do not divide"),
        (("rela_g", 16, 0), "do not divide"),
        (("rela_g", 0, 4), "do not divide"),
    ],
)
def test_unsupported_options_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        build_attention(*arguments)


def test_dropout_must_be_a_probability():
    with pytest.raises(InputError, match="dropout 1.5"):
        build_attention("rela_g", 16, 4, dropout=1.5)


def test_keys_and_values_may_have_other_sizes():
    m = build_attention("rela_g", 16, 4, kdim=6, vdim=10, encoder_decoder_attention=False)
    output, _ = m(torch.randn(2, 3, 16), torch.randn(5, 3, 6), torch.randn(5, 3, 10))
    assert output.shape == (2, 3, 16)
