"""RMSNorm and gated RMSNorm, which keep only their input for the backward pass."""

from typing import Optional

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint


def rms_norm(z: Tensor, weight: Tensor, gate: Optional[Tensor], eps: float) -> Tensor:
    r"""Return :math:`\sigma(w \odot z) \odot g \odot z / RMS(z)`, or :math:`g \odot z / RMS(z)` without a gate.

    :math:`RMS(z) = \sqrt{\overline{z^2} + \epsilon}` over the last dimension. The backward pass computes the norm
    again, because autograd alone would save five tensors of the size of z.

    Args:
        z: ``(..., d)``, float32 or float64.
        weight: the gain g, ``(d,)``, in the precision of z.
        gate: w, ``(d,)``, in the precision of z, or None.
        eps: :math:`\epsilon`.

    Returns:
        ``(..., d)``, in the precision of z.
    """
    if torch.jit.is_scripting() or not torch.is_grad_enabled():  # TorchScript has no checkpoints
        return plain_rms_norm(z, weight, gate, eps)
    return checkpoint(plain_rms_norm, z, weight, gate, eps, use_reentrant=False, preserve_rng_state=False)


def root_mean_square(z: Tensor, eps: float) -> Tensor:
    r"""Return :math:`\sqrt{\overline{z^2} + \epsilon}` over the last dimension, ``(..., 1)``.

    The sum is in float64, because the square of 1e20 is infinite in float32.
    """
    norm = torch.linalg.vector_norm(z, dim=-1, keepdim=True, dtype=torch.float64)
    return torch.sqrt(norm.square() / z.size(-1) + eps).to(z.dtype)


def plain_rms_norm(z: Tensor, weight: Tensor, gate: Optional[Tensor], eps: float) -> Tensor:
    """Return the same as :func:`rms_norm`, with all that autograd keeps."""
    normed = weight * (z / root_mean_square(z, eps))
    return normed if gate is None else torch.sigmoid(gate * z) * normed
