"""Build the attention module of a variant for a backend."""

from typing import Optional

from fairseq.modules import MultiheadAttention
from torch import nn

from ..errors import InputError
from ..kernels import backends
from ..threshold import LearntThreshold, ThresholdedReLU, ThresholdOptions
from ..variants import BASELINE, VARIANTS, Variant, find_variant
from .fused import FusedAttention
from .plain import VariantAttention


def build_attention(
    name: str,
    embed_dim: int,
    num_heads: int,
    *,
    kdim: Optional[int] = None,
    vdim: Optional[int] = None,
    dropout: float = 0.0,
    self_attention: bool = False,
    encoder_decoder_attention: bool = False,
    backend: str = "auto",
    threshold: Optional[ThresholdOptions] = None,
    **fairseq_options,
) -> MultiheadAttention:
    """Return a new attention module of the given variant, with the interface of fairseq's ``MultiheadAttention``.

    Inputs and outputs have the time dimension first: ``(T, B, d)``.

    Args:
        name: a key of :data:`fairseq_rela.variants.VARIANTS`; ``softmax`` gives fairseq's own module.
        embed_dim: d, the model size.
        num_heads: H, a divisor of d.
        kdim, vdim: sizes of keys and values; None for d.
        dropout: dropout probability of the attention weights, from 0 to below 1.
        self_attention: queries, keys and values are projections of the same tensor.
        encoder_decoder_attention: keys and values are projections of the encoder's output.
        backend: ``auto``, ``plain`` or ``fused``, see :data:`fairseq_rela.kernels.backends.CHOICES`.
        threshold: the threshold of a variant with ReLU; None for none.
        fairseq_options: other arguments of fairseq's module.

    Raises:
        InputError: the variant or backend is unknown, no kernel computes this attention with ``fused``, the variant
            cannot have this threshold, H does not divide d, the dropout is not in [0, 1), or xFormers options are
            given for a variant other than softmax.
    """
    variant = find_variant(name)
    if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads:
        raise InputError(f"{num_heads} attention heads do not divide the model size {embed_dim}; choose another number")
    if not 0.0 <= dropout < 1.0:
        raise InputError(f"attention dropout {dropout} is not a probability below 1")
    refuse_backend(variant, backend)
    refuse_threshold(variant, threshold)
    options = dict(
        fairseq_options,
        kdim=kdim,
        vdim=vdim,
        dropout=dropout,
        self_attention=self_attention,
        encoder_decoder_attention=encoder_decoder_attention,
    )
    if name == BASELINE:
        return MultiheadAttention(embed_dim, num_heads, **options)
    if options.pop("xformers_att_config", None) is not None:
        raise InputError(f"--attention {name} has no xFormers implementation; leave the xformers_att_config option out")
    adds_keys = options.get("add_bias_kv") or options.get("add_zero_attn")
    if backend == "fused" and adds_keys:
        raise InputError("--rela-backend fused: no kernel for add_bias_kv and add_zero_attn; give auto")
    if backend == "plain" or adds_keys or not variant.is_relu:
        return VariantAttention(variant, embed_dim, num_heads, threshold=threshold, **options)
    return FusedAttention(variant, embed_dim, num_heads, threshold=threshold, backend=backend, **options)


def refuse_backend(variant: Variant, backend: str) -> None:
    """Raise an error if ``backend`` is unknown or cannot compute the variant.

    Raises:
        InputError: there is no such backend, or it is ``fused`` and the variant has no kernel.
    """
    if backend not in backends.CHOICES:
        raise InputError(f"--rela-backend {backend}: choose one of {', '.join(backends.CHOICES)}")
    if backend == "fused" and not variant.is_relu:
        raise InputError(
            f"--rela-backend fused: attention {variant.name} has no kernel, only those with ReLU do; give auto"
        )


def refuse_threshold(variant: Variant, threshold: Optional[ThresholdOptions]) -> None:
    """Raise an error if the variant cannot have this threshold.

    Raises:
        InputError: a value is invalid, options exclude each other, or the variant's weights are not ReLU.
    """
    if threshold is None:
        return
    threshold.refuse_values()
    flag = "--rela-threshold" if threshold.target is None else "--rela-sparsity-target"
    if not variant.is_relu:
        names = ", ".join(name for name, other in VARIANTS.items() if other.is_relu)
        raise InputError(f"{flag}: --attention {variant.name} has no threshold; choose one of {names}")
    if threshold.warmup and threshold.target is None and variant.weights is LearntThreshold:
        raise InputError(f"--rela-threshold-warmup: --attention {variant.name} learns its threshold; leave it out")


def sparsity_target(module: nn.Module) -> Optional[float]:
    """Return the share of exact zeros to which training moves the threshold of an attention module, or None."""
    weights = getattr(module, "attn_weights", None)
    return weights.options.target if isinstance(weights, ThresholdedReLU) else None


def attention_name(module: nn.Module) -> str:
    """Return the name of the variant that a module computes; ``softmax`` for fairseq's own module."""
    return getattr(module, "variant_name", BASELINE)
