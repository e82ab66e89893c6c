r"""Weight functions of the paper: pure functions from attention scores to attention weights.

Each weight function takes scores :math:`S` of shape ``(..., keys)``, in which masked keys (padding, future
positions) hold minus infinity. It returns weights :math:`A` of the same shape, which are exactly 0 at masked keys.
A row without an allowed key gives a row of zeros, never NaN.

Inputs in half precision are converted, and results are in float32 (float64 for float64 inputs): a sum of many
unnormalised weights can exceed 65504, the largest number in float16, and rows of sparsemax computed in bfloat16
sum to values up to 3 % away from 1.

TorchScript compiles these functions, except those of entmax, which :mod:`fairseq_rela.attention.scripted_weights`
replaces there.
"""

from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

HALF_PRECISION = (torch.float16, torch.bfloat16)


def at_least_float32(x: Tensor) -> Tensor:
    """Return ``x`` in float32, or ``x`` itself if it is already float32 or float64."""
    # not `in HALF_PRECISION`, which TorchScript cannot compile
    return x.float() if x.dtype == torch.float16 or x.dtype == torch.bfloat16 else x


def relu(scores: Tensor) -> Tensor:
    r"""Return :math:`A = \max(S, 0)`, rectified linear attention (Zhang et al. 2021, eq. 4)."""
    return F.relu(at_least_float32(scores))


def gelu(scores: Tensor) -> Tensor:
    r"""Return :math:`A = S\,\Phi(S)`, where :math:`\Phi` is the normal distribution function (Table 1, row 9)."""
    scores, forbidden = _fill_forbidden_keys(scores)
    return F.gelu(scores).masked_fill(forbidden, 0.0)


def leaky_relu(scores: Tensor) -> Tensor:
    r"""Return :math:`A = \max(S, 0.01\,S)` (Table 1, row 10).

    The paper does not publish the slope; 0.01 is PyTorch's default.
    """
    scores, forbidden = _fill_forbidden_keys(scores)
    return F.leaky_relu(scores).masked_fill(forbidden, 0.0)


def softmax(scores: Tensor) -> Tensor:
    r"""Return :math:`A_{ij} = \exp S_{ij} / \sum_k \exp S_{ik}` (Table 1, row 1)."""
    scores, empty = fill_empty_rows(scores)
    return F.softmax(scores, dim=-1).masked_fill(empty, 0.0)


def sparsemax(scores: Tensor) -> Tensor:
    r"""Return the projection of each row :math:`s` of S onto the probability simplex (Table 1, row 2).

    .. math:: a = \arg\min_{p \ge 0,\, \sum_j p_j = 1} \|p - s\|^2

    Weights can be exactly 0 (Martins and Astudillo 2016).
    """
    import entmax  # fairseq_rela.ops and .nn import this module, and need torch alone

    scores, empty = fill_empty_rows(scores)
    return entmax.sparsemax(scores, dim=-1).masked_fill(empty, 0.0)


def entmax15(scores: Tensor) -> Tensor:
    r"""Return the 1.5-entmax of each row, :math:`A = [S/2 - \tau]_+^2` (Table 1, row 3; Peters et al. 2019).

    The threshold :math:`\tau` of each row is such that the row sums to 1.
    """
    import entmax  # fairseq_rela.ops and .nn import this module, and need torch alone

    scores, empty = fill_empty_rows(scores)
    return entmax.entmax15(scores, dim=-1).masked_fill(empty, 0.0)


def as_probabilities(weights: Tensor, allowed: Optional[Tensor] = None, floor: float = 0.0) -> Tensor:
    r"""Return weights scaled to rows that sum to one, for code that reads weights as probabilities.

    .. math:: p_{ij} = \frac{\max(A_{ij}, 0) + \epsilon}{\sum_k (\max(A_{ik}, 0) + \epsilon)}

    The sum is over the allowed keys. A row without a weight above 0 gives a row of zeros.

    Args:
        weights: A, ``(..., keys)``, of any sign and size, 0 at padding.
        allowed: boolean, False at padding, with a shape that broadcasts to that of ``weights``; None if there is no
            padding.
        floor: :math:`\epsilon`, added to the weight of every allowed key.

    Returns:
        probabilities, ``(..., keys)``, in float32 or float64, 0 at padding.
    """
    positive = at_least_float32(weights).clamp(min=0.0)
    null = positive.sum(dim=-1, keepdim=True) == 0
    positive = positive + floor
    if allowed is not None:
        positive = positive.masked_fill(~allowed, 0.0)
    total = positive.sum(dim=-1, keepdim=True).masked_fill(null, 1.0)
    return (positive / total).masked_fill(null, 0.0)


def _fill_forbidden_keys(scores: Tensor) -> Tuple[Tensor, Tensor]:
    """Return the scores with 0 in place of minus infinity, and a mask, True where it was, for elementwise functions."""
    scores = at_least_float32(scores)
    forbidden = scores == -torch.inf
    return scores.masked_fill(forbidden, 0.0), forbidden


def fill_empty_rows(scores: Tensor) -> Tuple[Tensor, Tensor]:
    """Return the scores with 0 in rows without an allowed key, for functions that normalise over the keys.

    Returns:
        the scores, at least in float32, and a mask of the rows that were empty, ``(..., 1)``, whose weights must be 0.
    """
    scores = at_least_float32(scores)
    empty = (scores == -torch.inf).all(dim=-1, keepdim=True)
    return scores.masked_fill(empty, 0.0), empty
