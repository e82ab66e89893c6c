"""The module without fairseq against the fairseq module, torch's interface, and torch's tools."""

import sys

import pytest
import torch
from conftest import ROOT
from torch import nn

from fairseq_rela.attention import build_attention
from fairseq_rela.errors import InputError
from fairseq_rela.nn import RectifiedLinearAttention

B, T, S, D, H = 2, 4, 5, 12, 3
needs_new_torch = pytest.mark.skipif(not hasattr(torch.library, "custom_op"), reason="torch before 2.4")


def make(dropout=0.0, **options):
    torch.manual_seed(0)
    module = RectifiedLinearAttention(D, H, dropout, **options).double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.uniform_(-1, 1)
    return module


def inputs(*sizes, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, B, size, dtype=torch.float64, generator=generator) for n, size in zip((T, S, S), sizes)]


PADDING = torch.tensor([[False] * 3 + [True] * 2, [False] * 5])
FORBIDDEN = torch.rand(T, S, generator=torch.Generator().manual_seed(4)) > 0.6  # MultiheadAttention: True is masked


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("padding", [None, PADDING])
@pytest.mark.parametrize("mask", [None, FORBIDDEN, torch.zeros(T, S).masked_fill(FORBIDDEN, -torch.inf)])
def test_it_is_the_attention_of_the_fairseq_model(need_weights, padding, mask):
    """With the parameters of fairseq's module, under the same names, computed on the plain path."""
    ours = make()
    theirs = build_attention("rela_g", D, H, backend="plain").double().eval()
    theirs.load_state_dict(ours.state_dict())
    query, key, value = inputs(D, D, D)
    output, weights = ours(query, key, value, key_padding_mask=padding, attn_mask=mask, need_weights=need_weights)
    want, want_weights = theirs(query, key, value, key_padding_mask=padding, attn_mask=mask)
    torch.testing.assert_close(output, want)
    if need_weights:
        torch.testing.assert_close(weights, want_weights)
    else:
        assert weights is None


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("need_weights, average", [(False, True), (True, True), (True, False)])
@pytest.mark.parametrize("single", [False, True])
def test_shapes_are_those_of_torchs_module(batch_first, need_weights, average, single):
    query, key, value = inputs(D, 8, 9)
    if single:
        query, key, value = (x[:, 0] for x in (query, key, value))
    elif batch_first:
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))
    options = dict(kdim=8, vdim=9, batch_first=batch_first)
    ours, torchs = make(**options), nn.MultiheadAttention(D, H, **options).double().eval()
    padding = PADDING[0] if single else PADDING
    call = dict(key_padding_mask=padding, need_weights=need_weights, average_attn_weights=average)
    output, weights = ours(query, key, value, attn_mask=FORBIDDEN, **call)
    want, want_weights = torchs(query, key, value, attn_mask=FORBIDDEN, **call)
    assert output.shape == want.shape
    assert (weights is None) == (want_weights is None) and (weights is None or weights.shape == want_weights.shape)
    if need_weights:  # softmax gives every allowed key a weight
        assert not weights[want_weights == 0].any() and (weights >= 0).all()


@pytest.mark.parametrize("need_weights", [False, True])
def test_the_future_is_the_mask_of_the_future(need_weights):
    module = make(batch_first=True)
    x = inputs(D)[0].transpose(0, 1)
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    want = module(x, x, x, attn_mask=future)[0]
    for mask in (None, future):
        torch.testing.assert_close(module(x, x, x, attn_mask=mask, is_causal=True, need_weights=need_weights)[0], want)


def test_a_mask_for_each_head():
    module = make()
    query, key, value = inputs(D, D, D)
    mask = torch.rand(B * H, T, S, generator=torch.Generator().manual_seed(1)) > 0.5
    _, weights = module(query, key, value, attn_mask=mask, average_attn_weights=False)
    assert not weights.flatten(0, 1)[mask].any() and weights.flatten(0, 1)[~mask].any()
    with pytest.raises(InputError, match="attn_mask"):
        module(query, key, value, attn_mask=mask[1:])


def test_a_sentence_of_padding_gives_the_bias():
    module = make()
    query, key, value = inputs(D, D, D)
    output, weights = module(query, key, value, key_padding_mask=torch.ones(B, S, dtype=torch.bool))
    assert not weights.any()
    torch.testing.assert_close(output, module.out_proj.bias.expand_as(output))


def test_dropout_only_in_training():
    module = make(dropout=0.5)
    query, key, value = inputs(D, D, D)
    for need_weights in (False, True):
        first, second = (module.eval()(query, key, value, need_weights=need_weights)[0] for _ in range(2))
        assert torch.equal(first, second)
        first, second = (module.train()(query, key, value, need_weights=need_weights)[0] for _ in range(2))
        assert not torch.equal(first, second)


def test_half_precision():
    module = make().bfloat16()
    query, key, value = (x.bfloat16() for x in inputs(D, D, D))
    output, weights = module(query, key, value)
    assert output.dtype == torch.bfloat16 and weights.dtype == torch.float32
    exact = module.double()(*(x.double() for x in (query, key, value)))[0]
    assert (output.double() - exact).norm() < 0.03 * exact.norm()


def test_start_values_are_those_of_torchs_module_and_the_paper():
    torch.manual_seed(0)
    ours, torchs = RectifiedLinearAttention(256, 4), nn.MultiheadAttention(256, 4)
    joint = torch.cat([ours.q_proj.weight, ours.k_proj.weight, ours.v_proj.weight])
    for mine, theirs in ((joint, torchs.in_proj_weight), (ours.out_proj.weight, torchs.out_proj.weight)):
        assert float(mine.abs().max()) == pytest.approx(float(theirs.abs().max()), rel=0.01)
        assert float(mine.std()) == pytest.approx(float(theirs.std()), rel=0.02)
    assert (ours.attn_norm.weight == 1).all() and ours.attn_norm.gate.abs().max() <= (3 / 256) ** 0.5
    assert not ours.out_proj.bias.any() and RectifiedLinearAttention(4, 2, bias=False).q_proj.bias is None
    assert RectifiedLinearAttention(4, 2, dtype=torch.float64).attn_norm.gate.dtype == torch.float64


@pytest.mark.parametrize("arguments, message", [((10, 3), "do not divide"), ((8, 2, 1.0), "dropout")])
def test_wrong_sizes_give_one_line(arguments, message):
    with pytest.raises(InputError, match=message):
        RectifiedLinearAttention(*arguments)


# -- torch's tools --


@needs_new_torch
@pytest.mark.parametrize("options", [{}, dict(need_weights=False), dict(need_weights=False, is_causal=True)])
def test_compiled_without_a_break_it_gives_the_same(options):
    module = make(batch_first=True).float()
    query = inputs(D)[0].float().transpose(0, 1).requires_grad_()
    results = []
    for f in (module, torch.compile(module, fullgraph=True, backend="aot_eager")):
        y = f(query, query, query, key_padding_mask=PADDING[:, 1:], **options)[0]
        results.append([y, *torch.autograd.grad(y.square().sum(), (query, *module.parameters()))])
    for eager, compiled in zip(*results):
        torch.testing.assert_close(compiled, eager, rtol=1e-5, atol=1e-5)


@needs_new_torch
@pytest.mark.parametrize("need_weights", [False, True])
def test_exported_it_gives_the_same(need_weights):
    module = make()
    arguments = tuple(inputs(D, D, D))
    options = dict(key_padding_mask=PADDING, attn_mask=FORBIDDEN, need_weights=need_weights)
    exported = torch.export.export(module, arguments, options)
    torch.testing.assert_close(exported.module()(*arguments, **options)[0], module(*arguments, **options)[0])


@pytest.mark.parametrize("training", [False, True])
def test_the_encoder_of_the_example_uses_it_and_ignores_padding(training):
    """In evaluation torch's layer would compute softmax by a kernel of its own, from the weights of its attention."""
    sys.path.insert(0, str(ROOT / "examples" / "encoder"))
    from encoder import rela_encoder

    torch.manual_seed(0)
    encoder = rela_encoder(2, D, H, dropout=0.0).double().train(training)
    for layer in encoder.layers:
        for parameter in layer.self_attn.parameters():
            nn.init.uniform_(parameter, -1, 1)
    seen = []
    for layer in encoder.layers:
        layer.self_attn.register_forward_hook(lambda module, arguments, output: seen.append(output[0]))
    x = inputs(D, D)[1].transpose(0, 1)  # (B, S, D)
    y = encoder(x, src_key_padding_mask=PADDING)
    assert len(seen) == 2 and seen[0].shape == (B, S, D)
    short = encoder(x[:1, :3])
    torch.testing.assert_close(y[:1, :3], short)
    alone = encoder.layers[0].self_attn(x, x, x, key_padding_mask=PADDING)[0]
    torch.testing.assert_close(seen[0], alone)
    future = nn.Transformer.generate_square_subsequent_mask(S, dtype=torch.float64)
    y = encoder(x, mask=future, is_causal=True)
    torch.testing.assert_close(y[:, :2], encoder(x[:, :2], mask=future[:2, :2], is_causal=True))
