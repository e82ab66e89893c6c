r"""RMSNorm and gated RMSNorm with explicit gradients, which take half of autograd's time on a CPU and less memory.

Let :math:`n = z / RMS(z)`, :math:`\sigma = \sigma(w \odot z)` and :math:`y = \sigma \odot g \odot n`. A bar denotes a
gradient of the loss. From :math:`\bar y` follow

.. math::
    a = \bar y \odot \sigma, \quad t = a \odot n, \quad u = t \odot g \odot (1 - \sigma) \\
    \bar g = \textstyle\sum t, \quad \bar w = \sum u \odot z, \quad
    \bar z = (a \odot g - n \, \overline{t \odot g}) / RMS(z) + u \odot w

The sums are over all dimensions except the last, and :math:`\overline{t \odot g}` is the mean over the last one.
Without a gate, :math:`\sigma = 1` and :math:`u = 0`. Besides the parameters, only z and one number for each row are
saved for the backward pass.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

_BLOCK = 2 * 2**20  # bytes of z in one block of the backward pass, so that intermediate results stay in the cache


def rms_norm(z: Tensor, weight: Tensor, gate: Optional[Tensor], eps: float) -> Tensor:
    r"""Return :math:`\sigma(w \odot z) \odot g \odot z / RMS(z)`, or :math:`g \odot z / RMS(z)` without a gate.

    :math:`RMS(z) = \sqrt{\overline{z^2} + \epsilon}` over the last dimension. Without a gate the result equals that
    of :func:`fairseq_rela.norms.rms_norm`. The function can be differentiated once.

    Args:
        z: ``(..., d)``, float32 or float64.
        weight: the gain g, ``(d,)``, in the precision of z.
        gate: w, ``(d,)``, in the precision of z, or None.
        eps: :math:`\epsilon`.

    Returns:
        ``(..., d)``, in the precision of z.
    """
    if not torch.is_grad_enabled():  # decoding makes many calls on few rows, and autograd.Function costs time
        return _norm(z, weight, gate, _root_mean_square(z, eps))
    return _RMSNorm.apply(z, weight, gate, eps)


class Folded(NamedTuple):
    r"""Parameters of the gated norm, prepared for decoding. With :math:`silu(x) = x \sigma(x)`,

    .. math:: \sigma(w \odot z) \odot g \odot z / RMS(z) = silu(w \odot z) \odot (g / w) / RMS(z)

    The right side needs six small operations instead of eight. Gates of less than 1e-20 in absolute value are replaced
    by 1e-20, to avoid a division by 0; the sigmoid is 1/2 in both cases.

    Attributes:
        gate: w.
        gain: :math:`\sqrt d\, g / w`.
        offset: :math:`\sqrt{\epsilon d}`.
    """

    gate: Tensor
    gain: Tensor
    offset: Tensor

    @classmethod
    def of(cls, weight: Tensor, gate: Tensor, eps: float) -> "Folded":
        weight, gate, size = weight.detach(), gate.detach(), weight.numel()
        gate = torch.where(gate.abs() < 1e-20, gate.new_tensor(1e-20), gate)
        return cls(gate, weight / gate * math.sqrt(size), _constant(math.sqrt(eps * size), gate.dtype, gate.device))

    def __call__(self, z: Tensor) -> Tensor:
        """Return the norm of z, ``(..., d)``, without a gradient."""
        norm = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
        return F.silu(z * self.gate, inplace=True).div_(torch.hypot(norm, self.offset)).mul_(self.gain)


def _norm(z: Tensor, weight: Tensor, gate: Optional[Tensor], rms: Tensor) -> Tensor:
    if gate is None:
        return (z / rms).mul_(weight)
    return (z * gate).sigmoid_().mul_(z).div_(rms).mul_(weight)


def _root_mean_square(z: Tensor, eps: float) -> Tensor:
    r"""Return :math:`\sqrt{\overline{z^2} + \epsilon} = hypot(\|z\|, \sqrt{\epsilon d}) / \sqrt d`, ``(..., 1)``."""
    size = z.size(-1)
    norm = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
    offset, scale = (_constant(value, z.dtype, z.device) for value in (math.sqrt(eps * size), size**-0.5))
    return torch.hypot(norm, offset).mul_(scale)


@lru_cache(maxsize=None)
def _constant(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # a tensor from inference mode cannot be used in training
        return torch.tensor(value, dtype=dtype, device=device)


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, weight: Tensor, gate: Optional[Tensor], eps: float) -> Tensor:
        rms = _root_mean_square(z, eps)
        ctx.save_for_backward(z, weight, gate, rms)
        return _norm(z, weight, gate, rms)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        z, weight, gate, rms = ctx.saved_tensors
        grad_z = torch.empty_like(z, memory_format=torch.contiguous_format)
        rows = max(_BLOCK // (z.size(-1) * z.element_size()), 1)
        blocks = zip(*(x.reshape(-1, x.size(-1)).split(rows) for x in (grad, z, rms, grad_z)))
        # a backward pass may run under autocast, which would compute the products in half precision
        with torch.autocast(grad.device.type, enabled=False):
            sums = [_gradients(g, x, r, out, weight, gate) for g, x, r, out in blocks]
        grad_weight, grad_gate = (None if x[0] is None else sum(x[1:], x[0]) for x in zip(*sums))
        return grad_z, grad_weight, grad_gate, None


def _gradients(
    grad: Tensor, z: Tensor, rms: Tensor, grad_z: Tensor, weight: Tensor, gate: Optional[Tensor]
) -> Tuple[Tensor, Optional[Tensor]]:
    """Return the gradients of gain and gate for some rows of z, and write the gradient of these rows to ``grad_z``."""
    # the only new tensor of the size of z: allocating memory takes longer than the arithmetic
    inverse, row = rms.reciprocal(), rms.view(1, -1).reciprocal()
    product = grad * z
    if gate is not None:
        sigmoid = torch.mul(z, gate, out=grad_z).sigmoid_()
        product.mul_(sigmoid)  # t RMS(z)
    # matrix products compute the sums without intermediate results in memory
    grad_weight = torch.mm(row, product).squeeze(0)
    mean = torch.mv(product, weight).unsqueeze(1).mul_(inverse).div_(z.size(1))  # mean of t g
    if gate is None:
        torch.mul(grad, weight, out=grad_z)
        grad_gate = None
    else:
        of_gate = product.addcmul_(product, sigmoid, value=-1)  # t RMS(z) (1 - sigma)
        grad_z.mul_(grad).mul_(weight).addcmul_(of_gate, weight * gate)
        grad_gate = torch.mm(row, of_gate.mul_(z)).squeeze(0).mul_(weight)
    grad_z.addcmul_(z, mean.mul_(inverse), value=-1).mul_(inverse)
    return grad_weight, grad_gate
