"""Published numbers of the paper (Zhang, Titov and Sennrich 2021, arXiv 2104.07012), for comparison with our runs.

The numbers are copied from Tables 1 to 6 and the text of the paper; only those of Table 4 are computed, by formula.
"""

from typing import Dict, NamedTuple, Optional, Tuple

from ..variants import BASELINE, SITES, VARIANTS

ADDRESS = "https://arxiv.org/abs/2104.07012"
SIGNATURE = "BLEU+case.mixed+numrefs.1+smooth.exp+tok.13a+version.1.4.2"


class Ablation(NamedTuple):
    """A row of Table 1: WMT14 En-De.

    Attributes:
        row: number of the row, from 1.
        model: name in the paper.
        attention: our name of the attention.
        sites: sites with this attention; the other sites have softmax.
        bleu, tokenised_bleu: sacreBLEU and tokenised BLEU, from 0 to 100; None where training failed.
    """

    row: int
    model: str
    attention: str
    sites: Tuple[str, ...]
    bleu: Optional[float]
    tokenised_bleu: Optional[float]


TABLE_1_TASK = "wmt14_en_de"
_ALL_SITES_BLEU: Dict[str, Tuple[Optional[float], Optional[float]]] = {  # sacreBLEU, tokenised BLEU
    "softmax": (26.9, 27.59),
    "sparsemax": (26.4, 27.02),
    "entmax15": (26.7, 27.39),
    "relu": (None, None),
    "relu_rmsnorm": (26.0, 26.60),
    "rela_i": (26.5, 27.16),
    "rela_g": (26.6, 27.31),
    "rela_g_layernorm": (26.6, 27.18),
    "rela_g_gelu": (26.5, 27.14),
    "rela_g_leaky_relu": (26.5, 27.13),
}
TABLE_1 = (
    *(
        Ablation(variant.row, variant.label + " baseline" * (name == BASELINE), name, SITES, *_ALL_SITES_BLEU[name])
        for name, variant in VARIANTS.items()
        if variant.row is not None and name in _ALL_SITES_BLEU
    ),
    Ablation(11, "ReLA-g, encoder attention only", "rela_g", ("encoder",), 26.3, 27.00),
    Ablation(12, "ReLA-g, decoder self-attention only", "rela_g", ("decoder",), 27.0, 27.70),
    Ablation(13, "ReLA-g, cross-attention only", "rela_g", ("cross",), 27.0, 27.69),
)

NAMES = {name: variant.label for name, variant in VARIANTS.items()}
COMPARED = ("softmax", "sparsemax", "entmax15", "rela_g")  # the attentions of Tables 2, 3 and 5
# their rows in Table 1, with the attention at all sites
COMPARED_ROWS = tuple(row.row for row in TABLE_1 if row.attention in COMPARED and row.sites == SITES)


class Efficiency(NamedTuple):
    """A row of Table 2: newstest2014 En-De, mean of 3 runs; speeds are relative to softmax, higher is faster.

    Attributes:
        parameters: number of parameters in millions.
        train: training speed over 500 steps of about 25K target tokens.
        decode: decoding speed, one sentence at a time.
        train_pytorch: training speed in the paper's second test, in PyTorch.
    """

    parameters: float
    train: float
    decode: float
    train_pytorch: float


TABLE_2: Dict[str, Efficiency] = {
    "softmax": Efficiency(72.31, 1.00, 1.00, 1.00),
    "sparsemax": Efficiency(72.31, 0.26, 0.54, 0.87),
    "entmax15": Efficiency(72.31, 0.27, 0.49, 0.90),
    "rela_g": Efficiency(72.34, 0.93, 0.98, 0.95),
}

# task to attention to sacreBLEU
TABLE_3: Dict[str, Dict[str, float]] = {
    "wmt14_en_fr": {"softmax": 37.2, "sparsemax": 37.3, "entmax15": 37.9, "rela_g": 37.9},
    "wmt18_en_fi": {"softmax": 15.5, "sparsemax": 15.1, "entmax15": 15.5, "rela_g": 15.4},
    "wmt18_zh_en": {"softmax": 21.1, "sparsemax": 19.2, "entmax15": 20.8, "rela_g": 20.8},
    "wmt16_ro_en": {"softmax": 32.7, "sparsemax": 33.5, "entmax15": 33.2, "rela_g": 32.9},
}
TASK_NAMES = {
    "wmt14_en_de": "WMT14 En-De",
    "wmt14_en_fr": "WMT14 En-Fr",
    "wmt18_en_fi": "WMT18 En-Fi",
    "wmt18_zh_en": "WMT18 Zh-En",
    "wmt16_ro_en": "WMT16 Ro-En",
}

TABLE_4_HEADS = 8
TABLE_4_SIZE = 512


def table_4_softmax(length: int, heads: int = TABLE_4_HEADS) -> int:
    """Return the FLOPs that are specific to softmax attention (Table 4): :math:`3 H T^2 - H T`.

    Args:
        length: sequence length T.
        heads: number of heads H.
    """
    return 3 * heads * length**2 - heads * length


def table_4_rela_g(length: int, heads: int = TABLE_4_HEADS, size: int = TABLE_4_SIZE) -> int:
    """Return the FLOPs that are specific to ReLA-g (Table 4): :math:`H T^2 + 10 T d + T`.

    Args:
        length: sequence length T.
        heads: number of heads H.
        size: model dimension d.
    """
    return heads * length**2 + 10 * length * size + length


class AlignmentErrors(NamedTuple):
    """A row of Table 5: AER in percent, averaged over layers, of the layer attention (AoL) or the best head (AoH)."""

    normal_aol: float
    normal_aoh: float
    shifted_aol: float
    shifted_aoh: float


TABLE_5: Dict[str, AlignmentErrors] = {
    "softmax": AlignmentErrors(75.95, 67.51, 79.38, 54.31),
    "sparsemax": AlignmentErrors(78.17, 67.88, 82.32, 54.95),
    "entmax15": AlignmentErrors(78.82, 67.69, 79.84, 58.98),
    "rela_g": AlignmentErrors(64.46, 61.64, 59.24, 52.41),
}

# (attention, tau) to site to head diversity in nats; tau is None where the weights sum to 1
TABLE_6: Dict[Tuple[str, Optional[str]], Dict[str, float]] = {
    ("softmax", None): {"encoder": 0.56, "decoder": 0.31, "cross": 0.45},
    ("entmax15", None): {"encoder": 0.84, "decoder": 0.39, "cross": 0.52},
    ("rela_g", "1.0"): {"encoder": 1.26, "decoder": 0.81, "cross": 0.78},
    ("rela_g", "0.5"): {"encoder": 0.97, "decoder": 0.65, "cross": 0.69},
    ("rela_g", "0.25"): {"encoder": 0.92, "decoder": 0.65, "cross": 0.71},
    ("rela_g", "0.1"): {"encoder": 0.92, "decoder": 0.66, "cross": 0.72},
}

# from the text of section 5.2
LEVEL = "words"  # level at which the paper analyses weights
NULL_RATE_VARIANCE = 0.256  # over the heads of a layer, En-De; a sample variance: a population one is at most 0.25
RANKING_CORPUS = "WMT14 En-De training corpus"
RANKING_TOP_10K_CORRECT = 0.95  # approximate share
RANKING_BOTTOM_10K_CORRECT = 0.01


def find_row(attention: str, sites: Tuple[str, ...]) -> Optional[Ablation]:
    """Return the row of Table 1 with an attention at these sites, or None; for softmax the sites are ignored."""
    wanted = frozenset(SITES if attention == "softmax" else sites)
    for row in TABLE_1:
        if row.attention == attention and frozenset(row.sites) == wanted:
            return row
    return None
