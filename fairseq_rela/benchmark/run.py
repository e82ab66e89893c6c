"""Run the benchmark: choose sizes, measure all parts, and write the record."""

import datetime
import os
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from ..errors import InputError
from ..files.machine import processor, versions
from ..files.records import write_json
from . import flops, models, real_text
from . import trained as trained_models
from .core import Cell, measure

_RECORDED = ("ve-fairseq", "fairseq-fixed", "fairseq", "entmax", "triton")
PARTS = ("core", "training", "decoding", "parameters", "flops")


class Plan(NamedTuple):
    """Sizes and time of a benchmark.

    Attributes:
        seconds: time for all timed rounds; preparation takes additional time.
        rounds: smallest and largest number of rounds.
        cells: settings of the attention core.
        training: model size, tokens of a batch and sentence length of a training step.
        decoding: model size, source lengths, and batch sizes in sentences.
        dtype: precision of all models and cores.
    """

    seconds: float
    rounds: Tuple[int, int]
    cells: Sequence[Cell]
    training: Tuple[models.Size, int, int]
    decoding: Tuple[models.Size, Sequence[int], Sequence[int]]
    dtype: str


# typical source lengths in pieces of ten equal parts of a news test set, sorted by length (Figure 2)
GROUPS = (8, 13, 17, 20, 24, 28, 32, 38, 46, 66)


def _cells(lengths: Sequence[int], masked: Sequence[int], tokens: int, dtype: str) -> List[Cell]:
    """Return a cell without masks for every length, and cells with masks and dropout for the lengths in ``masked``."""
    cells = [Cell(length, max(tokens, length), dtype=dtype) for length in lengths]
    for length in masked:
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
        lengths: values of T for the attention core, instead of the usual ones.
    """
    plan = _usual_plan(device, quick)
    if lengths is None:
        return plan
    tokens, masked = plan.cells[0].tokens, {cell.length for cell in plan.cells if cell.causal}
    cells = _cells(lengths, [length for length in lengths if length in masked], tokens, plan.dtype)
    return plan._replace(cells=cells)


def _usual_plan(device: str, quick: bool) -> Plan:
    lengths = tuple(2**n for n in range(4, 14))
    small = models.Size(layers=2, dim=256, ffn=1024, heads=4, words=4000)
    if device == "cuda":
        seconds, rounds, dtype = (60.0, (3, 100), "bfloat16") if quick else (240.0, (5, 500), "bfloat16")
        cells = _cells(lengths, (32, 128, 512, 2048), 16384, dtype)
        return Plan(seconds, rounds, cells, (models.Size(), 25000, 32), (models.Size(), GROUPS, (1, 64)), dtype)
    if quick:
        cells = _cells((16, 32, 64, 128, 512), (32, 128), 4096, "float32")
        return Plan(130.0, (3, 50), cells, (small, 1000, 32), (small, GROUPS[::4], (1, 16)), "float32")
    cells = _cells(lengths, (32, 128, 512), 4096, "float32")
    return Plan(
        600.0,
        (3, 100),
        cells,
        (models.Size(words=8000), 2000, 32),
        (models.Size(words=8000), GROUPS, (1, 16)),
        "float32",
    )


def run(
    output: Path,
    plan: Plan,
    device: str = "cpu",
    parts: Sequence[str] = PARTS,
    threads: Optional[int] = None,
    progress: Callable[[str], Any] = print,
    trained: Optional[trained_models.Request] = None,
    real: Optional[real_text.Request] = None,
) -> Dict[str, Any]:
    """Run the benchmark, write ``output/benchmark.json``, and return its content.

    Args:
        output: folder of the result; created if needed.
        plan: sizes and time, see :func:`make_plan`.
        device: ``cpu`` or ``cuda``.
        parts: some of :data:`PARTS`.
        threads: number of CPU threads; None for torch's default.
        progress: called with a line of text for each step.
        trained: decode with these models instead of models with random weights.
        real: train on this text instead of a random batch.

    Raises:
        InputError: a part or the device is unknown or missing, torch is older than 2, ``output`` cannot be written,
            candidates that should agree do not, or the given models or data cannot be used.
    """
    for part in parts:
        if part not in PARTS:
            raise InputError(f"--parts {part}: choose of {', '.join(PARTS)}")
    if int(torch.__version__.split(".")[0]) < 2:
        raise InputError(f"the benchmark needs torch 2 or later; this is {torch.__version__}")
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: this torch sees no GPU; give --device cpu")
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{output}: cannot be made ({error.strerror or error})") from error
    if threads is not None:
        torch.set_num_threads(threads)
    where = torch.device(device)
    loaded = trained_models.load(trained, where, plan.dtype) if trained is not None and "decoding" in parts else None
    if real is not None:
        real_text.choose_variants(real.attention)  # raises errors before the long measurements
    synchronise = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    result: Dict[str, Any] = {**describe(where), "plan": {"seconds": plan.seconds, "rounds": list(plan.rounds)}}
    shares = {"core": 0.5, "training": 0.2, "decoding": 0.3}
    budgets = {part: plan.seconds * share for part, share in shares.items() if part in parts}
    if "parameters" in parts:
        progress("parameters")
        result["parameters"] = models.parameters(models.Size())
    if "flops" in parts:
        result["flops"] = flops.table()
    if "core" in parts:
        limit = _memory(where)
        result["core"] = []
        for number, cell in enumerate(plan.cells, 1):
            progress(f"core {number}/{len(plan.cells)}: {_label(cell)}")
            result["core"].append(
                measure(cell, where, budgets["core"] / len(plan.cells), plan.rounds, limit, synchronise)
            )
    if "training" in parts:
        progress("training")
        size, tokens, length = plan.training
        if real is not None:
            result["training"] = real_text.train(real, size, tokens, where, plan.dtype, synchronise)
        else:
            result["training"] = models.training(
                size, tokens, length, where, plan.dtype, budgets["training"], plan.rounds, synchronise
            )
    if loaded is not None:
        progress("decoding by trained models")
        result["trained"] = trained_models.describe(trained, loaded)
        result["decoding"] = trained_models.decode(loaded, trained, where, plan.dtype, synchronise)
    elif "decoding" in parts:
        size, lengths, batches = plan.decoding
        result["decoding"] = []
        for batch in batches:
            progress(f"decoding, {batch} sentence{'s' if batch > 1 else ''} at a time")
            budget = budgets["decoding"] / len(batches)
            result["decoding"] += models.decoding(
                size, lengths, batch, 4, where, plan.dtype, budget, plan.rounds, synchronise
            )
    result["load_after"] = _load()
    write_json(output / "benchmark.json", result)
    return result


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


def text(result: Dict[str, Any]) -> str:
    """Return the main results as lines of text: median and quartiles of the time divided by the baseline's.

    The baseline is softmax, or SDPA in cells where softmax does not fit into memory. Below 1 is faster.
    """
    lines = []
    for cell in result.get("core", ()):
        found = cell["passes"]["forward_backward"]["ratio"]
        saved = cell["saved_bytes"]
        lines.append(
            f"core, {_label(Cell(**{key: cell[key] for key in Cell._fields}))}: "
            + ", ".join(f"{name} {_ratio(ratio)}" for name, ratio in found.items())
            + "; kept: "
            + ", ".join(f"{name} {size / 2**20:.0f} MiB" for name, size in saved.items() if name in found)
        )
    for name, cells in (("training", [result["training"]] if "training" in result else []), ("decoding", None)):
        for cell in result.get("decoding", ()) if cells is None else cells:
            what = f"{name}, T={cell['length']}" + (f", batch {cell['batch']}" if "batch" in cell else "")
            lines.append(f"{what}: " + ", ".join(f"{key} {_ratio(value)}" for key, value in cell["ratio"].items()))
    for name, counts in result.get("parameters", {}).items():
        lines.append(f"parameters, {name}: {counts['total']:,}; without embeddings {counts['without_embeddings']:,}")
    for row in result.get("flops", ()):
        lines.append(f"FLOPs, T={row['length']}: softmax {row['softmax']:,}, rela_g {row['rela_g']:,}")
    return "\n".join(lines)


def _ratio(ratio: Dict[str, float]) -> str:
    return f"{ratio['median']:.2f} ({ratio['q1']:.2f}-{ratio['q3']:.2f})"


def _label(cell: Cell) -> str:
    words = [word for word, given in (("causal", cell.causal), ("padding", cell.padded)) if given]
    words += [f"dropout {cell.dropout:g}"] if cell.dropout else []
    return f"T={cell.length}" + "".join(f", {word}" for word in words)


def _memory(device: torch.device) -> float:
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    return 0.7 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def _load() -> float:
    return os.getloadavg()[0]
