"""A Transformer language model (decoder only) with a choice of attention, for fairseq's task ``language_modeling``.

``--arch`` takes a key of :data:`ARCHITECTURES` and ``--attention`` a name of :mod:`fairseq_rela.variants`. All else is
fairseq's ``transformer_lm``: its options, adaptive inputs and softmax, and the names of its parameters, so that a
checkpoint of ``transformer_lm`` can start the model.
"""

import logging
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Dict

from fairseq import options
from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer_lm import (
    DEFAULT_MAX_TARGET_POSITIONS,
    TransformerLanguageModel,
    TransformerLanguageModelConfig,
    base_lm_architecture,
)
from fairseq.modules import AdaptiveInput
from omegaconf import OmegaConf, open_dict
from torch import nn

from ..attention import refuse_backend
from ..errors import InputError, one_line_in_fairseq
from ..kernels import backends
from ..variants import DEFAULT_VARIANT, VARIANTS, find_variant
from .config import nested_config
from .start_values import CHOICES as START_VALUES
from .start_values import refuse_start_values
from .transformer_rela import TransformerRelaDecoder, describe_attention, fresh_parameters

logger = logging.getLogger(__name__)

MODEL_NAME = "transformer_lm_rela"

# Sizes of each --arch. Options that it does not name are those of fairseq's base_lm_architecture.
ARCHITECTURES: Dict[str, Dict[str, Any]] = {
    "transformer_lm_rela_base": {},
    "transformer_lm_rela_tiny": {
        "decoder_layers": 2,
        "decoder_embed_dim": 128,
        "decoder_ffn_embed_dim": 512,
        "decoder_attention_heads": 4,
    },
    # GPT-2 small of Radford et al. 2019; fairseq's transformer_lm_gpt2_small has the size of GPT-2 medium
    "transformer_lm_rela_gpt2_small": {
        "decoder_layers": 12,
        "decoder_embed_dim": 768,
        "decoder_ffn_embed_dim": 3072,
        "decoder_attention_heads": 12,
        "attention_dropout": 0.1,
        "activation_fn": "gelu",
    },
}


@dataclass
class TransformerLMRelaConfig(TransformerLanguageModelConfig):
    """Every option of fairseq's ``transformer_lm``, and the choice of attention."""

    attention: str = field(
        default=DEFAULT_VARIANT, metadata={"help": f"attention variant: one of {', '.join(VARIANTS)}"}
    )
    rela_backend: str = field(
        default="auto",
        metadata={"help": "; ".join(f"{name}: {summary}" for name, summary in backends.CHOICES.items())},
    )
    rela_init: str = field(
        default="fairseq",
        metadata={"help": "start values; " + "; ".join(f"{name}: {text}" for name, text in START_VALUES.items())},
    )


@register_model(MODEL_NAME, dataclass=TransformerLMRelaConfig)
class TransformerLMRelaModel(TransformerLanguageModel):
    """Decoder-only Transformer with the attention of ``--attention`` in every layer.

    It is the model ``transformer_lm_rela`` of fairseq; its config is :class:`TransformerLMRelaConfig`.
    """

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "TransformerLMRelaModel":
        """Build the model.

        Raises:
            InputError: an unknown variant, backend or kind of start values, or heads that do not divide the model
                size.
        """
        with open_dict(cfg) if OmegaConf.is_config(cfg) else nullcontext():
            if cfg.decoder_layers_to_keep:
                cfg.decoder_layers = len(cfg.decoder_layers_to_keep.split(","))
            if getattr(cfg, "max_target_positions", None) is None:
                cfg.max_target_positions = getattr(cfg, "tokens_per_sample", None) or DEFAULT_MAX_TARGET_POSITIONS
        with one_line_in_fairseq():
            _check(cfg)
        nested = nested_config(cfg)
        nested.attention_sites = "decoder"
        dictionary = task.source_dictionary
        embedding = _adaptive_input(cfg, dictionary) if cfg.adaptive_input else None
        if embedding is None:
            embedding = cls.build_embedding(cfg, dictionary, cfg.decoder_input_dim)
        model = cls(TransformerRelaDecoder(nested, task.target_dictionary, embedding, no_encoder_attn=True))
        logger.info(f"attention: {describe_attention(model)}")
        return model

    def load_state_dict(self, state_dict: Dict[str, Any], strict: bool = True, model_cfg: Any = None, args: Any = None):
        """Load parameters, also those of a softmax model; attention parameters that these lack keep their start values.

        Raises:
            InputError: the parameters do not fit the model.
        """
        fresh = fresh_parameters(self, state_dict)
        if fresh:
            logger.warning(
                f"the checkpoint lacks {len(fresh)} parameters of attention norms and weights, which keep their start "
                f"values: {', '.join(fresh)}"
            )
        with one_line_in_fairseq():
            try:
                return super().load_state_dict({**state_dict, **fresh}, strict, model_cfg, args)
            except RuntimeError as error:
                reason = " ".join(str(error).split()).partition(": ")[2][:200]
                raise InputError(
                    f"the checkpoint does not fit the model ({reason}); give the data and architecture that it is of"
                ) from error


def _check(cfg: Any) -> None:
    refuse_backend(find_variant(cfg.attention), cfg.rela_backend)
    refuse_start_values(cfg.rela_init)
    if cfg.character_embeddings:
        raise InputError(f"--character-embeddings: {MODEL_NAME} has none; give --adaptive-input, or leave it out")
    if cfg.decoder_embed_dim % cfg.decoder_attention_heads:
        raise InputError(
            f"--decoder-attention-heads {cfg.decoder_attention_heads} does not divide --decoder-embed-dim "
            f"{cfg.decoder_embed_dim}"
        )
    if cfg.tie_adaptive_weights:
        pairs = (
            ("adaptive_input_factor", "adaptive_softmax_factor"),
            ("adaptive_input_cutoff", "adaptive_softmax_cutoff"),
        )
        for left, right in (*pairs, ("decoder_input_dim", "decoder_output_dim")):
            if not cfg.adaptive_input or getattr(cfg, left) != getattr(cfg, right):
                names = " and ".join(f"--{name.replace('_', '-')}" for name in (left, right))
                raise InputError(f"--tie-adaptive-weights needs --adaptive-input, and {names} with equal values")


def _adaptive_input(cfg: Any, dictionary: Any) -> nn.Module:
    """Return fairseq's adaptive input embeddings (Baevski and Auli 2019) with the options of the config."""
    return AdaptiveInput(
        len(dictionary),
        dictionary.pad(),
        cfg.decoder_input_dim,
        cfg.adaptive_input_factor,
        cfg.decoder_embed_dim,
        options.eval_str_list(cfg.adaptive_input_cutoff, type=int),
        cfg.quant_noise_pq,
        cfg.quant_noise_pq_block_size,
    )


def _register_architecture(name: str, values: Dict[str, Any]) -> None:
    @register_model_architecture(MODEL_NAME, name)
    def architecture(cfg: Any) -> None:
        for key, value in values.items():
            if getattr(cfg, key, None) is None:
                setattr(cfg, key, value)
        base_lm_architecture(cfg)


for _name, _values in ARCHITECTURES.items():
    _register_architecture(_name, _values)
