r"""Weight functions for TorchScript, which cannot compile the package entmax, and the check of a variant's own.

The functions take the same scores as those of :mod:`fairseq_rela.functional`. They shift each row to a maximum of 0,
and raise scores that get no weight, also minus infinity, to -1. They are for inference: gradients may differ.
"""

from typing import Any, Callable, Dict, Optional

import torch
from torch import Tensor, nn

from .. import functional, peers
from ..errors import InputError
from ..threshold import ThresholdedReLU

BISECTIONS = 50  # as in entmax


def sparsemax(scores: Tensor) -> Tensor:
    """Return :func:`fairseq_rela.functional.sparsemax`, by sorting (Martins and Astudillo 2016, algorithm 1)."""
    rows, empty = functional.fill_empty_rows(scores)
    rows = (rows - rows.amax(dim=-1, keepdim=True)).clamp(min=-1.0)
    largest = rows.sort(dim=-1, descending=True)[0]
    count = torch.arange(1, rows.size(-1) + 1, device=rows.device, dtype=rows.dtype)
    excess = largest.cumsum(dim=-1) - 1.0
    size = (count * largest > excess).sum(dim=-1, keepdim=True)  # of the support
    threshold = excess.gather(-1, size - 1) / size.to(rows.dtype)
    return torch.relu(rows - threshold).masked_fill(empty, 0.0)


def entmax15(scores: Tensor) -> Tensor:
    """Return :func:`fairseq_rela.functional.entmax15`, by sorting (Peters et al. 2019, algorithm 2)."""
    rows, empty = functional.fill_empty_rows(scores)
    rows = ((rows - rows.amax(dim=-1, keepdim=True)) / 2.0).clamp(min=-1.0)
    largest = rows.sort(dim=-1, descending=True)[0]
    count = torch.arange(1, rows.size(-1) + 1, device=rows.device, dtype=rows.dtype)
    mean = largest.cumsum(dim=-1) / count
    variance = (largest.square().cumsum(dim=-1) / count - mean.square()).clamp(min=0.0)
    thresholds = mean - (1.0 / count - variance).clamp(min=0.0).sqrt()
    size = (thresholds <= largest).sum(dim=-1, keepdim=True)  # of the support
    return torch.relu(rows - thresholds.gather(-1, size - 1)).square().masked_fill(empty, 0.0)


class ScriptedEntmax(peers.LearntEntmax):
    """Compute :class:`fairseq_rela.peers.LearntEntmax` by bisection, with the parameters of ``module``."""

    def __init__(self, module: peers.LearntEntmax) -> None:
        nn.Module.__init__(self)
        self.alpha_logit = module.alpha_logit
        self.bisections = BISECTIONS

    def forward(self, scores: Tensor) -> Tensor:
        """Return the weights for scores ``(B, H, T, S)``."""
        rows, empty = functional.fill_empty_rows(scores)
        power = self.alpha(rows.dtype) - 1.0
        rows = (rows - rows.amax(dim=-1, keepdim=True)) * power
        low = torch.full_like(rows[..., :1], -1.0)
        width = 1.0 - torch.pow(1.0 / rows.size(-1), power)  # the threshold is between -1 and -n^-(alpha - 1)
        for _ in range(self.bisections):
            width = width / 2.0
            above = torch.relu(rows - low - width).pow(1.0 / power).sum(dim=-1, keepdim=True) >= 1.0
            low = torch.where(above, low + width, low)
        weights = torch.relu(rows - low - width).pow(1.0 / power)
        return (weights / weights.sum(dim=-1, keepdim=True)).masked_fill(empty, 0.0)


class ScriptedThreshold(nn.Module):
    """Compute ReLU with the threshold of each head that ``module`` has now."""

    def __init__(self, module: ThresholdedReLU) -> None:
        super().__init__()
        self.register_buffer("threshold", module.per_head().detach().clone())

    def forward(self, scores: Tensor) -> Tensor:
        """Return the weights for scores ``(B, H, T, S)``."""
        return torch.relu(scores - self.threshold.to(scores.dtype)[:, None, None])


_IN_PLACE_OF: Dict[Any, Callable[[Tensor], Tensor]] = {functional.sparsemax: sparsemax, functional.entmax15: entmax15}


def scripted_weights(name: str, function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return the weight function of a variant, compiled by TorchScript.

    Args:
        name: the variant, for the message.
        function: a function or a module, from scores ``(B, H, T, S)`` to weights.

    Raises:
        InputError: TorchScript cannot compile it.
    """
    if isinstance(function, peers.LearntEntmax):
        function = ScriptedEntmax(function)
    elif isinstance(function, ThresholdedReLU):
        function = ScriptedThreshold(function)
    elif not isinstance(function, nn.Module):
        function = _IN_PLACE_OF.get(function, function)
    return _compiled(name, "its weights", function)


def scripted_norm(name: str, norm: Optional[nn.Module]) -> Optional[nn.Module]:
    """Return the norm of a variant, compiled by TorchScript; None if it has none.

    Raises:
        InputError: TorchScript cannot compile it.
    """
    return None if norm is None else _compiled(name, "its norm", norm)


def _compiled(name: str, what: str, function: Any) -> Any:
    try:
        return torch.jit.script(function)
    except Exception as error:  # torch raises a dozen kinds
        reason = " ".join(str(error).split())[:150]
        raise InputError(f"variant {name}: TorchScript cannot compile {what} ({reason})") from error
