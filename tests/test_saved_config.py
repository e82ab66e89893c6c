"""The config in a checkpoint builds the same model again, for every way of setting options."""

import copy
import functools

import pytest
import torch
from conftest import make_dictionary, make_model, values_of
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf, open_dict

from fairseq_rela.errors import InputError
from fairseq_rela.models.config import TransformerRelaConfig
from fairseq_rela.models.kept_layers import keep_layers
from fairseq_rela.tasks.translation_rela import TranslationRelaConfig, TranslationRelaTask

TINY = ["--encoder-embed-dim", "16", "--decoder-embed-dim", "16", "--encoder-ffn-embed-dim", "24"]
TINY += ["--decoder-ffn-embed-dim", "24", "--encoder-attention-heads", "4", "--decoder-attention-heads", "4"]
TINY += ["--encoder-layers", "4", "--decoder-layers", "3"]


def task_with_dictionaries(words=20, target_words=20):
    cfg = TranslationRelaConfig(data="", source_lang="xa", target_lang="xb", train_subset="train")
    return TranslationRelaTask(cfg, make_dictionary(words), make_dictionary(target_words))


@functools.lru_cache(maxsize=None)
def parsed(arch, flags):
    arguments = ["data", "--task", "translation_rela", "--arch", arch, *TINY, *flags]
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), arguments))


def config(*flags, arch="transformer_rela", **options):
    """Return the config of fairseq-train for these flags; ``options`` are set as by Hydra, which is faster."""
    cfg = copy.deepcopy(parsed(arch, flags))
    with open_dict(cfg):
        cfg.model.update(options)
    return cfg


def saved(cfg, model):
    """Return a checkpoint like fairseq's trainer: the config of the command line, and the parameters."""
    container = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    return {"cfg": container, "model": {name: value.clone() for name, value in model.state_dict().items()}}


def load(state, task=None, **overrides):
    """Load a checkpoint as ``fairseq-generate`` and the hub interface do."""
    cfg = OmegaConf.create(state["cfg"])
    with_overrides = {**OmegaConf.to_container(cfg.model), **overrides}
    cfg.model = OmegaConf.create(with_overrides)
    model = (task or task_with_dictionaries()).build_model(cfg.model, from_checkpoint=True)
    model.load_state_dict(state["model"], strict=True, model_cfg=cfg.model)
    return model


MERGES = pytest.mark.skipif(
    not hasattr(TransformerRelaConfig(), "merge_src_tgt_embed"), reason="an option of later versions of fairseq"
)
ARCHITECTURES = ["transformer_rela", "transformer_rela_tiny"]


def same_layers(model, other, side, kept):
    for new, old in enumerate(kept):
        ours, theirs = (getattr(m, side).layers[n].state_dict() for m, n in ((model, new), (other, old)))
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert len(getattr(model, side).layers) == len(kept)


@pytest.mark.parametrize(
    "arch, flags, options, encoder, decoder",
    [
        ("transformer_rela", ["--decoder-layers-to-keep", "0,2"], {}, [0, 1, 2, 3], [0, 2]),
        ("transformer_rela_tiny", [], {"encoder_layers_to_keep": "3,1"}, [1, 3], [0, 1, 2]),
        ("transformer_rela", [], {"encoder_layers_to_keep": 0, "decoder_layers_to_keep": "1,2"}, [0], [1, 2]),
    ],
)
def test_fine_tuning_with_layers_to_keep_saves_the_new_sizes(arch, flags, options, encoder, decoder):
    """fairseq alone loses the layers of a side without the option, and saves the old number of layers."""
    before = config(arch=arch)
    torch.manual_seed(1)
    whole = task_with_dictionaries().build_model(before.model)
    state = saved(before, whole)
    cfg = config(*flags, arch=arch, **options)
    model = task_with_dictionaries().build_model(cfg.model)
    model.load_state_dict(dict(state["model"]), strict=True, model_cfg=cfg.model)
    same_layers(model, whole, "encoder", encoder)
    same_layers(model, whole, "decoder", decoder)
    tuned = saved(cfg, model)
    assert tuned["cfg"]["model"]["encoder_layers"] == len(encoder)
    assert tuned["cfg"]["model"]["decoder_layers"] == len(decoder)
    again = load(tuned)
    same_layers(again, model, "encoder", range(len(encoder)))
    same_layers(again, model, "decoder", range(len(decoder)))
    # the run is resumed by its own command line
    resumed = config(*flags, arch=arch, **options)
    model = task_with_dictionaries().build_model(resumed.model)
    model.load_state_dict(dict(tuned["model"]), strict=True, model_cfg=resumed.model)
    same_layers(model, again, "decoder", range(len(decoder)))
    load(saved(resumed, model))


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_training_with_layers_to_keep_from_the_start_saves_the_new_sizes(arch):
    cfg = config(arch=arch, encoder_layers_to_keep="0,3", decoder_layers_to_keep="2")
    model = task_with_dictionaries().build_model(cfg.model)
    state = saved(cfg, model)
    assert (state["cfg"]["model"]["encoder_layers"], state["cfg"]["model"]["decoder_layers"]) == (2, 1)
    same_layers(load(state), model, "encoder", [0, 1])


def test_layers_can_be_pruned_at_generation():
    """--model-overrides is used as in fairseq's documentation of LayerDrop."""
    cfg = config()
    model = task_with_dictionaries().build_model(cfg.model)
    state = saved(cfg, model)
    pruned = load(state, decoder_layers_to_keep="0,2")
    same_layers(pruned, model, "decoder", [0, 2])
    same_layers(pruned, model, "encoder", [0, 1, 2, 3])
    same_layers(load(state, encoder_layers_to_keep=0), model, "encoder", [0])


@pytest.mark.parametrize("kept", ["0,0", "a", "-1", "[0, 2]"])
def test_invalid_lists_of_layers_to_keep_are_refused(kept):
    with pytest.raises(InputError, match="--encoder-layers-to-keep .*: give different numbers of layers, .* 0,2,4"):
        make_model(encoder_layers_to_keep=kept)


def test_missing_layers_to_keep_are_refused():
    state = {f"decoder.layers.{layer}.fc1.weight": layer for layer in range(4)}
    with pytest.raises(InputError, match="--decoder-layers-to-keep 1,7: the checkpoint has decoder layers from 0 to 3"):
        keep_layers(state, "decoder", [1, 7])


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_saved_config_is_complete(arch):
    """No value depends on the later definition of an architecture."""
    cfg = config(arch=arch)
    task_with_dictionaries().build_model(cfg.model)
    model = OmegaConf.to_container(cfg.model, enum_to_str=True)
    sizes = {"encoder_layers": 4, "decoder_layers": 3, "decoder_embed_dim": 16, "decoder_output_dim": 16}
    assert {key: model[key] for key in sizes} == sizes and model["dropout"] == 0.1
    assert all(isinstance(v, (str, int, float, bool, list, type(None))) for v in model.values())
    cfg = OmegaConf.create({"_name": arch})  # by Hydra, whose config has only the changed values
    task_with_dictionaries().build_model(cfg)
    assert cfg.encoder_layers == {"transformer_rela": 6, "transformer_rela_tiny": 2}[arch]
    assert cfg.attention == "rela_g" and cfg.rela_init == "fairseq"


@pytest.mark.parametrize(
    "options, recorded",
    [
        (dict(share_all_embeddings=True), {"share_decoder_input_output_embed": True}),
        (dict(merge_src_tgt_embed=True), {"share_decoder_input_output_embed": True}),
        (dict(offload_activations=True), {"checkpoint_activations": True}),
        (dict(decoder_output_dim=24), {"decoder_output_dim": 24}),
        (dict(decoder_input_dim=24), {"decoder_input_dim": 24}),
        (dict(encoder_learned_pos=True, decoder_learned_pos=True, max_source_positions=40), {}),
        (dict(layernorm_embedding=True, encoder_normalize_before=True, decoder_normalize_before=True), {}),
        (dict(adaptive_softmax_cutoff=[5, 10]), {}),
        (dict(quant_noise_scalar=0.1), {}),
        (dict(encoder_layerdrop=0.2, decoder_layerdrop=0.2), {}),
        (dict(no_cross_attention=True), {}),
        (dict(attention="softmax", cross_self_attention=True, no_cross_attention=True), {}),
        (dict(rela_init="paper"), {"rela_init": "paper"}),
        (dict(attention="sparsemax", attention_sites="cross"), {"attention_sites": "cross"}),
    ],
    ids=str,
)
def test_options_that_change_the_model_are_saved_and_load_again(options, recorded):
    if not set(options) <= set(vars(TransformerRelaConfig())):
        pytest.skip("an option of later versions of fairseq")
    cfg = config(**options)
    model = task_with_dictionaries().build_model(cfg.model)
    state = saved(cfg, model)
    assert {key: state["cfg"]["model"][key] for key in recorded} == recorded
    again = load(state)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in values_of(model).items())
    assert repr(again.eval()) == repr(model.eval())


@MERGES
def test_a_checkpoint_of_merged_dictionaries_matches_its_data():
    """fairseq adds the target's words to the source dictionary, which must not look like other data."""
    task = task_with_dictionaries(20, 25)
    task.cfg.dataset_impl = "raw"
    model = task.build_model(config(merge_src_tgt_embed=True).model)
    assert model.encoder.embed_tokens is model.decoder.embed_tokens and len(task.source_dictionary) == 29
    task_with_dictionaries(20, 25).load_state_dict(task.state_dict())
    with pytest.raises(InputError, match="another dict.xb.txt"):
        task_with_dictionaries(20, 24).load_state_dict(task.state_dict())


@MERGES
def test_merged_embeddings_need_one_dictionary():
    """Binarised data have the numbers of their own dictionary, which are other words in the merged one."""
    with pytest.raises(InputError, match="--merge-src-tgt-embed"):
        task_with_dictionaries(20, 25).build_model(config(merge_src_tgt_embed=True).model)


def test_a_checkpoint_needs_no_embedding_files(tmp_path):
    """Such files only give start values."""
    path = tmp_path / "embeddings"
    path.write_text("2 16\n" + "".join(f"w{i} " + " ".join([str(i + 0.5)] * 16) + "\n" for i in range(2)))
    cfg = config(encoder_embed_path=str(path), decoder_embed_path=str(path))
    model = task_with_dictionaries().build_model(cfg.model)
    assert float(model.decoder.embed_tokens.weight[5, 3]) == 1.5
    state = saved(cfg, model)
    assert state["cfg"]["model"]["encoder_embed_path"] == str(path)
    path.unlink()
    assert torch.equal(load(state).encoder.embed_tokens.weight, model.encoder.embed_tokens.weight)
