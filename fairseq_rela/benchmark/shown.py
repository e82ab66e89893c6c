"""The main results of a benchmark as lines for the terminal."""

from typing import Any, Dict

from .core import Cell


def describe_result(result: Dict[str, Any]) -> str:
    """Return the main results as lines of text: median and quartiles of the time divided by the baseline's.

    The baseline is softmax, or SDPA in cells where softmax does not fit into memory; for the operator it is SDPA.
    Below 1 is faster.
    """
    lines = []
    for part, memory, sizes in (("core", "kept", "saved_bytes"), ("op", "peak memory", "peak_bytes")):
        for cell in result.get(part, ()):
            found = cell["passes"]["forward_backward"]["ratio"]
            lines.append(
                f"{part}, {label(Cell(**{key: cell[key] for key in Cell._fields}))}: "
                + ", ".join(f"{name} {_ratio(ratio)}" for name, ratio in found.items())
                + f"; {memory}: "
                + ", ".join(f"{name} {size / 2**20:.0f} MiB" for name, size in cell[sizes].items() if name in found)
            )
    cells = [("training", result["training"])] if "training" in result else []
    cells += [("decoding", cell) for cell in result.get("decoding", ())]
    cells += [("language model", cell) for cell in result.get("lm", ())]
    for part, cell in cells:
        what = f"{part}, T={cell['length']}" + (f", batch {cell['batch']}" if "batch" in cell else "")
        lines.append(f"{what}: " + ", ".join(f"{key} {_ratio(value)}" for key, value in cell["ratio"].items()))
        if "peak_bytes" in cell:
            sizes = ", ".join(f"{name} {size / 2**20:.0f} MiB" for name, size in cell["peak_bytes"].items())
            lines[-1] += f"; peak memory: {sizes}"
    for name, counts in result.get("parameters", {}).items():
        lines.append(f"parameters, {name}: {counts['total']:,}; without embeddings {counts['without_embeddings']:,}")
    for row in result.get("flops", ()):
        lines.append(f"FLOPs, T={row['length']}: softmax {row['softmax']:,}, rela_g {row['rela_g']:,}")
    return "\n".join(lines)


def _ratio(ratio: Dict[str, float]) -> str:
    return f"{ratio['median']:.2f} ({ratio['q1']:.2f}-{ratio['q3']:.2f})"


def label(cell: Cell) -> str:
    """Return a setting of the core as text, such as ``T=32, causal, dropout 0.1``."""
    words = [word for word, given in (("causal", cell.causal), ("padding", cell.padded)) if given]
    words += [f"dropout {cell.dropout:g}"] if cell.dropout else []
    return f"T={cell.length}" + "".join(f", {word}" for word in words)
