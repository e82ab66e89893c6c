"""Operations of the weight function and norm of one attention sublayer: the paper's Table 4, by formula."""

from typing import Any, Dict, List, Sequence

from ..analysis.paper import table_4_rela_g, table_4_softmax


def table(lengths: Sequence[int] = (10, 30, 100, 300, 1000, 3000), heads: int = 8, dim: int = 512) -> List[Dict]:
    """A row for each length T: ``length``, ``softmax``, ``rela_g``, and ``ratio`` of the latter to the former."""
    rows: List[Dict[str, Any]] = []
    for length in lengths:
        softmax, rela_g = table_4_softmax(length, heads), table_4_rela_g(length, heads, dim)
        rows.append({"length": length, "softmax": softmax, "rela_g": rela_g, "ratio": rela_g / softmax})
    return rows
