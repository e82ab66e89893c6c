"""The threshold of ReLU: fixed, scheduled, learnt, and moved to a target sparsity in training."""

import argparse
import copy
from unittest.mock import patch

import numpy
import pytest
import torch
from conftest import ROOT, SIZES, make_model, make_task
from test_config import compose
from test_language_model import TOKENS, make_lm
from test_models import from_flags, from_hydra, logits_and_gradients

from fairseq_rela import checkpoints
from fairseq_rela.analysis.sparsity import count_sparsity
from fairseq_rela.attention import VariantAttention, build_attention
from fairseq_rela.errors import InputError
from fairseq_rela.kernels import backends
from fairseq_rela.models.config import TransformerRelaConfig
from fairseq_rela.models.transformer_rela import TransformerRelaModel, attention_modules
from fairseq_rela.study.folder import StudyFolder
from fairseq_rela.study.spec import load_study
from fairseq_rela.threshold import LearntThreshold, ThresholdedReLU, ThresholdOptions

PAD = 1


def parameters(model):
    """Yield the parameters and buffers, without the buffer that fairseq 0.12.2 leaves uninitialised."""
    return ((name, value) for name, value in model.state_dict().items() if not name.endswith("_float_tensor"))


def thresholds(model):
    """Return the module of every threshold by the name of its attention."""
    return {n: m.attn_weights for n, m in model.named_modules() if isinstance(m, VariantAttention)}


def batch(sentences=12, seed=0):
    """Return sources (padded on the left), their lengths and decoder inputs (padded on the right)."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, 15, (2, sentences), generator=generator)
    lengths[:, 0] = 15
    source, target = torch.randint(4, 24, (2, sentences, 15), generator=generator)
    for row, (of_source, of_target) in enumerate(lengths.t().tolist()):
        source[row, : 15 - of_source] = PAD
        target[row, of_target:] = PAD
    return source, lengths[0], target


def measure(model, pairs):
    """Return the share of exact zeros at real queries and allowed keys of each module, by loops over the sentences."""
    seen = {}
    hooks = [
        module.register_forward_hook(lambda m, inputs, weights, name=name: seen.update({name: (inputs[0], weights)}))
        for name, module in thresholds(model).items()
    ]
    training = model.training
    with torch.no_grad(), patch.object(backends, "find", lambda *_: (None, "")):  # a kernel returns no weights
        model.eval()(*pairs)
    for hook in hooks:
        hook.remove()
    model.train(training)
    assert seen.keys() == thresholds(model).keys()
    source, _, target = pairs
    shares = {}
    for name, (scores, weights) in seen.items():
        zeros = []
        queries = (source if name.startswith("encoder") else target) != PAD
        for b, t in queries.nonzero().tolist():
            keys = (scores[b, 0, t] > -torch.inf).nonzero().flatten().tolist()
            zeros += [weights[b, h, t, s].item() == 0 for h in range(weights.size(1)) for s in keys]
        shares[name] = numpy.mean(zeros)
    return shares


@pytest.mark.parametrize("backend", ["plain", "auto"])
@pytest.mark.parametrize("attention", ["rela_g", "rela_i", "rela_g_threshold"])
def test_a_threshold_of_0_gives_the_bits_of_relu(attention, backend):
    options = dict(rela_backend=backend, attention_dropout=0.2)
    relu = make_model("rela_g" if attention == "rela_g_threshold" else attention, **options).train()
    zero = make_model(attention, rela_threshold=0.0, **options).train()
    if attention == "rela_g_threshold":
        assert not any(m.bias.any() for m in thresholds(zero).values())
    zero.load_state_dict(relu.state_dict())
    results = []
    for model in (relu, zero):
        torch.manual_seed(1)
        logits, *_ = logits_and_gradients(model)
        results.append([logits, *(p.grad for n, p in model.named_parameters() if not n.endswith("attn_weights.bias"))])
    assert len(results[0]) == len(results[1]) and all(map(torch.equal, *results))
    assert {m.last_backend for m in zero.modules() if isinstance(m, VariantAttention)} >= {
        "cpu" if backend == "auto" else "plain"
    }


@pytest.mark.parametrize("value", [0.5, -1.0])
def test_weights_are_relu_of_the_scores_minus_the_threshold(value):
    scores = torch.randn(2, 3, 4, 5)
    scores[..., 3:] = -torch.inf
    weights = ThresholdedReLU(3, 4, ThresholdOptions(value))(scores)
    for place in numpy.ndindex(*scores.shape):
        wanted = 0.0 if scores[place] == -torch.inf else max(float(scores[place]) - value, 0.0)
        assert weights[place] == pytest.approx(wanted)


@pytest.mark.parametrize("options", [dict(attention="rela_g_threshold"), dict(attention="rela_i", rela_threshold=0.3)])
def test_kernels_and_decoding_steps_compute_the_same_model(options):
    plain, fused = (make_model(rela_backend=backend, **options).train() for backend in ("plain", "auto"))
    for a, b in zip(logits_and_gradients(plain), logits_and_gradients(fused)):
        torch.testing.assert_close(a, b)
    model = fused.eval()
    source, lengths, target = batch()
    encoded, state = model.encoder(source, lengths), {}
    steps = [model.decoder(target[:, : i + 1], encoded, incremental_state=state)[0] for i in range(3)]
    torch.testing.assert_close(torch.cat(steps, dim=1), model.decoder(target[:, :3], encoded)[0])


@pytest.mark.parametrize("backend", ["plain", "fused"])
def test_gradients_of_a_learnt_threshold_equal_finite_differences(backend):
    torch.manual_seed(2)
    attention = build_attention("rela_g_threshold", 16, 4, self_attention=True, backend=backend).double()
    x, wanted = torch.randn(2, 7, 3, 16, dtype=torch.float64)
    mask = torch.zeros(3, 7, dtype=torch.bool)
    mask[0, 5:] = True
    bias = attention.attn_weights.bias

    def loss():
        return (attention(x, x, x, key_padding_mask=mask, need_weights=False)[0] - wanted).square().sum()

    loss().backward()
    for head in range(4):
        values = []
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                bias[head] += step
                values.append(loss().item())
                bias[head] -= step
        difference = (values[0] - values[1]) / 2e-6
        assert bias.grad[head].item() == pytest.approx(difference, rel=1e-6, abs=1e-6)
    assert bias.grad.abs().min() > 1e-3


def test_the_gradient_in_float32_equals_that_in_float64():
    exact = make_model("rela_g_threshold")
    single = copy.deepcopy(exact).float()
    for model in (exact, single):
        logits_and_gradients(model)
    for (name, a), b in zip(thresholds(exact).items(), thresholds(single).values()):
        assert (a.bias.grad - b.bias.grad).abs().max() <= 1e-6 * a.bias.grad.abs().max().clamp(min=1.0), name


def test_a_schedule_rises_linearly_and_stays():
    model = make_model(rela_threshold=0.8, rela_threshold_warmup=4)
    values = []
    for update in (0, 1, 3, 4, 9):
        model.set_num_updates(update)
        (value,) = {float(m.threshold) for m in thresholds(model).values()}
        values.append(value)
    assert values == pytest.approx([0, 0.2, 0.6, 0.8, 0.8])


@pytest.mark.parametrize("backend", ["plain", "auto"])
@pytest.mark.parametrize("attention", ["rela_g", "rela_g_threshold"])
def test_the_threshold_moves_to_the_target_without_padding_and_future(attention, backend):
    """The parameters do not change, so each module meets the target up to one score and the rounding of float32."""
    model = make_model(attention, rela_sparsity_target=0.7, rela_backend=backend).train()
    pairs = batch()
    for update in range(40):
        model.set_num_updates(update)
        with torch.no_grad():
            model(*pairs)
    for name, share in measure(model, pairs).items():
        assert share == pytest.approx(0.7, abs=2e-3), name
    before = copy.deepcopy(model.state_dict())
    model.eval()(*pairs)  # evaluation changes nothing
    assert all(torch.equal(value, before[name]) for name, value in parameters(model))


@pytest.mark.parametrize("target", [0.5, 0.9])
def test_training_meets_the_target_on_other_sentences(target):
    model = make_model(rela_sparsity_target=target, rela_threshold_warmup=10, dropout=0.1).float().train()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: 1 - update / 60)
    for update in range(60):
        model.set_num_updates(update)
        source, lengths, target_side = batch(24, seed=update)
        logits = model(source, lengths, target_side)[0][:, :-1]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), target_side[:, 1:].flatten(), ignore_index=PAD
        ).backward()
        optimizer.step()
        schedule.step()
    sites = {}
    for name, share in measure(model, batch(32, seed=1000)).items():
        site = "cross" if "encoder_attn" in name else name.split(".")[0]
        sites.setdefault(site, []).append(share)
    assert {site: numpy.mean(shares) for site, shares in sites.items()} == pytest.approx(
        dict.fromkeys(("encoder", "decoder", "cross"), target), abs=0.03
    )


def observing(target=0.6, **options):
    return ThresholdedReLU(2, 4, ThresholdOptions(target=target, **options)).train()


def test_batches_of_an_update_count_by_their_allowed_keys():
    """Two batches of one update give the weighted mean of their quantiles, and earlier ones count 0.9 times."""
    generator = torch.Generator().manual_seed(4)
    batches = [torch.randn(n, 2, 5, generator=generator) for n in (3, 8, 6)]
    module = observing()
    module.set_num_updates(0)
    for scores in batches[:2]:
        module.set_num_updates(0)
        module.observe(scores)
    assert module.threshold == 0  # it does not change within an update
    module.set_num_updates(1)
    quantiles = [numpy.quantile(scores.numpy(), 0.6, method="inverted_cdf") for scores in batches]
    assert float(module.threshold) == pytest.approx((30 * quantiles[0] + 80 * quantiles[1]) / 110, rel=1e-6)
    module.observe(batches[2])
    module.set_num_updates(2)
    sums = 0.9 * (30 * quantiles[0] + 80 * quantiles[1]) + 60 * quantiles[2]
    assert float(module.threshold) == pytest.approx(sums / (0.9 * 110 + 60), rel=1e-6)


@pytest.mark.parametrize("learnt", [False, True])
def test_the_gradient_moves_a_target_with_the_scores(learnt):
    """Independent: the threshold is written as mean + k * deviation of the scores, with a constant k."""
    torch.manual_seed(7)
    kind = LearntThreshold if learnt else ThresholdedReLU
    module = kind(2, 4, ThresholdOptions(target=0.6)).double().train()
    module.threshold.fill_(0.4)
    bias = torch.tensor([0.3, -0.2], dtype=torch.float64, requires_grad=True) if learnt else torch.zeros(2)
    if learnt:
        module.bias.data.copy_(bias)
    scores = torch.randn(3, 2, 5, 6, dtype=torch.float64)
    scores[1, :, :, 4:] = -torch.inf
    allowed, factor = scores > -torch.inf, torch.randn(3, 2, 5, 6, dtype=torch.float64)
    factor[~allowed] = 0

    ours = scores.clone().requires_grad_()
    module.observe(ours.transpose(1, 2).flatten(0, 1))
    weights = module(ours)
    (weights * factor).sum().backward()

    theirs = scores.clone().requires_grad_()
    shifted = theirs + bias[:, None, None]
    chosen = shifted[allowed]
    mean, deviation = chosen.mean(), chosen.std(unbiased=False)
    k = (0.4 - mean.detach()) / deviation.detach()
    expected = torch.relu(shifted - mean - k * deviation)
    (expected * factor).sum().backward()
    torch.testing.assert_close(weights, expected.detach(), check_dtype=False)
    torch.testing.assert_close(ours.grad[allowed], theirs.grad[allowed])
    if learnt:
        torch.testing.assert_close(module.bias.grad, bias.grad)
    else:  # no gradient pushes all scores up or down
        assert ours.grad[allowed].sum().abs() < 1e-12 < ours.grad[allowed].abs().min()
        scaled = (ours.grad * ours)[allowed].sum().item()
        assert scaled == pytest.approx((weights * factor).sum().item())  # as of a function that is linear in the scale
    # without a new batch the threshold is a constant again
    assert not module.threshold.requires_grad and (learnt or not module.per_head().requires_grad)


def test_kernels_follow_the_scores_as_the_plain_path_does():
    options = dict(rela_sparsity_target=0.6)
    plain, fused = (make_model(rela_backend=backend, **options).train() for backend in ("plain", "auto"))
    for module in (*thresholds(plain).values(), *thresholds(fused).values()):
        module.threshold.fill_(0.1)
    before = make_model(rela_threshold=0.1).train()
    results = [logits_and_gradients(model) for model in (plain, fused, before)]
    for a, b in zip(*results[:2]):
        torch.testing.assert_close(a, b)
    torch.testing.assert_close(results[0][0], results[2][0])
    assert any(not torch.allclose(a, b) for a, b in zip(results[0][1:], results[2][1:]))


def test_batches_without_an_allowed_key_and_infinite_scores_are_ignored():
    module = observing()
    for scores in (
        torch.full((3, 2, 5), -torch.inf),
        torch.full((3, 2, 5), torch.inf),
        torch.full((1, 2, 5), torch.nan),
    ):
        module.observe(scores)
        assert torch.equal(module.per_head(), torch.zeros(2))
    module.set_num_updates(1)
    assert module.threshold == 0 and not module.observed.any()


def test_equal_scores_have_a_finite_gradient():
    """Their variance is 0."""
    module = observing()
    module.threshold.fill_(-0.5)
    scores = torch.full((3, 2, 5), 0.25, requires_grad=True)
    module.observe(scores)
    module(scores[None].transpose(1, 2)).sum().backward()
    assert scores.grad.isfinite().all()


def test_large_batches_are_sampled_at_all_positions():
    from fairseq_rela.attention.observing import SCORES, choose_queries

    b, t, each = choose_queries(100, 30, 8 * 40, torch.device("cpu"))
    assert len(b) * 8 * 40 <= SCORES and each == pytest.approx(100 * 30 / len(b))
    assert set(t.tolist()) == set(range(30)) and b.unique().numel() > 60
    for sizes in ((1, 1), (3, 5)):
        b, t, each = choose_queries(*sizes, 4, torch.device("cpu"))
        assert list(zip(b.tolist(), t.tolist())) == list(numpy.ndindex(*sizes)) and each == 1


def test_a_resumed_training_continues_exactly_and_half_precision_keeps_the_buffers(tmp_path):
    def train(model, updates):
        for update in updates:
            model.set_num_updates(update)
            logits_and_gradients(model)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 1e-3 * parameter.grad

    whole = make_model(rela_sparsity_target=0.7, rela_threshold_warmup=5).train()
    train(whole, range(4))
    saved = copy.deepcopy(whole.state_dict())
    train(whole, range(4, 7))
    resumed = make_model(seed=3, rela_sparsity_target=0.7, rela_threshold_warmup=5).train()
    resumed.set_num_updates(4)  # as fairseq's Trainer.load_checkpoint does
    resumed.load_state_dict(saved)
    train(resumed, range(4, 7))
    assert all(torch.equal(value, resumed.state_dict()[name]) for name, value in parameters(whole))
    half = copy.deepcopy(whole).float().half()
    for one, other in zip(thresholds(half).values(), thresholds(whole).values()):
        assert one.threshold.dtype == one.observed.dtype == torch.float32
        assert one.threshold == other.threshold.float() != 0
    for index, state in enumerate((saved, whole.state_dict())):
        torch.save({"model": state, "args": argparse.Namespace()}, tmp_path / f"checkpoint{index + 1}.pt")
    checkpoints.average([tmp_path / "checkpoint1.pt", tmp_path / "checkpoint2.pt"], tmp_path / "average.pt")
    averaged = checkpoints.load(tmp_path / "average.pt")["model"]
    for name in (name for name in saved if name.endswith("attn_weights.threshold")):
        torch.testing.assert_close(averaged[name], (saved[name] + whole.state_dict()[name]) / 2)


def test_models_without_the_options_have_no_new_parameters_and_old_configs_load():
    config = TransformerRelaConfig(**SIZES, dropout=0.0)
    old = argparse.Namespace(**vars(config))
    for key in ("rela_threshold", "rela_threshold_warmup", "rela_sparsity_target"):
        delattr(old, key)
    model = TransformerRelaModel.build_model(old, make_task()).double()
    assert not [name for name in model.state_dict() if "attn_weights" in name]
    learnt = [name for name in make_model("rela_g_threshold").state_dict() if "attn_weights" in name]
    assert len(learnt) == 6 and all(name.endswith("attn_weights.bias") for name in learnt)
    assert old.rela_threshold is None and old.rela_sparsity_target is None
    with_target = make_model(rela_sparsity_target=0.7)  # a checkpoint of ReLA-g can start it
    with_target.load_state_dict(model.state_dict())
    assert all(torch.equal(value, with_target.state_dict()[name]) for name, value in parameters(model))


def test_flags_and_hydra_keys_reach_the_attention():
    flags = ("--rela-sparsity-target", "0.7", "--rela-threshold-warmup", "300")
    for model in (
        from_flags("--arch", "transformer_rela_tiny", *flags),
        from_hydra(_name="transformer_rela_tiny", rela_sparsity_target=0.7, rela_threshold_warmup=300),
        make_lm("rela_i", rela_sparsity_target=0.7, rela_threshold_warmup=300),
    ):
        assert {m.options for m in thresholds(model).values()} == {ThresholdOptions(None, 300, 0.7)}
    learnt = from_hydra(_name="transformer_rela_tiny", attention="rela_g_threshold", rela_threshold=-0.5)
    assert {m.bias.unique().item() for m in thresholds(learnt).values()} == {0.5}
    only_cross = make_model(attention_sites="cross", rela_threshold=1)
    assert {site for site, modules in attention_modules(only_cross).items() for m in modules.values()
            if isinstance(m, VariantAttention)} == {"cross"}  # fmt: skip


def test_language_models_move_the_threshold():
    model = make_lm("rela_g", rela_sparsity_target=0.8).train()
    for update in range(40):
        model.set_num_updates(update)
        model(TOKENS)
    for name, module in thresholds(model).items():
        seen = []
        hook = module.register_forward_hook(lambda m, inputs, weights: seen.append((inputs[0], weights)))  # noqa: B023
        with patch.object(backends, "find", lambda *_: (None, "")):
            model.eval()(TOKENS)
        hook.remove()
        ((scores, weights),) = seen
        counts = count_sparsity(weights, scores[:, 0] > -torch.inf)
        assert counts.sparsity == pytest.approx(0.8, abs=0.02), name


@pytest.mark.parametrize(
    "options, message",
    [
        (
            dict(attention="softmax", rela_threshold=0.5),
            "--rela-threshold: --attention softmax has no threshold; choose",
        ),
        (
            dict(attention="relu_length", rela_sparsity_target=0.5),
            "--rela-sparsity-target: --attention relu_length has",
        ),
        (dict(rela_sparsity_target=70), "--rela-sparsity-target 70.*such as 0.7"),
        (dict(rela_threshold=float("nan")), "--rela-threshold nan: give a finite number"),
        (dict(rela_threshold=0.5, rela_sparsity_target=0.7), "leave --rela-threshold out"),
        (dict(rela_threshold_warmup=300), "--rela-threshold-warmup needs"),
        (dict(rela_threshold=0.5, rela_threshold_warmup=-1), "--rela-threshold-warmup -1"),
        (dict(attention="rela_g_threshold", rela_threshold=1.0, rela_threshold_warmup=9), "learns its threshold"),
    ],
)
@pytest.mark.parametrize("make", [make_model, make_lm])
def test_bad_options_are_refused_in_one_line(make, options, message):
    with pytest.raises(InputError, match=message) as error:
        make(**{"attention": "rela_g", **options})
    assert "\n" not in str(error.value)


def test_recorded_runs_are_accepted_without_the_options(tmp_path):
    """The options are not in configs/, so the settings of earlier runs do not change."""
    folder = StudyFolder(load_study("multi30k_en_de"), ROOT / "studies" / "multi30k_en_de", tmp_path)
    recorded = [run for run in folder.runs if run.record.is_file()]
    assert recorded and all(run.finished() for run in recorded)


def test_the_study_of_sparsity_trains_each_target(tmp_path):
    study = load_study("sparsity")
    rising = "+model.rela_threshold_warmup=675"
    assert {row.label: row.overrides for row in study.rows} == {
        "softmax": (),
        "rela_g": (),
        **{f"rela_g-{share}": (f"+model.rela_sparsity_target=0.{share // 10}", rising) for share in (50, 70, 90)},
        "rela_g-90-at_once": ("+model.rela_sparsity_target=0.9",),
    }
    assert {row.seeds for row in study.rows} == {(1, 2, 3), (1,)} and study.baseline == "softmax"
    runs = {run.name: run for run in StudyFolder(study, tmp_path, tmp_path).runs}
    assert len({run.experiment.run for run in runs.values()}) == 16
    model = compose("multi30k_en_de", *runs["rela_g-90.seed-3"].job.overrides)["model"]
    assert (model["rela_sparsity_target"], model["rela_threshold_warmup"]) == (0.9, 675)
