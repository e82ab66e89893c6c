r"""Norms of the attention output, over the concatenated heads (Zhang et al. 2021, section 4).

All norms use the root mean square over the last dimension,

.. math:: RMS(z) = \sqrt{\frac{1}{d} \sum_{i=1}^{d} z_i^2 + \epsilon}, \quad \epsilon = 10^{-8}

Inputs in half precision are converted to float32 first: in float16, 1e-8 is rounded to 0 and the square of 300 is
infinite. A null row, :math:`z = 0`, gives 0. Its gradient is finite because :math:`\epsilon` is inside the root:
the derivative is :math:`g / \sqrt\epsilon`, times :math:`\sigma(0) = 1/2` with a gate.
"""

import math
from typing import Callable

import torch
from torch import Tensor, nn

from .functional import at_least_float32
from .kernels.rms_norm import rms_norm

EPSILON = 1e-8


class RMSNorm(nn.Module):
    r"""Compute :math:`LN(z) = g \odot z / RMS(z)` (Table 1, row 5, and row 6 with ``uniform_start``).

    ``forward`` takes z of shape ``(..., d)`` and returns the same shape in float32 or float64. TorchScript compiles it.

    Args:
        dim: d, the model size.
        uniform_start: draw the start values of the gain from :math:`U(-\sqrt{3/d}, \sqrt{3/d})` (ReLA-i, row 6)
            instead of setting them to 1.

    Attributes:
        weight: the gain :math:`g`, ``(d,)``.
        gate: None; the subclasses have a gate.
    """

    def __init__(self, dim: int, uniform_start: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.register_parameter("gate", None)
        self.epsilon = EPSILON
        if uniform_start:
            _fan_average_uniform_(self.weight)

    def forward(self, z: Tensor) -> Tensor:
        """Return :math:`LN(z)`, ``(..., d)``."""
        gate = None if self.gate is None else at_least_float32(self.gate)
        return rms_norm(at_least_float32(z), at_least_float32(self.weight), gate, self.epsilon)

    def by(self, kernel: Callable[..., Tensor], z: Tensor) -> Tensor:
        """Return :math:`LN(z)` by a kernel, with the arguments of :func:`fairseq_rela.kernels.rms_norm.rms_norm`."""
        gate = None if self.gate is None else at_least_float32(self.gate)
        return kernel(at_least_float32(z), at_least_float32(self.weight), gate, self.epsilon)


class GatedRMSNorm(RMSNorm):
    r"""Compute :math:`LN(z) = \sigma(w \odot z) \odot g \odot z / RMS(z)`, the norm of ReLA-g (Table 1, row 7).

    :math:`\sigma` is the sigmoid. The start values of the gate :math:`w` are drawn from
    :math:`U(-\sqrt{3/d}, \sqrt{3/d})`, the default of the paper's released code; those of the gain :math:`g` are 1.
    The norm does not depend on the scale of :math:`z`, but the gate does.

    Args:
        dim: d, the model size.

    Attributes:
        weight: the gain :math:`g`, ``(d,)``.
        gate: the gate :math:`w`, ``(d,)``.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.gate = nn.Parameter(torch.empty(dim))
        _fan_average_uniform_(self.gate)


class GatedLayerNorm(GatedRMSNorm):
    r"""Compute LayerNorm with a gate (Table 1, row 8).

    .. math:: LN(z) = \sigma(w \odot z) \odot g \odot \frac{z - \bar z}{\sqrt{Var(z) + \epsilon}}

    Mean and variance are over the last dimension. There is no offset (bias), so that a null row stays 0; the output
    projection that follows has a bias. No kernel computes this norm.

    Args:
        dim: d, the model size.

    Attributes:
        weight: the gain :math:`g`, ``(d,)``.
        gate: the gate :math:`w`, ``(d,)``.
    """

    def forward(self, z: Tensor) -> Tensor:
        """Return :math:`LN(z)`, ``(..., d)``."""
        z = at_least_float32(z)
        gain, centred = at_least_float32(self.weight), z - z.mean(dim=-1, keepdim=True)
        # the RMS of z - mean(z) is the standard deviation of z
        return torch.sigmoid(self.gate * z) * rms_norm(centred, gain, None, self.epsilon)

    def by(self, kernel: Callable[..., Tensor], z: Tensor) -> Tensor:
        """Return :math:`LN(z)`; the kernel is not used."""
        return self(z)


def _fan_average_uniform_(vector: Tensor) -> None:
    """Fill a vector of n numbers from ``U(-sqrt(3/n), sqrt(3/n))``, TensorFlow's default initialiser."""
    bound = math.sqrt(3.0 / vector.numel())
    nn.init.uniform_(vector, -bound, bound)
