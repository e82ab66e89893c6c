r"""From attention scores to attention weights: pure functions on tensors.

Every function takes scores :math:`S` of shape ``(..., keys)`` in which forbidden keys (padding, the future)
hold minus infinity, and returns weights :math:`A` of the same shape that are exactly 0 there. A row with no
allowed key gives a row of zeros, never NaN. Half precision goes in, at least float32 comes out: a sum of many
unnormalised weights passes 65504, and sparsemax rows in bfloat16 miss 1 by up to 3 %.
"""

from typing import Callable, Optional

import entmax
import torch
import torch.nn.functional as F
from torch import Tensor

HALF_PRECISION = (torch.float16, torch.bfloat16)


def at_least_float32(x: Tensor) -> Tensor:
    """``x`` in float32, or unchanged where it is float32 or float64 already."""
    return x.float() if x.dtype in HALF_PRECISION else x


def relu(scores: Tensor) -> Tensor:
    r""":math:`A = \max(S, 0)`, rectified linear attention (Zhang et al. 2021, eq. 4)."""
    return F.relu(at_least_float32(scores))


def relu_(scores: Tensor) -> Tensor:
    """The same in place, on scores in at least float32 that nothing else needs: one tensor fewer is kept."""
    return F.relu_(scores)


def gelu(scores: Tensor) -> Tensor:
    r""":math:`A = S\,\Phi(S)` with the normal distribution function :math:`\Phi` (Table 1, row 9)."""
    return _on_allowed_keys(F.gelu, scores)


def leaky_relu(scores: Tensor) -> Tensor:
    r""":math:`A = \max(S, 0.01\,S)` (Table 1, row 10; the slope is not published, 0.01 is PyTorch's)."""
    return _on_allowed_keys(F.leaky_relu, scores)


def softmax(scores: Tensor) -> Tensor:
    r""":math:`A_{ij} = \exp S_{ij} / \sum_k \exp S_{ik}`."""
    return _on_nonempty_rows(lambda s: F.softmax(s, dim=-1), scores)


def sparsemax(scores: Tensor) -> Tensor:
    r"""The projection of each row on the simplex, :math:`\arg\min_p \|p - S\|^2` (Martins and Astudillo 2016)."""
    return _on_nonempty_rows(lambda s: entmax.sparsemax(s, dim=-1), scores)


def entmax15(scores: Tensor) -> Tensor:
    r"""1.5-entmax, :math:`A = [S/2 - \tau]_+^2` with :math:`\tau` such that rows sum to 1 (Peters et al. 2019)."""
    return _on_nonempty_rows(lambda s: entmax.entmax15(s, dim=-1), scores)


def as_probabilities(weights: Tensor, allowed: Optional[Tensor] = None, floor: float = 0.0) -> Tensor:
    r"""Return rows that sum to one, for readers that take weights for probabilities.

    .. math:: p_{ij} = \frac{\max(A_{ij}, 0) + \epsilon}{\sum_k (\max(A_{ik}, 0) + \epsilon)}

    A row that has no weight above 0 gives a row of zeros.

    Args:
        weights: A, (..., keys), of any sign and size, 0 at padding.
        allowed: False at padding, of a shape that broadcasts to that of the weights; None if there is no padding.
        floor: :math:`\epsilon`, added at every allowed key.

    Returns:
        (..., keys), in at least float32, 0 at padding.
    """
    positive = at_least_float32(weights).clamp(min=0.0)
    null = positive.sum(dim=-1, keepdim=True) == 0
    positive = positive + floor
    if allowed is not None:
        positive = positive.masked_fill(~allowed, 0.0)
    total = positive.sum(dim=-1, keepdim=True).masked_fill(null, 1.0)
    return (positive / total).masked_fill(null, 0.0)


def _on_allowed_keys(function: Callable[[Tensor], Tensor], scores: Tensor) -> Tensor:
    """An elementwise function that would not turn minus infinity into 0 by itself."""
    scores = at_least_float32(scores)
    forbidden = scores == -torch.inf
    return function(scores.masked_fill(forbidden, 0.0)).masked_fill(forbidden, 0.0)


def _on_nonempty_rows(function: Callable[[Tensor], Tensor], scores: Tensor) -> Tensor:
    """A function that normalises over the keys and has no value where none is allowed."""
    scores = at_least_float32(scores)
    empty = (scores == -torch.inf).all(dim=-1, keepdim=True)
    return function(scores.masked_fill(empty, 0.0)).masked_fill(empty, 0.0)
