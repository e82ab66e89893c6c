"""Operations of the weight function and norm of one attention sublayer: the paper's Table 4."""

from typing import Any, Dict, List, Sequence


def softmax_flops(length: int, heads: int) -> int:
    """:math:`3 H T^2 - H T`: exponentials, sums and quotients."""
    return 3 * heads * length**2 - heads * length


def rela_g_flops(length: int, heads: int, dim: int) -> int:
    """:math:`H T^2 + 10 T d + T`: maxima, and the gated norm."""
    return heads * length**2 + 10 * length * dim + length


def table(lengths: Sequence[int] = (10, 30, 100, 300, 1000, 3000), heads: int = 8, dim: int = 512) -> List[Dict]:
    rows: List[Dict[str, Any]] = []
    for length in lengths:
        softmax, rela_g = softmax_flops(length, heads), rela_g_flops(length, heads, dim)
        rows.append({"length": length, "softmax": softmax, "rela_g": rela_g, "ratio": rela_g / softmax})
    return rows
