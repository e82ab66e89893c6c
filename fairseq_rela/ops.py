r"""Rectified linear attention and its norm for any PyTorch model; torch is the only package that this module imports.

Both are compositions of torch's functions: ``torch.compile`` and ``torch.export`` trace them, and autograd derives
them. On a GPU, outside of a trace, the kernels of :mod:`fairseq_rela.kernels` compute the attention where they can;
on a CPU, code compiled for long inputs calls one operator, :mod:`fairseq_rela.kernels.compiled_attention`.
They are also registered with ``torch.library``, as ``torch.ops.fairseq_rela.rela_attention`` and ``gated_rms_norm``.
"""

from contextlib import nullcontext
from typing import Callable, ContextManager, Dict, Optional

import torch
from torch import Tensor

from .errors import InputError
from .functional import at_least_float32
from .kernels import backends
from .kernels.relu_attention import attention_weights
from .kernels.rms_norm import plain_rms_norm
from .kernels.tracing import is_compiling


def rela_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Optional[Tensor] = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
    key_padding_mask: Optional[Tensor] = None,
    threshold: Optional[Tensor] = None,
) -> Tensor:
    r"""Return :math:`dropout(\max(scale\, Q K^T + mask - \theta, 0))\, V`, rectified linear attention without its norm.

    The arguments are those of :func:`torch.nn.functional.scaled_dot_product_attention`, ``key_padding_mask`` and
    ``threshold``.
    Forbidden keys have the weight 0, and a query without an allowed key gives 0. Like there, dropout is applied
    whenever ``dropout_p`` is above 0: give 0 in evaluation.

    Args:
        query: ``(B, ..., T, d_h)``, usually ``(B, H, T, d_h)``.
        key: ``(B, ..., S, d_h)``.
        value: ``(B, ..., S, d_v)``.
        attn_mask: broadcasts to ``(B, ..., T, S)``; boolean, True at keys that take part, or added to the scores.
        dropout_p: probability of dropping a weight; weights that are kept are divided by ``1 - dropout_p``.
        is_causal: query i sees only the keys 0 to i; not together with ``attn_mask``.
        scale: factor of the scores; None for :math:`1 / \sqrt{d_h}`.
        key_padding_mask: ``(B, S)``; boolean, True at padding, or added to the scores.
        threshold: :math:`\theta` of each head, ``(H,)``, for a query ``(B, H, T, d_h)``; None for 0. It can be learnt.

    Returns:
        ``(B, ..., T, d_v)``, in float64 for float64 and otherwise in float32: a sum of weights that are not
        normalised can exceed 65504, the largest number in float16. The norm that follows has to be in float32 too.

    Raises:
        InputError: shapes or the types of masks do not fit, both ``attn_mask`` and ``is_causal`` are given, or
            ``dropout_p`` is not in [0, 1].
    """
    refuse_shapes(query, key, value, attn_mask, key_padding_mask, threshold)
    if attn_mask is not None and is_causal:
        raise InputError("rela_attention: attn_mask and is_causal exclude each other; put the future into attn_mask")
    if not 0.0 <= dropout_p <= 1.0:
        raise InputError(f"rela_attention: dropout_p {dropout_p} is not a probability")
    kernel = _kernel(query, key, value, attn_mask, key_padding_mask, is_causal)
    with _without_autocast(query.device):
        if not kernel.takes_half:
            query, key, value = (at_least_float32(x) for x in (query, key, value))
        return kernel.attend(
            query,
            key,
            value,
            scale=query.size(-1) ** -0.5 if scale is None else scale,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            is_causal=is_causal,
            dropout_p=dropout_p,
            threshold=None if threshold is None else at_least_float32(threshold),
        )


def rela_weights(
    query: Tensor,
    key: Tensor,
    attn_mask: Optional[Tensor] = None,
    scale: Optional[float] = None,
    key_padding_mask: Optional[Tensor] = None,
    threshold: Optional[Tensor] = None,
) -> Tensor:
    """Return the weights of :func:`rela_attention` before dropout, ``(B, ..., T, S)``, with the same arguments.

    Raises:
        InputError: shapes do not fit.
    """
    refuse_shapes(query, key, key, attn_mask, key_padding_mask, threshold)
    with _without_autocast(query.device):
        return attention_weights(
            at_least_float32(query),
            at_least_float32(key),
            attn_mask,
            key_padding_mask,
            scale=query.size(-1) ** -0.5 if scale is None else scale,
            threshold=threshold,
        )


def gated_rms_norm(x: Tensor, gain: Tensor, gate: Optional[Tensor] = None, eps: float = 1e-8) -> Tensor:
    r"""Return :math:`\sigma(w \odot x) \odot g \odot x / RMS(x)`, or :math:`g \odot x / RMS(x)` without a gate.

    :math:`RMS(x) = \sqrt{\overline{x^2} + \epsilon}` over the last dimension, which for attention holds the
    concatenated heads. A row of zeros gives 0 and has a finite gradient, but its second derivative is NaN.

    Args:
        x: ``(..., d)``.
        gain: g, ``(d,)``.
        gate: w, ``(d,)``, or None.
        eps: :math:`\epsilon`.

    Returns:
        ``(..., d)``, in float64 for float64 and otherwise in float32.

    Raises:
        InputError: the gain or the gate has another size than x.
    """
    for name, vector in (("gain", gain), ("gate", gate)):
        if vector is not None and vector.shape != x.shape[-1:]:
            raise InputError(f"gated_rms_norm: the {name} is {tuple(vector.shape)}; give ({x.size(-1)},)")
    with _without_autocast(x.device):
        gate = None if gate is None else at_least_float32(gate)
        return plain_rms_norm(at_least_float32(x), at_least_float32(gain), gate, eps)


def _register() -> Optional[torch.library.Library]:
    """Register the functions with ``torch.library``, which decomposes them as it does torch's own attention.

    Returns:
        the library, as long as which the operators exist; None where torch is older than 2.4, and where they are
        registered already, because the package was imported under another name.
    """
    if not hasattr(torch.library, "custom_op") or hasattr(torch.ops.fairseq_rela, "rela_attention"):
        return None
    library = torch.library.Library("fairseq_rela", "FRAGMENT")
    for schema, function in _SCHEMAS.items():
        library.define(schema)
        library.impl(schema.split("(")[0], function, "CompositeImplicitAutograd")
    return library


_SCHEMAS: Dict[str, Callable[..., Tensor]] = {
    "rela_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0, "
    "bool is_causal=False, float? scale=None, Tensor? key_padding_mask=None, Tensor? threshold=None) "
    "-> Tensor": rela_attention,
    "gated_rms_norm(Tensor x, Tensor gain, Tensor? gate=None, float eps=1e-8) -> Tensor": gated_rms_norm,
}


def refuse_shapes(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Optional[Tensor],
    key_padding_mask: Optional[Tensor],
    threshold: Optional[Tensor],
) -> None:
    """Raise an error if the shapes of the arguments of :func:`rela_attention` do not fit together, or a mask's type.

    Raises:
        InputError: they do not.
    """
    q, k, v = (tuple(x.shape) for x in (query, key, value))
    if min(len(q), len(k), len(v)) < 2 or q[-1] != k[-1] or k[-2] != v[-2]:
        raise InputError(f"query {q}, key {k} and value {v} are not (..., T, d_h), (..., S, d_h) and (..., S, d_v)")
    try:
        scores = (*torch.broadcast_shapes(q[:-2], k[:-2]), q[-2], k[-2])
    except RuntimeError:
        raise InputError(f"query {q} and key {k}: the dimensions before the last two do not broadcast") from None
    for name, given in (("attn_mask", attn_mask), ("key_padding_mask", key_padding_mask)):
        if given is not None and given.dtype != torch.bool and not given.is_floating_point():
            raise InputError(f"{name} is {given.dtype}; give a boolean mask, or a floating-point one to be added")
    if attn_mask is not None:
        mask = tuple(attn_mask.shape)
        fits = len(mask) <= len(scores) and all(m in (1, n) for m, n in zip(mask[::-1], scores[::-1]))
        if not fits:
            raise InputError(f"attn_mask {mask} does not broadcast to the scores {scores}")
    if key_padding_mask is not None and (len(scores) < 3 or tuple(key_padding_mask.shape) != (scores[0], k[-2])):
        raise InputError(f"key_padding_mask {tuple(key_padding_mask.shape)} is not (B, S) of the scores {scores}")
    if threshold is not None and (len(q) != 4 or tuple(threshold.shape) != q[1:2]):
        raise InputError(f"threshold {tuple(threshold.shape)} is not (H,) of the query {q}")


def _without_autocast(device: torch.device) -> ContextManager:
    """Return a context without autocast, which does not accept the device of tensors without data."""
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)


def _kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Optional[Tensor],
    key_padding_mask: Optional[Tensor],
    is_causal: bool,
) -> backends.Kernel:
    """Return the kernel that computes the attention; the composition of torch's functions runs on every device."""
    if is_compiling() or attn_mask is not None or query.dim() != 4:
        return backends.CPU
    same = query.shape[:2] == key.shape[:2] and key.shape == value.shape and query.dtype == key.dtype == value.dtype
    if not same or (is_causal and query.size(-2) != key.size(-2)):
        return backends.CPU
    if key_padding_mask is not None and key_padding_mask.dtype != torch.bool:
        return backends.CPU
    return backends.find(query, query.size(-1), None)[0] or backends.CPU


_LIBRARY = _register()
