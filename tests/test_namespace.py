"""Tasks and models built from an argparse Namespace, as in fairseq's own scripts and examples."""

import argparse

import pytest
import torch
from conftest import make_dictionary, values_of
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import register_model_architecture
from fairseq.trainer import Trainer
from test_models import random_batch

from fairseq_rela.models.config import ARCHITECTURES, MODEL_NAME
from fairseq_rela.models.shared_options import apply_architecture
from fairseq_rela.models.transformer_rela import TransformerRelaModel, describe_attention

TINY = ["--encoder-embed-dim", "16", "--decoder-embed-dim", "16", "--encoder-ffn-embed-dim", "24"]
TINY += ["--decoder-ffn-embed-dim", "24", "--encoder-attention-heads", "4", "--decoder-attention-heads", "4"]
TINY += ["--encoder-layers", "2", "--decoder-layers", "1"]


@pytest.fixture
def folder(tmp_path):
    for lang in ("xa", "xb"):
        make_dictionary().save(str(tmp_path / f"dict.{lang}.txt"))
    return tmp_path


def arguments(folder, *flags):
    given = [str(folder), "--source-lang", "xa", "--target-lang", "xb", "--optimizer", "adam", "--lr", "0.1", "--cpu"]
    return options.parse_args_and_arch(options.get_training_parser(), [*given, "--max-tokens", "100", *flags])


@pytest.mark.parametrize(
    "task, arch", [("translation_rela", "transformer_rela"), ("translation", "transformer_rela_tiny")]
)
def test_a_namespace_builds_what_the_command_line_builds(folder, task, arch):
    flags = ["--task", task, "--arch", arch, "--attention-sites", "cross", *TINY]
    torch.manual_seed(1)
    args = arguments(folder, *flags)
    built = tasks.setup_task(args).build_model(args)
    torch.manual_seed(1)
    cfg = convert_namespace_to_omegaconf(arguments(folder, *flags))
    wanted = tasks.setup_task(cfg.task).build_model(cfg.model)
    assert describe_attention(built) == "encoder softmax x 2, decoder softmax x 1, cross rela_g x 1"
    assert repr(built) == repr(wanted)
    assert all(torch.equal(value, built.state_dict()[name]) for name, value in values_of(wanted).items())
    # and the other steps of a script
    task = tasks.setup_task(args)
    trainer = Trainer(args, task, built, task.build_criterion(args))
    assert trainer.cfg.model.attention == "rela_g" and trainer.cfg.model.decoder_layers == 1


@pytest.mark.parametrize("arch, layers", [("transformer_rela", 6), ("transformer_rela_tiny", 2)])
def test_a_namespace_with_only_an_architecture_uses_the_defaults(folder, arch, layers):
    """A namespace that is written by hand has only a few values."""
    small = dict(encoder_embed_dim=16, decoder_embed_dim=16, encoder_ffn_embed_dim=8, decoder_ffn_embed_dim=8)
    args = argparse.Namespace(task="translation_rela", data=str(folder), source_lang="xa", target_lang="xb", arch=arch)
    vars(args).update(small, encoder_attention_heads=4, decoder_attention_heads=4)
    model = tasks.setup_task(args).build_model(args)
    assert describe_attention(model) == ", ".join(f"{s} rela_g x {layers}" for s in ("encoder", "decoder", "cross"))
    task = tasks.setup_task(args)
    direct = TransformerRelaModel.build_model(argparse.Namespace(arch=arch, **small), task)
    assert len(direct.encoder.layers) == layers
    source, lengths, target = random_batch()
    assert model(source, lengths, target)[0].shape == (*target.shape, 24)


def test_an_architecture_of_another_plugin_can_be_used(folder):
    @register_model_architecture(MODEL_NAME, "transformer_rela_of_a_test")
    def one_layer(cfg):
        cfg.encoder_layers = cfg.decoder_layers = 1
        apply_architecture(cfg, "transformer_rela_tiny", ARCHITECTURES)

    args = arguments(folder, "--task", "translation_rela", "--arch", "transformer_rela_of_a_test")
    cfg = convert_namespace_to_omegaconf(args)
    for model in (
        tasks.setup_task(args).build_model(args),
        tasks.setup_task(cfg.task).build_model(cfg.model),
    ):
        assert len(model.encoder.layers) == 1 and model.encoder.layers[0].embed_dim == 128
