"""TorchScript, quantization and torch.compile of the models: what fairseq's own Transformer does with them as well."""

import io

import pytest
import torch
from conftest import make_model, make_task
from fairseq.models.transformer import TransformerModelBase
from fairseq.sequence_generator import SequenceGenerator
from test_language_model import make_lm
from test_models import random_batch
from torch import nn
from torch.nn.functional import relu

from fairseq_rela import functional
from fairseq_rela.attention import build_attention
from fairseq_rela.attention.scripted_weights import scripted_weights
from fairseq_rela.errors import InputError
from fairseq_rela.norms import RMSNorm
from fairseq_rela.peers import LearntEntmax
from fairseq_rela.variants import VARIANTS, register_variant

D, H = 16, 4
SMALL = dict(encoder_layers=1, decoder_layers=1)
NEW = hasattr(torch.library, "custom_op")  # torch 2.4
needs_new_torch = pytest.mark.skipif(not NEW, reason="the torch.compile of this torch is not supported")


def fairseqs_own(model):
    """Return fairseq's own Transformer with the parameters of a softmax model, in evaluation mode."""
    own = TransformerModelBase.build_model(model.cfg, make_task())
    own.load_state_dict({**own.state_dict(), **model.state_dict()})
    return own.to(next(model.parameters()).dtype).eval()


@pytest.fixture(scope="module")
def encoder_compiles():
    """Skip a test if TorchScript cannot compile fairseq's own encoder: that of 0.12.2 needs a torch after 1.12."""
    try:
        torch.jit.script(fairseqs_own(make_model("softmax", **SMALL)).encoder)
    except RuntimeError as error:
        if "_nested_tensor_from_mask_left_aligned" not in str(error):
            raise
        pytest.skip("TorchScript of this torch cannot compile the encoder of fairseq's own Transformer")


def reloaded(module):
    """Return a scripted module after saving and loading."""
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    return torch.jit.load(file)


def same(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


# -- TorchScript --


@pytest.mark.parametrize("name", VARIANTS)
def test_scripted_attention_computes_and_caches_the_same(name):
    """Steps of cross-attention over beams that share their source; weights; a source with padding."""
    torch.manual_seed(0)
    eager = build_attention(name, D, H, encoder_decoder_attention=True).eval()
    with torch.no_grad():
        for parameter in eager.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    eager.set_beam_size(2)
    padding = torch.tensor([[False] * 5, [True] * 2 + [False] * 3])
    source, states = torch.randn(5, 4, D), torch.randn(3, 4, D)
    source[:, 1::2] = source[:, ::2]
    scripted = reloaded(torch.jit.script(eager))
    caches = {}, {}
    for step in states.split(1):
        outputs = []
        for module, cache in zip((eager, scripted), caches):
            options = dict(key_padding_mask=padding.repeat_interleave(2, 0), incremental_state=cache, static_kv=True)
            outputs.append(module(step, source, source, need_head_weights=True, **options))
        for found, expected in zip(*outputs):
            same(found, expected)
    eager, x = build_attention(name, D, H, self_attention=True), torch.randn(5, 2, D)
    scripted = torch.jit.script(eager)
    future = torch.ones(5, 5).triu(1).bool()
    found, expected = (f(x, x, x, attn_mask=future.float() * -1e9, need_weights=True) for f in (scripted, eager))
    same(found[0], expected[0]), same(found[1], expected[1])


def decode(model, sample):
    """Return the hypotheses of fairseq's beam search by a model, and by TorchScript of the search and the model."""
    for scripted in (False, True):
        search = SequenceGenerator([model], make_task().target_dictionary, beam_size=3, max_len_b=9)
        found = torch.jit.script(search)(sample) if scripted else search.generate([], sample)
        yield [[(h["tokens"].tolist(), pytest.approx(float(h["score"]), abs=1e-4)) for h in best] for best in found]


@pytest.mark.parametrize("name", ["softmax", "rela_g"])
def test_a_scripted_model_decodes_the_same_and_leaves_the_model_as_it_is(name, encoder_compiles):
    model = make_model(name, **SMALL).float()
    model.make_generation_fast_(beamable_mm_beam_size=None, need_attn=None)  # as fairseq's hub does
    modules = list(model.named_modules())
    source, lengths, target = random_batch()
    scripted = reloaded(torch.jit.script(model))
    with torch.no_grad():
        same(scripted(source, lengths, target)[0], model(source, lengths, target)[0])
    eager, found = decode(model, {"net_input": {"src_tokens": source, "src_lengths": lengths}})
    assert found == eager
    assert list(model.named_modules()) == modules
    if name == "rela_g":
        assert model.encoder.layers[0].self_attn.last_backend == "cpu"


def test_a_scripted_decoder_shares_the_parameters():
    """The decoder of every supported fairseq compiles, also that of a language model."""
    for model in (make_model(**SMALL), make_lm("rela_g", decoder_layers=1)):
        tokens = torch.tensor([[2, 5, 6, 7]])
        encoder_out = None
        if hasattr(model, "encoder"):
            encoder_out = model.encoder(torch.tensor([[5, 6, 2]]), torch.tensor([3]))
        scripted = torch.jit.script(model.decoder)
        for _ in range(2):
            same(scripted(tokens, encoder_out)[0], model.decoder(tokens, encoder_out=encoder_out)[0])
            with torch.no_grad():
                model.decoder.layers[0].self_attn.attn_norm.weight.mul_(2.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scripted_entmax_functions_equal_the_package(dtype):
    torch.manual_seed(0)
    scores = torch.randn(3, H, 6, 9, dtype=dtype) * torch.tensor([0.1, 3.0, 1e3], dtype=dtype)[:, None, None, None]
    scores[..., 0, :] = -torch.inf  # a row without an allowed key
    scores[..., 1, 3:] = -torch.inf
    scores[..., 2, 1:] = -torch.inf
    scores[..., 3, :] = 1.0
    learnt = LearntEntmax(H, D // H).to(dtype)
    nn.init.uniform_(learnt.alpha_logit, -2.0, 2.0)
    for function in (functional.sparsemax, functional.entmax15, learnt):
        found = scripted_weights("x", function)(scores)
        torch.testing.assert_close(found, function(scores), rtol=1e-5, atol=1e-6)
        assert found.dtype == dtype and not found[..., 0, :].any()


@pytest.fixture
def register(monkeypatch):
    """Register variants for the duration of a test."""
    monkeypatch.setattr("fairseq_rela.variants.VARIANTS", dict(VARIANTS))
    return register_variant


def closure(scores):
    return (lambda rows: relu(rows))(scores)


def cubed(scores):
    return relu(scores) ** 3


class ByTwo(nn.Module):
    def __init__(self, dim, factor=2.0):
        super().__init__()
        self.factor = factor

    def forward(self, z):
        return z / self.factor


class Unscriptable(ByTwo):
    def forward(self, z):
        return super().forward(z)


def test_a_variant_of_a_user_is_scripted_or_refused_in_one_line(register):
    x = torch.randn(3, 2, D)
    register("mine", cubed, ByTwo, can_be_null=True)
    attention = build_attention("mine", D, H, self_attention=True)
    same(torch.jit.script(attention)(x, x, x)[0], attention(x, x, x)[0])
    register("of_a_closure", closure, can_be_null=True)
    register("of_a_bad_norm", cubed, Unscriptable, can_be_null=True)
    for name, what in (("of_a_closure", "its weights"), ("of_a_bad_norm", "its norm")):
        with pytest.raises(InputError, match=f"variant {name}: TorchScript cannot compile {what} ") as caught:
            torch.jit.script(make_model(name))
        assert "\n" not in str(caught.value)


def test_a_norm_of_a_user_follows_the_kernels(register):
    register("normed", functional.relu, ByTwo, can_be_null=True)
    attention, x = build_attention("normed", D, H, self_attention=True), torch.randn(3, 2, D)
    output = attention(x, x, x, need_weights=False)[0]
    assert attention.last_backend == "cpu"
    same(output, attention(x, x, x)[0])


def test_a_norm_by_a_kernel_is_given_all_that_it_needs():
    norm, z = RMSNorm(D), torch.randn(3, D).half()
    seen = norm.by(lambda *arguments: arguments, z)
    assert seen[0].dtype == torch.float32 and seen[1] is norm.weight and seen[2:] == (None, 1e-8)


# -- quantization --


def quantized(model):
    return torch.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)


def outcome(function, *arguments):
    """Return the result of a call, or the type and message of its exception."""
    try:
        return function(*arguments)
    except Exception as error:
        return type(error), str(error)


def test_a_quantized_softmax_model_behaves_as_fairseqs_own(encoder_compiles):
    """fairseq's own fails in eager mode, and is made for TorchScript after quantization."""
    model = make_model("softmax", **SMALL).float()
    source, lengths, _ = random_batch()
    ours, own = (quantized(m).encoder for m in (model, fairseqs_own(model)))
    assert outcome(ours, source, lengths) == outcome(own, source, lengths)
    found, expected = (torch.jit.script(m)(source, lengths)["encoder_out"][0] for m in (ours, own))
    assert torch.equal(found, expected) and not torch.equal(found, model.encoder(source, lengths)["encoder_out"][0])


@pytest.mark.parametrize("backend", ["auto", "plain"])
def test_a_quantized_rela_model_computes_nearly_the_same(backend):
    model = make_model(rela_backend=backend, **SMALL).float()
    source, lengths, target = random_batch()
    small = quantized(model)
    assert type(small.decoder.layers[0].encoder_attn.q_proj).__module__.endswith("quantized.dynamic.modules.linear")
    with torch.no_grad():
        found, expected = small(source, lengths, target)[0], model(source, lengths, target)[0]
        assert 0 < (found - expected).abs().max() < 0.1 * expected.abs().max()
        if backend == "plain":
            encoder_out = small.encoder(source, lengths)
            scripted = torch.jit.script(small.decoder)(target, encoder_out)[0]
            same(scripted, small.decoder(target, encoder_out=encoder_out)[0])


# -- torch.compile --


def compile_and_compare(layer, inputs, **options):
    """Compare outputs and gradients of a layer with those of the compiled one; a graph break is an error."""
    results = []
    for f in (layer, torch.compile(layer, fullgraph=True, **options)):
        y = f(*inputs)[0]
        leaves = [x for x in (*inputs[:2], *layer.parameters()) if isinstance(x, torch.Tensor) and x.requires_grad]
        results.append([y, *torch.autograd.grad(y.square().sum(), leaves)])
    for eager, compiled in zip(*results):
        same(compiled, eager)


def layer_and_inputs():
    torch.manual_seed(0)
    layer = make_model(**SMALL).float().decoder.layers[0].train()
    x, source = torch.randn(4, 2, D, requires_grad=True), torch.randn(5, 2, D, requires_grad=True)
    padding = torch.tensor([[False] * 5, [True] * 2 + [False] * 3])
    future = torch.full((4, 4), -torch.inf).triu(1)
    return layer, (x, source, padding, None, None, None, future)


@needs_new_torch
def test_a_decoder_layer_compiles_without_a_break():
    layer, inputs = layer_and_inputs()
    compile_and_compare(layer, inputs, backend="aot_eager")


@needs_new_torch
@pytest.mark.slow
def test_a_decoder_layer_compiles_to_machine_code(cpp_compiler):
    """The default of torch.compile; a C++ compiler needs half a minute or more for it."""
    layer, inputs = layer_and_inputs()
    compile_and_compare(layer, inputs, backend="inductor")


@pytest.fixture
def cpp_compiler(tmp_path, monkeypatch):
    from torch._inductor import cpp_builder

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    try:
        return cpp_builder.get_cpp_compiler()
    except Exception:
        pytest.skip("no C++ compiler for torch.compile")


def test_a_model_of_the_hub_is_still_a_model_after_eval():
    """fairseq's own gives None, and then a call of it, or torch.compile, an error."""
    for model in (make_model(), make_lm("rela_g")):
        model.make_generation_fast_(beamable_mm_beam_size=None, need_attn=None)  # as the hub does
        assert model.eval() is model and not model.decoder.training


@needs_new_torch
def test_a_model_of_the_hub_compiles_after_it_has_translated():
    model = make_model(**SMALL).float()
    source, lengths, target = random_batch()
    model.make_generation_fast_(beamable_mm_beam_size=None, need_attn=None)
    next(decode(model, {"net_input": {"src_tokens": source, "src_lengths": lengths}}))
    with torch.no_grad():
        compiled = torch.compile(model.eval(), backend="eager")
        same(compiled(source, lengths, target)[0], model(source, lengths, target)[0])
