r"""Rectified linear attention as one operator that compiled code calls for long inputs.

``torch.compile`` would otherwise record all scores, in memory that grows with the square of the length. The operator
``fairseq_rela::tiled_attention`` runs the loop over tiles of :mod:`.relu_attention`; its gradient computes the weights
of each tile again. With :math:`A = dropout(\max(S, 0))`, p the probability of dropout, and a bar for gradients:

.. math:: \bar S = [A > 0] \odot (\bar z V^T) / (1 - p), \quad \bar Q = scale\, \bar S K, \quad
    \bar K = scale\, \bar S^T Q, \quad \bar V = A^T \bar z / (1 - p), \quad \bar\theta = -\sum \bar S
"""

from typing import Any, Callable, Optional, Tuple

import torch
from torch import Tensor

from . import relu_attention
from .tracing import is_compiling, is_exporting


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float,
    attn_mask: Optional[Tensor] = None,
    key_padding_mask: Optional[Tensor] = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    threshold: Optional[Tensor] = None,
) -> Tensor:
    """Return the context of :func:`.relu_attention.attend`, in compiled code by one operator if inputs are long."""
    masks = (attn_mask, key_padding_mask)
    opaque = (
        is_compiling()
        and not is_exporting()  # an exported program runs without this package
        and _OPERATOR is not None
        and query.device.type == "cpu"
        and relu_attention.is_tiled(query, key, value)
        and (dropout_p == 0 or relu_attention.draws_16_bits(dropout_p))
        and not any(mask is not None and mask.requires_grad for mask in masks)
    )
    if not opaque:
        return relu_attention.attend(
            query,
            key,
            value,
            scale=scale,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            is_causal=is_causal,
            dropout_p=dropout_p,
            threshold=threshold,
        )
    seed = torch.randint(2**62, ()) if dropout_p else None
    return _OPERATOR(query, key, value, *masks, threshold, seed, scale, is_causal, dropout_p)


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Optional[Tensor],
    key_padding_mask: Optional[Tensor],
    threshold: Optional[Tensor],
    seed: Optional[Tensor],
    scale: float,
    is_causal: bool,
    dropout_p: float,
) -> Tensor:
    """Compute the context tile by tile; dropout draws from a generator with this seed."""
    with torch.no_grad():
        return relu_attention.attend(
            query,
            key,
            value,
            scale=scale,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            is_causal=is_causal,
            dropout_p=dropout_p,
            threshold=threshold,
            generator=_generator(seed),
        )


def _gradients(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Optional[Tensor],
    key_padding_mask: Optional[Tensor],
    threshold: Optional[Tensor],
    seed: Optional[Tensor],
    scale: float,
    is_causal: bool,
    dropout_p: float,
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of queries, keys, values and thresholds (without elements if there are none)."""
    generator, factor = _generator(seed), relu_attention.factor_of_kept(dropout_p)
    grads = torch.empty_like(query), torch.zeros_like(key), torch.zeros_like(value)
    grad_threshold = query.new_zeros(0 if threshold is None else query.size(1))
    rows = relu_attention.rows_of_tile(query, key)
    sentences = relu_attention.tiles(query, key, value, attn_mask, key_padding_mask, is_causal)
    for sentence, grad_z, grad_q, grad_k, grad_v in zip(sentences, *(x.split(1) for x in (grad, *grads))):
        parts = zip(sentence, grad_z.split(rows, dim=-2), grad_q.split(rows, dim=-2))
        for (part, keys, values, *masks), z, grad_part in parts:
            weights = relu_attention.attention_weights(part, keys, *masks, scale=scale, threshold=threshold)
            if dropout_p:
                weights = relu_attention.drop_by_16_bits(weights, dropout_p, generator)
            z = z * factor
            seen = keys.size(-2)
            grad_v[..., :seen, :] += weights.transpose(-2, -1) @ z
            scores = (z @ values.transpose(-2, -1)).masked_fill_(weights == 0, 0.0)
            grad_part.copy_(scores @ keys).mul_(scale)
            grad_k[..., :seen, :] += (scores.transpose(-2, -1) @ part).mul_(scale)
            if threshold is not None:
                grad_threshold -= scores.sum(dim=(0, -2, -1))
    return (*grads, grad_threshold)


def _generator(seed: Optional[Tensor]) -> Optional[torch.Generator]:
    return None if seed is None else torch.Generator().manual_seed(int(seed))


def _register() -> Optional[Callable[..., Tensor]]:
    """Register the operator with its gradient; return it, or None where torch is older than 2.4."""
    if not hasattr(torch.library, "custom_op"):
        return None
    if hasattr(torch.ops.fairseq_rela, "tiled_attention"):  # the package was imported under another name
        return torch.ops.fairseq_rela.tiled_attention
    forward = torch.library.custom_op("fairseq_rela::tiled_attention", _attend, mutates_args=())
    backward = torch.library.custom_op("fairseq_rela::tiled_attention_backward", _gradients, mutates_args=())

    @forward.register_fake
    def _(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> Tensor:
        return query.new_empty(*query.shape[:-1], value.size(-1))

    @backward.register_fake
    def _(grad: Tensor, query: Tensor, key: Tensor, value: Tensor, *options: Any) -> Tuple[Tensor, ...]:
        heads = 0 if options[2] is None else query.size(1)
        return (*(torch.empty_like(x) for x in (query, key, value)), query.new_empty(heads))

    def setup_context(ctx: Any, inputs: Tuple, output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:7])
        ctx.options = inputs[7:]

    def backward_of(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        *grads, grad_threshold = backward(grad, *ctx.saved_tensors, *ctx.options)
        has_threshold = ctx.saved_tensors[5] is not None
        return (*grads, None, None, grad_threshold if has_threshold else None, None, None, None, None)

    forward.register_autograd(backward_of, setup_context=setup_context)
    return forward


_OPERATOR = _register()
