"""The task: the GNMT length penalty, and no lost sentences."""

import argparse
import math
from itertools import chain

import numpy as np
import pytest
import torch
from conftest import ROOT, make_dictionary, make_model, make_task
from fairseq import utils
from fairseq.data import LanguagePairDataset, ListDataset
from fairseq.sequence_generator import SequenceGenerator
from test_config import compose
from test_models import random_batch

from fairseq_rela.errors import InputError
from fairseq_rela.experiment.tasks import task_names
from fairseq_rela.tasks.gnmt import (
    GNMTScoring,
    GNMTSequenceGenerator,
    GNMTSequenceGeneratorWithAlignment,
    gnmt_length_penalty,
)
from fairseq_rela.tasks.translation_rela import TranslationRelaConfig, TranslationRelaTask
from fairseq_rela.variants import VARIANTS


def task_with(words=20, **options):
    config = TranslationRelaConfig(data="", train_subset="train", **options)
    return TranslationRelaTask(config, make_dictionary(words), make_dictionary(words))


def test_the_gnmt_penalty_equals_its_formula():
    assert gnmt_length_penalty(1, 0.6) == 1
    assert gnmt_length_penalty(25, 0.6) == pytest.approx(5**0.6)
    assert gnmt_length_penalty(10, 0.0) == 1


def test_the_best_hypothesis_is_chosen_by_the_gnmt_penalty():
    """B13: at 0.6 fairseq's division by length prefers the long hypothesis, GNMT's penalty the short one."""

    class Finished:
        def _generate(self):
            def hypothesis(score, length):
                return {"tokens": torch.zeros(length), "positional_scores": torch.full((length,), score / length)}

            long, short = hypothesis(-4.2, 10), hypothesis(-3.0, 5)
            for h in (long, short):
                h["score"] = h["positional_scores"].sum() / len(h["tokens"]) ** 0.6
            assert long["score"] > short["score"]
            return [[long, short]]

    class Scored(GNMTScoring, Finished):
        pass

    first, second = Scored(gnmt_lenpen=0.6)._generate()[0]
    assert len(first["tokens"]) == 5
    assert float(first["score"]) == pytest.approx(-3.0 / (10 / 6) ** 0.6)
    assert float(second["score"]) == pytest.approx(-4.2 / (15 / 6) ** 0.6)


GENERATION = dict(beam=4, max_len_a=1, max_len_b=5, lenpen=1)


@pytest.mark.parametrize(
    "options, arguments, cls",
    [
        ({}, {}, SequenceGenerator),
        ({"gnmt_lenpen": 0.6}, {}, GNMTSequenceGenerator),
        ({"gnmt_lenpen": 0.0}, {}, GNMTSequenceGenerator),
        ({"gnmt_lenpen": 0.6}, {"print_alignment": "hard"}, GNMTSequenceGeneratorWithAlignment),
    ],
)
def test_options_decide_which_generator_is_built(options, arguments, cls):
    args = argparse.Namespace(**GENERATION, **arguments)
    assert type(task_with(**options).build_generator([make_model().float()], args)) is cls


def test_two_length_penalties_are_refused():
    args = argparse.Namespace(**{**GENERATION, "lenpen": 0.5})
    with pytest.raises(InputError, match="--gnmt-lenpen replaces --lenpen"):
        task_with(gnmt_lenpen=0.6).build_generator([make_model().float()], args)


def sample(words=20):
    source, lengths, _ = random_batch(words=words)
    return {"id": torch.arange(3), "net_input": {"src_tokens": source, "src_lengths": lengths}}


def log_probabilities(model, source, tokens):
    """Return the teacher-forced log p of each token of one hypothesis, whose source is not padded."""
    eos = make_dictionary().eos()
    previous = torch.cat([torch.tensor([eos]), tokens[:-1]]).unsqueeze(0)
    with torch.no_grad():
        logits = model(source.unsqueeze(0), torch.tensor([len(source)]), previous)[0]
    return torch.log_softmax(logits[0], -1).gather(-1, tokens[:, None])[:, 0]


@pytest.mark.parametrize("name", VARIANTS)
def test_beam_scores_equal_teacher_forced_ones(name):
    """B27: with a beam of 4, sentences that end at different steps do not exchange their caches."""
    words, lengths = 4, set()  # so few words that the end of sentence is often among the best candidates
    for seed in (0, 2):
        model = make_model(name, seed=seed, task=make_task(words)).float()
        torch.manual_seed(seed)
        torch.nn.init.normal_(model.decoder.output_projection.weight, std=0.1)
        task = task_with(words=words, gnmt_lenpen=0.6)
        batch = sample(words)
        finished = task.build_generator([model], argparse.Namespace(**GENERATION)).generate([model], batch)
        for i, n in enumerate((7, 5, 3)):
            scores = [float(h["score"]) for h in finished[i]]
            assert scores == sorted(scores, reverse=True) and len(scores) == 4
            for hypothesis in finished[i]:
                want = log_probabilities(model, batch["net_input"]["src_tokens"][i, -n:], hypothesis["tokens"])
                torch.testing.assert_close(hypothesis["positional_scores"], want, atol=1e-4, rtol=1e-4)
                penalty = ((5 + len(hypothesis["tokens"])) / 6) ** 0.6
                assert float(hypothesis["score"]) == pytest.approx(float(want.sum()) / penalty, abs=1e-4)
                lengths.add(len(hypothesis["tokens"]))
    assert len(lengths) > 1


@pytest.mark.parametrize("gnmt_lenpen", [None, 0.6])
@pytest.mark.parametrize("name", ["softmax", "rela_g"])
def test_alignments_change_no_score_and_no_order(name, gnmt_lenpen):
    """B10, B13: hypotheses have unequal lengths, which fairseq pads; softmax's links equal those of fairseq."""
    words, lengths, dictionary = 4, set(), make_dictionary(4)
    task, batch = task_with(words=words, gnmt_lenpen=gnmt_lenpen), sample(words)
    for seed in (0, 1, 2):
        model = make_model(name, seed=seed, task=make_task(words)).float()
        torch.manual_seed(seed)
        torch.nn.init.normal_(model.decoder.output_projection.weight, std=0.1)
        finished = {}
        for alignment in (None, "hard", "soft"):
            args = argparse.Namespace(**GENERATION, print_alignment=alignment)
            finished[alignment] = task.build_generator([model], args).generate([model], batch)
        lengths |= {len(h["tokens"]) for hypotheses in finished[None] for h in hypotheses}
        for alignment in ("hard", "soft"):
            for plain, aligned in zip(chain(*finished[None]), chain(*finished[alignment])):
                assert plain["tokens"].tolist() == aligned["tokens"].tolist()
                assert float(plain["score"]) == float(aligned["score"])
        for source, hypotheses in zip(batch["net_input"]["src_tokens"], finished["hard"]):
            for hypothesis in hypotheses:
                weights, tokens = hypothesis["attention"].t().clone(), hypothesis["tokens"]
                want = utils.extract_hard_alignment(weights, source, tokens, dictionary.pad(), dictionary.eos())
                want = sorted((int(s), int(t)) for s, t in want)
                assert set(hypothesis["alignment"]) <= set(want)
                assert name != "softmax" or sorted(hypothesis["alignment"]) == want
    assert len(lengths) > 1


@pytest.mark.parametrize("name", ["softmax", "entmax15", "rela_g"])
def test_beam_1_is_greedy(name):
    model = make_model(name).float()
    args = argparse.Namespace(**{**GENERATION, "beam": 1})
    generator = task_with().build_generator([model], args)
    batch = sample()
    eos = make_dictionary().eos()
    for i, n in enumerate((7, 5, 3)):
        source = batch["net_input"]["src_tokens"][i, -n:]
        tokens = []
        while len(tokens) < 7 + 5 + 1 and (not tokens or tokens[-1] != eos):  # the longest source gives the limit
            previous = torch.tensor([[eos, *tokens]])
            with torch.no_grad():
                logits = model(source.unsqueeze(0), torch.tensor([n]), previous)[0][0, -1]
            logits[make_dictionary().pad()] = -math.inf
            if not tokens:
                logits[eos] = -math.inf  # min_len 1
            tokens.append(int(logits.argmax()) if len(tokens) < 12 else eos)
        got = generator.generate([model], batch)[i][0]["tokens"].tolist()
        assert got == tokens


def dataset(sentences):
    dictionary = make_dictionary()
    lines = [torch.tensor([4 + i % 20] * (1 + i % 7) + [dictionary.eos()]) for i in range(sentences)]
    sizes = np.array([len(line) for line in lines])
    lists = [ListDataset(lines, sizes) for _ in range(2)]
    return LanguagePairDataset(lists[0], sizes, dictionary, lists[1], sizes, dictionary)


def batched_ids(task, data, **options):
    iterator = task.get_batch_iterator(data, max_positions=(1024, 1024), required_batch_size_multiple=8, **options)
    return sorted(i for batch in iterator.next_epoch_itr(shuffle=False) for i in batch["id"].tolist())


@pytest.mark.parametrize("options", [{"max_tokens": 4000}, {"max_sentences": 7}, {"max_sentences": 1}])
@pytest.mark.parametrize("sentences", [1, 5, 30])
def test_no_sentence_is_lost_outside_training(sentences, options):
    """B01: newer versions of fairseq drop a last batch that is not a multiple of 8."""
    task = task_with()
    task.datasets = {"train": dataset(20), "test": dataset(sentences)}
    assert batched_ids(task, task.datasets["test"], **options) == list(range(sentences))
    # generating from the training set loses none either; only training leaves out long sentences
    assert batched_ids(task, task.datasets["train"], **options) == list(range(20))


def training_iterator(task, **options):
    data = task.datasets["train"]
    return task.get_batch_iterator(data, max_positions=(1024, 1024), ignore_invalid_inputs=True, **options)


def test_training_keeps_the_requested_multiple():
    task = task_with()
    task.datasets = {"train": dataset(20)}
    iterator = training_iterator(task, max_tokens=90, required_batch_size_multiple=8)
    sizes = [len(batch["id"]) for batch in iterator.next_epoch_itr(shuffle=False)]
    assert all(size % 8 == 0 for size in sizes[:-1])


def training_batches(task, begun_in, epoch):
    """Return the sentences of every batch of an epoch, in order, for a process that started in an earlier epoch."""
    iterator = training_iterator(task, max_tokens=30, seed=3, epoch=begun_in)
    assert iterator.epoch == begun_in
    for number in range(begun_in, epoch + 1):
        batches = [batch["id"].tolist() for batch in iterator.next_epoch_itr()]
        assert iterator.epoch == number and sorted(i for batch in batches for i in batch) == list(range(60))
        # as fairseq's trainer does at the beginning of an epoch: the existing iterator is used again
        assert training_iterator(task, epoch=9) is iterator
        assert iterator.epoch == number
    return batches


def test_resumed_run_sees_the_same_batches():
    """fairseq makes the batches once; their seed is the epoch in which the process starts."""

    def fresh():
        task = task_with()
        task.datasets = {"train": dataset(60)}
        return task

    whole = training_batches(fresh(), 1, 5)
    assert training_batches(fresh(), 5, 5) == training_batches(fresh(), 3, 5) == whole
    assert training_batches(fresh(), 1, 4) != whole  # the order changes with each epoch


def test_fixture_dictionaries_agree():
    task = make_task()
    assert len(task.source_dictionary) == len(make_dictionary()) == 24


def test_validation_bleu_differs_from_test_bleu():
    """B29: fairseq's references are binarised text, in which an unknown word never matches."""
    from fairseq_rela.experiment.scoring import score

    reference = "the cat sat on the zyzzyva today"
    dictionary = make_dictionary(0)
    for word in (*reference.replace("zyzzyva", "mat").split(), "zyz@@", "zyva"):
        dictionary.add_symbol(word)
    task = TranslationRelaTask(
        TranslationRelaConfig(data="", eval_bleu=True, eval_bleu_remove_bpe="@@ "), dictionary, dictionary
    )
    task.tokenizer = None
    target = dictionary.encode_line(reference, add_if_not_exist=False).long()[None]
    perfect = dictionary.encode_line(reference.replace("zyzzyva", "zyz@@ zyva"), add_if_not_exist=False).long()
    task.inference_step = lambda *args, **kwargs: [[{"tokens": perfect}]]
    watched = task._inference_with_bleu(None, {"target": target}, None)
    scored = score([dictionary.string(perfect)], [reference], "en")
    assert scored["bleu"] == pytest.approx(100)
    # 6 of 7 words match, and 4 of 6, 3 of 5, 2 of 4 longer n-grams
    assert watched.score == pytest.approx(100 * (6 / 7 * 4 / 6 * 3 / 5 * 2 / 4) ** 0.25)


@pytest.mark.parametrize("name", task_names())
def test_no_shipped_config_chooses_by_validation_bleu(name):
    """B29: the last checkpoints are averaged and scored; the docs describe validation BLEU as no score."""
    cfg = compose(name)
    assert not cfg["task"].get("eval_bleu") and cfg["checkpoint"]["best_checkpoint_metric"] == "loss"
    assert "eval_bleu" in (ROOT / "docs" / "fairseq.md").read_text()
