r"""Norms of the attention output, over the concatenated heads (Zhang et al. 2021, section 4).

All norms use the root mean square over the last dimension,

.. math:: RMS(z) = \sqrt{\frac{1}{d} \sum_{i=1}^{d} z_i^2 + \epsilon}, \quad \epsilon = 10^{-8}

Inputs in half precision are converted to float32 first: in float16, 1e-8 is rounded to 0 and the square of 300 is
infinite. A null row, :math:`z = 0`, gives 0. Its gradient is finite because :math:`\epsilon` is inside the root:
the derivative is :math:`g / \sqrt\epsilon`, times :math:`\sigma(0) = 1/2` with a gate.

If heads are removed from a trained model, a norm keeps d' of its d channels, and the others count as 0: the mean is
still over d channels. With r = d / d', :math:`z / RMS(z)` over d channels is :math:`\sqrt r\, z / RMS(z)` over d'
channels with :math:`r \epsilon` in place of :math:`\epsilon`, which every kernel can compute.
"""

import math
from typing import Callable, Optional, Tuple

import torch
import torch.nn.functional as F
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
        dim: d, also after :meth:`keep`.
        weight: the gain :math:`g`, ``(d,)``; ``(d',)`` after :meth:`keep`.
        gate: None; the subclasses have a gate.
    """

    def __init__(self, dim: int, uniform_start: bool = False) -> None:
        super().__init__()
        self.dim = dim
        self.weight = nn.Parameter(torch.ones(dim))
        self.register_parameter("gate", None)
        self.epsilon = EPSILON
        if uniform_start:
            _fan_average_uniform_(self.weight)

    def forward(self, z: Tensor) -> Tensor:
        """Return :math:`LN(z)`, ``(..., d)``."""
        return rms_norm(*self._over_all(at_least_float32(z), at_least_float32(self.weight)))

    def by(self, kernel: Callable[..., Tensor], z: Tensor) -> Tensor:
        """Return :math:`LN(z)` by a kernel, with the arguments of :func:`fairseq_rela.kernels.rms_norm.rms_norm`."""
        return kernel(*self._over_all(at_least_float32(z), at_least_float32(self.weight)))

    def _over_all(self, z: Tensor, gain: Tensor) -> Tuple[Tensor, Tensor, Optional[Tensor], float]:
        """Return the arguments of a norm with the mean square over d channels, of which z may have fewer."""
        ratio = self.dim / z.size(-1)
        if ratio != 1.0:
            gain = gain * math.sqrt(ratio)
        gate = None if self.gate is None else at_least_float32(self.gate)
        return z, gain, gate, ratio * self.epsilon

    def keep(self, channels: Tensor, columns: Tensor) -> Tensor:
        """Keep some channels, in place; the norm then takes z without the others, which count as 0.

        Args:
            channels: indices of the channels to keep, ``(d',)``.
            columns: weight of the linear layer that follows the norm, ``(n, d)``.

        Returns:
            the weight with which that layer gives the same output as before for z with zeros in the other channels,
            ``(n, d')``; there is a column for each channel that the norm returns.
        """
        self.weight = nn.Parameter(self.weight.detach()[channels])
        if self.gate is not None:
            self.gate = nn.Parameter(self.gate.detach()[channels])
        return columns[:, channels]


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

    A removed channel j is not 0 after this norm: it is :math:`-\frac{1}{2} g_j \bar z / \sigma`, with
    :math:`\sigma` the denominator above. These channels differ in :math:`g_j` only, so after :meth:`keep` the norm
    returns one more channel, :math:`-\sqrt{d - d'}\, \bar z / \sigma`, which stands for all of them.

    Args:
        dim: d, the model size.

    Attributes:
        dim: d, also after :meth:`keep`.
        weight: the gain :math:`g`, ``(d,)``.
        gate: the gate :math:`w`, ``(d,)``.
    """

    def forward(self, z: Tensor) -> Tensor:
        """Return :math:`LN(z)`, ``(..., d)``, or ``(..., d' + 1)`` after :meth:`keep`."""
        z = at_least_float32(z)
        kept = self.weight.size(0)
        mean = z.mean(dim=-1, keepdim=True) * (kept / self.dim)
        gain, gate, centred = at_least_float32(self.weight), torch.sigmoid(self.gate * z), z - mean
        if kept < self.dim:
            centred = torch.cat([centred, -math.sqrt(self.dim - kept) * mean], dim=-1)
            gain, gate = F.pad(gain, [0, 1], value=1.0), F.pad(gate, [0, 1], value=1.0)
        # the RMS of z - mean(z) is the standard deviation of z
        centred, gain, _, epsilon = self._over_all(centred, gain)
        return gate * rms_norm(centred, gain, None, epsilon)

    def by(self, kernel: Callable[..., Tensor], z: Tensor) -> Tensor:
        """Return :math:`LN(z)`; the kernel is not used."""
        return self(z)

    def keep(self, channels: Tensor, columns: Tensor) -> Tensor:
        """Keep some channels, as :meth:`RMSNorm.keep`; the result has one more column, for all removed channels."""
        earlier, size = self.dim - len(self.weight), len(self.weight)
        if len(channels) == size:
            return columns
        gone = torch.ones_like(self.weight, dtype=torch.bool).index_fill_(0, channels, False)
        shared = 0.5 * (columns[:, :size] * self.weight.detach())[:, gone].sum(dim=1, keepdim=True)
        if earlier:
            shared = shared + math.sqrt(earlier) * columns[:, size:]
        kept = super().keep(channels, columns)
        return torch.cat([kept, shared / math.sqrt(self.dim - len(channels))], dim=1)


def _fan_average_uniform_(vector: Tensor) -> None:
    """Fill a vector of n numbers from ``U(-sqrt(3/n), sqrt(3/n))``, TensorFlow's default initialiser."""
    bound = math.sqrt(3.0 / vector.numel())
    nn.init.uniform_(vector, -bound, bound)
