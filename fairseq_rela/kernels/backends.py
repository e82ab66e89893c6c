"""Choose the kernel that computes rectified linear attention on a device (``--rela-backend``)."""

from functools import lru_cache
from typing import Callable, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from . import compiled_attention, gpu, rms_norm

CHOICES = {
    "auto": "a fused kernel if there is one, else plain PyTorch",
    "fused": "a fused kernel, or an error that says why there is none",
    "plain": "plain PyTorch always",
}


class Kernel(NamedTuple):
    """The functions that compute rectified linear attention on one kind of device.

    Attributes:
        name: name in logs and records.
        attend: function with the arguments of :func:`fairseq_rela.kernels.relu_attention.attend`, which returns the
            context in float32 or float64.
        norm: function with the arguments of :func:`fairseq_rela.kernels.rms_norm.rms_norm`.
        takes_half: queries, keys and values may be in half precision, and have the same sentences, heads and sizes.
    """

    name: str
    attend: Callable[..., Tensor]
    norm: Callable[..., Tensor]
    takes_half: bool


CPU = Kernel("cpu", compiled_attention.attend, rms_norm.rms_norm, takes_half=False)


def find(query: Tensor, head_dim: int, attn_mask: Optional[Tensor]) -> Tuple[Optional[Kernel], str]:
    """Return the kernel for a pass over whole sequences, or None and the reason why there is no kernel.

    Args:
        query: ``(T, B, d)``; only its device and precision are used.
        head_dim: d_h, the number of columns of one head.
        attn_mask: the mask that is added to the scores, or None.
    """
    device = query.device
    if attn_mask is not None and attn_mask.requires_grad:
        return None, "no kernel has a gradient for the attention mask"
    if device.type == "cpu":
        return CPU, ""
    if device.type == "cuda":
        if attn_mask is not None and not is_future_mask(attn_mask):
            return None, "on a GPU only the decoder's mask of the future has a kernel"
        reason = gpu.unavailable(device, query.dtype, head_dim)
        return (_triton(), "") if reason is None else (None, reason)
    return None, f"no kernel for the device {device.type}"


def mark_future(mask: Tensor) -> Tensor:
    """Mark a ``(T, T)`` mask as minus infinity above the diagonal and 0 elsewhere, and return it.

    A kernel then does not have to read its values, which on a GPU would require a synchronisation.
    """
    mask.rela_future = True
    return mask


def is_future_mask(mask: Optional[Tensor]) -> bool:
    """Return whether :func:`mark_future` has marked this tensor; a copy of it is not marked."""
    return getattr(mask, "rela_future", False)


@lru_cache(maxsize=None)
def _triton() -> Kernel:
    from . import triton_attention, triton_norm

    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scale: float,
        attn_mask: None = None,
        key_padding_mask: Optional[Tensor] = None,
        is_causal: bool = False,
        dropout_p: float = 0.0,
        threshold: Optional[Tensor] = None,
    ) -> Tensor:
        context = triton_attention.attend(
            *(join_heads(x) for x in (query, key, value)),
            scale=scale,
            num_heads=query.size(1),
            key_padding_mask=key_padding_mask,
            causal=is_causal,
            dropout=dropout_p,
            # drawn from the CPU's generator, which fairseq seeds at each update; the GPU's would need a synchronisation
            seed=int(torch.randint(2**31 - 1, ())) if dropout_p else 0,
            threshold=threshold,
        )
        return split_heads(context, query.size(1))

    return Kernel("triton", attend, triton_norm.gated_rms_norm, takes_half=True)


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """Return ``(T, B, H * d_h)`` as ``(B, H, T, d_h)``, without a copy."""
    return x.view(*x.shape[:2], num_heads, x.size(-1) // num_heads).permute(1, 2, 0, 3)


def join_heads(x: Tensor) -> Tensor:
    """Return ``(B, H, T, d_h)`` as ``(T, B, H * d_h)``, without a copy if it comes from :func:`split_heads`."""
    return x.permute(2, 0, 1, 3).flatten(2)
