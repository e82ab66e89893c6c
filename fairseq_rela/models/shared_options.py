"""The options that translation and language models share: the attention and the threshold of ReLU."""

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, ContextManager, Dict, Optional

from fairseq.dataclass import FairseqDataclass
from omegaconf import OmegaConf, open_dict

from ..attention import refuse_backend, refuse_threshold
from ..errors import InputError
from ..kernels import backends
from ..threshold import ThresholdOptions
from ..variants import DEFAULT_VARIANT, VARIANTS, find_variant
from .start_values import CHOICES as START_VALUES
from .start_values import refuse_start_values


def _choices(summaries: Dict[str, str]) -> str:
    return "; ".join(f"{name}: {summary}" for name, summary in summaries.items())


@dataclass
class SharedOptions(FairseqDataclass):
    """The attention, how it is computed, start values, and the threshold; a model has none without its options."""

    attention: str = field(
        default=DEFAULT_VARIANT, metadata={"help": f"attention variant: one of {', '.join(VARIANTS)}"}
    )
    rela_backend: str = field(default="auto", metadata={"help": _choices(backends.CHOICES)})
    rela_init: str = field(
        default="fairseq", metadata={"help": f"start values of the layers; {_choices(START_VALUES)}"}
    )
    rela_threshold: Optional[float] = field(
        default=None,
        metadata={
            "help": "weights are max(S - threshold, 0), so that a larger threshold gives more zeros; with "
            "rela_g_threshold, the start value of the learnt one"
        },
    )
    rela_threshold_warmup: int = field(
        default=0, metadata={"help": "updates over which the threshold rises linearly from 0"}
    )
    rela_sparsity_target: Optional[float] = field(
        default=None,
        metadata={
            "help": "share of exact zeros among the weights of each attention module, such as 0.7, to which training "
            "moves its threshold"
        },
    )


def threshold_options(cfg: Any) -> Optional[ThresholdOptions]:
    """Return the threshold that a config asks for, or None if it has none of the options.

    Args:
        cfg: the config of a model, flat or nested; checkpoints of earlier versions lack the options.
    """
    found = ThresholdOptions(
        getattr(cfg, "rela_threshold", None),
        getattr(cfg, "rela_threshold_warmup", None) or 0,
        getattr(cfg, "rela_sparsity_target", None),
    )
    return None if found == ThresholdOptions() else found


def writable(cfg: Any) -> ContextManager[Any]:
    """Return a context in which options can be set: of a namespace, or of a config of Hydra with new keys."""
    return open_dict(cfg) if OmegaConf.is_config(cfg) else nullcontext()


def apply_architecture(cfg: Any, name: str, architectures: Dict[str, Dict[str, Any]]) -> None:
    """Set the options of an architecture in ``cfg`` where they are missing or None.

    Args:
        cfg: an ``argparse.Namespace``, a dataclass of options or a ``DictConfig``, changed in place.
        name: a key of ``architectures``. Any other name, such as an architecture that another plugin registered, gives
            the values of the first one.
        architectures: name to options; each has those of the first one, unless it changes them.
    """
    first = next(iter(architectures.values()))
    for key, value in {**first, **architectures.get(name, {})}.items():
        if getattr(cfg, key, None) is None:
            setattr(cfg, key, value)
    for key in ("decoder_input_dim", "decoder_output_dim"):
        if getattr(cfg, key, None) is None:
            setattr(cfg, key, cfg.decoder_embed_dim)


def check_shared(cfg: Any) -> None:
    """Check the options of :class:`SharedOptions`.

    Raises:
        InputError: an unknown variant, backend or kind of start values, or a threshold that the variant cannot have.
    """
    variant = find_variant(cfg.attention)
    refuse_backend(variant, cfg.rela_backend)
    refuse_threshold(variant, threshold_options(cfg))
    refuse_start_values(cfg.rela_init)


def check_side(cfg: Any, side: str) -> None:
    """Check the sizes of the encoder or the decoder.

    Raises:
        InputError: a size, number of layers or number of heads below 1, or heads that do not divide the model size.
    """
    for key in ("layers", "embed_dim", "ffn_embed_dim", "attention_heads"):
        value = getattr(cfg, f"{side}_{key}")
        if value < 1:
            raise InputError(f"--{side}-{key.replace('_', '-')} {value}: give a whole number of at least 1")
    dim, heads = getattr(cfg, f"{side}_embed_dim"), getattr(cfg, f"{side}_attention_heads")
    if dim % heads:
        raise InputError(f"--{side}-attention-heads {heads} does not divide --{side}-embed-dim {dim}")


def check_dropouts(cfg: Any) -> None:
    """Check the dropout probabilities.

    Raises:
        InputError: one is outside [0, 1).
    """
    for key in ("dropout", "attention_dropout", "activation_dropout"):
        if not 0 <= getattr(cfg, key) < 1:
            raise InputError(f"--{key.replace('_', '-')} {getattr(cfg, key)} is not a probability below 1")
