"""Benchmark of training speed on the training text of a data folder (Table 2 of the paper)."""

from itertools import islice
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, NamedTuple, Optional

import torch
from fairseq import utils
from tqdm import tqdm

from ..errors import InputError
from ..variants import BASELINE
from .models import Size, Variants, build, update
from .timing import Times, compare, in_turns, summary
from .trained import load_task

_BLOCKS = 10  # blocks of consecutive updates, whose times are added
_WARM = 2  # first updates, which are not timed


class Request(NamedTuple):
    """Data and length of a training benchmark.

    Attributes:
        data: a data folder of ``rela prepare``.
        steps: number of updates that are timed.
        max_tokens: largest number of pieces in a batch, with padding, on its longer side; None for the plan's.
    """

    data: Path
    steps: int
    max_tokens: Optional[int] = None


def train(
    request: Request,
    variants: Variants,
    size: Size,
    tokens: int,
    device: torch.device,
    dtype: str,
    synchronise: Callable[[], Any] = lambda: None,
) -> Dict[str, Any]:
    """Time updates of each variant in turn, on the same batches of the training text in the same order.

    Args:
        request: data and length.
        variants: what to time, see :func:`fairseq_rela.benchmark.models.choose_variants`.
        size: the size of the models; the vocabularies are those of the data.
        tokens: number of pieces in a batch, with padding, if ``request.max_tokens`` is None.
        device: where to compute.
        dtype: precision of the models.
        synchronise: waits until the device has finished its work.

    Returns:
        ``total_seconds`` by name; ``seconds`` and ``ratio`` to the baseline, for at most ten blocks of consecutive
        updates, see :mod:`.timing`; ``steps``; ``tokens``, the mean number of target pieces in a batch, and
        ``length``, the same for a sentence, both with ends of sentences; ``data`` and ``size``.

    Raises:
        InputError: ``request.data`` is not a data folder, or has no sentence pair that fits into a batch.
    """
    task = load_task(request.data)
    dictionaries = task.source_dictionary, task.target_dictionary
    size = size._replace(words=len(task.target_dictionary))
    models = {
        name: build(attention, size, backend, dictionaries).to(device, getattr(torch, dtype)).train()
        for name, (attention, backend) in variants.items()
    }
    optimizers = {name: torch.optim.Adam(model.parameters(), lr=1e-4) for name, model in models.items()}
    counted = {"tokens": 0, "sentences": 0}

    def updates() -> Iterator[Callable[[str], Any]]:
        samples = islice(_batches(task, request.max_tokens or tokens, device), _WARM + request.steps)
        total = _WARM + request.steps
        for number, sample in enumerate(tqdm(samples, "train", total, unit=" updates", disable=None, leave=False)):
            inputs = sample["net_input"]
            batch = (inputs["src_tokens"], inputs["src_lengths"], inputs["prev_output_tokens"], sample["target"])
            if number >= _WARM:
                counted["tokens"] += int(sample["ntokens"])
                counted["sentences"] += len(sample["target"])
            yield lambda name, batch=batch: update(models[name], optimizers[name], batch)

    times = {name: values[_WARM:] for name, values in in_turns(list(models), updates(), synchronise).items()}
    blocks = in_blocks(times)
    return {
        **{"data": str(request.data), "size": size._asdict(), "dtype": dtype, "baseline": BASELINE, "skipped": {}},
        **{"steps": request.steps, "tokens": round(counted["tokens"] / request.steps)},
        "length": round(counted["tokens"] / counted["sentences"], 1),
        "total_seconds": {name: sum(values) for name, values in times.items()},
        "seconds": {name: summary(values) for name, values in blocks.items()},
        "ratio": compare(blocks, BASELINE),
    }


def _batches(task: Any, max_tokens: int, device: torch.device) -> Iterator[Any]:
    """Yield training batches forever, epoch by epoch, shuffled as fairseq does with seed 1.

    Raises:
        InputError: no sentence pair fits into a batch.
    """
    task.load_dataset("train")
    dataset, longest = task.dataset("train"), min(max_tokens, 1024)
    if not ((dataset.src_sizes <= longest) & (dataset.tgt_sizes <= longest)).any():
        raise InputError(f"{task.cfg.data}: no training pair has at most {longest} pieces; give a larger --max-tokens")
    iterator = task.get_batch_iterator(
        dataset,
        max_tokens=max_tokens,
        max_positions=(longest, longest),
        ignore_invalid_inputs=True,
        required_batch_size_multiple=8,
        seed=1,
    )
    while True:
        for sample in iterator.next_epoch_itr(shuffle=True):
            yield utils.apply_to_sample(lambda tensor: tensor.to(device), sample)


def in_blocks(times: Times, number: int = _BLOCKS) -> Times:
    """Return the sums of consecutive times, in at most ``number`` blocks whose sizes differ by at most one."""
    blocks: Times = {}
    for name, values in times.items():
        n = min(number, len(values))
        edges = [len(values) * block // n for block in range(n + 1)]
        blocks[name] = [sum(values[start:end]) for start, end in zip(edges, edges[1:])]
    return blocks
