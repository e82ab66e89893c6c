"""Multi-head attention with a choice of weight function and norm."""

from .plain import VariantAttention, attention_name, build_attention, refuse_backend

__all__ = ["VariantAttention", "attention_name", "build_attention", "refuse_backend"]
