"""--rela-init: the start values of the paper's released code, and fairseq's own unchanged."""

import argparse
import math
import re

import pytest
import torch
from conftest import make_model, make_task, values_of
from fairseq.models.transformer import TransformerModelBase
from test_models import from_flags, from_hydra

from fairseq_rela.errors import InputError
from fairseq_rela.models.config import ARCHITECTURES, TransformerRelaConfig, nested_config
from fairseq_rela.models.shared_options import apply_architecture
from fairseq_rela.models.transformer_rela import TransformerRelaModel


def build(seed=1, **options):
    torch.manual_seed(seed)
    config = TransformerRelaConfig(rela_init="paper", encoder_layers=1, decoder_layers=1)
    for key, value in options.items():
        setattr(config, key, value)
    return TransformerRelaModel.build_model(config, make_task())


# bounds at d = 512 and an FFN of 2,048: the variance-scaling initialiser of TensorFlow (scale 1, fan_avg, uniform) by
# the shapes of the variables in the released code
RELEASED = {
    r"encoder.*self_attn\.[qkv]_proj": math.sqrt(6 / (512 + 3 * 512)),
    r"decoder.*self_attn\.[qkv]_proj": math.sqrt(6 / (512 + 3 * 512)),
    r"encoder_attn\.[qkv]_proj": math.sqrt(6 / (512 + 512)),
    r"attn\.out_proj": math.sqrt(6 / (512 + 512)),
    r"fc1": math.sqrt(6 / (512 + 2048)),
    r"fc2": math.sqrt(6 / (2048 + 512)),
}


@pytest.mark.parametrize("attention", ["rela_g", "softmax"])
def test_the_paper_s_ranges_at_base_size(attention):
    model = build(attention=attention)
    seen = set()
    for name, parameter in model.named_parameters():
        bounds = [bound for pattern, bound in RELEASED.items() if re.search(pattern, name)]
        if not bounds:
            continue
        (bound,) = bounds
        seen.add(name.rpartition(".")[0])
        if name.endswith("bias"):
            assert not parameter.any(), name
        else:
            # uniform: the largest of 262,144 values and more is within 0.1 % of the bound, deviation bound / sqrt(3)
            assert 0.999 * bound < float(parameter.abs().max()) <= bound * (1 + 1e-6), name
            assert float(parameter.std()) == pytest.approx(bound / math.sqrt(3), rel=0.01), name
    assert len(seen) == (4 + 2) + (4 + 4 + 2)
    # the printed ones
    assert round(RELEASED["fc1"], 4) == round(RELEASED["fc2"], 4) == 0.0484
    assert RELEASED[r"encoder_attn\.[qkv]_proj"] == pytest.approx(math.sqrt(3 / 512)) == pytest.approx(0.0765, abs=5e-5)


def test_sides_of_unequal_size_have_their_own_ranges():
    """Keys and values of cross-attention have the encoder's size."""
    model = build(encoder_embed_dim=64, decoder_embed_dim=128, encoder_ffn_embed_dim=32, decoder_ffn_embed_dim=32)
    attention = model.decoder.layers[0].encoder_attn
    for projection, inputs in ((attention.q_proj, 128), (attention.k_proj, 64), (attention.v_proj, 64)):
        assert projection.weight.shape == (128, inputs)
        assert float(projection.weight.abs().max()) == pytest.approx(math.sqrt(6 / (inputs + 128)), rel=0.01)


def test_norms_and_embeddings_start_as_before():
    """The released code has the same ones; the gate is drawn from U(-sqrt(3/d), sqrt(3/d))."""
    model = build()
    norm = model.decoder.layers[0].encoder_attn.attn_norm
    assert torch.equal(norm.weight, torch.ones(512))
    assert 0.07 < float(norm.gate.abs().max()) <= math.sqrt(3 / 512)
    assert float(model.encoder.embed_tokens.weight[4:].std()) == pytest.approx(512**-0.5, rel=0.05)
    assert torch.equal(model.encoder.layers[0].final_layer_norm.weight, torch.ones(512))


def test_the_default_is_fairseqs_own_bit_for_bit():
    """The softmax model has the parameters of fairseq's model of the same seed."""
    config = TransformerRelaConfig(attention="softmax")
    apply_architecture(config, "transformer_rela_tiny", ARCHITECTURES)
    torch.manual_seed(7)
    ours = values_of(TransformerRelaModel.build_model(config, make_task()))
    torch.manual_seed(7)
    theirs = TransformerModelBase.build_model(nested_config(config), make_task()).state_dict()
    names = [name for name in ours if name in theirs]
    assert len(names) == len(ours) > 50  # fairseq 0.12.2 has copies of them
    assert all(torch.equal(ours[name], theirs[name]) for name in names)


def test_start_values_are_set_by_flags_or_hydra_or_a_missing_key():
    def parameters(build):
        torch.manual_seed(3)
        return values_of(build())

    arch = "transformer_rela_tiny"
    default = parameters(lambda: from_flags("--arch", arch))
    named = parameters(lambda: from_hydra(_name=arch, rela_init="fairseq"))
    paper = parameters(lambda: from_flags("--arch", arch, "--rela-init", "paper"))
    hydra = parameters(lambda: from_hydra(_name=arch, rela_init="paper"))
    old = argparse.Namespace(**vars(TransformerRelaConfig()))  # a checkpoint that was written before the key existed
    del old.rela_init
    apply_architecture(old, arch, ARCHITECTURES)
    without = parameters(lambda: TransformerRelaModel.build_model(old, make_task()))
    for name in default:
        assert torch.equal(default[name], named[name]) and torch.equal(default[name], without[name])
        assert torch.equal(paper[name], hydra[name])
    assert not torch.equal(default["encoder.layers.0.fc1.weight"], paper["encoder.layers.0.fc1.weight"])


def test_other_start_values_are_refused():
    with pytest.raises(InputError, match="--rela-init zero: choose one of fairseq, paper"):
        make_model(rela_init="zero")
