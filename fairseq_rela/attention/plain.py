"""Multi-head attention with a choice of weight function and norm, as a subclass of fairseq's ``MultiheadAttention``.

Letters in shapes: B sentences, T queries, S keys, H heads, d the model size, d_h = d / H the size of a head.
"""

import logging
from contextlib import nullcontext
from typing import Dict, Optional, Set, Tuple

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from .. import functional
from ..errors import InputError
from ..functional import HALF_PRECISION, at_least_float32
from ..kernels import backends, relu_attention
from ..variants import find_variant

logger = logging.getLogger(__name__)

IncrementalState = Dict[str, Dict[str, Optional[Tensor]]]


class VariantAttention(MultiheadAttention):
    r"""Compute multi-head attention with weight function :math:`f` and a norm before the output projection.

    .. math:: S = Q K^T / \sqrt{d_h} + mask, \quad A = f(S), \quad z = concat_h(dropout(A) V), \quad
        y = LN(z) W_o + b_o

    S, A and :math:`A V` are computed for each head. The mask is 0 at allowed keys and minus infinity at forbidden
    ones. :math:`f` and :math:`LN` are those of the variant; without a norm, :math:`LN(z) = z`.

    There are three ways to compute this. The plain path calls fairseq's forward with ``before_softmax=True``, which
    returns masked scores and values and handles projections, caches, beam order and masks, and continues from there.
    Variants with ReLU also have a fused kernel for whole sequences when the weights are not requested (see
    :mod:`fairseq_rela.kernels.backends`), and a short path for a decoding step that reads fairseq's cache.

    On the plain path scores, weights, context and norm are in float32 or float64, whatever the precision of the
    model; under autocast the projections are as well. A kernel that takes half precision gets its projections in
    half precision and returns the context in float32.

    Parameters are named as in fairseq (``q_proj``, ``k_proj``, ``v_proj``, ``out_proj``), so that a model can start
    from a softmax checkpoint. The norm has ``attn_norm.weight`` (gain) and, if it is gated, ``attn_norm.gate``.

    Args:
        variant_name: a key of :data:`fairseq_rela.variants.VARIANTS`.
        embed_dim: d, the model size.
        num_heads: H, a divisor of d.
        backend: ``auto``, ``fused`` or ``plain``, see :data:`fairseq_rela.kernels.backends.CHOICES`.
        kwargs: other arguments of :class:`fairseq.modules.MultiheadAttention`.

    Attributes:
        last_backend: how the last call was computed: ``plain``, ``step`` or the name of a kernel; None before the
            first call.

    Raises:
        InputError: the variant or the backend is unknown, or the backend is ``fused`` and no kernel computes this
            attention.
    """

    def __init__(self, variant_name: str, embed_dim: int, num_heads: int, *, backend: str = "auto", **kwargs) -> None:
        super().__init__(embed_dim, num_heads, **kwargs)
        variant = find_variant(variant_name)
        self.variant_name = variant_name
        refuse_backend(variant_name, backend)
        self.backend = backend
        self.last_backend: Optional[str] = None
        self._keep_half = False
        # the kernels do not support keys that fairseq adds to all sentences
        added = self.bias_k is not None or self.add_zero_attn
        if backend == "fused" and added:
            raise InputError("--rela-backend fused: no kernel for add_bias_kv and add_zero_attn; give auto")
        self._may_be_fused = backend != "plain" and variant.has_kernel and not added
        # nothing else reads the scores, so ReLU can overwrite them
        self.weight_function = functional.relu_ if variant.has_kernel else variant.weights
        self.attn_norm = variant.norm(embed_dim) if variant.norm is not None else None
        # without this, fairseq may call torch's fused softmax attention
        self.skip_embed_dim_check = True
        self._has_hooks = False

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

        Raises:
            InputError: the backend is ``fused`` and no kernel takes these inputs.
        """
        wants_weights = need_weights or need_head_weights
        may_be_short = not (before_softmax or need_head_weights)
        kernel = None
        if may_be_short and incremental_state is None and not need_weights:
            kernel = self._kernel(query, key, value, key_padding_mask, attn_mask)
        if _autocast_is_on(query) and (kernel is None or not kernel.takes_half):
            with torch.autocast(query.device.type, enabled=False):
                query, key, value = (x if x is None else x.float() for x in (query, key, value))
                return self.forward(
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
        if query.dtype in HALF_PRECISION and not self._has_hooks:
            self._add_hooks()
        if kernel is not None:
            return self._fused(kernel, query, key, value, key_padding_mask, attn_mask), None
        if may_be_short and incremental_state is not None:
            step = self._step(query, incremental_state, static_kv, attn_mask, key_padding_mask, need_weights)
            if step is not None:
                return step
        self._ran("plain")
        scores, values = super().forward(
            query,
            key,
            value,
            key_padding_mask=key_padding_mask,
            incremental_state=incremental_state,
            static_kv=static_kv,
            attn_mask=_as_minus_infinity(attn_mask),
            before_softmax=True,
        )  # (B*H, T, S), (B*H, S, d_h)
        if before_softmax:
            return scores, values
        weights = self.weight_function(scores)
        output = self._output(self._weighted_sum(self.dropout_module(weights), values), query)
        if not wants_weights:
            return output, None
        bsz = query.size(1)
        weights = weights.view(bsz, self.num_heads, *weights.shape[1:]).transpose(0, 1)
        return output, weights if need_head_weights else weights.mean(dim=0)

    def _output(self, context: Tensor, query: Tensor) -> Tensor:
        """Apply norm and output projection to the context, ``(T, B, d)``; the result has the precision of the query."""
        if self.attn_norm is not None:
            context = self.attn_norm(context)
        return self.out_proj(_cast(context, query.dtype))

    def _kernel(
        self,
        query: Tensor,
        key: Optional[Tensor],
        value: Optional[Tensor],
        key_padding_mask: Optional[Tensor],
        attn_mask: Optional[Tensor],
    ) -> Optional[backends.Kernel]:
        """Return the kernel for a pass over whole sequences, or None for the plain path.

        Raises:
            InputError: the backend is ``fused`` and no kernel takes these inputs.
        """
        if not self._may_be_fused or torch.jit.is_scripting() or torch.jit.is_tracing() or self.onnx_trace:
            return None
        if self.encoder_decoder_attention and self.beam_size > 1:
            return None  # here fairseq uses every beam_size-th row of the source, which no kernel does
        if not self.self_attention and (key is None or value is None):
            return None  # fairseq's forward raises the error
        source = query if self.self_attention else key
        shapes = (key_padding_mask, (source.size(1), source.size(0))), (attn_mask, (query.size(0), source.size(0)))
        if any(mask is not None and tuple(mask.shape) != shape for mask, shape in shapes):
            return None  # the same; also, fairseq takes a padding mask without dimensions for None
        kernel, reason = backends.find(query, self.head_dim, attn_mask)
        if kernel is None and self.backend == "fused":
            raise InputError(f"--rela-backend fused: {reason}; give auto")
        return kernel

    def _fused(
        self,
        kernel: backends.Kernel,
        query: Tensor,
        key: Optional[Tensor],
        value: Optional[Tensor],
        key_padding_mask: Optional[Tensor],
        attn_mask: Optional[Tensor],
    ) -> Tensor:
        """Return the output, ``(T, B, d)``, computed by ``kernel``.

        Keys and values are chosen as in fairseq's forward. Under autocast only the projections run in half precision.
        """
        if self.self_attention:
            key = value = query
        elif self.encoder_decoder_attention:
            value = key
        self._ran(kernel.name)
        dropout = self.dropout_module
        self._keep_half = kernel.takes_half
        try:
            q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        finally:
            self._keep_half = False
        autocast = _autocast_is_on(query)
        with torch.autocast(query.device.type, enabled=False) if autocast else nullcontext():
            context = kernel.attend(
                q,
                k,
                v,
                scale=self.scaling,
                num_heads=self.num_heads,
                key_padding_mask=key_padding_mask,
                attn_mask=attn_mask if backends.is_future_mask(attn_mask) else _as_minus_infinity(attn_mask),
                dropout=dropout.p if self.training or dropout.apply_during_inference else 0.0,
            )
            if self.attn_norm is not None:
                context = self.attn_norm(context, kernel.norm)
        return self.out_proj(_cast(context, q.dtype if autocast else query.dtype))

    def _step(
        self,
        query: Tensor,
        incremental_state: IncrementalState,
        static_kv: bool,
        attn_mask: Optional[Tensor],
        key_padding_mask: Optional[Tensor],
        need_weights: bool,
    ) -> Optional[Tuple[Tensor, Optional[Tensor]]]:
        """Compute one decoding step from fairseq's cache, and update the cache as fairseq does.

        Returns:
            the output, ``(1, B, d)``, and the weights, ``(B, 1, S)``, or None if they are not requested. None instead
            of both if the plain path has to run: in the first step, which fills the cache, with dropout, and with a
            mask that the cache does not hold.
        """
        dropout = self.dropout_module
        if not self._may_be_fused or attn_mask is not None or self.training or dropout.apply_during_inference:
            return None
        cache = self._get_input_buffer(incremental_state)
        keys, values, padding = (cache.get(f"prev_{name}") for name in ("key", "value", "key_padding_mask"))
        if query.size(0) != 1 or keys is None or torch.jit.is_tracing() or self.onnx_trace:
            return None
        bsz = query.size(1)
        if self.self_attention:
            if padding is not None or key_padding_mask is not None or keys.size(0) != bsz:
                return None
            shape = bsz, self.num_heads, 1, self.head_dim
            keys = torch.cat((keys, self.k_proj(query).view(shape)), dim=2)
            values = torch.cat((values, self.v_proj(query).view(shape)), dim=2)
            cache.update(prev_key=keys, prev_value=values, prev_key_padding_mask=None)
            self._set_input_buffer(incremental_state, cache)
        elif not static_kv or (padding is None and key_padding_mask is not None):
            return None
        self._ran("step")
        context, weights = relu_attention.attend_step(self.q_proj(query) * self.scaling, keys, values, padding)
        if need_weights:  # from (B', H, B/B', S), the hypotheses of each sentence, to (B, 1, S)
            weights = weights.view(*keys.shape[:2], -1, keys.size(2)).mean(dim=1).view(bsz, 1, -1)
        return self._output(context, query), weights if need_weights else None

    def _add_hooks(self) -> None:
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            projection.register_forward_hook(self._projected)
        self._has_hooks = True

    def _projected(self, module: nn.Module, inputs: Tuple[Tensor, ...], output: Tensor) -> Tensor:
        """Forward hook of the projections: convert to float32, unless a kernel takes half precision."""
        return output if self._keep_half else at_least_float32(output)

    def _ran(self, name: str) -> None:
        self.last_backend = name
        if self.training and name not in _announced:
            _announced.add(name)
            logger.info(f"attention: computed by {backends.describe(name)}")

    def _weighted_sum(self, weights: Tensor, values: Tensor) -> Tensor:
        """Return the context, ``(T, B, d)``, from weights ``(B*H, T, S)`` and values ``(B'*H, S, d_h)``.

        In beam search the hypotheses of a sentence share its values, and B is the beam size times B'; else B = B'.
        """
        rows, tgt_len, src_len = weights.shape
        bsz = rows // self.num_heads
        sources = values.size(0) // self.num_heads
        if sources != bsz:
            # hypotheses of one sentence are neighbours in the batch: one product for each sentence and head is enough
            weights = weights.view(sources, -1, self.num_heads, tgt_len, src_len).transpose(1, 2)
            context = torch.bmm(weights.reshape(values.size(0), -1, src_len), values)
            context = context.view(sources, self.num_heads, -1, tgt_len, self.head_dim).transpose(1, 2)
        else:
            context = torch.bmm(weights, values)
        context = context.reshape(bsz * self.num_heads, tgt_len, self.head_dim)
        return context.transpose(0, 1).reshape(tgt_len, bsz, self.embed_dim)


# each way of computing attention is logged once, in training
_announced: Set[str] = set()


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
        backend: ``auto``, ``plain`` or ``fused``, see :mod:`fairseq_rela.kernels.backends`.
        fairseq_options: other arguments of fairseq's module.

    Raises:
        InputError: the variant or backend is unknown, no kernel computes the variant with ``fused``, H does not
            divide d, the dropout is not in [0, 1), or xFormers options are given for a variant other than softmax.
    """
    find_variant(name)
    if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads:
        raise InputError(f"{num_heads} attention heads do not divide the model size {embed_dim}; choose another number")
    if not 0.0 <= dropout < 1.0:
        raise InputError(f"attention dropout {dropout} is not a probability below 1")
    options = dict(
        fairseq_options,
        kdim=kdim,
        vdim=vdim,
        dropout=dropout,
        self_attention=self_attention,
        encoder_decoder_attention=encoder_decoder_attention,
    )
    refuse_backend(name, backend)
    if name == "softmax":
        return MultiheadAttention(embed_dim, num_heads, **options)
    if options.pop("xformers_att_config", None) is not None:
        raise InputError(f"--attention {name} has no xFormers implementation; leave the xformers_att_config option out")
    return VariantAttention(name, embed_dim, num_heads, backend=backend, **options)


def refuse_backend(name: str, backend: str) -> None:
    """Raise an error if ``backend`` is unknown or cannot compute the variant ``name``.

    Raises:
        InputError: there is no such backend, or it is ``fused`` and the variant does not use ReLU.
    """
    if backend not in backends.CHOICES:
        raise InputError(f"--rela-backend {backend}: choose one of {', '.join(backends.CHOICES)}")
    if backend == "fused" and find_variant(name).weights is not functional.relu:
        raise InputError(f"--rela-backend fused: attention {name} has no kernel, only those with ReLU do; give auto")


def attention_name(module: nn.Module) -> str:
    """Return the name of the variant that a module computes; ``softmax`` for fairseq's own module."""
    return getattr(module, "variant_name", "softmax")


def _as_minus_infinity(attn_mask: Optional[Tensor]) -> Optional[Tensor]:
    """Return a mask that adds minus infinity at forbidden keys, from a boolean or additive mask.

    fairseq's encoder layer uses -1e8 (-1e4 in float16) instead. With softmax such a key gets weight 0, but not with
    every variant: leaky ReLU gives -1e6. fairseq would add a boolean mask as 0 and 1.
    """
    if attn_mask is None:
        return None
    if attn_mask.dtype == torch.bool:
        return torch.zeros_like(attn_mask, dtype=torch.float32).masked_fill(attn_mask, -torch.inf)
    return attn_mask.masked_fill(attn_mask <= -1e4, -torch.inf)


def _cast(context: Tensor, dtype: torch.dtype) -> Tensor:
    """Cast the context to the precision of the model; in half precision clamp it first, so that it stays finite.

    Only ReLU without a norm reaches the limit, when training has diverged already, as the paper reports.
    """
    if dtype in HALF_PRECISION:
        limit = torch.finfo(dtype).max / context.size(-1)
        context = context.clamp(-limit, limit)
    return context.to(dtype)


def _autocast_is_on(x: Tensor) -> bool:
    """Return whether autocast is on for the device of ``x``; it would compute the scores in half precision."""
    if _ASKS_BY_DEVICE:
        return torch.is_autocast_enabled("cuda" if x.is_cuda else "cpu")
    return torch.is_autocast_enabled() if x.is_cuda else torch.is_autocast_cpu_enabled()


try:  # torch 2.4 and later; there the older function warns, which takes longer than a small matrix product
    torch.is_autocast_enabled("cpu")
    _ASKS_BY_DEVICE = True
except TypeError:
    _ASKS_BY_DEVICE = False
