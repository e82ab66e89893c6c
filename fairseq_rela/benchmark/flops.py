"""Number of operations of the weight function and norm of one attention sublayer, by the formulas of Table 4."""

from typing import Any, Dict, List, Sequence

from ..report.paper import table_4_rela_g, table_4_softmax


def table(lengths: Sequence[int] = (10, 30, 100, 300, 1000, 3000), heads: int = 8, dim: int = 512) -> List[Dict]:
    """Return a row for each length T, with ``length``, ``softmax``, ``rela_g`` and ``ratio`` (rela_g / softmax).

    Args:
        lengths: values of T.
        heads: H.
        dim: d, the model size.
    """
    rows: List[Dict[str, Any]] = []
    for length in lengths:
        softmax, rela_g = table_4_softmax(length, heads), table_4_rela_g(length, heads, dim)
        rows.append({"length": length, "softmax": softmax, "rela_g": rela_g, "ratio": rela_g / softmax})
    return rows
