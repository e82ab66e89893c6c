"""The options of the language model, flat, with the values of each architecture."""

from dataclasses import dataclass, field
from typing import Any, Dict, Optional

from fairseq import utils
from fairseq.models.transformer_lm import DEFAULT_MAX_TARGET_POSITIONS, TransformerLanguageModelConfig

from ..errors import InputError
from .kept_layers import parse_layers
from .shared_options import SharedOptions, apply_architecture, check_dropouts, check_shared, check_side, writable

MODEL_NAME = "transformer_lm_rela"

# Values of each --arch, as differences from the first one. They apply to options that are None in the config below.
ARCHITECTURES: Dict[str, Dict[str, Any]] = {
    "transformer_lm_rela": {
        "decoder_layers": 6,
        "decoder_embed_dim": 512,
        "decoder_ffn_embed_dim": 2048,
        "decoder_attention_heads": 8,
        "attention_dropout": 0.0,
        "activation_fn": "relu",
        "decoder_normalize_before": True,  # as all of fairseq's architectures have it; without it training is unstable
    },
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


def _of_architecture(text: str) -> Any:
    """Return a field whose value None stands for the architecture's value."""
    return field(default=None, metadata={"help": f"{text} (default: the architecture's)"})


@dataclass
class TransformerLMRelaConfig(SharedOptions, TransformerLanguageModelConfig):
    """Every option of fairseq's ``transformer_lm``, and the choice of attention.

    Options that an architecture sets have the default None, so that an option that the user sets can be recognised.
    """

    decoder_layers: Optional[int] = _of_architecture("number of layers")
    decoder_embed_dim: Optional[int] = _of_architecture("model size")
    decoder_ffn_embed_dim: Optional[int] = _of_architecture("inner size of the feed-forward network")
    decoder_attention_heads: Optional[int] = _of_architecture("number of attention heads")
    attention_dropout: Optional[float] = _of_architecture("dropout probability for attention weights")
    activation_fn: Optional[str] = _of_architecture("activation function of the feed-forward network")
    decoder_normalize_before: Optional[bool] = _of_architecture("apply LayerNorm before each block")
    decoder_input_dim: Optional[int] = field(
        default=None, metadata={"help": "size of the embeddings (default: decoder_embed_dim)"}
    )
    decoder_output_dim: Optional[int] = field(
        default=None, metadata={"help": "size of the decoder's output (default: decoder_embed_dim)"}
    )


def complete_config(cfg: Any, name: str, task_options: Any) -> None:
    """Set all options in ``cfg`` that are missing or None.

    An option gets the value of the architecture, of the task (``tokens_per_sample``, ...), or the default, in this
    order. ``max_target_positions`` becomes ``tokens_per_sample`` if neither the model nor the task has it.

    Args:
        cfg: an ``argparse.Namespace``, a :class:`TransformerLMRelaConfig` or a ``DictConfig``, changed in place.
        name: an architecture, see :func:`fairseq_rela.models.shared_options.apply_architecture`.
        task_options: the options of the task.

    Raises:
        InputError: the layers to keep are not a list of different numbers from 0.
    """
    with writable(cfg):
        apply_architecture(cfg, name, ARCHITECTURES)
        for key, default in vars(TransformerLMRelaConfig()).items():
            of_task = isinstance(default, str) and default.startswith("${")
            value = getattr(cfg, key, None)
            if key != "_name" and (value is None or of_task and value == default):
                setattr(cfg, key, getattr(task_options, key, None) if of_task else default)
        if cfg.max_target_positions is None:
            cfg.max_target_positions = cfg.tokens_per_sample or DEFAULT_MAX_TARGET_POSITIONS
        cfg.checkpoint_activations = bool(cfg.checkpoint_activations or cfg.offload_activations)
        if cfg.decoder_layers_to_keep not in (None, ""):
            cfg.decoder_layers_to_keep = str(cfg.decoder_layers_to_keep)
            cfg.decoder_layers = len(parse_layers("decoder", cfg.decoder_layers_to_keep))


def check_config(cfg: Any) -> None:
    """Check the options of a model before it is built.

    Raises:
        InputError: an unknown variant, backend, activation function or kind of start values; a threshold that the
            variant cannot have; a size, number of layers
            or number of heads below 1; heads that do not divide the model size; a dropout outside [0, 1); an option
            that this model does not have, or adaptive weights that cannot be tied.
    """
    check_shared(cfg)
    check_side(cfg, "decoder")
    check_dropouts(cfg)
    if cfg.activation_fn not in utils.get_available_activation_fns():
        names = ", ".join(utils.get_available_activation_fns())
        raise InputError(f"--activation-fn {cfg.activation_fn}: choose one of {names}")
    if cfg.character_embeddings:
        raise InputError(f"--character-embeddings: {MODEL_NAME} has none; give --adaptive-input, or leave it out")
    if cfg.base_layers:
        raise InputError(f"--base-layers: {MODEL_NAME} has no BASE layers; leave it out")
    if cfg.adaptive_input and not cfg.adaptive_input_cutoff:
        raise InputError("--adaptive-input needs --adaptive-input-cutoff, such as 20000,60000")
    if cfg.tie_adaptive_weights:
        pairs = (
            ("adaptive_input_factor", "adaptive_softmax_factor"),
            ("adaptive_input_cutoff", "adaptive_softmax_cutoff"),
        )
        for left, right in (*pairs, ("decoder_input_dim", "decoder_output_dim")):
            if not cfg.adaptive_input or getattr(cfg, left) != getattr(cfg, right):
                names = " and ".join(f"--{name.replace('_', '-')}" for name in (left, right))
                raise InputError(f"--tie-adaptive-weights needs --adaptive-input, and {names} with equal values")
