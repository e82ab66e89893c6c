"""The operator of compiled code for long inputs against the eager attention, finite differences and torch's checks."""

import pytest
import torch

from fairseq_rela.kernels import compiled_attention, relu_attention
from fairseq_rela.ops import rela_attention

B, H, T, S, D = 2, 3, 4, 5, 6
OPERATOR = compiled_attention._OPERATOR
pytestmark = pytest.mark.skipif(OPERATOR is None, reason="torch before 2.4")
PADDING = torch.tensor([[False] * 3 + [True] * 2, [False] * 5])
MASK = torch.rand(T, S, generator=torch.Generator().manual_seed(1)) > 0.3
OPTIONS = [
    {},
    {"is_causal": True, "scale": 0.7},
    {"attn_mask": MASK, "key_padding_mask": PADDING},
    {"attn_mask": torch.zeros(B, 1, T, S).masked_fill(~MASK, -torch.inf)},
]


@pytest.fixture(autouse=True)
def tiles_of_three_queries(monkeypatch):
    """The second tile has one query, so that uneven tiles are tested too."""
    monkeypatch.setattr(relu_attention, "TILED_FROM", 0)
    monkeypatch.setattr(relu_attention, "CACHED", 0)
    monkeypatch.setattr(relu_attention, "TILE", 3 * H * S * 8)
    torch._dynamo.reset()


def inputs(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    shapes = (B, H, T, D), (B, H, S, D), (B, H, S, 7), (H,)
    return [torch.randn(shape, dtype=dtype, generator=generator).requires_grad_() for shape in shapes]


def operators(function, *arguments):
    """Return the names of the operators that compiled code calls, forward and backward, and its result."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func

    names = []

    def note(graph, example_inputs):
        names.extend(str(node.target) for node in graph.graph.nodes)
        return make_boxed_func(graph.forward)

    backend = aot_autograd(fw_compiler=note, bw_compiler=note)
    result = torch.compile(function, fullgraph=True, backend=backend)(*arguments)
    result.square().sum().backward()
    return [name for name in names if name.startswith("fairseq_rela")], result


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
def test_compiled_code_calls_one_operator_and_gives_the_same(options):
    arguments, copies = inputs(), inputs()

    def function(q, k, v, threshold):
        return rela_attention(q, k, v, threshold=threshold, **options)

    expected = function(*arguments)
    expected.square().sum().backward()
    called, result = operators(function, *copies)
    assert called == ["fairseq_rela.tiled_attention.default", "fairseq_rela.tiled_attention_backward.default"]
    torch.testing.assert_close(result, expected)
    for ours, theirs in zip(copies, arguments):
        torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("options", OPTIONS[:3], ids=lambda options: "-".join(options) or "plain")
def test_gradients_equal_finite_differences(dropout, options):
    seed = torch.tensor(5) if dropout else None
    masks = options.get("attn_mask"), options.get("key_padding_mask")

    def function(q, k, v, threshold):
        return OPERATOR(q, k, v, *masks, threshold, seed, 0.4, options.get("is_causal", False), dropout)

    assert torch.autograd.gradcheck(function, inputs())


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
def test_the_operator_passes_torchs_checks(options):
    q, k, v, threshold = inputs(torch.float32)
    masks = options.get("attn_mask"), options.get("key_padding_mask")
    causal = options.get("is_causal", False)
    for last in ((threshold, torch.tensor(3), 0.4, causal, 0.3), (None, None, 0.4, causal, 0.0)):
        results = torch.library.opcheck(OPERATOR, (q, k, v, *masks, *last))
        assert len(results) == 4 and set(results.values()) == {"SUCCESS"}


def test_dropout_of_compiled_code_differs_between_calls_and_repeats_with_the_seed():
    q, k, v, _ = (x.detach() for x in inputs())
    function = torch.compile(lambda: rela_attention(q, k, v, dropout_p=0.5), fullgraph=True, backend="aot_eager")
    torch.manual_seed(1)
    first, second = function(), function()
    torch.manual_seed(1)
    assert torch.equal(function(), first) and not torch.equal(first, second)
    weights = torch.ones(1, 1, 200, 4)
    function = torch.compile(
        lambda: rela_attention(*3 * [weights], dropout_p=0.25), fullgraph=True, backend="aot_eager"
    )
    deviation = (0.25 / 0.75 / 200) ** 0.5 / 200**0.5  # of the mean of 200 independent rows, weights 2 and values 1
    assert abs(function()[..., 0].mean() / 400 - 1) < 5 * deviation


def test_short_inputs_and_masks_with_a_gradient_are_compositions(monkeypatch):
    mask = torch.zeros(T, S, dtype=torch.float64, requires_grad=True)
    called, _ = operators(rela_attention, *inputs()[:3], mask)
    assert called == [] and mask.grad.any()
    monkeypatch.setattr(relu_attention, "TILED_FROM", S + 1)
    torch._dynamo.reset()
    called, _ = operators(rela_attention, *inputs()[:3])
    assert called == []


def test_an_exported_program_does_not_need_this_package():
    class Attention(torch.nn.Module):
        def forward(self, q, k, v):
            return rela_attention(q, k, v)

    arguments = tuple(x.detach() for x in inputs()[:3])
    program = torch.export.export(Attention(), arguments)
    assert "fairseq_rela" not in str(program.graph)
    torch.testing.assert_close(program.module()(*arguments), rela_attention(*arguments))
