"""Compute rectified linear attention by a fused kernel if one takes the inputs, otherwise by the plain path."""

from contextlib import nullcontext
from typing import Optional, Tuple

import torch
from torch import Tensor

from ..errors import InputError
from ..kernels import backends
from ..norms import RMSNorm
from ..threshold import ThresholdedReLU
from ..variants import Variant
from .announcement import announce
from .inputs import as_minus_infinity
from .observing import observe_projections
from .plain import IncrementalState, VariantAttention
from .precision import cast, dtype_of, full_precision


class FusedAttention(VariantAttention):
    """Compute whole sequences by a kernel of :mod:`fairseq_rela.kernels.backends` if no weights are requested.

    A kernel computes the context without keeping scores and weights, so it cannot return them, and it does not use
    fairseq's cache. The plain path computes decoding steps, and calls that request weights.

    Args:
        variant: as for :class:`VariantAttention`; its weight function must be ReLU.
        embed_dim, num_heads, options: as for :class:`VariantAttention`.
        backend: ``auto``, or ``fused`` to raise an error if no kernel takes the inputs.
    """

    def __init__(self, variant: Variant, embed_dim: int, num_heads: int, *, backend: str, **options) -> None:
        super().__init__(variant, embed_dim, num_heads, **options)
        self.backend = backend

    @property
    def threshold(self) -> Optional[Tensor]:
        """The threshold of each head, ``(H,)``, or None for ReLU without one."""
        return self.attn_weights.per_head() if isinstance(self.attn_weights, ThresholdedReLU) else None

    def forward(
        self,
        query: Tensor,
        key: Optional[Tensor],
        value: Optional[Tensor],
        key_padding_mask: Optional[Tensor] = None,
        incremental_state: Optional[IncrementalState] = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Optional[Tensor] = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Compute the attention output, with the interface of :meth:`VariantAttention.forward`.

        Raises:
            InputError: the backend is ``fused`` and no kernel takes these inputs.
        """
        kernel = None
        if incremental_state is None and not (need_weights or need_head_weights or before_softmax):
            kernel = self._kernel(query, key, value, key_padding_mask, attn_mask)
        if kernel is None:
            return super().forward(
                query,
                key,
                value,
                key_padding_mask,
                incremental_state,
                need_weights,
                static_kv,
                attn_mask,
                before_softmax,
                need_head_weights,
            )
        announce(self, kernel.name)
        return self._output(kernel, query, key, value, key_padding_mask, attn_mask), None

    def _kernel(
        self,
        query: Tensor,
        key: Optional[Tensor],
        value: Optional[Tensor],
        key_padding_mask: Optional[Tensor],
        attn_mask: Optional[Tensor],
    ) -> Optional[backends.Kernel]:
        """Return the kernel for these inputs, or None for the plain path.

        Raises:
            InputError: the backend is ``fused`` and no kernel takes these inputs.
        """
        if torch.jit.is_scripting() or torch.jit.is_tracing() or self.onnx_trace:
            return None
        if self.encoder_decoder_attention and self.beam_size > 1:
            return None  # here fairseq uses every beam_size-th row of the source, which no kernel does
        source = query if self.self_attention else key
        if source is None or (value is None and not self.self_attention):
            return None  # fairseq's forward raises the error
        shapes = (key_padding_mask, (source.size(1), source.size(0))), (attn_mask, (query.size(0), source.size(0)))
        if any(mask is not None and tuple(mask.shape) != shape for mask, shape in shapes):
            return None  # fairseq's forward raises the error, or ignores a padding mask without dimensions
        kernel, reason = backends.find(query, self.head_dim, attn_mask)
        if kernel is None and self.backend == "fused":
            raise InputError(f"--rela-backend fused: {reason}; give auto")
        return kernel

    def _output(
        self,
        kernel: backends.Kernel,
        query: Tensor,
        key: Optional[Tensor],
        value: Optional[Tensor],
        key_padding_mask: Optional[Tensor],
        attn_mask: Optional[Tensor],
    ) -> Tensor:
        """Return the output, ``(T, B, d)``, with the context and the norm from ``kernel``.

        Keys and values are chosen as in fairseq's forward. If the kernel takes half precision, the projections run in
        the precision of the model or of autocast, otherwise as on the plain path.
        """
        if self.self_attention:
            key = value = query
        elif self.encoder_decoder_attention:
            value = key
        assert key is not None and value is not None  # they are given where neither case applies
        dropout = self.dropout_module
        dtype = dtype_of(self)
        if not kernel.takes_half:
            query, key, value = (x.to(dtype) for x in (query, key, value))
        with nullcontext() if kernel.takes_half else full_precision(self):
            q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)  # (T, B, d), (S, B, d), (S, B, d)
            future = backends.is_future_mask(attn_mask)
            with torch.autocast(query.device.type, enabled=False):
                observe_projections(self, q, k, key_padding_mask, attn_mask)  # for a threshold with a target
                context = kernel.attend(
                    *(backends.split_heads(x, self.num_heads) for x in (q, k, v)),  # (B, H, T, d_h), (B, H, S, d_h)
                    scale=self.scaling,
                    key_padding_mask=None if key_padding_mask is None else key_padding_mask.to(torch.bool),
                    attn_mask=None if future else as_minus_infinity(attn_mask),
                    is_causal=future,
                    dropout_p=dropout.p if self.training or dropout.apply_during_inference else 0.0,
                    threshold=self.threshold,
                )
                context = backends.join_heads(context)  # (T, B, d)
                if isinstance(self.attn_norm, RMSNorm):
                    context = self.attn_norm.by(kernel.norm, context)
                elif self.attn_norm is not None:
                    context = self.attn_norm(context)
            return self.out_proj(cast(context, q.dtype if kernel.takes_half else dtype))
