"""The Transformer (Vaswani et al. 2017) with a choice of attention at each site, as fairseq model and architectures.

The sites are the self-attention of the encoder, the self-attention of the decoder, and the cross-attention from the
decoder to the encoder. All else is fairseq's Transformer. ``--arch`` takes a key of :data:`ARCHITECTURES`, and
``--attention`` and ``--attention-sites`` take the names of :mod:`fairseq_rela.variants`.
"""

import argparse
import dataclasses
import logging
from collections import Counter
from contextlib import nullcontext
from typing import Any, Dict, List, Optional, Set, Tuple

from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.distributed import fsdp_wrap
from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import (
    TransformerConfig,
    TransformerDecoderBase,
    TransformerEncoderBase,
    TransformerModelBase,
)
from fairseq.models.transformer.transformer_config import DecoderConfig, EncDecBaseConfig, QuantNoiseConfig
from fairseq.modules import MultiheadAttention, transformer_layer
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from omegaconf import OmegaConf, open_dict
from torch import Tensor, nn

from ..attention import VariantAttention, attention_name, build_attention, refuse_backend
from ..errors import InputError, one_line_in_fairseq
from ..kernels import backends
from ..variants import DEFAULT_VARIANT, SITES, VARIANTS, find_variant, parse_sites
from .kept_layers import keep_layers, parse_layers
from .start_values import CHOICES as START_VALUES
from .start_values import refuse_start_values, start_as_released

logger = logging.getLogger(__name__)

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

_NESTED = {"encoder": EncDecBaseConfig, "decoder": DecoderConfig, "quant_noise": QuantNoiseConfig}


def _flat_fields() -> List[tuple]:
    """Return (name, type, field) of every option, named as on fairseq's command line (``encoder_layers``).

    fairseq's config is nested, and its command line and Hydra use different names for the options; here the config
    is flat, and the names agree. Options that an architecture sets have the default None, so that an option that the
    user sets can be recognised.
    """
    own = [
        (
            "attention",
            str,
            dataclasses.field(
                default=DEFAULT_VARIANT, metadata={"help": f"attention variant: one of {', '.join(VARIANTS)}"}
            ),
        ),
        (
            "attention_sites",
            Any,  # a string; check_config makes one of a list in a Hydra override
            dataclasses.field(
                default=",".join(SITES),
                metadata={"help": "where it is used, of encoder,decoder,cross; the sites left out keep softmax"},
            ),
        ),
        (
            "rela_backend",
            str,
            dataclasses.field(
                default="auto",
                metadata={"help": "; ".join(f"{name}: {summary}" for name, summary in backends.CHOICES.items())},
            ),
        ),
        (
            "rela_init",
            str,
            dataclasses.field(
                default="fairseq",
                metadata={
                    "help": "start values of the layers; "
                    + "; ".join(f"{name}: {summary}" for name, summary in START_VALUES.items())
                },
            ),
        ),
    ]
    theirs = []
    for outer in dataclasses.fields(TransformerConfig):
        if outer.name == "_name":
            continue
        if outer.name in _NESTED:
            inner = dataclasses.fields(_NESTED[outer.name])
            theirs += [(f"{outer.name}_{f.name}", f) for f in inner if f.name != "_name"]
        else:
            theirs.append((outer.name, outer))
    return own + [(name, *_type_and_default(name, field)) for name, field in theirs]


def _type_and_default(name: str, field: dataclasses.Field) -> tuple:
    metadata = dict(field.metadata)
    if name in ARCHITECTURES[MODEL_NAME]:
        metadata["help"] = f"{metadata.get('help', name)} (default: the architecture's)"
        kind = float if name == "dropout" else int
        return Optional[kind], dataclasses.field(default=None, metadata=metadata)
    if name in ("decoder_input_dim", "decoder_output_dim"):
        metadata["help"] = f"{name.replace('_', ' ')} (default: decoder_embed_dim)"
        return Optional[int], dataclasses.field(default=None, metadata=metadata)
    # fairseq declares a list but uses a string such as "0,2,4"; complete_config makes that string of a list
    if name.endswith("_layers_to_keep"):
        return Any, dataclasses.field(default=None, metadata=metadata)
    if field.default is not dataclasses.MISSING:
        return field.type, dataclasses.field(default=field.default, metadata=metadata)
    return field.type, dataclasses.field(default_factory=field.default_factory, metadata=metadata)


TransformerRelaConfig = dataclasses.make_dataclass(
    "TransformerRelaConfig",
    _flat_fields(),
    bases=(FairseqDataclass,),
    namespace={
        "__module__": __name__,
        "__doc__": "Every option of fairseq's Transformer, flat, and the choice of attention. Values stay plain.",
    },
)


def apply_architecture(cfg: Any, name: str) -> None:
    """Set the options of architecture ``name`` in ``cfg`` where they are missing or None.

    Args:
        cfg: an ``argparse.Namespace``, a ``TransformerRelaConfig`` or a ``DictConfig``, changed in place.
        name: a key of :data:`ARCHITECTURES`. Any other name, such as an architecture that another plugin registered,
            gives the values of ``transformer_rela``.
    """
    for key, value in {**ARCHITECTURES[MODEL_NAME], **ARCHITECTURES.get(name, {})}.items():
        if getattr(cfg, key, None) is None:
            setattr(cfg, key, value)
    for key in ("decoder_input_dim", "decoder_output_dim"):
        if getattr(cfg, key, None) is None:
            setattr(cfg, key, cfg.decoder_embed_dim)


def complete_config(cfg: Any, name: str) -> None:
    """Set all options in ``cfg`` that are missing or None, to the architecture's value or else to the default.

    If ``encoder_layers_to_keep`` or ``decoder_layers_to_keep`` is given, the number of layers becomes the number of
    kept layers.

    Args:
        cfg: as for :func:`apply_architecture`.
        name: as for :func:`apply_architecture`.

    Raises:
        InputError: the layers to keep are not a list of different numbers from 0.
    """
    apply_architecture(cfg, name)
    for key, value in vars(TransformerRelaConfig()).items():
        if key != "_name" and getattr(cfg, key, None) is None:
            setattr(cfg, key, value)
    for side in ("encoder", "decoder"):
        kept = getattr(cfg, f"{side}_layers_to_keep")
        if kept not in (None, ""):
            text = str(kept) if isinstance(kept, (str, int)) else ",".join(map(str, kept))
            setattr(cfg, f"{side}_layers_to_keep", text)
            setattr(cfg, f"{side}_layers", len(parse_layers(side, text)))


def record_built(model: "TransformerRelaModel", cfg: Any) -> None:
    """Copy the options that ``model`` was built with into ``cfg``, so that a checkpoint with this config loads again.

    fairseq saves the config of the command line, but changes some options while it builds the model: the number of
    layers if only some are kept, shared embeddings, and activation checkpointing.

    Args:
        model: the model that was built.
        cfg: the config that fairseq saves, changed in place. ``encoder_layers_to_keep`` and
            ``decoder_layers_to_keep`` become None.
    """
    with open_dict(cfg) if OmegaConf.is_config(cfg) else nullcontext():
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
        InputError: an unknown variant, site, backend or kind of start values; a size, number of layers or number of
            heads below 1; heads that do not divide the model size; a dropout outside [0, 1).
    """
    find_variant(cfg.attention)
    sites = parse_sites(cfg.attention_sites)
    if not isinstance(cfg.attention_sites, str):
        cfg.attention_sites = ",".join(site for site in SITES if site in sites)
    refuse_backend(cfg.attention, _backend(cfg))
    refuse_start_values(_start_values(cfg))
    for side in ("encoder", "decoder"):
        for key in ("layers", "embed_dim", "ffn_embed_dim", "attention_heads"):
            value = getattr(cfg, f"{side}_{key}")
            if value < 1:
                raise InputError(f"--{side}-{key.replace('_', '-')} {value}: give a whole number of at least 1")
        dim, heads = getattr(cfg, f"{side}_embed_dim"), getattr(cfg, f"{side}_attention_heads")
        if dim % heads:
            raise InputError(f"--{side}-attention-heads {heads} does not divide --{side}-embed-dim {dim}")
    for key in ("dropout", "attention_dropout", "activation_dropout"):
        if not 0 <= getattr(cfg, key) < 1:
            raise InputError(f"--{key.replace('_', '-')} {getattr(cfg, key)} is not a probability below 1")


class TransformerRelaEncoderLayer(transformer_layer.TransformerEncoderLayerBase):
    """fairseq's encoder layer with the chosen self-attention.

    fairseq 0.12.2 keeps zero-filled copies of all weights in each encoder layer. After a checkpoint is loaded, it
    uses them with torch's fused softmax kernel, even if ``self_attn`` is not softmax. This class removes the copies
    and always runs its own attention.
    """

    def __init__(self, cfg: TransformerConfig, return_fc: bool = False) -> None:
        super().__init__(cfg, return_fc=return_fc)
        for name in FUSED_PARAMETERS:
            if name in self._parameters:
                del self._parameters[name]
        self.can_use_fastpath = False
        if _start_values(cfg) == "paper":
            start_as_released(self)

    def build_self_attention(self, embed_dim: int, cfg: TransformerConfig) -> MultiheadAttention:
        return _build_site("encoder", super().build_self_attention, embed_dim, cfg, cfg.encoder, self_attention=True)

    def _load_from_state_dict(self, *args) -> None:
        nn.Module._load_from_state_dict(self, *args)


class TransformerRelaDecoderLayer(transformer_layer.TransformerDecoderLayerBase):
    """fairseq's decoder layer with the chosen self-attention and cross-attention."""

    def __init__(self, cfg: TransformerConfig, no_encoder_attn: bool = False, **options: Any) -> None:
        super().__init__(cfg, no_encoder_attn, **options)
        if _start_values(cfg) == "paper":
            start_as_released(self)

    def build_self_attention(
        self, embed_dim: int, cfg: TransformerConfig, add_bias_kv: bool = False, add_zero_attn: bool = False
    ) -> MultiheadAttention:
        options = dict(add_bias_kv=add_bias_kv, add_zero_attn=add_zero_attn)

        def softmax(embed_dim: int, cfg: TransformerConfig) -> MultiheadAttention:
            return super(TransformerRelaDecoderLayer, self).build_self_attention(embed_dim, cfg, **options)

        return _build_site(
            "decoder",
            softmax,
            embed_dim,
            cfg,
            cfg.decoder,
            self_attention=not cfg.cross_self_attention,
            **options,
        )

    def build_encoder_attention(self, embed_dim: int, cfg: TransformerConfig) -> MultiheadAttention:
        return _build_site(
            "cross",
            super().build_encoder_attention,
            embed_dim,
            cfg,
            cfg.decoder,
            kdim=cfg.encoder.embed_dim,
            vdim=cfg.encoder.embed_dim,
            encoder_decoder_attention=True,
        )


# names of the zero-filled copies in the encoder layer of fairseq 0.12.2
FUSED_PARAMETERS = tuple(
    f"{layer}_{kind}" for layer in ("in_proj", "out_proj", "fc1", "fc2") for kind in ("weight", "bias")
)


def _build_site(site: str, softmax, embed_dim: int, cfg: TransformerConfig, side, **options) -> MultiheadAttention:
    """Return the attention module of one site; a site with softmax gets fairseq's, from fairseq's own method."""
    if cfg.attention == "softmax" or site not in parse_sites(cfg.attention_sites):
        return softmax(embed_dim, cfg)
    return build_attention(
        cfg.attention,
        embed_dim,
        side.attention_heads,
        dropout=cfg.attention_dropout,
        q_noise=cfg.quant_noise.pq,
        qn_block_size=cfg.quant_noise.pq_block_size,
        xformers_att_config=side.xformers_att_config,
        backend=_backend(cfg),
        **options,
    )


def _backend(cfg: Any) -> str:
    """Return the backend; ``auto`` for older checkpoints, which lack this option."""
    return getattr(cfg, "rela_backend", None) or "auto"


def _start_values(cfg: Any) -> str:
    """Return the kind of start values; ``fairseq`` for older checkpoints, which lack this option."""
    return getattr(cfg, "rela_init", None) or "fairseq"


def _wrap(layer: nn.Module, cfg: TransformerConfig) -> nn.Module:
    """Add activation checkpointing and sharding to a layer, as fairseq's ``build_encoder_layer`` does."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    return fsdp_wrap(layer, min_num_params=0 if cfg.checkpoint_activations else cfg.min_params_to_wrap)


class TransformerRelaEncoder(TransformerEncoderBase):
    def build_encoder_layer(self, cfg: TransformerConfig) -> nn.Module:
        return _wrap(TransformerRelaEncoderLayer(cfg, return_fc=self.return_fc), cfg)


class TransformerRelaDecoder(TransformerDecoderBase):
    """fairseq's decoder with the chosen attention.

    Attributes:
        gives_weights: set to False to return no attention weights in training. fairseq requests the weights of the
            last layer in every pass, and a fused kernel cannot return them.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.gives_weights = True

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Optional[Dict[str, List[Tensor]]],
        incremental_state: Optional[Dict[str, Dict[str, Optional[Tensor]]]] = None,
        full_context_alignment: bool = False,
        alignment_layer: Optional[int] = None,
        alignment_heads: Optional[int] = None,
    ) -> Tuple[Tensor, Dict[str, List[Optional[Tensor]]]]:
        """Compute the features as :meth:`fairseq.models.transformer.TransformerDecoderBase.extract_features` does."""
        if self.training and not self.gives_weights and alignment_layer is None:
            alignment_layer = -1  # no layer has this number, so no layer computes weights
        return self.extract_features_scriptable(
            prev_output_tokens,
            encoder_out,
            incremental_state,
            full_context_alignment,
            alignment_layer,
            alignment_heads,
        )

    def buffered_future_mask(self, tensor: Tensor) -> Tensor:
        return backends.mark_future(super().buffered_future_mask(tensor))

    def build_decoder_layer(self, cfg: TransformerConfig, no_encoder_attn: bool = False) -> nn.Module:
        return _wrap(TransformerRelaDecoderLayer(cfg, no_encoder_attn), cfg)


@register_model(MODEL_NAME, dataclass=TransformerRelaConfig)
class TransformerRelaModel(TransformerModelBase):
    """Transformer (Vaswani et al. 2017) with the attention of ``--attention`` at the sites of ``--attention-sites``.

    It is the model ``transformer_rela`` of fairseq; its config is ``TransformerRelaConfig``.
    """

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        """Add every option of the flat config, without defaults, so that the architecture can set the missing ones."""
        gen_parser_from_dataclass(parser, TransformerRelaConfig(), delete_default=True)

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "TransformerRelaModel":
        arch = getattr(cfg, "_name", None) or getattr(cfg, "arch", None) or MODEL_NAME
        with one_line_in_fairseq():
            with open_dict(cfg) if OmegaConf.is_config(cfg) else nullcontext():
                complete_config(cfg, arch)
            check_config(cfg)
        model = super().build_model(nested_config(cfg), task)
        record_built(model, cfg)
        logger.info(f"attention: {describe_attention(model)}")
        return model

    @classmethod
    def build_encoder(cls, cfg: TransformerConfig, src_dict, embed_tokens) -> TransformerRelaEncoder:
        return TransformerRelaEncoder(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, cfg: TransformerConfig, tgt_dict, embed_tokens) -> TransformerRelaDecoder:
        return TransformerRelaDecoder(cfg, tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention)

    def load_state_dict(self, state_dict: Dict[str, Any], strict: bool = True, model_cfg=None, args=None):
        """Load parameters, also from a softmax Transformer or from a model with more layers than are kept.

        Attention norms that the checkpoint lacks keep their start values, and a warning lists them.

        Args:
            state_dict: the parameters.
            strict: raise an error if parameters are missing or unknown.
            model_cfg: the config that will be saved with the model, updated by :func:`record_built`; None if there
                is none.
            args: ignored.

        Raises:
            InputError: the parameters do not fit the model, in name or shape, or a layer to keep is missing.
        """
        state_dict = {k: v for k, v in state_dict.items() if not _is_fused_parameter(k)}
        with one_line_in_fairseq():
            for side in ("encoder", "decoder"):
                kept = getattr(self.cfg, side).layers_to_keep
                if kept:
                    state_dict = keep_layers(state_dict, side, parse_layers(side, kept))
        fresh = fresh_norms(self, state_dict)
        if fresh:
            state_dict.update(fresh)
            logger.warning(
                f"the checkpoint has no norm for {len(fresh)} attention parameters, which start fresh: "
                + ", ".join(fresh)
            )
        with one_line_in_fairseq():
            try:
                loaded = super().load_state_dict(state_dict, strict)  # with a config, fairseq would prune layers again
            except RuntimeError as error:
                # torch lists every parameter; the first ones are enough
                reason = " ".join(str(error).split()).partition(": ")[2][:200]
                raise InputError(
                    f"the checkpoint does not fit the model ({reason}); give the data and architecture that it is of"
                ) from error
        if model_cfg is not None:
            record_built(self, model_cfg)
        return loaded


def _is_fused_parameter(key: str) -> bool:
    parts = key.split(".")
    return len(parts) == 4 and parts[:2] == ["encoder", "layers"] and parts[3] in FUSED_PARAMETERS


def fresh_norms(model: nn.Module, state_dict: Dict[str, Any]) -> Dict[str, Any]:
    """Return the parameters of those attention norms of which ``state_dict`` has no parameter.

    Attention modules that ``state_dict`` lacks altogether are left out.
    """
    fresh = {}
    for name, module in model.named_modules():
        if isinstance(module, VariantAttention) and module.attn_norm is not None:
            own = {f"{name}.attn_norm.{key}": value for key, value in module.attn_norm.state_dict().items()}
            if not own.keys() & state_dict.keys() and f"{name}.q_proj.weight" in state_dict:
                fresh.update(own)
    return fresh


def attention_modules(model: nn.Module) -> Dict[str, Dict[str, MultiheadAttention]]:
    """Return the attention modules of a Transformer of this plugin or of fairseq.

    Returns:
        a dictionary from each site (``encoder``, ``decoder``, ``cross``) to a dictionary from the name of the module,
        such as ``decoder.layers.0.self_attn``, to the module.
    """
    found: Dict[str, Dict[str, MultiheadAttention]] = {site: {} for site in SITES}
    for name, module in model.named_modules():
        if isinstance(module, MultiheadAttention):
            site = "cross" if module.encoder_decoder_attention else name.split(".")[0]
            found[site][name] = module
    return found


def describe_attention(model: nn.Module) -> str:
    """Return one line that lists the attention of each site: ``encoder rela_g x 6, decoder softmax x 6, ...``."""
    parts = []
    for site, modules in attention_modules(model).items():
        names: Set[str] = {attention_name(m) for m in modules.values()}
        counts = Counter(attention_name(m) for m in modules.values())
        parts += [f"{site} {name} x {counts[name]}" for name in sorted(names)]
    return ", ".join(parts)


def _register_architecture(name: str) -> None:
    @register_model_architecture(MODEL_NAME, name)
    def architecture(cfg: Any) -> None:
        apply_architecture(cfg, name)


for _name in ARCHITECTURES:
    if _name != MODEL_NAME:  # register_model has registered this one
        _register_architecture(_name)
