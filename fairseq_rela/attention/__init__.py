"""Multi-head attention with a choice of weight function and norm."""

from .build import attention_name, build_attention, refuse_backend, refuse_threshold, sparsity_target
from .heads import count_heads, keep_heads
from .plain import VariantAttention
from .scripted import ScriptedAttention

__all__ = [
    "ScriptedAttention",
    "VariantAttention",
    "attention_name",
    "build_attention",
    "count_heads",
    "keep_heads",
    "refuse_backend",
    "refuse_threshold",
    "sparsity_target",
]
