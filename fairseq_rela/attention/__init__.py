"""Multi-head attention with a choice of weight function and norm."""

from .build import attention_name, build_attention, refuse_backend, refuse_threshold, sparsity_target
from .plain import VariantAttention

__all__ = [
    "VariantAttention",
    "attention_name",
    "build_attention",
    "refuse_backend",
    "refuse_threshold",
    "sparsity_target",
]
