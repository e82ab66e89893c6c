"""The model: architectures, configuration by flags or Hydra, the code that runs after loading, refused options."""

import argparse
import sys

import pytest
import torch
from conftest import SIZES, make_dictionary, make_model, make_task, run
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY, build_model
from omegaconf import OmegaConf
from warm import WARM

from fairseq_rela.attention import VariantAttention
from fairseq_rela.errors import InputError
from fairseq_rela.models.config import ARCHITECTURES, TransformerRelaConfig
from fairseq_rela.models.layers import FUSED_PARAMETERS
from fairseq_rela.models.transformer_rela import TransformerRelaModel, attention_modules, describe_attention
from fairseq_rela.variants import SITES, VARIANTS

# layers, size, FFN, heads, dropout
TABLE = {
    "transformer_rela": (6, 512, 2048, 8, 0.1),
    "transformer_rela_wmt_en_de": (6, 512, 2048, 8, 0.1),
    "transformer_rela_iwslt_de_en": (6, 512, 1024, 4, 0.1),
    "transformer_rela_big": (6, 1024, 4096, 16, 0.3),
    "transformer_rela_tiny": (2, 128, 256, 4, 0.1),
}


def parameters_without_embeddings(layers, d, ffn, norm_vectors=2):
    """Count by hand: attention 4d^2 + 4d, FFN 2*d*ffn + ffn + d, LayerNorm 2d, and ReLA's norm."""
    attention, feed_forward, layer_norm = 4 * d * d + 4 * d + norm_vectors * d, 2 * d * ffn + ffn + d, 2 * d
    encoder = attention + feed_forward + 2 * layer_norm
    decoder = 2 * attention + feed_forward + 3 * layer_norm
    return layers * (encoder + decoder)


def from_flags(*flags):
    """Build the model of fairseq-train for these flags, with a dictionary of 20 words."""
    parser = options.get_training_parser()
    arguments = options.parse_args_and_arch(parser, ["data", "--task", "translation", *flags])
    return build_model(convert_namespace_to_omegaconf(arguments).model, make_task())


def from_hydra(**model):
    """Build the model of fairseq-hydra-train for this model node."""
    from fairseq.dataclass.configs import FairseqConfig
    from fairseq.dataclass.initialize import add_defaults

    fields = FairseqConfig.__dataclass_fields__
    cfg = OmegaConf.create(dict.fromkeys(fields))
    cfg.model = OmegaConf.create(model)
    add_defaults(cfg)
    return build_model(OmegaConf.create(OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)).model, make_task())


def shape_of(model):
    encoder, decoder = model.encoder, model.decoder
    layer = encoder.layers[0]
    assert len(encoder.layers) == len(decoder.layers)
    assert decoder.layers[0].fc1.out_features == layer.fc1.out_features
    return (
        len(encoder.layers),
        layer.embed_dim,
        layer.fc1.out_features,
        layer.self_attn.num_heads,
        layer.dropout_module.p,
    )


def count(model, embeddings=False):
    return sum(p.numel() for n, p in model.named_parameters() if embeddings or "embed" not in n and "output" not in n)


@pytest.mark.parametrize("arch", TABLE)
def test_every_architecture_has_its_sizes_by_flags_and_by_hydra(arch, uninitialised):
    """B05: presets can be ignored without a warning."""
    for model in (from_flags("--arch", arch), from_hydra(_name=arch)):
        assert type(model) is TransformerRelaModel
        assert shape_of(model) == TABLE[arch]
        assert count(model) == parameters_without_embeddings(*TABLE[arch][:3])
        assert describe_attention(model) == ", ".join(f"{s} rela_g x {TABLE[arch][0]}" for s in SITES)


def test_the_table_is_complete_and_registered():
    assert set(TABLE) == set(ARCHITECTURES)
    assert all(ARCH_MODEL_REGISTRY[arch] is TransformerRelaModel for arch in TABLE)
    assert MODEL_REGISTRY["transformer_rela"] is TransformerRelaModel


@pytest.mark.parametrize("attention, vectors", [("softmax", 0), ("relu", 0), ("rela_i", 1), ("rela_g", 2)])
def test_the_base_model_has_the_expected_number_of_parameters(attention, vectors, uninitialised):
    """44,138,496 without embeddings; ReLA-g adds 18 x 2 x 512 = 18,432 (FIDELITY section 4)."""
    model = from_hydra(_name="transformer_rela", attention=attention)
    assert count(model) == 44_138_496 + vectors * 9_216


def test_explicit_flags_beat_presets():
    flags = ["--arch", "transformer_rela_tiny", "--encoder-layers", "1", "--decoder-ffn-embed-dim", "96"]
    flags += ["--dropout", "0.3", "--attention", "sparsemax", "--attention-sites", "cross"]
    values = dict(encoder_layers=1, decoder_ffn_embed_dim=96, dropout=0.3, attention="sparsemax")
    for model in (
        from_flags(*flags),
        from_hydra(_name="transformer_rela_tiny", attention_sites="cross", **values),
    ):
        assert len(model.encoder.layers) == 1 and len(model.decoder.layers) == 2
        assert model.decoder.layers[0].fc1.out_features == 96 and model.encoder.layers[0].fc1.out_features == 256
        assert model.encoder.layers[0].dropout_module.p == 0.3
        assert describe_attention(model) == "encoder softmax x 1, decoder softmax x 2, cross sparsemax x 2"


def test_flags_that_equal_the_base_value_beat_presets():
    """--encoder-layers 6 is the default without a preset; it must also hold for a tiny architecture."""
    model = from_flags("--arch", "transformer_rela_tiny", "--encoder-layers", "6")
    assert len(model.encoder.layers) == 6
    assert len(from_hydra(_name="transformer_rela_tiny", encoder_layers=6).encoder.layers) == 6


def test_flags_and_hydra_give_the_same_parameters():
    torch.manual_seed(1)
    first = from_flags("--arch", "transformer_rela_tiny", "--share-decoder-input-output-embed")
    torch.manual_seed(1)
    second = from_hydra(_name="transformer_rela_tiny", share_decoder_input_output_embed=True)
    assert first.state_dict().keys() == second.state_dict().keys()
    assert all(torch.equal(v, second.state_dict()[k]) for k, v in first.named_parameters())


def test_an_unknown_key_is_refused_by_hydra():
    with pytest.raises(Exception, match="encoder_layer"):
        from_hydra(_name="transformer_rela", encoder_layer=2)


def test_every_option_of_fairseqs_transformer_exists():
    """The flat names are the names in fairseq's own command line."""
    names = set(TransformerRelaConfig.__dataclass_fields__)
    parser = argparse.ArgumentParser()
    MODEL_REGISTRY["transformer"].add_args(parser)
    theirs = {action.dest for action in parser._actions} - {"help"}
    assert theirs <= names | {"decoder_output_dim"}


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--attention", "relu2"], "--attention relu2: no such variant; choose one of softmax, sparsemax"),
        (["--attention-sites", "encoder,both"], "--attention-sites encoder,both: no such site 'both'"),
        (["--encoder-attention-heads", "3"], "--encoder-attention-heads 3 does not divide --encoder-embed-dim 128"),
        (["--decoder-layers", "0"], "--decoder-layers 0: give a whole number of at least 1"),
        (["--dropout", "1.5"], "--dropout 1.5 is not a probability"),
    ],
)
def test_invalid_options_are_refused(flags, message):
    with pytest.raises(InputError) as error:  # in Python the process does not exit
        from_flags("--arch", "transformer_rela_tiny", *flags)
    assert message in str(error.value)


@pytest.mark.parametrize("command", ["/usr/bin/fairseq-train", "/x/fairseq_cli/hydra_train.py"])
def test_fairseqs_commands_end_after_one_line(command, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", [command])
    with pytest.raises(SystemExit) as error:
        from_flags("--arch", "transformer_rela_tiny", "--dropout", "1.5")
    assert error.value.code == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("fairseq_rela: error: --dropout 1.5 is not a probability")


SITE_CHOICES = ["encoder", "decoder", "cross", "encoder,decoder,cross"]


@pytest.mark.parametrize("sites", SITE_CHOICES)
def test_other_sites_keep_fairseqs_own_attention(sites):
    model = make_model("rela_g", attention_sites=sites)
    for site, modules in attention_modules(model).items():
        assert len(modules) == 2
        for m in modules.values():
            assert isinstance(m, VariantAttention) == (site in sites.split(","))


def random_batch(seed=0, words=20, lengths=(7, 5, 3), targets=(6, 4, 5)):
    """Return left-padded sources and right-padded targets of a dictionary of 20 words, as in fairseq."""
    generator = torch.Generator().manual_seed(seed)
    dictionary = make_dictionary(words)
    pad, eos = dictionary.pad(), dictionary.eos()
    source = torch.full((len(lengths), max(lengths)), pad)
    target = torch.full((len(targets), max(targets)), pad)
    for i, (n, m) in enumerate(zip(lengths, targets)):
        source[i, -n:] = torch.randint(4, words + 4, (n,), generator=generator)
        source[i, -1] = eos
        target[i, :m] = torch.randint(4, words + 4, (m,), generator=generator)
        target[i, 0] = eos
    return source, torch.tensor(lengths), target


@pytest.mark.parametrize("sites", SITE_CHOICES)
@pytest.mark.parametrize("name", VARIANTS)
def test_parallel_equals_step_by_step(name, sites):
    """B03 for the whole model, with padding."""
    model = make_model(name, attention_sites=sites)
    source, lengths, target = random_batch()
    with torch.no_grad():
        want = model(source, lengths, target)[0]
        encoder_out = model.encoder(source, lengths)
        state, steps = {}, []
        for t in range(target.size(1)):
            out = model.decoder(target[:, : t + 1], encoder_out=encoder_out, incremental_state=state)[0]
            steps.append(out)
    got = torch.cat(steps, dim=1)
    for i, m in enumerate((6, 4, 5)):
        torch.testing.assert_close(got[i, :m], want[i, :m], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_sentence_alone_or_in_a_batch_gives_the_same_output(name):
    """B26 for the whole model: left padding of the source, right padding of the target."""
    model = make_model(name)
    source, lengths, target = random_batch()
    with torch.no_grad():
        together = model(source, lengths, target)[0]
        for i, (n, m) in enumerate(((7, 6), (5, 4), (3, 5))):
            alone = model(source[i : i + 1, -n:], lengths[i : i + 1], target[i : i + 1, :m])[0]
            torch.testing.assert_close(together[i, :m], alone[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", VARIANTS)
def test_no_parameter_is_unused(name):
    model = make_model(name).train()
    source, lengths, target = random_batch()
    out = model(source, lengths, target)[0]
    (out * torch.randn_like(out)).sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None] == []


def calls_of(model, run):
    """Return how often ``run`` calls each attention module."""
    calls = {}
    handles = [
        m.register_forward_hook(lambda *_, name=name: calls.__setitem__(name, calls.get(name, 0) + 1))
        for modules in attention_modules(model).values()
        for name, m in modules.items()
    ]
    output = run()
    for handle in handles:
        handle.remove()
    return calls, output


@pytest.mark.parametrize("name", VARIANTS)
def test_a_loaded_model_computes_the_same_as_the_saved_one(name, tmp_path):
    """B02: fairseq 0.12.2 replaces the encoder's attention by fused softmax once a checkpoint is loaded."""
    model = make_model(name)
    source, lengths, target = random_batch()

    def forward(m):
        with torch.no_grad():
            return m.encoder(source, lengths)["encoder_out"][0], m(source, lengths, target)[0]

    calls, before = calls_of(model, lambda: forward(model))
    torch.save(model.state_dict(), tmp_path / "model.pt")
    other = make_model(name, seed=9)
    other.load_state_dict(torch.load(tmp_path / "model.pt"), strict=True)
    calls_after, after = calls_of(other.eval(), lambda: forward(other))
    assert calls == calls_after and len(calls) == 6
    assert {calls[n] for n in calls if n.startswith("encoder.")} == {2}
    for x, y in zip(before, after):
        torch.testing.assert_close(x, y, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_fused_encoder_cannot_run(name):
    """If fairseq has it, it is off, without copies of parameters, and loading needs none of its keys."""
    model = make_model(name)
    for layer in model.encoder.layers:
        assert not layer.can_use_fastpath
        assert not getattr(layer, "load_to_BT", False)
        assert not set(FUSED_PARAMETERS) & set(dict(layer.named_parameters(recurse=False)))
    state = model.state_dict()
    phantoms = {f"encoder.layers.0.{name}": torch.zeros(2, 2) for name in FUSED_PARAMETERS}
    model.load_state_dict({**state, **phantoms}, strict=True)
    assert not any(getattr(layer, "load_to_BT", False) for layer in model.encoder.layers)


def test_a_softmax_checkpoint_starts_a_rela_model(caplog):
    softmax, model = make_model("softmax"), make_model("rela_g", seed=4)
    norms = {k: v.clone() for k, v in model.state_dict().items() if "attn_norm" in k}
    with caplog.at_level("WARNING"):
        model.load_state_dict(softmax.state_dict(), strict=True)
    for key, value in model.named_parameters():
        assert torch.equal(value, norms[key] if key in norms else softmax.state_dict()[key])
    lines = [r.getMessage() for r in caplog.records if "keep their start values" in r.getMessage()]
    assert len(lines) == 1 and all(key in lines[0] for key in norms) and len(norms) == 12


def test_a_rela_checkpoint_loads_completely_without_a_message(caplog):
    model = make_model("rela_g")
    with caplog.at_level("WARNING"):
        make_model("rela_g", seed=4).load_state_dict(model.state_dict(), strict=True)
    assert "fresh" not in caplog.text


def test_an_incomplete_norm_is_refused():
    """Only a norm that is missing completely gets its start values."""
    state = make_model("rela_g").state_dict()
    del state["encoder.layers.0.self_attn.attn_norm.gate"]
    with pytest.raises(InputError, match="attn_norm.gate"):
        make_model("rela_g").load_state_dict(state, strict=True)


def test_a_rela_checkpoint_does_not_load_as_softmax():
    with pytest.raises(InputError, match="attn_norm"):
        make_model("softmax").load_state_dict(make_model("rela_g").state_dict(), strict=True)


def test_config_values_have_plain_types():
    """B32: a checkpoint can be opened without the plugin."""
    parser = options.get_training_parser()
    arguments = options.parse_args_and_arch(parser, ["data", "--arch", "transformer_rela_tiny"])
    cfg = OmegaConf.to_container(convert_namespace_to_omegaconf(arguments), resolve=True, enum_to_str=True)
    assert cfg["model"]["attention"] == "rela_g" and cfg["model"]["encoder_layers"] == 2
    assert all(isinstance(v, (str, int, float, bool, list, type(None))) for v in cfg["model"].values())


@pytest.mark.slow
def test_a_model_name_that_is_taken_is_an_error(tmp_path):
    """B17: newer versions of fairseq keep the older class without a message."""
    code = (
        f"{WARM}\n"
        "from fairseq.models import register_model, BaseFairseqModel\n"
        "register_model('transformer_rela')(type('Other', (BaseFairseqModel,), {}))\n"
        "import fairseq_rela\n"
    )
    result = run(sys.executable, "-c", code)
    assert result.returncode != 0
    assert "transformer_rela" in result.stderr.strip().splitlines()[-1]


def logits_and_gradients(model, seed=3):
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(4, 24, (3, 6), generator=generator)
    target = torch.randint(4, 24, (3, 5), generator=generator)
    source[0, :2] = target[1, 4:] = 1  # padding
    model.zero_grad()
    logits = model(source, torch.tensor([4, 6, 6]), target)[0]
    logits.square().sum().backward()
    return [logits.detach(), *(p.grad for p in model.parameters())]


@pytest.mark.parametrize("sites", ["encoder,decoder,cross", "decoder"])
def test_backends_compute_the_same_model(sites):
    plain, auto, fused = (
        make_model("rela_g", attention_sites=sites, rela_backend=backend).train()
        for backend in ("plain", "auto", "fused")
    )
    assert list(plain.state_dict()) == list(auto.state_dict()) == list(fused.state_dict())
    want = logits_and_gradients(plain)
    for model in (auto, fused):
        for a, b in zip(logits_and_gradients(model), want):
            torch.testing.assert_close(a, b)

    def ran(model):
        return {n: m.last_backend for n, m in model.named_modules() if isinstance(m, VariantAttention)}

    assert set(ran(plain).values()) == {"plain"}
    # fairseq requests its weights for a loss on alignments; outside training it requests those of all cross-attentions
    last = "decoder.layers.1.encoder_attn"
    assert ran(auto) == ran(fused) == {name: "plain" if name == last else "cpu" for name in ran(auto)}


def test_the_backend_is_set_by_flags_or_hydra_and_missing_in_old_checkpoints():
    tiny = {"_name": "transformer_rela_tiny"}
    for model in (
        from_flags("--arch", "transformer_rela_tiny", "--rela-backend", "plain"),
        from_hydra(rela_backend="plain", **tiny),
    ):
        assert {m.backend for m in model.modules() if isinstance(m, VariantAttention)} == {"plain"}
    config = TransformerRelaConfig(**SIZES, dropout=0.0)
    assert config.rela_backend == "auto"
    old = argparse.Namespace(**vars(config))
    del old.rela_backend
    model = TransformerRelaModel.build_model(old, make_task())
    assert {m.backend for m in model.modules() if isinstance(m, VariantAttention)} == {"auto"}
    for wrong, message in (
        (dict(rela_backend="fast"), "choose one of auto, fused, plain"),
        (dict(rela_backend="fused", attention="softmax"), "attention softmax has no kernel"),
        (dict(rela_backend="fused", attention="entmax15"), "attention entmax15 has no kernel"),
    ):
        with pytest.raises(InputError, match=message):
            from_hydra(**tiny, **wrong)


def test_sizes_of_the_fixture_are_used():
    assert shape_of(make_model())[:4] == (SIZES["encoder_layers"], 16, 24, 4)
