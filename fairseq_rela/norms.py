r"""Norms of the attention output, over the concatenated heads (Zhang et al. 2021, section 4).

Statistics are taken in at least float32, with :math:`\epsilon` inside the root: 1e-8 is 0 in float16, and the
square of 300 is infinite there. A null row :math:`z = 0` gives 0, with the finite gradient
:math:`g\,\sigma(0)/\sqrt\epsilon`.
"""

import math
from typing import Any, Callable, Optional, Tuple

import torch
from torch import Tensor, nn

from .functional import at_least_float32
from .kernels import rms_norm as kernels

EPSILON = 1e-8


def rms_norm(x: Tensor, weight: Tensor, eps: float = EPSILON) -> Tensor:
    r""":math:`g \odot x / \sqrt{\overline{x^2} + \epsilon}` over the last dimension (Zhang and Sennrich 2019).

    Args:
        x: ``(..., d)``.
        weight: the gain :math:`g`, ``(d,)``.
    """
    x = at_least_float32(x)
    return weight * x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps)


class RMSNorm(nn.Module):
    r""":math:`LN(z) = g \odot z / RMS(z)`: Table 1, row 5, and with a random start ReLA-i, row 6.

    Args:
        dim: d, the model size.
        uniform_start: start the gain from :math:`U(-\sqrt{3/d}, \sqrt{3/d})` (ReLA-i) and not from 1.

    Shape: ``(..., d)`` to ``(..., d)``, in at least float32. ``compute`` is the kernel, with the arguments of
    :func:`fairseq_rela.kernels.rms_norm.rms_norm`.
    """

    def __init__(self, dim: int, uniform_start: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        if uniform_start:
            _fan_average_uniform_(self.weight)

    def forward(self, z: Tensor, compute: Callable[..., Tensor] = kernels.rms_norm) -> Tensor:
        return compute(at_least_float32(z), at_least_float32(self.weight), None, EPSILON)


class GatedRMSNorm(RMSNorm):
    r""":math:`LN(z) = \sigma(w \odot z) \odot g \odot z / RMS(z)`: ReLA-g, Table 1, row 7.

    The gate :math:`w` starts from :math:`U(-\sqrt{3/d}, \sqrt{3/d})`, the default of the released code, the
    gain :math:`g` from 1. The norm is invariant to the scale of :math:`z`, the gate is not.

    fairseq says when a model will only generate from now on, and for that the parameters are made ready once.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.gate = nn.Parameter(torch.empty(dim))
        _fan_average_uniform_(self.gate)
        self._only_generates = False
        self._folded: Tuple[Any, Optional[kernels.Folded]] = (None, None)

    def forward(self, z: Tensor, compute: Callable[..., Tensor] = kernels.rms_norm) -> Tensor:
        z = at_least_float32(z)
        if self._only_generates and compute is kernels.rms_norm and not torch.is_grad_enabled():
            return self._fold()(z)
        return compute(z, at_least_float32(self.weight), at_least_float32(self.gate), EPSILON)

    def make_generation_fast_(self, **_: Any) -> None:
        """fairseq calls it before generation; a model cannot be trained after that."""
        self._only_generates = True

    def _fold(self) -> kernels.Folded:
        """Of the parameters as they are: they may have been moved, converted or loaded since the last time."""
        state = tuple((p.data_ptr(), p._version) for p in (self.weight, self.gate))
        if self._folded[0] != state:
            weight, gate = at_least_float32(self.weight), at_least_float32(self.gate)
            self._folded = state, kernels.Folded.of(weight, gate, EPSILON)
        folded = self._folded[1]
        assert folded is not None  # made above
        return folded


class GatedLayerNorm(GatedRMSNorm):
    r""":math:`LN(z) = \sigma(w \odot z) \odot g \odot (z - \bar z) / \sqrt{Var(z) + \epsilon}`: Table 1, row 8.

    Without LayerNorm's offset, so that a null row stays 0; the output projection has a bias of its own. No kernel
    computes it.
    """

    def forward(self, z: Tensor, compute: Optional[Callable[..., Tensor]] = None) -> Tensor:
        z = at_least_float32(z)
        # RMS(z - mean(z)) is the standard deviation of z
        return torch.sigmoid(self.gate * z) * rms_norm(z - z.mean(dim=-1, keepdim=True), self.weight)


def _fan_average_uniform_(vector: Tensor) -> None:
    """TensorFlow's default initialiser for a vector of n: ``U(-sqrt(3/n), sqrt(3/n))``."""
    bound = math.sqrt(3.0 / vector.numel())
    nn.init.uniform_(vector, -bound, bound)
