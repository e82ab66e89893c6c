"""Multi-head attention with a choice of weight function and norm. This is the file to read first.

Letters in shapes: B sentences, T queries, S keys, H heads, d the model size, d_h = d / H the size of a head.
"""

from typing import Dict, Optional, Tuple

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor

from ..threshold import ThresholdOptions
from ..variants import Variant
from .announcement import announce
from .inputs import as_minus_infinity, for_each_hypothesis
from .observing import observe_scores
from .precision import cast, dtype_of, full_precision

IncrementalState = Dict[str, Dict[str, Optional[Tensor]]]


class VariantAttention(MultiheadAttention):
    r"""Compute multi-head attention with weight function :math:`f` and a norm before the output projection.

    .. math:: S = Q K^T / \sqrt{d_h} + mask, \quad A = f(S), \quad z = concat_h(dropout(A) V), \quad
        y = LN(z) W_o + b_o

    S, A and :math:`A V` are computed for each head. The mask is 0 at allowed keys and minus infinity at forbidden
    ones. :math:`f` and :math:`LN` are those of the variant; without a norm, :math:`LN(z) = z`.

    Scores, weights, context and norm are in float32 or float64, whatever the precision of the model; under autocast
    the projections are as well.

    Parameters are named as in fairseq (``q_proj``, ``k_proj``, ``v_proj``, ``out_proj``), so that a model can start
    from a softmax checkpoint. The norm has ``attn_norm.weight`` (gain) and, if it is gated, ``attn_norm.gate``;
    parameters of the weight function are under ``attn_weights``.

    Args:
        variant: weight function and norm.
        embed_dim: d, the model size.
        num_heads: H, a divisor of d.
        threshold: the threshold of a variant with ReLU; None for none.
        options: other arguments of :class:`fairseq.modules.MultiheadAttention`.

    Attributes:
        query_padding: ``(B, T)``, True at padded queries, or None; the decoder layer sets it in each pass. Only the
            sparsity target reads it. In other self-attention, the padding of the keys is also that of the queries.
        backend: ``plain``; the subclass with kernels has ``auto`` or ``fused``.
        last_backend: how the last call was computed: ``plain`` or the name of a kernel; None before the first call.
    """

    backend = "plain"
    last_backend: Optional[str] = None
    query_padding: Optional[Tensor] = None

    def __init__(
        self,
        variant: Variant,
        embed_dim: int,
        num_heads: int,
        *,
        threshold: Optional[ThresholdOptions] = None,
        **options,
    ) -> None:
        super().__init__(embed_dim, num_heads, **options)
        self.variant_name = variant.name
        self.attn_weights = variant.make_weights(num_heads, self.head_dim, threshold)
        self.attn_norm = None if variant.norm is None else variant.norm(embed_dim)
        self.skip_embed_dim_check = True  # without this, fairseq may call torch's fused softmax attention

    def extra_repr(self) -> str:
        return self.variant_name

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
        """Compute the attention output, with the interface of :meth:`fairseq.modules.MultiheadAttention.forward`.

        Args:
            query: ``(T, B, d)``.
            key, value: ``(S, B, d)``. They are ignored in self-attention, and ``value`` also in encoder-decoder
                attention. They are None if ``static_kv`` is set and the cache holds the projected keys and values.
            key_padding_mask: ``(B, S)``, True at padding.
            incremental_state: cache of projected keys and values in decoding.
            need_weights: also return the weights before dropout, averaged over the heads, ``(B, T, S)``.
            static_kv: the cached keys and values do not change between decoding steps.
            attn_mask: ``(T, S)``, either boolean, True at forbidden keys, or added to the scores: 0 at allowed keys
                and -1e4 or less at forbidden ones.
            before_softmax: return the masked scores ``(B*H, T, S)`` and the values ``(B*H, S, d_h)`` instead.
            need_head_weights: return the weights of each head, ``(H, B, T, S)``, instead of their average.

        Returns:
            the output, ``(T, B, d)``, and the weights in float32 or float64, or None if they are not requested.
        """
        announce(self, "plain")
        dtype = dtype_of(self)  # under autocast, that of the inputs can be another
        with full_precision(self):
            scores, values = super().forward(
                *(x if x is None else x.to(dtype) for x in (query, key, value)),
                key_padding_mask=key_padding_mask,
                incremental_state=incremental_state,
                static_kv=static_kv,
                attn_mask=as_minus_infinity(attn_mask),
                before_softmax=True,
            )  # (B*H, T, S), (B*H, S, d_h)
            if before_softmax:
                return scores, values
            observe_scores(self, scores, key_padding_mask)  # for a threshold with a target
            context, weights = self.attend(scores, values)  # (T, B, d), (B, H, T, S)
            output = self.out_proj(cast(context, dtype))  # (T, B, d)
        if not (need_weights or need_head_weights):
            return output, None
        return output, weights.transpose(0, 1) if need_head_weights else weights.mean(dim=1)

    def attend(self, scores: Tensor, values: Tensor) -> Tuple[Tensor, Tensor]:
        """Return the normalised context, ``(T, B, d)``, and the weights before dropout, ``(B, H, T, S)``.

        TorchScript compiles this method.

        Args:
            scores: S, ``(B*H, T, S)``.
            values: V, ``(B*H, S, d_h)``, or ``(B'*H, S, d_h)`` as for :func:`for_each_hypothesis`.
        """
        weights = self.attn_weights(scores.view(-1, self.num_heads, scores.size(1), scores.size(2)))  # (B, H, T, S)
        dropped = self.dropout_module(weights).flatten(0, 1)  # (B*H, T, S)
        context = torch.bmm(dropped, for_each_hypothesis(values, len(dropped), self.num_heads))  # (B*H, T, d_h)
        context = context.transpose(0, 1).reshape(scores.size(1), weights.size(0), self.embed_dim)  # (T, B, d)
        if self.attn_norm is not None:
            context = self.attn_norm(context)  # (T, B, d)
        return context, weights

    def __prepare_scriptable__(self) -> MultiheadAttention:
        """Return the module that ``torch.jit.script`` compiles in place of this one."""
        from .scripted import ScriptedAttention  # a subclass of this class

        return ScriptedAttention(self)
