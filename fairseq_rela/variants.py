"""The table of attention variants, and the places in a Transformer where they can be used.

A variant is a weight function from :mod:`fairseq_rela.functional` and a norm from :mod:`fairseq_rela.norms`. This table
is the only place that knows how variants differ; everything else takes a :class:`Variant` and reads its properties.
"""

import re
from functools import partial
from typing import Callable, Dict, FrozenSet, NamedTuple, Optional, Sequence, Tuple, Type, Union

from torch import Tensor, nn

from . import contract, functional, peers
from .errors import InputError
from .norms import GatedLayerNorm, GatedRMSNorm, RMSNorm
from .threshold import LearntThreshold, ThresholdedReLU, ThresholdOptions

SITES = ("encoder", "decoder", "cross")
DEFAULT_VARIANT = "rela_g"
BASELINE = "softmax"

Weights = Union[Callable[[Tensor], Tensor], Type[nn.Module]]


class Style(NamedTuple):
    """Colour and marker of matplotlib with which figures draw a model; colours of models also differ in lightness."""

    colour: str
    marker: str


class Variant(NamedTuple):
    """An attention: a weight function, a norm, and their properties that other modules use.

    Attributes:
        name: its name in options, configs and checkpoints.
        label: its name in tables and figures; for variants of the paper, the name that the paper uses.
        weights: function from scores to weights, see :mod:`fairseq_rela.functional`; or a class of modules with
            parameters, made with the number and the size of the heads, that takes scores ``(B, H, T, S)``.
        norm: function from the model size d to the norm that is applied to the concatenated heads; None for no norm.
        summary: short description.
        style: how figures draw it; with None, figures choose a style that no variant of this table uses.
        row: number of the row in Table 1 of the paper; None for others.
        sums_to_one: whether the weights of a query sum to 1 over the allowed keys.
        can_be_null: whether all weights of a query can be exactly 0 although keys are allowed.
    """

    name: str
    label: str
    weights: Weights
    norm: Optional[Callable[[int], nn.Module]] = None
    summary: str = ""
    style: Optional[Style] = None
    row: Optional[int] = None
    sums_to_one: bool = False
    can_be_null: bool = False

    @property
    def is_relu(self) -> bool:
        """Whether the weights are ReLU: a threshold can be set, and :mod:`fairseq_rela.kernels` computes them."""
        return self.weights in (functional.relu, LearntThreshold)

    def make_weights(
        self, num_heads: int, head_dim: int, threshold: Optional[ThresholdOptions] = None
    ) -> Callable[[Tensor], Tensor]:
        """Return the weight function, or a new module of it for this number and size of heads.

        If ``threshold`` is given, ReLU becomes a module as well; other weight functions have no threshold.
        """
        if threshold is not None:
            learnt = self.weights is LearntThreshold
            return (LearntThreshold if learnt else ThresholdedReLU)(num_heads, head_dim, threshold)
        return self.weights(num_heads, head_dim) if isinstance(self.weights, type) else self.weights


_rms_norm_i = partial(RMSNorm, uniform_start=True)

_ROWS = (
    Variant(
        "softmax",
        "softmax",
        functional.softmax,
        None,
        "fairseq's own attention, unchanged",
        Style("#3d3d3d", "o"),
        row=1,
        sums_to_one=True,
    ),
    Variant("sparsemax", "sparsemax", functional.sparsemax, None, "sparsemax", Style("#e69f00", "s"), 2, True),
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
        "ReLU alone: training failed in the paper",
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
# beyond the paper
_PEERS = (
    Variant(
        "sigmoid",
        "sigmoid",
        peers.sigmoid,
        summary="sigmoid of S - log n (Ramapuram et al. 2024)",
        style=Style("#1b9e77", "<"),
    ),
    Variant(
        "softmax_plus_one",
        "softmax + 1",
        peers.softmax_plus_one,
        summary="softmax with 1 more in the denominator (Miller 2023)",
        style=Style("#666666", "s"),
    ),
    Variant(
        "softpick",
        "softpick",
        peers.softpick,
        summary="rectified softmax (Zuhri et al. 2025)",
        style=Style("#e7298a", ">"),
        can_be_null=True,
    ),
    Variant(
        "relu_length",
        "ReLU / n",
        peers.relu_length,
        summary="ReLU divided by the number of keys (Wortsman et al. 2023)",
        style=Style("#a6761d", "p"),
        can_be_null=True,
    ),
    Variant(
        "relu_squared",
        "ReLU² / n",
        peers.relu_squared,
        summary="squared ReLU divided by the number of keys, without a norm (Hua et al. 2022)",
        style=Style("#b15928", "h"),
        can_be_null=True,
    ),
    Variant(
        "entmax_alpha",
        "α-entmax",
        peers.LearntEntmax,
        summary="entmax with alpha learnt per head (Correia et al. 2019)",
        style=Style("#33a02c", "v"),
        sums_to_one=True,
    ),
    Variant(
        "top_k",
        "top-8 softmax",
        peers.top_k,
        summary="softmax over the 8 largest scores (Gupta et al. 2021)",
        style=Style("#6a3d9a", "^"),
        sums_to_one=True,
    ),
    Variant(
        "scalable_softmax",
        "scalable softmax",
        peers.ScalableSoftmax,
        summary="softmax of s log(n) S with s learnt per head (Nakanishi 2025)",
        style=Style("#1f78b4", "o"),
        sums_to_one=True,
    ),
    Variant(
        "rela_g_threshold",
        "ReLA-g, learnt threshold",
        LearntThreshold,
        GatedRMSNorm,
        "ReLA-g of S + b with b learnt per head, from 1 (ours)",
        Style("#08519c", "P"),
        can_be_null=True,
    ),
    Variant(
        "rela_g_constant",
        "ReLA-g of S + 1",
        peers.relu_constant,
        GatedRMSNorm,
        "ReLA-g of S + 1 (ours)",
        Style("#6baed6", "X"),
        can_be_null=True,
    ),
)
VARIANTS: Dict[str, Variant] = {variant.name: variant for variant in (*_ROWS, *_PEERS)}
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def register_variant(
    name: str,
    weights: Weights,
    norm: Optional[Callable[[int], nn.Module]] = None,
    *,
    label: Optional[str] = None,
    summary: str = "",
    style: Optional[Tuple[str, str]] = None,
    sums_to_one: bool = False,
    can_be_null: bool = False,
) -> Variant:
    """Add an attention of your own, which ``--attention NAME`` then selects everywhere.

    Args:
        name: lower-case letters, digits and ``_``, from a letter.
        weights: function from masked scores ``(B, H, T, S)``, minus infinity at forbidden keys, to weights of the
            same shape; or a class of modules, made with the number and the size of the heads, that computes them.
        norm: function from the model size d to the module that normalises the concatenated heads ``(T, B, d)``,
            such as :class:`fairseq_rela.norms.GatedRMSNorm`; None for no norm.
        label: name in tables and figures; by default the name.
        summary: one line for ``--help`` and the documentation.
        style: colour and marker of matplotlib; by default one that no variant of the table uses.
        sums_to_one: whether the weights of a query sum to 1.
        can_be_null: whether all weights of a query can be exactly 0 although keys are allowed.

    Returns:
        the variant.

    Raises:
        InputError: the name is invalid or taken by another variant, or the weights break their contract: another
            shape, a forbidden key whose weight is not exactly 0, NaN or infinite values, for example in a row without
            an allowed key, or weights that do not sum to 1 although ``sums_to_one`` is given.
    """
    if not _NAME.fullmatch(name):
        raise InputError(f"variant {name!r}: give a name of lower-case letters, digits and _")
    drawn = Style(*style) if style is not None else None
    variant = Variant(name, label or name, weights, norm, summary, drawn, None, sums_to_one, can_be_null)
    if VARIANTS.get(name, variant) != variant:
        raise InputError(f"variant {name}: the name is taken; choose another")
    refuse_broken_weights(variant)
    VARIANTS[name] = variant
    return variant


def refuse_broken_weights(variant: Variant) -> None:
    """Raise an error if the weights of a variant break the contract of :func:`register_variant`.

    Raises:
        InputError: the contract is broken; the message names the variant and how.
    """
    function = variant.make_weights(contract.HEADS, contract.HEAD_SIZE)
    contract.refuse_weights(variant.name, function, variant.sums_to_one)


def find_variant(name: str) -> Variant:
    """Return the variant with this name.

    Args:
        name: a key of :data:`VARIANTS`, such as ``rela_g``.

    Raises:
        InputError: no variant has this name.
    """
    if name not in VARIANTS:
        raise InputError(
            f"--attention {name}: no such variant; choose one of {', '.join(VARIANTS)}, or give --user-dir a folder "
            "that registers it"
        )
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
