"""Multi-head attention with any weight function and norm, as a subclass of fairseq's own module."""

import logging
from contextlib import nullcontext
from typing import Dict, Optional, Set, Tuple

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from . import functional
from .errors import InputError
from .functional import HALF_PRECISION, at_least_float32
from .kernels import backends, relu_attention
from .variants import find_variant

logger = logging.getLogger(__name__)

IncrementalState = Dict[str, Dict[str, Optional[Tensor]]]


class VariantAttention(MultiheadAttention):
    r"""Attention whose weights are any function of the scores, normed before the output projection.

    .. math:: S = Q K^T / \sqrt{d_h}, \quad A = f(S), \quad z = concat_h(dropout(A) V), \quad y = LN(z) W_o + b_o

    Projections, caches, beam order and masks are fairseq's: ``before_softmax`` of its explicit path hands out
    masked scores and values, and this class goes on from there. Scores, weights, context and norm are float32
    (or float64) whatever the precision of the model. Under autocast so are the projections, but for those of a
    kernel that takes half precision.

    Parameters are named as in fairseq (``q_proj``, ``k_proj``, ``v_proj``, ``out_proj``), so that a softmax
    checkpoint can start a model; those of the norm are ``attn_norm.weight`` (gain) and ``attn_norm.gate``.

    Where the weights are ReLU's, passes over whole sequences from which nobody wants the weights go by a fused
    kernel (:mod:`fairseq_rela.kernels.backends`), and steps of decoding straight from fairseq's cache; all else goes
    as above, the plain way.

    Args:
        variant_name: a key of :data:`fairseq_rela.variants.VARIANTS`.
        embed_dim: d, the model size.
        num_heads: H; d is a multiple of it.
        backend: a key of :data:`fairseq_rela.kernels.backends.CHOICES`.
        kwargs: as for :class:`fairseq.modules.MultiheadAttention`.

    Attributes:
        last_backend: what computed the last pass: ``plain``, ``step``, or the name of a kernel; None before the first.

    Raises:
        InputError: no such backend, or ``fused`` for an attention that no kernel computes.
    """

    def __init__(self, variant_name: str, embed_dim: int, num_heads: int, *, backend: str = "auto", **kwargs) -> None:
        super().__init__(embed_dim, num_heads, **kwargs)
        variant = find_variant(variant_name)
        self.variant_name = variant_name
        refuse_backend(variant_name, backend)
        self.backend = backend
        self.last_backend: Optional[str] = None
        self._keep_half = False
        # a key that is added to all sentences has no place in the kernels
        added = self.bias_k is not None or self.add_zero_attn
        if backend == "fused" and added:
            raise InputError("--rela-backend fused: no kernel for add_bias_kv and add_zero_attn; give auto")
        self._may_be_fused = backend != "plain" and variant.weights is functional.relu and not added
        # the scores are this module's own, so ReLU may take their place
        self.weight_function = functional.relu_ if variant.weights is functional.relu else variant.weights
        self.attn_norm = variant.norm(embed_dim) if variant.norm is not None else None
        # keeps fairseq off torch's fused softmax attention, which knows no other weight function
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
        """See :meth:`fairseq.modules.MultiheadAttention.forward`; time comes first.

        Args:
            query: (T, B, d).
            key, value: (S, B, d), or None where ``static_kv`` and the cache holds them.
            key_padding_mask: (B, S), True at padding.
            attn_mask: (T, S), added to the scores; boolean, or 0 where allowed and very negative where not.
            need_weights: return the weights as well, before dropout, averaged over the heads: (B, T, S).
            need_head_weights: return them for each head: (H, B, T, S).

        Returns:
            the output (T, B, d), and the weights in at least float32 or None.
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
        """Norm and output projection; in the precision of the query."""
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
        """The kernel for a pass over whole sequences, or None for the plain way.

        Raises:
            InputError: there is none, and the backend is to be fused.
        """
        if not self._may_be_fused or torch.jit.is_scripting() or torch.jit.is_tracing() or self.onnx_trace:
            return None
        if self.encoder_decoder_attention and self.beam_size > 1:
            return None  # fairseq takes the source of every beam_size-th row
        if not self.self_attention and (key is None or value is None):
            return None  # fairseq says what is wrong
        source = query if self.self_attention else key
        shapes = (key_padding_mask, (source.size(1), source.size(0))), (attn_mask, (query.size(0), source.size(0)))
        if any(mask is not None and tuple(mask.shape) != shape for mask, shape in shapes):
            return None  # and here; a padding mask without dimensions is fairseq's None
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
        """The output (T, B, d); queries, keys and values are what they are in fairseq's forward.

        Under autocast the projections are what it makes of them, in half precision, and nothing else is.
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
        """A step of decoding from fairseq's cache, which it leaves as fairseq does; or None, for the plain way.

        That is for the first step, which fills the cache, and any with dropout or masks of its own.
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
        if need_weights:  # of the hypotheses of each sentence, (B', H, B/B', S)
            weights = weights.view(*keys.shape[:2], -1, keys.size(2)).mean(dim=1).view(bsz, 1, -1)
        return self._output(context, query), weights if need_weights else None

    def _add_hooks(self) -> None:
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            projection.register_forward_hook(self._projected)
        self._has_hooks = True

    def _projected(self, module: nn.Module, inputs: Tuple[Tensor, ...], output: Tensor) -> Tensor:
        """Hook of the projections: their output for fairseq's scores, or for a kernel that takes it as it is."""
        return output if self._keep_half else at_least_float32(output)

    def _ran(self, name: str) -> None:
        self.last_backend = name
        if self.training and name not in _announced:
            _announced.add(name)
            logger.info(f"attention: computed by {backends.describe(name)}")

    def _weighted_sum(self, weights: Tensor, values: Tensor) -> Tensor:
        """(B*H, T, S) weights and (B'*H, S, d_h) values to (T, B, d); B = beam * B' where beams share a source."""
        rows, tgt_len, src_len = weights.shape
        bsz = rows // self.num_heads
        sources = values.size(0) // self.num_heads
        if sources != bsz:
            # the beams of a sentence stand next to each other: one product a sentence and head serves them all
            weights = weights.view(sources, -1, self.num_heads, tgt_len, src_len).transpose(1, 2)
            context = torch.bmm(weights.reshape(values.size(0), -1, src_len), values)
            context = context.view(sources, self.num_heads, -1, tgt_len, self.head_dim).transpose(1, 2)
        else:
            context = torch.bmm(weights, values)
        context = context.reshape(bsz * self.num_heads, tgt_len, self.head_dim)
        return context.transpose(0, 1).reshape(tgt_len, bsz, self.embed_dim)


# one line of the log for each way that attention was computed in training
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
    """The attention module of that name, with the interface of fairseq's ``MultiheadAttention`` (time first).

    Args:
        name: a key of :data:`fairseq_rela.variants.VARIANTS`; ``softmax`` is fairseq's module itself.
        embed_dim: d, the model size.
        num_heads: H.
        kdim, vdim: sizes of keys and values where they are not d.
        dropout: probability, on the attention weights.
        self_attention: keys and values are the queries.
        encoder_decoder_attention: keys and values come from the encoder.
        backend: ``auto``, ``plain`` or ``fused``, see :mod:`fairseq_rela.kernels.backends`.
        fairseq_options: anything else that fairseq's module takes.

    Raises:
        InputError: an unknown name or backend, a size or a probability that cannot be.
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
    """
    Raises:
        InputError: no such backend, or ``fused`` for a variant that no kernel computes.
    """
    if backend not in backends.CHOICES:
        raise InputError(f"--rela-backend {backend}: choose one of {', '.join(backends.CHOICES)}")
    if backend == "fused" and find_variant(name).weights is not functional.relu:
        raise InputError(f"--rela-backend fused: attention {name} has no kernel, only those with ReLU do; give auto")


def attention_name(module: nn.Module) -> str:
    """Which variant a module computes: the name it was built with, or ``softmax`` for fairseq's own."""
    return getattr(module, "variant_name", "softmax")


def _as_minus_infinity(attn_mask: Optional[Tensor]) -> Optional[Tensor]:
    """A mask that adds minus infinity where attention is forbidden.

    fairseq's encoder layer writes -1e8 (-1e4 in float16) there, which only softmax turns into 0, and a
    boolean mask would be added as 1.
    """
    if attn_mask is None:
        return None
    if attn_mask.dtype == torch.bool:
        return torch.zeros_like(attn_mask, dtype=torch.float32).masked_fill(attn_mask, -torch.inf)
    return attn_mask.masked_fill(attn_mask <= -1e4, -torch.inf)


def _cast(context: Tensor, dtype: torch.dtype) -> Tensor:
    """To the precision of the model; a context that half precision cannot hold saturates and stays finite.

    Only ReLU without a norm gets there, and by then its training has diverged, as the paper found.
    """
    if dtype in HALF_PRECISION:
        limit = torch.finfo(dtype).max / context.size(-1)
        context = context.clamp(-limit, limit)
    return context.to(dtype)


def _autocast_is_on(x: Tensor) -> bool:
    """It would put the scores in half precision."""
    if _ASKS_BY_DEVICE:
        return torch.is_autocast_enabled("cuda" if x.is_cuda else "cpu")
    return torch.is_autocast_enabled() if x.is_cuda else torch.is_autocast_cpu_enabled()


try:  # from torch 2.4 on, where the other way warns, which takes longer than a small product of matrices
    torch.is_autocast_enabled("cpu")
    _ASKS_BY_DEVICE = True
except TypeError:
    _ASKS_BY_DEVICE = False
