"""float16 and bfloat16: training by fairseq's own trainer, large values, long sentences, null queries."""

import json
import math

import pytest
import torch
from conftest import make_model, train_arguments
from hypothesis import given, settings
from hypothesis import strategies as st
from test_attention import HALF
from test_models import random_batch

from fairseq_rela.attention import build_attention
from fairseq_rela.norms import EPSILON, GatedLayerNorm, GatedRMSNorm, RMSNorm
from fairseq_rela.variants import VARIANTS

PRECISIONS = [HALF, torch.bfloat16]
OPTION = {torch.float16: "--fp16", torch.bfloat16: "--bf16"}
OWN = [name for name in VARIANTS if name != "softmax"]


def losses(data, save_dir, attention, dtype, updates, caplog, *options):
    """Run fairseq-train in this process and return the loss of each update."""
    from fairseq import metrics
    from fairseq import options as fairseq_options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq_cli.train import main

    arguments = [
        *(*train_arguments(data, save_dir), "--attention", attention, OPTION[dtype], "--max-update", updates),
        *("--encoder-layers", 1, "--decoder-layers", 1, "--encoder-embed-dim", 32, "--decoder-embed-dim", 32),
        *("--encoder-ffn-embed-dim", 64, "--decoder-ffn-embed-dim", 64, "--lr", "5e-3", "--warmup-updates", 40),
        *("--lr-scheduler", "inverse_sqrt", "--clip-norm", 1, "--seed", 11, "--max-tokens", 200, "--num-workers", 0),
        *("--disable-validation", "--no-save", "--log-format", "json", "--log-interval", 1, "--fp16-init-scale", 128),
        "--fp16-no-flatten-grads",  # the flat ones are for GPUs
    ]
    metrics.reset()
    parser = fairseq_options.get_training_parser()
    cfg = convert_namespace_to_omegaconf(fairseq_options.parse_args_and_arch(parser, [str(a) for a in arguments]))
    cfg.common.tpu = False  # for which fairseq accepts --bf16 without a GPU
    caplog.clear()
    with caplog.at_level("INFO", logger="fairseq.logging.progress_bar"):
        main(cfg)
    logged = [json.loads(record.getMessage()) for record in caplog.records if record.name == "train_inner"]
    return [float(entry["loss"]) for entry in logged]


def falls(values, updates):
    """Check that all losses are finite and lower at the end than at the start."""
    # fairseq skips an update whose gradient overflowed, and does not log its loss
    assert updates - 10 <= len(values) <= updates and all(map(math.isfinite, values))
    tenth = max(len(values) // 10, 2)
    return sum(values[-tenth:]) < 0.85 * sum(values[:tenth])


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_rela_g_learns(dtype, data, tmp_path, caplog):
    assert falls(losses(data, tmp_path, "rela_g", dtype, 30, caplog), 30)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("attention", VARIANTS)
def test_every_variant_learns_for_200_updates(attention, dtype, data, tmp_path, caplog):
    values = losses(data, tmp_path, attention, dtype, 200, caplog)
    assert falls(values, 200)


def backward(model, lengths, targets):
    """Return loss and gradients of a batch as in fairseq, with log-probabilities in float32."""
    source, source_lengths, target = random_batch(lengths=lengths, targets=targets)
    logits = model(source, source_lengths, target)[0]
    loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), target.flatten(), ignore_index=1)
    loss.backward()
    return loss


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize(
    "attention", [pytest.param(name, marks=[] if name == "rela_g" else pytest.mark.slow) for name in VARIANTS]
)
def test_sentences_of_a_thousand_tokens_have_finite_gradients(attention, dtype):
    """Another sentence has three tokens, so that half of the batch is padding."""
    model = make_model(attention).to(dtype).train()
    loss = backward(model, lengths=(1000, 3), targets=(4, 1000))
    assert loss.isfinite()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("attention", OWN)
def test_activations_of_ten_thousand_have_finite_gradients(attention, dtype):
    """The inputs of the first layers have this size; fairseq's own softmax overflows in float16."""
    model = make_model(attention).to(dtype).train()
    with torch.no_grad():
        for side in (model.encoder, model.decoder):
            side.embed_tokens.weight.uniform_(-1e4, 1e4).div_(side.embed_scale)
    entered = []
    model.encoder.layers[0].register_forward_hook(lambda module, inputs, output: entered.append(inputs[0]))
    loss = backward(model, lengths=(100, 7), targets=(40, 90))
    assert 5e3 < entered[0].abs().max() < 2e4 and loss.isfinite()
    assert all(p.grad.isfinite().all() for p in model.parameters())


NORMS = {"rms": RMSNorm, "gated_rms": GatedRMSNorm, "gated_layer": GatedLayerNorm}


@pytest.mark.parametrize("name", NORMS)
@settings(max_examples=40, deadline=None)
@given(size=st.floats(-14, 4), seed=st.integers(0, 99))
def test_the_gradient_of_the_norm_is_bounded_near_and_at_a_null_row(name, size, seed):
    r"""No direction grows by more than :math:`\max|g| / \sqrt\epsilon` plus the part of the gate, for any row.

    The docs state it. The gate's part is :math:`|\sigma'(wz)\, w\, g\, z / RMS(z)| \le \sqrt d \max|w g| / 4`.
    """
    d = 8
    torch.manual_seed(seed)
    norm = NORMS[name](d).double()
    gate = torch.zeros(d).double() if norm.gate is None else norm.gate.detach()
    bound = float(norm.weight.abs().max()) / math.sqrt(EPSILON) + math.sqrt(d) * float((gate * norm.weight).abs().max())
    for z in (torch.zeros(d, dtype=torch.float64), 10.0**size * torch.randn(d, dtype=torch.float64)):
        jacobian = torch.autograd.functional.jacobian(norm, z)
        assert float(torch.linalg.matrix_norm(jacobian, 2)) <= bound * (1 + 1e-9)


@pytest.mark.parametrize("dtype", [*PRECISIONS, torch.float32])
@pytest.mark.parametrize("attention", [name for name in OWN if VARIANTS[name].weights is VARIANTS["relu"].weights])
def test_null_queries_pass_no_gradient_on_through_relu(attention, dtype):
    """All scores of all queries are negative: the norm's factor of 5,000 meets weights of 0 and an inactive ReLU."""
    torch.manual_seed(0)
    module = build_attention(attention, 16, 4, encoder_decoder_attention=True)
    with torch.no_grad():
        for projection, value in ((module.q_proj, 1.0), (module.k_proj, -1.0)):
            projection.weight.mul_(0.01)
            projection.bias.fill_(value)
    module = module.to(dtype)
    query, memory = (torch.randn(n, 2, 16).to(dtype).requires_grad_() for n in (3, 5))
    output, weights = module(query, memory, memory, need_head_weights=True)
    output.float().sum().backward()
    assert (weights == 0).all()
    for name, gradient in [("query", query.grad), ("memory", memory.grad), ("q", module.q_proj.weight.grad)]:
        assert (gradient == 0).all(), name
    assert (module.out_proj.bias.grad == 6).all()
