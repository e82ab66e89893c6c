"""Sizes and time of a benchmark, by device."""

import time
from typing import List, NamedTuple, Optional, Sequence, Tuple

import torch

from ..files.configs import load_defaults
from .core import Cell
from .models import Size
from .timing import Timing

# share of the time for each part that takes time
_SHARES = {"core": 0.5, "training": 0.2, "decoding": 0.3, "lm": 1.0, "op": 0.5}


class Plan(NamedTuple):
    """Sizes and time of a benchmark.

    Attributes:
        seconds: time for all timed rounds; preparation takes additional time.
        rounds: smallest and largest number of rounds.
        cells: settings of the attention core.
        training: model size, tokens of a batch and sentence length of a training step.
        decoding: model size, source lengths, and batch sizes in sentences.
        dtype: precision of all models and cores.
        lm: model size of a language model, tokens of a batch, and lengths of the contexts.
        op: settings of the operator.
    """

    seconds: float
    rounds: Tuple[int, int]
    cells: Sequence[Cell]
    training: Tuple[Size, int, int]
    decoding: Tuple[Size, Sequence[int], Sequence[int]]
    dtype: str
    lm: Tuple[Size, int, Sequence[int]]
    op: Sequence[Cell] = ()

    def timing(self, part: str, cells: int, device: torch.device) -> Timing:
        """Return how each of the cells of a part is timed: a part has its share of the time.

        The operator is timed by the clock of :func:`operator_clock`, other parts by the time that passes.
        """
        synchronise = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
        timing = Timing(self.seconds * _SHARES[part] / cells, self.rounds, synchronise)
        return timing._replace(clock=time.process_time) if part == "op" and operator_clock(device) == "CPU" else timing


def operator_clock(device: torch.device) -> str:
    """Return ``CPU``, the time that this process computes, for one thread of a CPU; otherwise ``wall``.

    Other work on the machine changes the time of the CPU less than the time that passes.
    """
    return "CPU" if device.type == "cpu" and torch.get_num_threads() == 1 else "wall"


# typical source lengths in pieces of ten equal parts of a news test set, sorted by length (Figure 2)
GROUPS = (8, 13, 17, 20, 24, 28, 32, 38, 46, 66)


def _cells(lengths: Sequence[int], masked: Sequence[int], tokens: int, dtype: str) -> List[Cell]:
    """Return a cell without masks for every length, and with masks and dropout for those in ``masked``."""
    cells = [Cell(length, max(tokens, length), dtype=dtype) for length in lengths]
    for length in (length for length in masked if length in lengths):
        cell = Cell(length, max(tokens, length), dtype=dtype)
        cells += [
            cell._replace(causal=True),
            cell._replace(padded=True),
            cell._replace(dropout=0.1),
            cell._replace(causal=True, padded=True, dropout=0.1),
        ]
    return cells


def make_plan(device: str, quick: bool, lengths: Optional[Sequence[int]] = None) -> Plan:
    """Return the sizes to measure on a device.

    A quick run takes about 4 minutes on two CPU cores; otherwise a run takes about half an hour there, and about 6
    minutes on a GPU.

    Args:
        device: ``cpu`` or ``cuda``.
        quick: measure smaller models and fewer lengths.
        lengths: values of T for the attention core and the operator, and lengths of contexts, instead of those of
            ``configs/defaults/bench.yaml``.
    """
    plan = _usual_plan(device, quick)
    if lengths is None:
        return plan
    tokens, masked = plan.cells[0].tokens, {cell.length for cell in plan.cells if cell.causal}
    cells = _cells(lengths, sorted(masked), tokens, plan.dtype)
    op = _cells(lengths, lengths, plan.op[0].tokens, plan.dtype)
    return plan._replace(cells=cells, lm=(*plan.lm[:2], lengths), op=op)


def _usual_plan(device: str, quick: bool) -> Plan:
    default = load_defaults("bench")
    lengths, op_lengths, contexts = default["lengths"], default["op_lengths"], default["contexts"]
    small = Size(layers=2, dim=256, ffn=1024, heads=4, words=4000)
    lm = Size(2, 128, 512, 4, 4000), 8192, contexts
    if device == "cuda":
        seconds, rounds, dtype = (60.0, (3, 100), "bfloat16") if quick else (240.0, (5, 500), "bfloat16")
        cells = _cells(lengths, (32, 128, 512, 2048), 16384, dtype)
        sizes = (Size(), 25000, 32), (Size(), GROUPS, (1, 64))
        op = _cells(op_lengths, op_lengths, 16384, dtype)
        if quick:  # each further setting is compiled for seconds
            few = default["quick_op_lengths_cuda"]
            op = [*_cells(few, (), 16384, dtype), Cell(few[0], 16384, True, True, 0.1, dtype=dtype)]
        return Plan(seconds, rounds, cells, *sizes, dtype, (Size(), 16384, contexts), op)
    if quick:
        cells = _cells(default["quick_lengths"], (32, 128), 4096, "float32")
        op = _cells(default["quick_op_lengths"], (64,), 4096, "float32")
        return Plan(130.0, (3, 50), cells, (small, 1000, 32), (small, GROUPS[::4], (1, 16)), "float32", lm, op)
    cells = _cells(lengths, (32, 128, 512), 4096, "float32")
    return Plan(
        600.0,
        (3, 100),
        cells,
        (Size(words=8000), 2000, 32),
        (Size(words=8000), GROUPS, (1, 16)),
        "float32",
        lm,
        _cells(op_lengths, op_lengths, 4096, "float32"),
    )
