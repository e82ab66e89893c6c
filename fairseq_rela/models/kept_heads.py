"""The option ``rela_heads``: the number of heads that each attention of a pruned model has.

Its value is a line of text such as ``encoder=4,3 decoder=2,4 cross=0,4``, one number for each layer of a site; a site
that is not in it has all heads. `rela prune` writes it into the config of a checkpoint.
"""

import re
from typing import Dict, List, Mapping, Sequence

from fairseq.modules import MultiheadAttention
from torch import nn

from ..attention import count_heads, keep_heads
from ..errors import InputError
from ..variants import SITES

Sites = Mapping[str, Mapping[str, MultiheadAttention]]  # site to name to module, as attention_modules returns it


def parse_heads(text: str) -> Dict[str, List[int]]:
    """Return the numbers of heads, site to layer.

    Raises:
        InputError: the text is not of the form ``encoder=4,3 decoder=2,4 cross=0,4``.
    """
    parts = str(text).split()
    found = {site: counts for site, _, counts in (part.partition("=") for part in parts)}
    if len(found) < len(parts) or not all(
        site in SITES and re.fullmatch(r"[0-9]{1,6}(,[0-9]{1,6})*", counts) for site, counts in found.items()
    ):
        raise InputError(f"--rela-heads {text}: give numbers, such as encoder=4,3 decoder=2,4 cross=0,4")
    return {site: list(map(int, counts.split(","))) for site, counts in found.items()}


def join_heads(counts: Mapping[str, Sequence[int]]) -> str:
    """Return the text of which :func:`parse_heads` returns these numbers; sites without layers are left out."""
    return " ".join(f"{site}={','.join(map(str, layers))}" for site, layers in counts.items() if layers)


def heads_of_layers(text: str, side: str, kept: Sequence[int]) -> str:
    """Return the option for a model that has only some layers of one side.

    If there are already as many layers as should be kept, the numbers of a site stay as they are, as in
    :func:`fairseq_rela.models.kept_layers.keep_layers`.

    Args:
        text: the option for all layers.
        side: ``encoder`` or ``decoder``; cross-attention is of the decoder.
        kept: the layers to keep.

    Raises:
        InputError: the text has another form, or lacks one of the layers.
    """
    counts = parse_heads(text)
    for site in ("encoder",) if side == "encoder" else ("decoder", "cross"):
        layers = counts.get(site, [])
        if layers and len(layers) != len(kept):
            if max(kept) >= len(layers):
                raise InputError(f"--rela-heads {text}: no number for {site} layer {max(kept)}, which is kept; add it")
            counts[site] = [layers[layer] for layer in kept]
    return join_heads(counts)


def remove_heads(model: nn.Module, sites: Sites, text: str) -> None:
    """Give each attention of a new model as many heads as the option says; an empty text changes nothing.

    Args:
        model: the model, changed in place.
        sites: its attention modules, as ``attention_modules`` returns them.
        text: the option.

    Raises:
        InputError: the text has another form or another number of layers, or an attention has fewer heads.
    """
    kept: Dict[str, Sequence[int]] = {}
    for site, layers in parse_heads(text).items():
        if len(layers) != len(sites[site]):
            raise InputError(
                f"--rela-heads {text}: {len(layers)} numbers for {site}, the model has {len(sites[site])} layers there"
            )
        for (name, attention), number in zip(sites[site].items(), layers):
            if number > count_heads(attention):
                raise InputError(f"--rela-heads {text}: {name} has {attention.num_heads} heads; give at most as many")
            kept[name] = range(number)
    keep_heads_of(model, kept)


def keep_heads_of(model: nn.Module, kept: Mapping[str, Sequence[int]]) -> None:
    """Remove heads from some attention modules of a model, see :func:`fairseq_rela.attention.keep_heads`.

    Args:
        model: the model, changed in place.
        kept: name of a module, such as ``decoder.layers.0.self_attn``, to the numbers of the heads that it keeps.

    Raises:
        InputError: as :func:`fairseq_rela.attention.keep_heads`.
    """
    for name, heads in kept.items():
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, keep_heads(model.get_submodule(name), heads))


def describe_heads(sites: Sites) -> str:
    """Return the option ``rela_heads`` of a model, from its attention modules."""
    return join_heads({site: [count_heads(one) for one in modules.values()] for site, modules in sites.items()})
