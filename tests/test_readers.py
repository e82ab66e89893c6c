"""The users of attention weights in decoding: printed alignments, scored references, unknown words."""

import argparse

import pytest
import torch
from conftest import make_dictionary, make_model, make_task
from fairseq import options, utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from test_guided_alignment import attend_to_nothing, batch_of, last_layer_weights, reversed_pairs
from test_tasks import GENERATION, sample, task_with

from fairseq_rela.alignment import strongest_links
from fairseq_rela.errors import InputError
from fairseq_rela.readers import Links, replace_unknown
from fairseq_rela.variants import VARIANTS

END = make_dictionary().eos()
PAD = make_dictionary().pad()


def finished(model, batch, gnmt_lenpen=None, **options):
    args = argparse.Namespace(**{**GENERATION, **options})
    return task_with(gnmt_lenpen=gnmt_lenpen).build_generator([model], args).generate([model], batch)


@pytest.mark.parametrize("gnmt_lenpen", [None, 0.6])
@pytest.mark.parametrize("name", VARIANTS)
def test_soft_alignments_are_probabilities(name, gnmt_lenpen):
    batch, model = sample(), make_model(name).float()
    for source, hypotheses in zip(
        batch["net_input"]["src_tokens"], finished(model, batch, gnmt_lenpen, print_alignment="soft")
    ):
        there = (source != PAD).tolist()
        for hypothesis in hypotheses:
            assert len(hypothesis["alignment"]) == len(hypothesis["tokens"])
            for printed, raw in zip(hypothesis["alignment"], hypothesis["attention"].t().tolist()):
                row = [max(weight, 0.0) for weight, word in zip(raw, there) if word]
                assert [float(p) for p in printed] == pytest.approx([weight / sum(row) for weight in row], abs=1e-6)


@pytest.mark.parametrize("options", [{"attention": "softmax"}, {"attention_sites": "encoder,decoder"}])
def test_soft_alignments_of_softmax_equal_fairseqs(options):
    args = argparse.Namespace(**GENERATION, print_alignment="soft")
    generator = task_with().build_generator([make_model(**options).float()], args)
    assert generator.extract_alignment is utils.extract_soft_alignment


def test_a_null_query_is_printed_as_a_row_of_zeros():
    model = make_model("rela_g").float()
    attend_to_nothing(model)
    (hypothesis, *_), *_ = finished(model, sample(), print_alignment="soft")
    assert {p for row in hypothesis["alignment"] for p in row} == {"0.000000"}


@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("name", ["softmax", "sparsemax", "rela_g", "rela_g_gelu"])
def test_alignments_of_scored_references_follow_their_weights(name, kind):
    """--score-reference: fairseq's scorer has only its own hard alignments, which link null rows to word 0."""
    pairs = reversed_pairs()
    batch, model = batch_of(pairs), make_model(name)
    weights = last_layer_weights(model, batch)
    scored = finished(model, batch, score_reference=True, print_alignment=kind)
    plain = finished(model, batch, score_reference=True)
    for (hypothesis,), (other,), row, i in zip(scored, plain, weights, batch["id"].tolist()):
        assert hypothesis["score"] == other["score"] and other["alignment"] is None
        length = len(pairs[i][1])
        if kind == "hard":
            assert hypothesis["alignment"] == strongest_links(row[: length - 1, :-1])
        else:
            rows = row[:length].clamp(min=0)
            want = (rows / rows.sum(dim=-1, keepdim=True)).tolist()
            for got, expected in zip(hypothesis["alignment"], want):
                assert [float(p) for p in got] == pytest.approx(expected, abs=1e-6)


def test_scored_references_with_null_rows_have_no_links():
    model = make_model("rela_g")
    attend_to_nothing(model)
    for (hypothesis,) in finished(model, batch_of(reversed_pairs()), score_reference=True, print_alignment="hard"):
        assert hypothesis["alignment"] == []


def test_unknown_words_follow_links():
    links, lexicon = Links([(2, 0), (0, 1), (1, 3)], 3), {"zwei": "two"}
    source = ["eins", "zwei", "drei"]
    got = replace_unknown(["<unk>", "w1", "<unk>", "<unk>"], source, links, lexicon, "<unk>")
    assert got == ["drei", "w1", "<unk>", "two"]  # the third has no link
    with pytest.raises(InputError, match="the source has 2 words once its BPE is undone, and 3 pieces in the model"):
        replace_unknown(["<unk>"], source[:2], links, lexicon, "<unk>")
    assert replace_unknown(["w1"], source[:2], links, lexicon, "<unk>") == ["w1"]


def that_writes_unknown_words(name):
    """Make a model that generates only unknown words."""
    model = make_model(name, task=make_task()).float()
    with torch.no_grad():
        model.decoder.output_projection.weight.zero_()
        model.decoder.output_projection.weight[make_dictionary().unk()] = 1.0
        model.decoder.layer_norm = torch.nn.LayerNorm(16)
        torch.nn.init.zeros_(model.decoder.layer_norm.weight)
        torch.nn.init.ones_(model.decoder.layer_norm.bias)
    return model


def post_processed(hypothesis, source, remove_bpe=None):
    """Process a hypothesis as fairseq-generate --replace-unk does."""
    dictionary = make_dictionary()
    return utils.post_process_prediction(
        hypothesis["tokens"].int(), source, hypothesis["alignment"], {}, dictionary, remove_bpe, {END}
    )


@pytest.mark.parametrize("remove_bpe", [None, "@@ "])
@pytest.mark.parametrize("name", ["softmax", "entmax15", "rela_g"])
def test_replace_unk_copies_the_strongest_source_word(name, remove_bpe):
    """fairseq itself raises an IndexError at the first unknown word."""
    model, batch, words = that_writes_unknown_words(name), sample(), make_dictionary()
    results = finished(model, batch, replace_unk="", max_len_a=0, max_len_b=4)
    for source, (hypothesis, *_) in zip(batch["net_input"]["src_tokens"], results):
        first = int((source != PAD).nonzero()[0])
        source_words = [words[int(token)] for token in source[first:-1]]
        strongest = hypothesis["attention"].t()[:-1, first:-1].argmax(dim=1).tolist()
        assert words.string(hypothesis["tokens"]).split() == ["<unk>"] * len(strongest) and strongest
        tokens, text, links = post_processed(hypothesis, " ".join(source_words), remove_bpe)
        assert text.split() == [source_words[s] for s in strongest]
        assert words.string(tokens) == text and links == hypothesis["alignment"]


def test_replace_unk_copies_no_word_for_null_rows():
    model, batch = that_writes_unknown_words("rela_g"), sample()
    attend_to_nothing(model)
    hypothesis = finished(model, batch, replace_unk="", max_len_a=0, max_len_b=4)[2][0]
    text = post_processed(hypothesis, "a b")[1]
    assert text and set(text.split()) == {"<unk>"}


def test_replace_unk_with_soft_alignments_is_refused():
    with pytest.raises(InputError, match="leave out --print-alignment soft"):
        finished(make_model().float(), sample(), replace_unk="", print_alignment="soft")


def test_other_hypotheses_are_processed_by_fairseq():
    words = make_dictionary()
    tokens = torch.IntTensor([4, words.unk(), 5, END])
    got = utils.post_process_prediction(tokens, "a b c", torch.tensor([0, 2, 1]), {"c": "d"}, words, None, {END})
    assert got[1] == "w0 d w1"
    with pytest.raises(IndexError):
        utils.post_process_prediction(tokens, "a b c", torch.empty(0), {}, words, None, {END})


@pytest.mark.parametrize("name", ["softmax", "rela_g"])
def test_the_hub_interface_gives_the_links_of_the_strongest_words(name):
    """`from_pretrained` gives fairseq's `GeneratorHubInterface`."""
    from fairseq.hub_utils import GeneratorHubInterface

    task, model = task_with(), make_model(name)
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_generation_parser(), ["data"]))
    hub = GeneratorHubInterface(cfg, task, [model])
    tokens = [torch.tensor([*pair[0], END]) for pair in [([5, 6, 7], []), ([8, 9], [])]]
    for (found, *_), source in zip(
        hub.generate(tokens, beam=2, print_alignment="hard", max_len_a=0, max_len_b=2), tokens
    ):
        (weights,) = last_layer_weights(model, batch_of([(source, found["tokens"], [])]))  # (T, S), of a parallel pass
        assert found["alignment"] == strongest_links(weights[: len(found["tokens"]) - 1, :-1])
