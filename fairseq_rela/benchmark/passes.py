"""Compare candidates that compute the same, and measure time and memory of their forward and backward passes."""

from functools import partial
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import torch
from torch import Tensor

from .memory import peak_bytes, saved_bytes
from .timing import Timing, compare, summary

Candidates = Dict[str, Callable[[], Tensor]]
SHARES = {"forward_backward": 0.7, "forward": 0.3}  # of the time


class Passes(NamedTuple):
    """How the passes of candidates are run.

    Attributes:
        inputs: tensors whose gradients are computed, and which are not counted as saved memory.
        grad: gradient of the outputs, in their shape.
        parameters: further tensors whose gradients are computed, for some candidates.
    """

    inputs: Sequence[Tensor]
    grad: Tensor
    parameters: Mapping[str, Sequence[Tensor]] = {}

    def backward(self, name: str, function: Callable[[], Tensor]) -> Tuple[Tensor, ...]:
        """Run a candidate forward and backward, and return the output and the gradients."""
        output = function()
        wanted = (*self.inputs, *self.parameters.get(name, ()))
        return (output, *torch.autograd.grad(output, wanted, self.grad.to(output.dtype)))

    def forward(self, name: str, function: Callable[[], Tensor]) -> None:
        """Run a candidate without gradients."""
        with torch.no_grad():
            function()


def difference(passes: Passes, one: Callable[[], Tensor], other: Callable[[], Tensor]) -> float:
    """Return the largest difference of outputs and gradients, divided by the largest absolute value."""

    def results(function: Callable[[], Tensor]) -> List[Tensor]:
        return [t.detach().float() for t in passes.backward("", function)]

    pairs = zip(results(one), results(other))
    return max(float((s - t).abs().max() / t.abs().max().clamp_min(1e-6)) for t, s in pairs)


def measure_passes(
    found: Candidates,
    passes: Passes,
    device: torch.device,
    timing: Timing,
    baseline: str,
    skipped: Dict[str, str],
    uncounted: Sequence[str] = (),
) -> Dict[str, Any]:
    """Measure time, time divided by the baseline's and by SDPA's, and memory of every candidate.

    Args:
        found: the candidates.
        passes: how they are run.
        device: where to compute.
        timing: how long to time all candidates.
        baseline: the candidate that the others are compared with.
        skipped: candidates that are not measured, with the reasons, for the record.
        uncounted: candidates whose memory is not measured.

    Returns:
        ``saved_bytes`` and ``peak_bytes`` by name, and ``passes``: for ``forward_backward`` and ``forward`` the
        ``seconds``, ``ratio`` and ``ratio_to_sdpa`` by name, and ``skipped``, the candidates left out with reasons.
    """
    found = {baseline: found[baseline], **found}
    result: Dict[str, Any] = {"passes": {}}
    for name, run in (("forward_backward", passes.backward), ("forward", passes.forward)):
        runs = {key: partial(run, key, function) for key, function in found.items()}
        times, slow = timing._replace(budget=timing.budget * SHARES[name]).interleave(runs)
        result["passes"][name] = {
            "seconds": {key: summary(values) for key, values in times.items()},
            "ratio": compare(times, baseline),
            "ratio_to_sdpa": compare(times, "sdpa") if "sdpa" in times else {},
            "skipped": {**skipped, **slow},
        }
        if name == "forward_backward":
            counted = [key for key in times if key not in uncounted]
            result["saved_bytes"] = {key: saved_bytes(found[key], passes.inputs) for key in counted}
            result["peak_bytes"] = {key: peak_bytes(runs[key], device) for key in counted}
    return result
