"""The decoder-only model: softmax equals fairseq's own, steps equal the whole sequence, and refused options."""

import argparse

import pytest
import torch
from conftest import make_dictionary
from fairseq.models.transformer_lm import TransformerLanguageModel, base_lm_architecture

from fairseq_rela.attention import VariantAttention
from fairseq_rela.errors import InputError
from fairseq_rela.models.transformer_lm_rela import ARCHITECTURES, TransformerLMRelaConfig, TransformerLMRelaModel
from fairseq_rela.variants import VARIANTS

SIZES = dict(decoder_layers=2, decoder_embed_dim=16, decoder_ffn_embed_dim=24, decoder_attention_heads=4)


def make_config(**options):
    values = {**vars(TransformerLMRelaConfig()), "tokens_per_sample": 32, "max_target_positions": None}
    values = {**values, "add_bos_token": False, "tpu": False}
    dims = {"decoder_input_dim": 16, "decoder_output_dim": 16}
    cfg = argparse.Namespace(**{**values, **SIZES, **dims, "dropout": 0.0, **options})
    base_lm_architecture(cfg)
    return cfg


def make_task():
    dictionary = make_dictionary(20)
    return argparse.Namespace(source_dictionary=dictionary, target_dictionary=dictionary, dictionary=dictionary)


def make_lm(attention, **options):
    torch.manual_seed(0)
    return TransformerLMRelaModel.build_model(make_config(attention=attention, **options), make_task()).double().eval()


TOKENS = torch.tensor([[2, 5, 6, 7, 8, 9], [2, 9, 4, 4, 5, 11]])


def test_softmax_is_fairseqs_own_model():
    ours = make_lm("softmax")
    torch.manual_seed(0)
    theirs = TransformerLanguageModel.build_model(make_config(), make_task()).double().eval()
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert torch.equal(ours(TOKENS)[0], theirs(TOKENS)[0])


@pytest.mark.parametrize("attention", VARIANTS)
def test_steps_equal_the_whole_sequence(attention):
    model = make_lm(attention)
    modules = [module for module in model.modules() if isinstance(module, VariantAttention)]
    assert len(modules) == (0 if attention == "softmax" else 2)
    whole, _ = model(TOKENS)
    state = {}
    steps = [model(TOKENS[:, : i + 1], incremental_state=state)[0] for i in range(TOKENS.size(1))]
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, atol=1e-6, rtol=1e-6)


def test_future_tokens_do_not_change_the_output():
    model, other = make_lm("rela_g"), TOKENS.clone()
    other[:, 3:] = 12
    assert torch.equal(model(TOKENS)[0][:, :3], model(other)[0][:, :3])


def test_a_softmax_checkpoint_starts_a_rela_model(caplog):
    softmax, model = make_lm("softmax"), make_lm("rela_g")
    model.load_state_dict(softmax.state_dict())
    assert "the checkpoint lacks 4 parameters of attention norms and weights" in caplog.text
    assert torch.equal(
        model.decoder.layers[0].self_attn.q_proj.weight, softmax.decoder.layers[0].self_attn.q_proj.weight
    )


def test_adaptive_inputs_and_softmax_equal_fairseqs():
    adaptive = dict(adaptive_input=True, adaptive_input_cutoff="8,14", adaptive_softmax_cutoff="8,14")
    model = make_lm("rela_g", **adaptive, tie_adaptive_weights=True, tie_adaptive_proj=True)
    assert type(model.decoder.embed_tokens).__name__ == "AdaptiveInput"
    assert type(model.decoder.adaptive_softmax).__name__ == "AdaptiveSoftmax"
    assert model(TOKENS)[0].isfinite().all()


@pytest.mark.parametrize(
    "options, fault",
    [
        (dict(attention="relax"), "no such variant"),
        (dict(rela_backend="fast"), "--rela-backend fast"),
        (dict(character_embeddings=True), "--character-embeddings"),
        (dict(decoder_attention_heads=3), "does not divide"),
        (dict(tie_adaptive_weights=True), "--tie-adaptive-weights needs --adaptive-input"),
    ],
)
def test_wrong_options_are_refused(options, fault):
    with pytest.raises(InputError, match=fault):
        make_lm(**{"attention": "rela_g", **options})


def test_gpt2_small_has_the_published_size():
    """It has 124 million parameters with 50,257 tokens (Radford et al. 2019), of which 85 million are in the layers."""
    layers = ARCHITECTURES["transformer_lm_rela_gpt2_small"]
    size, inner = layers["decoder_embed_dim"], layers["decoder_ffn_embed_dim"]
    per_layer = 4 * (size * size + size) + 2 * size * inner + inner + size + 4 * size
    assert round(layers["decoder_layers"] * per_layer / 1e6) == 85
