r"""Weight functions of other papers, for comparison with ReLA, and two of our own.

As in :mod:`fairseq_rela.functional`, each function takes scores :math:`S`, ``(..., keys)``, with minus infinity at
forbidden keys, and returns weights that are exactly 0 there; a row without an allowed key gives zeros. Half precision
is converted to float32.

:math:`n` is the number of keys that a query may see: without padding and without the future. A decoding step sees as
many as the same position of a whole sequence, so both give the same weights.

Functions with parameters are modules, made with the number and the size of the heads. They take scores ``(B, H, T, S)``
and hold one value for each of the H heads.
"""

import entmax
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .functional import at_least_float32, fill_empty_rows

SOFTPICK_EPSILON = 1e-8
TOP_K = 8


def sigmoid(scores: Tensor) -> Tensor:
    r"""Return :math:`A = \sigma(S - \log n)`, sigmoid attention (Ramapuram et al. 2024)."""
    scores = at_least_float32(scores)
    return torch.sigmoid(scores - count_keys(scores).log())


def softmax_plus_one(scores: Tensor) -> Tensor:
    r"""Return :math:`A_j = \exp S_j / (1 + \sum_k \exp S_k)`: softmax with one more key of score 0 (Miller 2023).

    The weights of a query sum to less than 1, and approach 0 when all its scores are very negative.
    """
    return F.softmax(F.pad(at_least_float32(scores), [1, 0]), dim=-1)[..., 1:]


def softpick(scores: Tensor, epsilon: float = SOFTPICK_EPSILON) -> Tensor:
    r"""Return :math:`A_j = \max(e^{S_j} - 1, 0) / (\sum_k |e^{S_k} - 1| + \epsilon)` (Zuhri et al. 2025).

    Numerator and denominator are both multiplied by :math:`e^{-m}`, :math:`m = \max(\max_k S_k, 0)`, so that nothing
    overflows; the default of :math:`\epsilon` is that of the authors' code.
    """
    scores = at_least_float32(scores)
    largest = scores.detach().amax(dim=-1, keepdim=True).clamp(min=0.0)
    shifted = torch.exp(scores - largest) - torch.exp(-largest)
    total = shifted.abs().masked_fill(scores == -torch.inf, 0.0).sum(dim=-1, keepdim=True)
    return F.relu(shifted) / (total + epsilon)


def relu_length(scores: Tensor) -> Tensor:
    r"""Return :math:`A = \max(S, 0) / n` (Wortsman et al. 2023)."""
    scores = at_least_float32(scores)
    return F.relu(scores) / count_keys(scores)


def relu_squared(scores: Tensor) -> Tensor:
    r"""Return :math:`A = \max(S, 0)^2 / n` (Hua et al. 2022), here without a norm after it."""
    scores = at_least_float32(scores)
    return F.relu(scores).square() / count_keys(scores)


def top_k(scores: Tensor, k: int = TOP_K) -> Tensor:
    """Return softmax over the k largest scores of each row, and 0 elsewhere (Gupta et al. 2021).

    All keys that share the k-th largest score are kept, so that the result does not depend on their order.
    """
    rows, empty = fill_empty_rows(scores)
    last = rows.topk(min(k, rows.size(-1)), dim=-1)[0][..., -1:]
    return F.softmax(rows.masked_fill(rows < last, -torch.inf), dim=-1).masked_fill(empty, 0.0)


def relu_constant(scores: Tensor) -> Tensor:
    r"""Return :math:`A = \max(S + 1, 0)` at allowed keys: the constant of ``rela_g_threshold`` (ours)."""
    return F.relu(at_least_float32(scores) + 1.0)


class LearntEntmax(nn.Module):
    r"""Compute the :math:`\alpha`-entmax of each row, :math:`\alpha_h = 1 + \sigma(a_h)` (Correia et al. 2019).

    :math:`a_h` is learnt for each head. It starts at 0, which gives 1.5-entmax; the authors start at random values.
    ``entmax.entmax_bisect`` computes the weights by bisection, and has the gradient with respect to :math:`\alpha`.
    """

    def __init__(self, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.alpha_logit = nn.Parameter(torch.zeros(num_heads))

    def forward(self, scores: Tensor) -> Tensor:
        """Return the weights for scores ``(B, H, T, S)``."""
        rows, empty = fill_empty_rows(scores)
        # entmax does not change with a shift, and bisection next to a large score would lose the digits it needs
        rows = rows - rows.detach().amax(dim=-1, keepdim=True)
        alpha = self.alpha(rows.dtype).expand(*rows.shape[:-2], 1, 1)
        return entmax.entmax_bisect(rows, alpha).masked_fill(empty, 0.0)

    def alpha(self, dtype: torch.dtype) -> Tensor:
        """Return alpha of each head, ``(H, 1, 1)``; closer to 1 than 1.01 the exponent 1 / (alpha - 1) overflows."""
        return (1.0 + torch.sigmoid(self.alpha_logit.to(dtype))).clamp(min=1.01)[:, None, None]


class ScalableSoftmax(nn.Module):
    r"""Compute :math:`A = softmax(s_h \log(n)\, S)`, where :math:`s_h` is learnt for each head (Nakanishi 2025).

    :math:`s_h` starts at 0.43, the value in Figure 1 of that paper. This is its variant without a bias.
    """

    def __init__(self, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((num_heads,), 0.43))

    def forward(self, scores: Tensor) -> Tensor:
        """Return the weights for scores ``(B, H, T, S)``."""
        scores = at_least_float32(scores)
        factor = self.scale.to(scores.dtype)[:, None, None] * count_keys(scores).log()
        # log(1) = 0 and a negative scale, times minus infinity, would give NaN and plus infinity
        forbidden = scores == -torch.inf
        scaled = (scores.masked_fill(forbidden, 0.0) * factor).masked_fill(forbidden, -torch.inf)
        rows, empty = fill_empty_rows(scaled)
        return F.softmax(rows, dim=-1).masked_fill(empty, 0.0)


def count_keys(scores: Tensor) -> Tensor:
    """Return n, the number of allowed keys of each row, ``(..., 1)``, as a float of at least 1."""
    return (scores != -torch.inf).sum(dim=-1, keepdim=True).clamp(min=1).to(scores.dtype)
