r"""ReLU with a threshold, :math:`A = \max(S - \theta, 0)`: fixed, scheduled, learnt, or moved to a target sparsity.

A larger :math:`\theta` gives more weights that are exactly 0; :math:`\theta = 0` is ReLA. The threshold is subtracted
from the scores, so the learnt bias of ``rela_g_threshold`` is :math:`b = -\theta`.
"""

import math
from typing import Any, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .errors import InputError
from .functional import HALF_PRECISION, at_least_float32

MEMORY = 0.9  # share of the earlier observations that an update keeps


class ThresholdOptions(NamedTuple):
    """How the threshold of ReLU is chosen; without a value and a target there is none.

    Attributes:
        value: the threshold, in units of the scores; for a learnt threshold, its start value.
        warmup: updates over which the threshold rises linearly from 0.
        target: share of exact zeros among the allowed keys, to which training moves the threshold.
    """

    value: Optional[float] = None
    warmup: int = 0
    target: Optional[float] = None

    def refuse_values(self) -> None:
        """Raise an error if a value is invalid or two options exclude each other.

        Raises:
            InputError: they are.
        """
        if self.value is not None and not math.isfinite(self.value):
            raise InputError(f"--rela-threshold {self.value}: give a finite number, such as 0.5")
        if self.target is not None and not 0 < self.target < 1:
            raise InputError(f"--rela-sparsity-target {self.target}: give a share between 0 and 1, such as 0.7")
        if self.value is not None and self.target is not None:
            raise InputError("--rela-sparsity-target moves the threshold itself; leave --rela-threshold out")
        if self.warmup < 0:
            raise InputError(f"--rela-threshold-warmup {self.warmup}: give a number of updates from 0")
        if self.warmup and self.value is None and self.target is None:
            raise InputError("--rela-threshold-warmup needs --rela-threshold or --rela-sparsity-target; give one")


class ThresholdedReLU(nn.Module):
    r"""Compute :math:`A = \max(S - \theta, 0)` with one threshold for all heads of an attention module.

    With a ``value``, update n (from 0) uses :math:`\theta = value \cdot \min(1, n / warmup)`.

    With a ``target`` p, each training batch gives the p-quantile q of its scores at allowed keys: the share p of them
    is at most q. An update uses the mean of the quantiles of all earlier batches, in which a batch counts by its
    number c of allowed keys and each update counts ``MEMORY`` times the next one:

    .. math:: \theta_n = \min(1, n / warmup) \cdot N_n / D_n, \quad
        N_{n+1} = 0.9\, N_n + \sum c\, q, \quad D_{n+1} = 0.9\, D_n + \sum c

    The sums are over the batches of update n: those of ``--update-freq``, and those of all workers.

    In training with a target, the gradient takes :math:`\theta` for :math:`\mu + k\,\sigma`, where :math:`\mu` and
    :math:`\sigma` are mean and standard deviation of the scores of the batch and k is the constant that gives
    :math:`\theta`. So no gradient moves all scores up or down, and scaling them scales the weights, as in ReLA. If
    :math:`\theta` were a constant there, training would lower or raise all scores to change the sparsity,
    :math:`\theta` would follow, and both would drift forever.

    ``threshold`` (:math:`\theta`) and, with a target, ``observed`` (:math:`N, D`, the batches since the last update
    included) are buffers in float32, also in a model of half precision, so they are in checkpoints. They change in
    training only.

    Args:
        num_heads: H.
        head_dim: ignored; all weight functions with parameters take it.
        options: value, warm-up and target; by default none of them, and the threshold is 0.
    """

    def __init__(self, num_heads: int, head_dim: int, options: Optional[ThresholdOptions] = None) -> None:
        super().__init__()
        self.num_heads, self.options = num_heads, options or ThresholdOptions()
        self._update: Optional[int] = None  # the update that the threshold was set for
        self._moments: Optional[Tuple[Tensor, Tensor]] = None  # of the scores of the batch in training, with a target
        self._add_buffers()

    def _add_buffers(self) -> None:
        options = self.options
        self.register_buffer("threshold", torch.tensor(0.0 if options.warmup else float(options.value or 0.0)))
        if options.target is not None:
            self.register_buffer("observed", torch.zeros(2))

    def _apply(self, fn: Any, *args: Any, **kwargs: Any) -> nn.Module:
        """Convert or move the module, but keep the buffers in float32 when the model becomes half precision."""
        before = dict(self._buffers)
        super()._apply(fn, *args, **kwargs)
        for name, buffer in before.items():
            now = self._buffers[name]
            if now.dtype in HALF_PRECISION:
                self._buffers[name] = buffer.to(now.device)
        return self

    def _load_from_state_dict(self, *args: Any) -> None:
        """Load the buffers; a resuming fairseq has set the number of updates before, and sets it again after."""
        super()._load_from_state_dict(*args)
        self._update = None

    def per_head(self) -> Tensor:
        r"""Return :math:`\theta` of each head, ``(H,)``, in float32 or float64."""
        return self._following().expand(self.num_heads)

    def _following(self) -> Tensor:
        """Return the threshold, with the gradient that it has where it follows the scores, see the class."""
        if self._moments is None:
            return self.threshold
        (mean, variance), self._moments = self._moments, None  # of this batch only
        at = mean.detach()
        spread = torch.maximum(variance.detach(), 1e-6 * (1 + at.square()))  # of equal scores, the variance is 0
        # both terms are 0, and only their gradients count
        return self.threshold + (mean - at) + (self.threshold - at) * (variance - variance.detach()) / (2 * spread)

    def forward(self, scores: Tensor) -> Tensor:
        """Return the weights for scores ``(B, H, T, S)``."""
        scores = at_least_float32(scores)
        return F.relu(scores - self.per_head().to(scores.dtype)[:, None, None])

    @property
    def observes(self) -> bool:
        """Whether the module is in training and has a target, so that :meth:`observe` is to be called."""
        return self.training and self.options.target is not None

    def observe(self, scores: Tensor, each: float = 1.0) -> None:
        """Add the quantile of a training batch to the observations, and keep its moments for :meth:`per_head`.

        Args:
            scores: a sample of the scores of the batch, ``(N, H, S)``: N queries, minus infinity at forbidden keys
                and in rows of padded queries.
            each: how many queries of the batch one of the sample stands for.
        """
        scores = self._without_bias(at_least_float32(scores))
        left_out = ~torch.isfinite(scores)  # forbidden, or of a diverged model
        number = (~left_out).sum().clamp(min=1)
        mean = scores.masked_fill(left_out, 0.0).sum() / number
        variance = (scores - mean).masked_fill(left_out, 0.0).square().sum() / number
        self._moments = mean, variance
        self._add_quantile(scores.detach(), each)

    @torch.no_grad()
    def _add_quantile(self, scores: Tensor, each: float) -> None:
        allowed = scores > -torch.inf
        count = allowed.sum()
        rank = (self.options.target * count).ceil().long().clamp(min=1) - 1
        # without an allowed key there is no quantile, and a diverged model has infinite ones
        quantile = scores.masked_fill(~allowed, torch.inf).flatten().sort().values.take(rank)
        sound = torch.isfinite(quantile)
        weight = torch.where(sound, count * each, torch.zeros_like(count * each)).to(self.observed.dtype)
        quantile = torch.where(sound, quantile, torch.zeros_like(quantile)).to(self.observed.dtype)
        self.observed += torch.stack((quantile * weight, weight))

    def _without_bias(self, scores: Tensor) -> Tensor:
        """Return the scores from which ``threshold`` is subtracted, ``(N, H, S)``."""
        return scores

    @torch.no_grad()
    def set_num_updates(self, num_updates: int) -> None:
        """Set the threshold for the update that begins; fairseq's training calls this before every batch.

        Args:
            num_updates: the number of updates that are done.
        """
        value, target = self.options.value, self.options.target
        if num_updates == self._update or (value is None and target is None):
            return
        self._update = num_updates
        part = min(1.0, num_updates / self.options.warmup) if self.options.warmup else 1.0
        if value is not None:
            self.threshold.fill_(part * value)
            return
        total = _mean_over_workers(self.observed)
        found = part * total[0] / total[1]
        self.threshold.copy_(torch.where(total[1] > 0, found, self.threshold))
        self.observed.copy_(MEMORY * total)


class LearntThreshold(ThresholdedReLU):
    r"""Compute :math:`A = \max(S + b_h, 0)`, where :math:`b_h` is learnt for each head and starts at 1 (ours).

    :math:`-b_h` is the threshold: with :math:`b_h = 0` this is ReLU, and a larger value gives denser weights. A
    ``value`` is the threshold at the start, :math:`b_h = -value`. With a ``target``,
    :math:`A = \max(S + b_h - \theta, 0)`: :math:`\theta` moves the sparsity of all heads to the target, and
    :math:`b_h` learns the differences between them.
    """

    def _add_buffers(self) -> None:
        value = self.options.value
        self.bias = nn.Parameter(torch.full((self.num_heads,), 1.0 if value is None else -float(value)))
        if self.options.target is not None:
            super()._add_buffers()

    def per_head(self) -> Tensor:
        bias = at_least_float32(self.bias)
        return -bias if self.options.target is None else self._following() - bias

    def _without_bias(self, scores: Tensor) -> Tensor:
        return scores + self.bias.to(scores.dtype)[:, None]

    def set_num_updates(self, num_updates: int) -> None:
        """Set the threshold that a target moves; see :meth:`ThresholdedReLU.set_num_updates`."""
        if self.options.target is not None:
            super().set_num_updates(num_updates)


def _mean_over_workers(observed: Tensor) -> Tensor:
    """Return the mean of a tensor over the processes of a distributed training, or the tensor itself without one."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size() == 1:
        return observed
    total = observed.clone()
    distributed.all_reduce(total)
    return total / distributed.get_world_size()
