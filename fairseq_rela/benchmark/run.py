"""Run the benchmark: measure all parts of a plan, and write the record."""

import datetime
import os
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch

from ..errors import InputError
from ..files.machine import processor, versions
from ..files.records import read_json, write_json
from . import core, flops, language_model, models, op, real_text
from . import trained as trained_models
from .plan import Plan, operator_clock
from .shown import label

_RECORDED = ("ve-fairseq", "fairseq-fixed", "fairseq", "entmax", "triton")
PARTS = ("core", "training", "decoding", "parameters", "flops")
ALL_PARTS = (*PARTS, "lm", "op")


def run(
    output: Path,
    plan: Plan,
    device: str = "cpu",
    parts: Sequence[str] = PARTS,
    threads: Optional[int] = None,
    progress: Callable[[str], Any] = print,
    trained: Optional[trained_models.Request] = None,
    real: Optional[real_text.Request] = None,
    attention: Sequence[str] = (),
) -> Dict[str, Any]:
    """Run the benchmark, write ``output/benchmark.json``, and return its content.

    The file is written after each setting, so an interrupted run leaves what it has measured, without ``load_after``.

    Args:
        output: folder of the result; created if needed.
        plan: sizes and time, see :func:`fairseq_rela.benchmark.plan.make_plan`.
        device: ``cpu`` or ``cuda``.
        parts: some of :data:`ALL_PARTS`.
        threads: number of CPU threads; None for torch's default.
        progress: called with a line of text for each step.
        trained: decode with these models instead of models with random weights.
        real: train on this text instead of a random batch.
        attention: names for :func:`fairseq_rela.benchmark.models.choose_variants`, of what is compared in training and
            decoding; by default the variants of Table 2.

    Raises:
        InputError: a part or the device is unknown or missing, torch is older than 2, ``output`` cannot be written,
            or has parts that this run does not measure, candidates that should agree do not, or the given models or
            data cannot be used.
    """
    _refuse_impossible(parts, device)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{output}: cannot be made ({error.strerror or error})") from error
    _refuse_lost_parts(output / "benchmark.json", parts)
    if threads is not None:
        torch.set_num_threads(threads)
    where = torch.device(device)
    request = trained if "decoding" in parts else None
    loaded = None if request is None else trained_models.load(request, where, plan.dtype)
    variants = models.choose_variants(attention) if attention else models.CANDIDATES
    result: Dict[str, Any] = {**describe(where), "plan": {"seconds": plan.seconds, "rounds": list(plan.rounds)}}
    untrained = [part for part in parts if part != "decoding" or loaded is None]
    for part, found in _measure(plan, where, untrained, progress, variants, real):
        result[part] = found
        write_json(output / "benchmark.json", result)
    if request is not None and loaded is not None:
        progress("decoding by trained models")
        result["trained"] = trained_models.describe(request, loaded)
        synchronise = plan.timing("decoding", 1, where).synchronise
        result["decoding"] = trained_models.decode(loaded, request, where, plan.dtype, synchronise)
    result["load_after"] = _load()
    write_json(output / "benchmark.json", result)
    return result


def _refuse_lost_parts(path: Path, parts: Sequence[str]) -> None:
    """Raise an error if a file has measurements of other parts, which a new file would not have."""
    there = read_json(path) if path.is_file() else {}
    lost = [part for part in ALL_PARTS if part in there and part not in parts]
    if lost:
        raise InputError(f"{path} has the part {', '.join(lost)}, which would be lost; give another --name")


def _measure(
    plan: Plan,
    where: torch.device,
    parts: Sequence[str],
    progress: Callable[[str], Any],
    variants: models.Variants,
    real: Optional[real_text.Request],
) -> Iterator[Tuple[str, Any]]:
    """Yield the name and the result of each part; those of ``core``, ``op`` and ``decoding`` grow with each setting."""
    if "parameters" in parts:
        progress("parameters")
        yield "parameters", models.parameters(models.Size())
    if "flops" in parts:
        yield "flops", flops.table()
    if "core" in parts:
        for cells in _cells("core", plan.cells, plan, where, progress):
            yield "core", cells
    if "op" in parts:
        for cells in _cells("op", plan.op, plan, where, progress):
            yield "op", [{**cell, "clock": operator_clock(where)} for cell in cells]
    if "training" in parts:
        progress("training")
        yield "training", _training(plan, where, variants, real)
    if "lm" in parts:
        progress("language models, by the length of contexts")
        size, tokens, lengths = plan.lm
        timing = plan.timing("lm", len(lengths), where)
        yield "lm", language_model.training(size, tokens, lengths, where, plan.dtype, timing)
    if "decoding" in parts:
        for cells in _decoding(plan, where, progress, variants):
            yield "decoding", cells


def _refuse_impossible(parts: Sequence[str], device: str) -> None:
    for part in parts:
        if part not in ALL_PARTS:
            raise InputError(f"--parts {part}: choose from {', '.join(ALL_PARTS)}")
    if int(torch.__version__.split(".")[0]) < 2:
        raise InputError(f"the benchmark needs torch 2 or later, and this is {torch.__version__}; install a newer one")
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: this PyTorch sees no GPU; give --device cpu")


def _cells(
    part: str, cells: Sequence[core.Cell], plan: Plan, device: torch.device, progress: Callable[[str], Any]
) -> Iterator[List[Dict[str, Any]]]:
    """Measure the cells of the part ``core`` or ``op``, and yield all that are done after each."""
    timing, limit = plan.timing(part, len(cells), device), _memory(device)
    measure = {"core": core.measure, "op": op.measure}[part]
    results: List[Dict[str, Any]] = []
    for number, cell in enumerate(cells, 1):
        progress(f"{part} {number}/{len(cells)}: {label(cell)}")
        results.append(measure(cell, device, timing, limit))
        yield results


def _training(
    plan: Plan, device: torch.device, variants: models.Variants, real: Optional[real_text.Request]
) -> Dict[str, Any]:
    size, tokens, length = plan.training
    timing = plan.timing("training", 1, device)
    if real is not None:
        return real_text.train(real, variants, size, tokens, device, plan.dtype, timing.synchronise)
    return models.training(size, tokens, length, device, plan.dtype, timing, variants)


def _decoding(
    plan: Plan, device: torch.device, progress: Callable[[str], Any], variants: models.Variants
) -> Iterator[List[Dict[str, Any]]]:
    """Time decoding, and yield the results so far after each size of a batch."""
    size, lengths, batches = plan.decoding
    timing = plan.timing("decoding", len(batches) * len(lengths), device)
    cells: List[Dict[str, Any]] = []
    for batch in batches:
        progress(f"decoding, {batch} sentence{'s' if batch > 1 else ''} at a time")
        cells += models.decoding(size, lengths, batch, 4, device, plan.dtype, timing, variants)
        yield cells


def describe(device: torch.device) -> Dict[str, Any]:
    """Return date, command, versions, device, threads, and load of this run, for the record."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor()
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": " ".join(["rela", *sys.argv[1:]]),
        "versions": {**versions(_RECORDED), "torch": torch.__version__},
        "device": {"type": device.type, "name": name, "cores": os.cpu_count(), "threads": torch.get_num_threads()},
        "environment": {key: value for key, value in os.environ.items() if key.startswith(("MALLOC_", "OMP_", "KMP_"))},
        "load_before": _load(),
    }


def _memory(device: torch.device) -> float:
    """Return the memory to use in bytes: what is free on the GPU, or 70 % of what is free on the CPU."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    return 0.7 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def _load() -> float:
    """Return the load average of the last minute."""
    return os.getloadavg()[0]
