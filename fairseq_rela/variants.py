"""The attention variants of Table 1 of the paper, and the places in a Transformer where they can be used.

A variant is a weight function from :mod:`fairseq_rela.functional` and a norm from :mod:`fairseq_rela.norms`. This table
is the only place that knows how variants differ; everything else takes a :class:`Variant` and reads its properties.
"""

from functools import partial
from typing import Callable, Dict, FrozenSet, NamedTuple, Optional, Sequence, Union

from torch import Tensor, nn

from . import functional
from .errors import InputError
from .norms import GatedLayerNorm, GatedRMSNorm, RMSNorm

SITES = ("encoder", "decoder", "cross")
DEFAULT_VARIANT = "rela_g"


class Style(NamedTuple):
    """How figures draw a model: colours also differ in lightness, and markers in shape."""

    colour: str
    marker: str


class Variant(NamedTuple):
    """An attention: a weight function, a norm, and what the rest of the package must know of them.

    Attributes:
        name: its name in options, configs and checkpoints.
        label: its name in tables and figures; for the paper's variants, the paper's.
        weights: function from scores to weights, see :mod:`fairseq_rela.functional`.
        norm: function from the model size d to the norm that is applied to the concatenated heads; None for no norm.
        summary: short description.
        style: how figures draw it.
        row: number of the row in Table 1 of the paper; None for others.
        sums_to_one: whether the weights of a query sum to 1 over the allowed keys.
        can_be_null: whether all weights of a query can be exactly 0 although keys are allowed.
    """

    name: str
    label: str
    weights: Callable[[Tensor], Tensor]
    norm: Optional[Callable[[int], nn.Module]]
    summary: str
    style: Style
    row: Optional[int] = None
    sums_to_one: bool = False
    can_be_null: bool = False

    @property
    def has_kernel(self) -> bool:
        """Whether :mod:`fairseq_rela.kernels` computes the weights."""
        return self.weights is functional.relu


BASELINE = "softmax"
_rms_norm_i = partial(RMSNorm, uniform_start=True)

_ROWS = (
    Variant(
        "softmax",
        "softmax",
        functional.softmax,
        None,
        "fairseq's own attention, untouched",
        Style("#3d3d3d", "o"),
        row=1,
        sums_to_one=True,
    ),
    Variant(
        "sparsemax",
        "sparsemax",
        functional.sparsemax,
        None,
        "sparsemax",
        Style("#e69f00", "s"),
        row=2,
        sums_to_one=True,
    ),
    Variant(
        "entmax15",
        "1.5-entmax",
        functional.entmax15,
        None,
        "1.5-entmax",
        Style("#009e73", "^"),
        row=3,
        sums_to_one=True,
    ),
    Variant(
        "relu",
        "ReLU alone",
        functional.relu,
        None,
        "ReLU alone: training fails, says the paper",
        Style("#999999", "*"),
        row=4,
        can_be_null=True,
    ),
    Variant(
        "relu_rmsnorm",
        "ReLU + RMSNorm",
        functional.relu,
        RMSNorm,
        "ReLU + RMSNorm",
        Style("#cc79a7", "P"),
        row=5,
        can_be_null=True,
    ),
    Variant(
        "rela_i",
        "ReLA-i",
        functional.relu,
        _rms_norm_i,
        "ReLA-i: the gain starts small and random",
        Style("#56b4e9", "v"),
        row=6,
        can_be_null=True,
    ),
    Variant(
        "rela_g",
        "ReLA-g",
        functional.relu,
        GatedRMSNorm,
        "ReLA-g: gated RMSNorm (the default)",
        Style("#0072b2", "D"),
        row=7,
        can_be_null=True,
    ),
    Variant(
        "rela_g_layernorm",
        "ReLA-g with LayerNorm",
        functional.relu,
        GatedLayerNorm,
        "ReLA-g with LayerNorm",
        Style("#d55e00", "X"),
        row=8,
        can_be_null=True,
    ),
    Variant(
        "rela_g_gelu",
        "ReLA-g with GeLU",
        functional.gelu,
        GatedRMSNorm,
        "ReLA-g with GeLU",
        Style("#7a4fa3", "p"),
        row=9,
    ),
    Variant(
        "rela_g_leaky_relu",
        "ReLA-g with Leaky ReLU",
        functional.leaky_relu,
        GatedRMSNorm,
        "ReLA-g with Leaky ReLU",
        Style("#8c6d1f", "h"),
        row=10,
    ),
)
VARIANTS: Dict[str, Variant] = {variant.name: variant for variant in _ROWS}


def find_variant(name: str) -> Variant:
    """Return the variant with this name.

    Args:
        name: a key of :data:`VARIANTS`, such as ``rela_g``.

    Raises:
        InputError: no variant has this name.
    """
    if name not in VARIANTS:
        raise InputError(f"--attention {name}: no such variant; choose one of {', '.join(VARIANTS)}")
    return VARIANTS[name]


def parse_sites(text: Union[str, Sequence[str]]) -> FrozenSet[str]:
    """Return the attention sites that use the variant; all other sites keep softmax.

    The sites are ``encoder`` (self-attention of the encoder), ``decoder`` (self-attention of the decoder) and
    ``cross`` (attention from the decoder to the encoder).

    Args:
        text: names separated by commas, such as ``"encoder,cross"``, or a list such as ``["encoder", "cross"]``,
            as in a Hydra override.

    Raises:
        InputError: a site is unknown, or no site is given.
    """
    if not isinstance(text, str):
        text = ",".join(map(str, text))
    sites = [site.strip() for site in text.split(",") if site.strip()]
    unknown = [site for site in sites if site not in SITES]
    if unknown or not sites:
        what = f"no such site {unknown[0]!r}" if unknown else "no site given"
        raise InputError(f"--attention-sites {text}: {what}; give one or more of {','.join(SITES)}")
    return frozenset(sites)
