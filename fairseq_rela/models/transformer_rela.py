"""The Transformer (Vaswani et al. 2017) with a choice of attention at each site, as fairseq model and architectures.

The sites are the self-attention of the encoder, the self-attention of the decoder, and the cross-attention from the
decoder to the encoder. All else is fairseq's Transformer. ``--arch`` takes a key of
:data:`fairseq_rela.models.config.ARCHITECTURES`, and ``--attention`` and ``--attention-sites`` take the names of
:mod:`fairseq_rela.variants`.
"""

import argparse
import logging
from collections import Counter
from typing import Any, Dict, List, Optional, Tuple

from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.distributed import fsdp_wrap
from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import (
    TransformerConfig,
    TransformerDecoderBase,
    TransformerEncoderBase,
    TransformerModelBase,
)
from fairseq.modules import MultiheadAttention
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from torch import Tensor, nn

from ..attention import attention_name
from ..errors import one_line_in_fairseq
from ..kernels import backends
from ..variants import SITES
from .config import (
    ARCHITECTURES,
    MODEL_NAME,
    TransformerRelaConfig,
    check_config,
    complete_config,
    nested_config,
    record_built,
)
from .kept_heads import remove_heads
from .kept_layers import keep_layers, parse_layers
from .layers import FUSED_PARAMETERS, TransformerRelaDecoderLayer, TransformerRelaEncoderLayer
from .loading import misfit_in_one_line, with_start_values
from .scriptable import Scriptable
from .shared_options import apply_architecture, writable

logger = logging.getLogger(__name__)


def _wrap(layer: nn.Module, cfg: TransformerConfig) -> nn.Module:
    """Add activation checkpointing and sharding to a layer, as fairseq's ``build_encoder_layer`` does."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    return fsdp_wrap(layer, min_num_params=0 if cfg.checkpoint_activations else cfg.min_params_to_wrap)


class TransformerRelaEncoder(Scriptable, TransformerEncoderBase):
    """fairseq's encoder with the chosen attention."""

    scripted_as = TransformerEncoderBase

    def build_encoder_layer(self, cfg: TransformerConfig) -> nn.Module:
        return _wrap(TransformerRelaEncoderLayer(cfg, return_fc=self.return_fc), cfg)


class TransformerRelaDecoder(Scriptable, TransformerDecoderBase):
    """fairseq's decoder with the chosen attention.

    Attributes:
        gives_weights: set to False to return no attention weights in training. fairseq requests the weights of the
            last layer in every pass, and a fused kernel cannot return them.
    """

    scripted_as = TransformerDecoderBase  # the methods below are for kernels, which TorchScript does not call

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
        """Return fairseq's mask of future positions, marked so that a kernel need not read it."""
        return backends.mark_future(super().buffered_future_mask(tensor))

    def build_decoder_layer(self, cfg: TransformerConfig, no_encoder_attn: bool = False) -> nn.Module:
        return _wrap(TransformerRelaDecoderLayer(cfg, no_encoder_attn), cfg)


@register_model(MODEL_NAME, dataclass=TransformerRelaConfig)
class TransformerRelaModel(Scriptable, TransformerModelBase):
    """Transformer (Vaswani et al. 2017) with the attention of ``--attention`` at the sites of ``--attention-sites``.

    It is the model ``transformer_rela`` of fairseq; its config is ``TransformerRelaConfig``.
    """

    scripted_as = TransformerModelBase

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        """Add every option of the flat config, without defaults, so that the architecture can set the missing ones."""
        gen_parser_from_dataclass(parser, TransformerRelaConfig(), delete_default=True)

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "TransformerRelaModel":
        """Build the model, and log the attention of each site.

        Args:
            cfg: the flat config, changed in place: missing options get the values of the architecture.
            task: fairseq's task, for its dictionaries.

        Raises:
            InputError: an option is invalid, see :func:`fairseq_rela.models.config.check_config`.
        """
        arch = getattr(cfg, "_name", None) or getattr(cfg, "arch", None) or MODEL_NAME
        with one_line_in_fairseq():
            with writable(cfg):
                complete_config(cfg, arch)
            check_config(cfg)
        model = super().build_model(nested_config(cfg), task)
        with one_line_in_fairseq():
            remove_heads(model, attention_modules(model), cfg.rela_heads)
        record_built(model, cfg)
        logger.info(f"attention: {describe_attention(model)}")
        return model

    @classmethod
    def build_encoder(cls, cfg: TransformerConfig, src_dict, embed_tokens) -> TransformerRelaEncoder:
        return TransformerRelaEncoder(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, cfg: TransformerConfig, tgt_dict, embed_tokens) -> TransformerRelaDecoder:
        return TransformerRelaDecoder(cfg, tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention)

    def eval(self) -> "TransformerRelaModel":
        """Switch to evaluation, and return the model; after the hub has prepared it, fairseq's own returns None."""
        super().eval()
        return self

    def load_state_dict(self, state_dict: Dict[str, Any], strict: bool = True, model_cfg=None, args=None):
        """Load parameters, also from a softmax Transformer or from a model with more layers than are kept.

        Parameters of attention norms and weights that the checkpoint lacks keep their start values, and a warning
        lists them.

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
        with misfit_in_one_line():  # with a config, fairseq would prune layers again
            loaded = super().load_state_dict(with_start_values(self, state_dict), strict)
        if model_cfg is not None:
            record_built(self, model_cfg)
        return loaded


def _is_fused_parameter(key: str) -> bool:
    """Return whether a parameter is one of :data:`~fairseq_rela.models.layers.FUSED_PARAMETERS`."""
    parts = key.split(".")
    return len(parts) == 4 and parts[:2] == ["encoder", "layers"] and parts[3] in FUSED_PARAMETERS


def count_parameters(model: nn.Module) -> int:
    """Return the number of parameters of a model."""
    return sum(parameter.numel() for parameter in model.parameters())


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
        counts = Counter(map(attention_name, modules.values()))
        parts += [f"{site} {name} x {count}" for name, count in sorted(counts.items())]
    return ", ".join(parts)


def _register_architecture(name: str) -> None:
    @register_model_architecture(MODEL_NAME, name)
    def architecture(cfg: Any) -> None:
        apply_architecture(cfg, name, ARCHITECTURES)


for _name in ARCHITECTURES:
    if _name != MODEL_NAME:  # register_model has registered this one
        _register_architecture(_name)
