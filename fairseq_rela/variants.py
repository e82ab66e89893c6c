"""The attention variants of Table 1 of the paper, and the places in a Transformer where they can be used.

A variant is a weight function from :mod:`fairseq_rela.functional` and a norm from :mod:`fairseq_rela.norms`.
"""

from functools import partial
from typing import Callable, Dict, FrozenSet, NamedTuple, Optional, Sequence, Union

from torch import Tensor, nn

from . import functional
from .errors import InputError
from .norms import GatedLayerNorm, GatedRMSNorm, RMSNorm

SITES = ("encoder", "decoder", "cross")
DEFAULT_VARIANT = "rela_g"


class Variant(NamedTuple):
    """One row of Table 1: a weight function and a norm.

    Attributes:
        row: number of the row in Table 1.
        weights: function from scores to weights, see :mod:`fairseq_rela.functional`.
        norm: function from the model size d to the norm that is applied to the concatenated heads; None for no norm.
        summary: short description.
    """

    row: int
    weights: Callable[[Tensor], Tensor]
    norm: Optional[Callable[[int], nn.Module]]
    summary: str


_rms_norm_i = partial(RMSNorm, uniform_start=True)

VARIANTS: Dict[str, Variant] = {
    "softmax": Variant(1, functional.softmax, None, "fairseq's own attention, untouched"),
    "sparsemax": Variant(2, functional.sparsemax, None, "sparsemax"),
    "entmax15": Variant(3, functional.entmax15, None, "1.5-entmax"),
    "relu": Variant(4, functional.relu, None, "ReLU alone: training fails, says the paper"),
    "relu_rmsnorm": Variant(5, functional.relu, RMSNorm, "ReLU + RMSNorm"),
    "rela_i": Variant(6, functional.relu, _rms_norm_i, "ReLA-i: the gain starts small and random"),
    "rela_g": Variant(7, functional.relu, GatedRMSNorm, "ReLA-g: gated RMSNorm (the default)"),
    "rela_g_layernorm": Variant(8, functional.relu, GatedLayerNorm, "ReLA-g with LayerNorm"),
    "rela_g_gelu": Variant(9, functional.gelu, GatedRMSNorm, "ReLA-g with GeLU"),
    "rela_g_leaky_relu": Variant(10, functional.leaky_relu, GatedRMSNorm, "ReLA-g with Leaky ReLU"),
}


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
