#!/usr/bin/env python3
"""Write the tables of docs/performance.md from the records of three benchmarks.

    rela bench --quick --threads 1 --lengths 16,32,64,128,512,1024,2048 --name cpu-quick
    rela bench --quick --threads 1 --parts op --lengths 32,64,512,2048 --name cpu-op
    rela bench --quick --threads 1 --parts training,decoding --attention NAME... --name cpu-peers
    python scripts/performance_tables.py

Times are medians, divided by those of the baseline in the same rounds: softmax by matrix products, and PyTorch's
scaled_dot_product_attention (SDPA) for the operator. Memory is the peak of forward and backward in MiB.
"""

import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fairseq_rela.files.outputs import write_whole
from fairseq_rela.files.records import read_json
from fairseq_rela.study.tables import markdown

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
TIMED = {"rela_g": "ReLA-g", "rela_g_plain": "ReLA-g, `plain`", "sparsemax": "sparsemax", "entmax15": "1.5-entmax"}
TIMED_ALONE = {**TIMED, "sdpa": "SDPA"}
KEPT = {"rela_g": "ReLA-g", "rela_g_plain": "ReLA-g, `plain`", "softmax": "softmax", "sdpa": "SDPA"}
OPERATOR = {"rela": "`rela_attention`", "rela_g": "the same with its norm", "softmax": "softmax by matrix products"}
KEPT_BY_OPERATOR = {**OPERATOR, "sdpa": "SDPA"}
RECORDS = ("cpu-quick", "cpu-op", "cpu-peers")
Record = Dict[str, Any]


def main() -> int:
    quick, operator, peers = (read_json(ROOT / "benchmarks" / name / "benchmark.json") for name in RECORDS)
    page = PAGE.read_text(encoding="utf-8")
    for name, table in tables(quick, operator, peers).items():
        begin, end = f"<!-- {name} begin -->\n", f"<!-- {name} end -->"
        before, rest = page.split(begin)
        page = f"{before}{begin}{table}\n{end}{rest.split(end)[1]}"
    with write_whole(PAGE) as file:
        file.write(page)
    return 0


def tables(quick: Record, operator: Record, peers: Record) -> Dict[str, str]:
    """Return the name of each table between its markers in the page, and its Markdown."""
    core, op = quick["core"], operator["op"]
    return {
        "times": markdown(["", *TIMED_ALONE.values()], list(_times(quick)), 1),
        "peers": _peers(peers),
        "memory": _by_length([cell for cell in core if not cell["dropout"]], KEPT, _mebibytes),
        "operator times": _by_length(op, OPERATOR, _ratio),
        "operator memory": _by_length([cell for cell in op if not cell["dropout"]], KEPT_BY_OPERATOR, _mebibytes),
    }


def _peers(record: Record) -> str:
    """Return the table of variants that the paper does not have, the fastest training first."""
    cells = {"training step": record["training"]}
    for cell in record["decoding"]:
        if cell["length"] == 24:
            cells[f"decoding, {'one sentence' if cell['batch'] == 1 else str(cell['batch']) + ' sentences'}"] = cell
    ratios = record["training"]["ratio"]
    names = sorted((name for name in ratios if name != "softmax"), key=lambda name: ratios[name]["median"])
    rows = [[f"`{name}`", *(f"{cell['ratio'][name]['median']:.2f}" for cell in cells.values())] for name in names]
    return markdown(["", *cells], rows, 1)


def _times(quick: Record) -> Iterator[List[str]]:
    training = quick["training"]
    yield [f"training step, length {training['length']}", *_row(training["ratio"])]
    for one in quick["decoding"]:
        sentences = "one sentence" if one["batch"] == 1 else f"{one['batch']} sentences"
        yield [f"decoding, {sentences} of {one['length']} pieces", *_row(one["ratio"])]
    settings = [(cell["causal"], cell["padded"], cell["dropout"] > 0) for cell in quick["core"]]
    for cell in (cell for cell, masks in zip(quick["core"], settings) if all(masks) or not any(masks)):
        yield [f"attention alone, {_setting(cell)}", *_row(cell["passes"]["forward_backward"]["ratio"])]


def _row(ratios: Record) -> List[str]:
    return [f"{ratios[name]['median']:.2f}" if name in ratios else "" for name in TIMED_ALONE]


def _setting(cell: Record) -> str:
    parts = [f"{cell['length']:,}", *(name for name, key in (("causal", "causal"), ("padding", "padded")) if cell[key])]
    return ", ".join(parts + ([f"dropout {cell['dropout']}"] if cell["dropout"] else []))


def _ratio(cell: Record, name: str) -> str:
    found = cell["passes"]["forward_backward"]["ratio"].get(name)
    return f"{found['median']:.2f}" if found else ""


def _mebibytes(cell: Record, name: str) -> str:
    found = cell["peak_bytes"].get(name)
    return f"{found / 2**20:.0f}" if found else ""


def _by_length(cells: List[Record], names: Dict[str, str], value: Callable[[Record, str], str]) -> str:
    """Return a table with a column for each setting without a mask, and a row for each implementation."""
    shown = [cell for cell in cells if not cell["causal"] and not cell["padded"]]
    rows = [[label, *(value(cell, name) for cell in shown)] for name, label in names.items()]
    return markdown(["length", *map(_setting, shown)], rows, 1)


if __name__ == "__main__":
    sys.exit(main())
