"""The decoder-only model: softmax equals fairseq's own, steps equal the whole sequence, and refused options."""

import argparse
import math

import pytest
import torch
from conftest import ROOT, make_dictionary
from fairseq import options as fairseq_options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import build_model
from fairseq.models.transformer_lm import (
    TransformerLanguageModel,
    TransformerLanguageModelConfig,
    base_lm_architecture,
)
from omegaconf import OmegaConf

from fairseq_rela.attention import VariantAttention
from fairseq_rela.errors import InputError
from fairseq_rela.models.config import nested_config
from fairseq_rela.models.lm_config import ARCHITECTURES, TransformerLMRelaConfig
from fairseq_rela.models.transformer_lm_rela import TransformerLMRelaModel
from fairseq_rela.variants import VARIANTS

SIZES = dict(decoder_layers=2, decoder_embed_dim=16, decoder_ffn_embed_dim=24, decoder_attention_heads=4)


def make_config(defaults=TransformerLMRelaConfig, **options):
    of_task = {"tokens_per_sample": 32, "max_target_positions": None, "add_bos_token": False, "tpu": False}
    dims = {"decoder_input_dim": 16, "decoder_output_dim": 16}
    return argparse.Namespace(**{**vars(defaults()), **of_task, **SIZES, **dims, "dropout": 0.0, **options})


def make_task(**options):
    dictionary = make_dictionary(20)
    return argparse.Namespace(
        source_dictionary=dictionary,
        target_dictionary=dictionary,
        dictionary=dictionary,
        args=argparse.Namespace(**{"tokens_per_sample": 32, "max_target_positions": None, **options}),
    )


def make_lm(attention, **options):
    torch.manual_seed(0)
    return TransformerLMRelaModel.build_model(make_config(attention=attention, **options), make_task()).double().eval()


TOKENS = torch.tensor([[2, 5, 6, 7, 8, 9], [2, 9, 4, 4, 5, 11]])


def test_softmax_is_fairseqs_own_model():
    ours = make_lm("softmax")
    torch.manual_seed(0)
    config = make_config(TransformerLanguageModelConfig)
    base_lm_architecture(config)
    theirs = TransformerLanguageModel.build_model(config, make_task()).double().eval()
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
        (dict(decoder_layers=0), "--decoder-layers 0"),
        (dict(dropout=1.0), "--dropout 1.0"),
        (dict(activation_fn="round"), "--activation-fn round"),
        (dict(base_layers=1), "--base-layers"),
        (dict(adaptive_input=True), "--adaptive-input-cutoff"),
        (dict(decoder_layers_to_keep="0,x"), "--decoder-layers-to-keep 0,x"),
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


# --- the config --------------------------------------------------------------------------------------------------


def parse(*flags):
    """The config of the model that fairseq-train makes of these flags."""
    arguments = ["DATA", "--user-dir", str(ROOT / "fairseq_rela"), "--task", "language_modeling", *flags]
    args = fairseq_options.parse_args_and_arch(fairseq_options.get_training_parser(), input_args=arguments)
    return convert_namespace_to_omegaconf(args).model


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_flags_and_architecture_reach_the_model(arch):
    cfg = parse("--arch", arch, "--decoder-layers", "1", "--tokens-per-sample", "48", "--attention-dropout", "0.25")
    model = build_model(cfg, make_task(tokens_per_sample=48))
    dim = {**ARCHITECTURES["transformer_lm_rela"], **ARCHITECTURES[arch]}["decoder_embed_dim"]
    assert model.decoder.num_layers == 1 and model.max_positions() == 48
    assert model.decoder.embed_tokens.embedding_dim == dim and model.decoder.project_in_dim is None
    assert model.decoder.layers[0].self_attn.variant_name == "rela_g"
    assert model.decoder.layers[0].self_attn.dropout_module.p == 0.25
    assert model.decoder.layers[0].normalize_before


def test_a_hydra_config_needs_only_the_name():
    """As fairseq-hydra-train hands it over where the plugin comes by common.user_dir: only what YAML files have."""
    cfg = OmegaConf.create({"_name": "transformer_lm_rela_tiny", "attention": "rela_i", "decoder_layers": None})
    OmegaConf.set_struct(cfg, True)
    model = build_model(cfg, make_task(tokens_per_sample=2048))
    assert model.decoder.num_layers == 2 and model.max_positions() == 2048
    assert model.decoder.layers[0].self_attn.variant_name == "rela_i"
    assert cfg.max_target_positions == 2048 and cfg.decoder_layers == 2


def test_max_target_positions_of_the_task_is_used():
    cfg = OmegaConf.create({"_name": "transformer_lm_rela_tiny"})
    assert build_model(cfg, make_task(tokens_per_sample=64, max_target_positions=100)).max_positions() == 100


def test_a_checkpoint_loads_again_with_its_recorded_config():
    torch.manual_seed(0)
    cfg = parse("--arch", "transformer_lm_rela_tiny", "--tokens-per-sample", "48", "--offload-activations")
    first = build_model(cfg, make_task(tokens_per_sample=48))
    plain = OmegaConf.create(OmegaConf.to_container(cfg, resolve=True))  # what torch.save writes
    second = build_model(plain, make_task(tokens_per_sample=999))
    second.load_state_dict(first.state_dict(), model_cfg=plain)
    assert second.max_positions() == 48 and plain.checkpoint_activations is True
    for (name, value), other in zip(first.state_dict().items(), second.state_dict().values()):
        assert torch.equal(value, other), name


@pytest.mark.slow
def test_kept_layers_are_those_of_the_checkpoint_and_stay_kept():
    whole = make_lm("rela_g", decoder_layers=3)
    config = make_config(attention="rela_g", decoder_layers=3, decoder_layers_to_keep="0,2")
    kept = TransformerLMRelaModel.build_model(config, make_task()).double().eval()
    kept.load_state_dict(whole.state_dict(), model_cfg=config)
    for new, old in ((0, 0), (1, 2)):
        for name, value in kept.decoder.layers[new].state_dict().items():
            assert torch.equal(value, whole.decoder.layers[old].state_dict()[name])
    assert config.decoder_layers == 2 and config.decoder_layers_to_keep is None
    again = TransformerLMRelaModel.build_model(config, make_task()).double().eval()
    again.load_state_dict(kept.state_dict(), model_cfg=config)
    assert torch.equal(again(TOKENS)[0], kept(TOKENS)[0])


def test_start_values_of_the_paper():
    """Bounds of models/start_values.py for d = 16 and an FFN of 24."""
    layer = make_lm("rela_g", rela_init="paper").decoder.layers[1]
    for weight, fan in ((layer.self_attn.q_proj.weight, 16 + 3 * 16), (layer.fc1.weight, 16 + 24)):
        bound = math.sqrt(6 / fan)
        assert 0.9 * bound < weight.abs().max() <= bound
    assert not layer.self_attn.q_proj.bias.any()


# options that do not belong to the layers: adaptive inputs and what they are tied to, characters, and the task
ELSEWHERE = {"character_filters", "character_embedding_dim", "char_embedder_highway_layers", "character_embeddings"}
ELSEWHERE |= {"adaptive_input_factor", "adaptive_input_cutoff", "add_bos_token", "tokens_per_sample", "_name"}
ELSEWHERE |= {
    "attention",
    "rela_backend",
    "rela_init",
    "rela_threshold",
    "rela_threshold_warmup",
    "rela_sparsity_target",
}
ELSEWHERE |= {"base_sublayers", "base_shuffle", "tpu"}


@pytest.mark.parametrize("key", sorted(set(vars(TransformerLMRelaConfig())) - ELSEWHERE))
def test_every_option_of_transformer_lm_reaches_the_layers(key):
    """An option that the nested config of fairseq does not take over would have no effect."""
    default = vars(TransformerLMRelaConfig())[key]
    value = (not default) if isinstance(default, bool) else "7" if default is None else 7
    if key.startswith("scale_"):  # fairseq's layers read these from the config, which has no field for them
        assert len(make_lm("rela_g", **{key: True}).state_dict()) > len(make_lm("rela_g").state_dict())
        return
    nested = nested_config(make_config(**{key: value}))
    for part, name in (("decoder", "decoder_"), ("quant_noise", "quant_noise_")):
        if key.startswith(name) and hasattr(getattr(nested, part), key[len(name) :]):
            assert getattr(getattr(nested, part), key[len(name) :]) == value
            return
    assert key in type(nested).__dataclass_fields__ and getattr(nested, key) == value
