"""Guided alignment: the loss of every variant against a loop over the links, null rows, and real training."""

import math
import re

import pytest
import torch
from conftest import ROOT, SIZES, load_anything, make_dictionary, make_model, run_fairseq
from fairseq import options
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.criterions import label_smoothed_cross_entropy_with_alignment as fairseqs
from fairseq.data import LanguagePairDataset, ListDataset
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer
from fairseq_cli import preprocess

from fairseq_rela.analysis.capture import recorded_weights
from fairseq_rela.criterions import CRITERION_NAME, FLOOR, LabelSmoothedCrossEntropyCriterionWithAlignment
from fairseq_rela.errors import InputError
from fairseq_rela.functional import as_probabilities
from fairseq_rela.models.transformer_rela import attention_modules
from fairseq_rela.tasks.translation_rela import TranslationRelaConfig, TranslationRelaTask
from fairseq_rela.variants import VARIANTS

LAMBDA = 0.5
LENGTHS = (7, 5, 3, 6, 4)


def reversed_pairs(lengths=LENGTHS, words=20, seed=0):
    """Return sentences whose target is the reversed source: (source, target, links from 0), with ends of sentences."""
    generator = torch.Generator().manual_seed(seed)
    end, pairs = torch.tensor([make_dictionary().eos()]), []
    for n in lengths:
        source = torch.randint(4, words + 4, (n,), generator=generator)
        links = [(n - 1 - t, t) for t in range(n)] + [(0, 1)] * (n > 3)  # target word 1 has two links
        pairs.append((torch.cat([source, end]), torch.cat([source.flip(0), end]), links))
    return pairs


def dataset(pairs):
    dictionary = make_dictionary()
    sizes = [len(source) for source, _, _ in pairs]
    sides = [ListDataset([pair[side] for pair in pairs], sizes) for side in (0, 1)]
    links = ListDataset([torch.IntTensor(pair[2]).flatten() for pair in pairs], sizes)
    return LanguagePairDataset(
        sides[0], sizes, dictionary, sides[1], sizes, dictionary, align_dataset=links, shuffle=False
    )


def batch_of(pairs):
    """Return a batch collated by fairseq: sources are padded on the left, targets on the right."""
    data = dataset(pairs)
    return data.collater([data[i] for i in range(len(pairs))])


def task():
    return TranslationRelaTask(
        TranslationRelaConfig(data="", train_subset="train"), make_dictionary(), make_dictionary()
    )


def criterion(cls=None):
    return (cls or CRITERION_REGISTRY[CRITERION_NAME])(task(), False, 0.1, LAMBDA)


def loss_by_hand(weights, pairs, softmax):
    """Return the loss by a loop over target words and links, from weights (T, S) of each sentence without padding."""
    total = 0.0
    for rows, (_, target, links) in zip(weights, pairs):
        for t in range(len(target)):
            linked = [s for s, other in links if other == t]
            row = [float(a) for a in rows[t]]
            if softmax:
                shares = row
            else:
                row = [max(a, 0.0) for a in row]
                if sum(row) == 0:
                    continue
                shares = [(a + FLOOR) / (sum(row) + len(row) * FLOOR) for a in row]
            for s in linked:
                total -= math.log(shares[s]) / len(linked)
    return total


def last_layer_weights(model, batch):
    """Return the mean over the heads of the last cross-attention, by hooks: one matrix (T, S) per batch row."""
    sites = attention_modules(model)
    with torch.no_grad(), recorded_weights(sites) as weights:
        model(**batch["net_input"])
    rows = weights[f"decoder.layers.{len(model.decoder.layers) - 1}.encoder_attn"].mean(dim=1)
    lengths = batch["net_input"]["src_lengths"].tolist()
    return [matrix[:n, matrix.size(1) - n :] for matrix, n in zip(rows, lengths)]


@pytest.mark.parametrize("name", VARIANTS)
def test_loss_equals_a_loop_over_the_links(name):
    pairs = reversed_pairs()
    batch, model = batch_of(pairs), make_model(name)
    order = batch["id"].tolist()
    assert order != sorted(order) and (batch["net_input"]["src_tokens"] == make_dictionary().pad()).any()
    want = loss_by_hand(last_layer_weights(model, batch), [pairs[i] for i in order], name == "softmax")
    loss, sample_size, log = criterion()(model, batch)
    assert log["alignment_loss"] == pytest.approx(want, rel=1e-5) and want > 1
    # fairseq's sample size, and the sum of both losses
    plain = CRITERION_REGISTRY["label_smoothed_cross_entropy"](task(), False, 0.1)(model, batch)
    assert sample_size == plain[1] == batch["ntokens"]
    assert float(loss.detach()) == pytest.approx(float(plain[0].detach()) + LAMBDA * want, rel=1e-5)


@pytest.mark.parametrize("name", VARIANTS)
def test_padding_changes_no_loss(name):
    """The loss of a batch is the sum of the losses of its sentences, each computed alone without padding."""
    pairs, model = reversed_pairs(), make_model(name)
    together = criterion()(model, batch_of(pairs))[2]["alignment_loss"]
    alone = [criterion()(model, batch_of([pair]))[2]["alignment_loss"] for pair in pairs]
    assert together == pytest.approx(sum(alone), rel=1e-5)


@pytest.mark.parametrize("options", [{"attention": "softmax"}, {"attention_sites": "encoder,decoder"}])
def test_softmax_in_cross_attention_has_fairseqs_own_loss(options):
    batch, model = batch_of(reversed_pairs()), make_model(**options)
    gradients = []
    for cls in (None, fairseqs.LabelSmoothedCrossEntropyCriterionWithAlignment):
        model.zero_grad()
        loss, _, log = criterion(cls)(model, batch)
        loss.backward()
        gradients.append([log, *(p.grad for p in model.parameters() if p.grad is not None)])
    for ours, theirs in zip(*gradients):
        assert torch.equal(ours, theirs) if torch.is_tensor(ours) else ours == theirs


def test_null_rows_have_no_loss_and_no_gradient():
    torch.manual_seed(0)
    pairs = reversed_pairs((3, 3))
    batch = batch_of(pairs)
    weights = torch.rand(2, 4, 4)
    weights[0, 1] = 0.0  # no weight above 0
    weights[1, 2] = -weights[1, 2]  # those of GeLU and leaky ReLU may all be below 0
    weights[1, 0, 1] = -0.5
    weights[0, 0, 2] = 0.0  # a link without a weight
    weights.requires_grad_()
    guided = criterion()
    guided._normalises = True
    loss = guided.compute_alignment_loss(batch, (None, {"attn": [weights]}))
    assert float(loss.detach()) == pytest.approx(
        loss_by_hand(weights.detach(), [pairs[i] for i in batch["id"].tolist()], False), rel=1e-5
    )
    (gradient,) = torch.autograd.grad(loss, weights)
    assert gradient.isfinite().all() and float(gradient.abs().max()) <= 1 / FLOOR
    assert not gradient[0, 1].any() and not gradient[1, 2].any() and gradient[0, 0].any() and gradient[1, 1].any()


@pytest.mark.parametrize("name", ["relu", "rela_g", "rela_g_gelu", "rela_g_leaky_relu"])
def test_null_rows_train_by_the_other_loss_alone(name):
    model, batch = make_model(name), batch_of(reversed_pairs())
    attend_to_nothing(model)
    loss, _, log = criterion()(model, batch)
    loss.backward()
    assert log["alignment_loss"] == 0
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def attend_to_nothing(model):
    """Set all scores of the last cross-attention to -4."""
    with torch.no_grad():
        attention = model.decoder.layers[-1].encoder_attn
        attention.q_proj.weight.zero_()
        attention.k_proj.weight.zero_()
        attention.q_proj.bias.fill_(2.0)
        attention.k_proj.bias.fill_(-1.0)


def test_probabilities_sum_to_one():
    weights = torch.tensor([[2.0, 0.0, -1.0, 0.0], [0.0, 0.0, 0.0, 0.0], [-1.0, -2.0, 0.0, 0.0]])
    allowed = torch.tensor([True, True, True, False])
    assert as_probabilities(weights).tolist() == [[1, 0, 0, 0], [0] * 4, [0] * 4]
    got = as_probabilities(weights, allowed, 0.5)
    torch.testing.assert_close(got[0], torch.tensor([2.5, 0.5, 0.5, 0.0]) / 3.5)
    assert not got[1:].any()
    half = as_probabilities(torch.full((1, 300), 300.0, dtype=torch.float16))  # whose sum overflows in float16
    assert half.dtype == torch.float32 and float(half.sum()) == pytest.approx(1)


def test_half_precision_has_a_finite_loss():
    model, batch = make_model("rela_g").bfloat16(), batch_of(reversed_pairs())
    loss, _, log = criterion()(model, batch)
    loss.backward()
    assert 0 < log["alignment_loss"] < 1000
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def trainer_of(name, criterion_name=CRITERION_NAME):
    """Return fairseq's trainer of a tiny model, built as in fairseq-train."""
    parser = options.get_training_parser()
    sizes = [str(x) for key, value in SIZES.items() for x in (f"--{key.replace('_', '-')}", value)]
    arguments = ["data", "--task", "translation_rela", "--arch", "transformer_rela", "--attention", name, *sizes]
    arguments += ["--optimizer", "adam", "--lr", "0.005", "--max-tokens", "1000", "--cpu", "--load-alignments"]
    arguments += ["--criterion", criterion_name]
    if criterion_name == CRITERION_NAME:
        arguments += ["--alignment-lambda", str(LAMBDA)]
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, arguments))
    torch.manual_seed(1)
    own = TranslationRelaTask(cfg.task, make_dictionary(), make_dictionary())
    return Trainer(cfg, own, own.build_model(cfg.model), own.build_criterion(cfg.criterion))


@pytest.mark.parametrize("name", VARIANTS)
def test_training_lowers_the_loss_of_every_variant(name):
    trainer = trainer_of(name)
    assert type(trainer.criterion) is LabelSmoothedCrossEntropyCriterionWithAlignment
    batch = batch_of(reversed_pairs((7, 5, 6, 4), words=6))

    def loss():
        with torch.no_grad():
            return trainer.criterion(trainer.model, batch)[2]["alignment_loss"]

    before = loss()
    for _ in range(20):
        trainer.train_step([batch])
        assert all(p.grad.isfinite().all() for p in trainer.model.parameters() if p.grad is not None)
    assert 0 <= loss() < (0.9 if VARIANTS[name].row else 0.95) * before  # sigmoid starts nearly flat


def test_weights_are_computed_only_for_a_loss_that_reads_them():
    """In training fairseq requests the last layer's weights in every pass, which prevents the use of the kernel."""
    seen = []
    for criterion_name in (CRITERION_NAME, "label_smoothed_cross_entropy", "cross_entropy"):
        trainer = trainer_of("rela_g", criterion_name)
        attention = trainer.model.decoder.layers[-1].encoder_attn
        batch = batch_of(reversed_pairs())
        trainer.train_step([batch])
        seen.append(attention.last_backend)
        # outside a training step the model returns its weights
        assert trainer.model.training and trainer.model(**batch["net_input"])[1]["attn"][0] is not None
        trainer.valid_step(batch)
        assert trainer.model(**batch["net_input"])[1]["attn"][0] is not None
    assert seen[0] == "plain" and seen[1] == seen[2] != "plain"


def test_loss_and_gradients_do_not_depend_on_returned_weights():
    model, batch = make_model("rela_g").train(), batch_of(reversed_pairs())
    plain, results = CRITERION_REGISTRY["label_smoothed_cross_entropy"](task(), False, 0.1), []
    for gives in (True, False):
        model.decoder.gives_weights = gives
        model.zero_grad()
        loss = plain(model, batch)[0]
        loss.backward()
        results.append([loss.detach(), *(p.grad.clone() for p in model.parameters())])
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs)


def test_a_model_without_weights_is_refused():
    model = make_model("rela_g", no_cross_attention=True)
    with pytest.raises(InputError, match="leave out --no-cross-attention"):
        criterion()(model, batch_of(reversed_pairs()))


def test_training_data_without_alignments_are_refused():
    own = TranslationRelaTask(
        TranslationRelaConfig(
            data="DATA", train_subset="train", load_alignments=True, source_lang="a", target_lang="b"
        ),
        make_dictionary(),
        make_dictionary(),
    )
    data = dataset(reversed_pairs())
    own.datasets = {"train": data, "valid": data}
    own._require_alignments("train")
    data.align_dataset = None
    own._require_alignments("valid")
    with pytest.raises(InputError, match="DATA has no train.align.a-b"):
        own._require_alignments("train")


def binarise(folder):
    """Make a data folder with alignments by fairseq-preprocess, as a user does."""
    pairs = [pair for seed in range(6) for pair in reversed_pairs(seed=seed)]
    words = make_dictionary()
    for side, lang in enumerate(("xa", "xb")):
        lines = [" ".join(words[int(token)] for token in pair[side][:-1]) for pair in pairs]
        (folder / f"train.{lang}").write_text("\n".join(lines) + "\n")
    (folder / "train.align").write_text("\n".join(" ".join(f"{s}-{t}" for s, t in pair[2]) for pair in pairs) + "\n")
    parser = options.get_preprocessing_parser()
    arguments = ["-s", "xa", "-t", "xb", "--trainpref", f"{folder}/train", "--align-suffix", "align"]
    preprocess.main(parser.parse_args([*arguments, "--destdir", f"{folder}/data"]))
    return folder / "data"


@pytest.mark.slow
def test_fairseq_train_runs_with_fairseqs_task(tmp_path):
    """The checkpoint has the name of fairseq's criterion, so that each criterion resumes the other's run."""
    flags = ["--user-dir", ROOT / "fairseq_rela", "--task", "translation", "--arch", "transformer_rela_tiny"]
    flags += ["--optimizer", "adam", "--lr", "1e-3", "--max-tokens", 200, "--cpu", "--save-dir", tmp_path / "run"]
    flags += ["--criterion", CRITERION_NAME, "--alignment-lambda", LAMBDA, "--load-alignments", "--max-update", 3]
    flags += ["--disable-validation", "--log-format", "json", "--log-interval", 1]
    result = run_fairseq("train", binarise(tmp_path), *flags)
    assert result.returncode == 0, result.stderr[-2000:]
    losses = re.findall(r'"alignment_loss": "([^"]+)"', result.stdout + result.stderr)
    assert len(losses) >= 3 and all(0 < float(loss) < 10 for loss in losses)
    checkpoint = load_anything(tmp_path / "run" / "checkpoint_last.pt")
    name = checkpoint["optimizer_history"][-1]["criterion_name"]
    assert name == fairseqs.LabelSmoothedCrossEntropyCriterionWithAlignment.__name__
