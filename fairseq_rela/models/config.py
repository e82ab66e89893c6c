"""The options of the model, flat, with the values of each architecture.

fairseq's config is nested, and its command line and Hydra use different names for the options. This config is flat, and
the names agree: ``encoder.layers`` is ``--encoder-layers`` and ``model.encoder_layers``.
"""

import argparse
import dataclasses
from typing import Any, Dict, List, Optional

from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer.transformer_config import DecoderConfig, EncDecBaseConfig, QuantNoiseConfig
from omegaconf import OmegaConf
from torch import nn

from ..variants import SITES, parse_sites
from .kept_heads import heads_of_layers, parse_heads
from .kept_layers import parse_layers
from .shared_options import SharedOptions, apply_architecture, check_dropouts, check_shared, check_side, writable

MODEL_NAME = "transformer_rela"

# Values of each --arch, as differences from the first one. They apply to options that are None in the config below.
ARCHITECTURES: Dict[str, Dict[str, Any]] = {
    "transformer_rela": {
        "encoder_layers": 6,
        "encoder_embed_dim": 512,
        "encoder_ffn_embed_dim": 2048,
        "encoder_attention_heads": 8,
        "decoder_layers": 6,
        "decoder_embed_dim": 512,
        "decoder_ffn_embed_dim": 2048,
        "decoder_attention_heads": 8,
        "dropout": 0.1,
    },
    "transformer_rela_wmt_en_de": {},
    "transformer_rela_iwslt_de_en": {
        "encoder_ffn_embed_dim": 1024,
        "encoder_attention_heads": 4,
        "decoder_ffn_embed_dim": 1024,
        "decoder_attention_heads": 4,
    },
    "transformer_rela_big": {
        "encoder_embed_dim": 1024,
        "encoder_ffn_embed_dim": 4096,
        "encoder_attention_heads": 16,
        "decoder_embed_dim": 1024,
        "decoder_ffn_embed_dim": 4096,
        "decoder_attention_heads": 16,
        "dropout": 0.3,
    },
    "transformer_rela_tiny": {
        "encoder_layers": 2,
        "encoder_embed_dim": 128,
        "encoder_ffn_embed_dim": 256,
        "encoder_attention_heads": 4,
        "decoder_layers": 2,
        "decoder_embed_dim": 128,
        "decoder_ffn_embed_dim": 256,
        "decoder_attention_heads": 4,
    },
}


@dataclasses.dataclass
class OwnOptions(SharedOptions):
    """The options that fairseq's Transformer does not have."""

    # a string; check_config turns a list from a Hydra override into one
    attention_sites: Any = dataclasses.field(
        default=",".join(SITES),
        metadata={"help": "where the variant is used: some of encoder,decoder,cross; the other sites use softmax"},
    )
    rela_heads: str = dataclasses.field(
        default="",
        metadata={
            "help": "number of heads that each layer has left, such as 'encoder=4,3 decoder=2,4 cross=0,4'; "
            "`rela prune` sets it in its checkpoints (default: all heads)"
        },
    )


_NESTED = {"encoder": EncDecBaseConfig, "decoder": DecoderConfig, "quant_noise": QuantNoiseConfig}


def _options_of_fairseq() -> List[tuple]:
    """Return (name, type, field) of each option of fairseq's Transformer, with its name on the command line.

    Options that an architecture sets have the default None, so that an option that the user sets can be recognised.
    """
    options = []
    for outer in dataclasses.fields(TransformerConfig):
        if outer.name in _NESTED:
            options += [(f"{outer.name}_{f.name}", f) for f in dataclasses.fields(_NESTED[outer.name])]
        else:
            options.append((outer.name, outer))
    return [(name, *_type_and_default(name, f)) for name, f in options if f.name != "_name"]


def _type_and_default(name: str, field: dataclasses.Field) -> tuple:
    """Return the type of an option of fairseq's Transformer, and a field with its default and help."""
    metadata = dict(field.metadata)
    if name in ARCHITECTURES[MODEL_NAME]:
        metadata["help"] = f"{metadata.get('help', name)} (default: the architecture's)"
        kind = float if name == "dropout" else int
        return Optional[kind], dataclasses.field(default=None, metadata=metadata)
    if name in ("decoder_input_dim", "decoder_output_dim"):
        metadata["help"] = f"{name.replace('_', ' ')} (default: decoder_embed_dim)"
        return Optional[int], dataclasses.field(default=None, metadata=metadata)
    # fairseq declares a list but uses a string such as "0,2,4"; complete_config turns a list into such a string
    if name.endswith("_layers_to_keep"):
        return Any, dataclasses.field(default=None, metadata=metadata)
    if field.default is not dataclasses.MISSING:
        return field.type, dataclasses.field(default=field.default, metadata=metadata)
    return field.type, dataclasses.field(default_factory=field.default_factory, metadata=metadata)


TransformerRelaConfig = dataclasses.make_dataclass(
    "TransformerRelaConfig",
    _options_of_fairseq(),
    bases=(OwnOptions,),
    namespace={
        "__module__": __name__,
        "__doc__": "Every option of fairseq's Transformer, flat, and the choice of attention. Values stay plain.",
    },
)


def complete_config(cfg: Any, name: str) -> None:
    """Set all options in ``cfg`` that are missing or None, to the architecture's value or else to the default.

    If ``encoder_layers_to_keep`` or ``decoder_layers_to_keep`` is given, the number of layers becomes the number of
    kept layers, and ``rela_heads`` is of these layers only.

    Args:
        cfg: an ``argparse.Namespace``, a ``TransformerRelaConfig`` or a ``DictConfig``, changed in place.
        name: an architecture, see :func:`fairseq_rela.models.shared_options.apply_architecture`.

    Raises:
        InputError: the layers to keep are not a list of different numbers from 0, or ``rela_heads`` has another form
            or lacks one of them.
    """
    apply_architecture(cfg, name, ARCHITECTURES)
    for key, value in vars(TransformerRelaConfig()).items():
        if key != "_name" and getattr(cfg, key, None) is None:
            setattr(cfg, key, value)
    for side in ("encoder", "decoder"):
        kept = getattr(cfg, f"{side}_layers_to_keep")
        if kept not in (None, ""):
            text = str(kept) if isinstance(kept, (str, int)) else ",".join(map(str, kept))
            setattr(cfg, f"{side}_layers_to_keep", text)
            layers = parse_layers(side, text)
            setattr(cfg, f"{side}_layers", len(layers))
            cfg.rela_heads = heads_of_layers(cfg.rela_heads, side, layers)


def record_built(model: nn.Module, cfg: Any) -> None:
    """Copy the options that ``model`` was built with into ``cfg``, so that a checkpoint with this config loads again.

    fairseq saves the config of the command line, but changes some options while it builds the model: the number of
    layers if only some are kept, shared embeddings, and activation checkpointing.

    Args:
        model: the model that was built.
        cfg: the config that fairseq saves, changed in place. ``encoder_layers_to_keep`` and
            ``decoder_layers_to_keep`` become None.
    """
    with writable(cfg):
        for key in vars(TransformerRelaConfig()):
            value = None if key.endswith("_layers_to_keep") else getattr(model.cfg, key)
            if key != "_name" and getattr(cfg, key, None) != value:
                setattr(cfg, key, value)


def nested_config(cfg: Any) -> TransformerConfig:
    """Return the nested config that fairseq's layers read, with the plugin's options (``attention``, ...) added."""
    values = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True) if OmegaConf.is_config(cfg) else vars(cfg)
    return TransformerConfig.from_namespace(argparse.Namespace(**values))


def check_config(cfg: Any) -> None:
    """Check the options of a model before it is built, and turn a list of attention sites into a string.

    Raises:
        InputError: an unknown variant, site, backend or kind of start values; a threshold that the variant cannot
            have; a size, number of layers or number of heads below 1; heads that do not divide the model size;
            ``rela_heads`` of another form; a dropout outside [0, 1).
    """
    check_shared(cfg)
    parse_heads(cfg.rela_heads)
    sites = parse_sites(cfg.attention_sites)
    if not isinstance(cfg.attention_sites, str):
        cfg.attention_sites = ",".join(site for site in SITES if site in sites)
    for side in ("encoder", "decoder"):
        check_side(cfg, side)
    check_dropouts(cfg)
