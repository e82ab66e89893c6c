"""What every weight function must do, checked when a variant is registered."""

from typing import Any

import torch
from torch import Tensor, nn

from .errors import InputError

HEADS, HEAD_SIZE = 2, 4


def refuse_weights(name: str, function: Any, sums_to_one: bool) -> None:
    """Call a weight function on small scores, and raise unless it keeps its contract.

    Args:
        name: name of the variant, for messages.
        function: from masked scores ``(B, H, T, S)``, minus infinity at forbidden keys, to weights of the same shape;
            a function or a module.
        sums_to_one: whether the weights must sum to 1 in rows with an allowed key.

    Raises:
        InputError: the function fails, the shape differs, a forbidden key gets a weight other than exactly 0, a weight
            or gradient is not finite, or the weights of a row do not sum to 1 although ``sums_to_one`` is set.
    """
    for dtype in (torch.float32, torch.float64):
        if isinstance(function, nn.Module):
            function = function.to(dtype)
        scores = _scores(dtype)
        forbidden = scores == -torch.inf
        start = scores.masked_fill(forbidden, 0.0).requires_grad_()
        try:
            # a copy, because a function may overwrite its input
            weights = function(start.masked_fill(forbidden, -torch.inf))
        except Exception as error:
            raise InputError(f"variant {name}: its weights cannot be computed ({_one_line(error)})") from error
        if not isinstance(weights, Tensor) or weights.shape != scores.shape:
            shape = tuple(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
            raise InputError(
                f"variant {name}: weights of shape {shape} for scores of shape {tuple(scores.shape)}; return the same "
                "shape"
            )
        if not weights.isfinite().all():
            where = "in a row without an allowed key" if not weights[1].isfinite().all() else "at allowed scores"
            raise InputError(f"variant {name}: weights are NaN or infinite {where}; such a row must give zeros")
        if (weights[forbidden] != 0).any():
            raise InputError(
                f"variant {name}: a forbidden key, whose score is minus infinity, has a weight; it must be exactly 0"
            )
        sums = weights[0].sum(dim=-1)
        if sums_to_one and (sums - 1).abs().max() > 1e-5:
            raise InputError(
                f"variant {name}: weights sum to {sums.min():.3g} to {sums.max():.3g}, not to 1; leave sums_to_one out"
            )
        parameters = dict(function.named_parameters()) if isinstance(function, nn.Module) else {}
        inputs = {"the scores": start, **parameters}
        gradients = torch.autograd.grad(weights.square().sum(), list(inputs.values()), allow_unused=True)
        for what, gradient in zip(inputs, gradients):
            if gradient is not None and not gradient.isfinite().all():
                raise InputError(
                    f"variant {name}: the gradient of {what} is NaN or infinite; a forbidden score, minus infinity, "
                    "must not be multiplied or divided by what is learnt"
                )


def _scores(dtype: torch.dtype) -> Tensor:
    """Return scores (2, H, 3, 5) with a forbidden future; the first query of the second sentence has no allowed key."""
    values = torch.linspace(-3, 3, 2 * HEADS * 3 * 5, dtype=dtype).view(2, HEADS, 3, 5)
    scores = values[..., torch.tensor([3, 0, 4, 1, 2])]
    scores = scores + torch.full((3, 5), -torch.inf, dtype=dtype).triu(1)
    scores[1, :, 0] = -torch.inf
    return scores


def _one_line(error: Exception) -> str:
    """Return the type and message of an exception in one line of at most 200 characters."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
