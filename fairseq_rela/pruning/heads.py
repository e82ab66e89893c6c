"""The heads of a model, by site, layer and number, and a model with the output of one head zeroed."""

from contextlib import contextmanager
from typing import Collection, Dict, Iterator, List, NamedTuple

import torch
from fairseq.modules import MultiheadAttention
from torch import nn

from ..attention import count_heads
from ..models.kept_heads import keep_heads_of
from ..models.transformer_rela import attention_modules


class Head(NamedTuple):
    """One head: its site (``encoder``, ``decoder`` or ``cross``), its layer and its number, both from 0."""

    site: str
    layer: int
    number: int

    def __str__(self) -> str:
        return f"{self.site}.layer{self.layer}.head{self.number}"


def list_heads(model: nn.Module) -> List[Head]:
    """Return the heads of a model, by site, layer and number."""
    return [
        Head(site, layer, number)
        for site, modules in attention_modules(model).items()
        for layer, module in enumerate(modules.values())
        for number in range(count_heads(module))
    ]


def find_attention(model: nn.Module, head: Head) -> MultiheadAttention:
    """Return the attention module of a head."""
    return list(attention_modules(model)[head.site].values())[head.layer]


@contextmanager
def zeroed(model: nn.Module, head: Head) -> Iterator[None]:
    """Set the output of one head to zero within the context: the rows of the head in the projection of values are 0."""
    attention = find_attention(model, head)
    rows = slice(head.number * attention.head_dim, (head.number + 1) * attention.head_dim)
    values = [
        value[rows]
        for value in (attention.v_proj.weight.data, getattr(attention.v_proj.bias, "data", None))
        if value is not None
    ]
    before = [value.clone() for value in values]
    try:
        for value in values:
            value.zero_()
        yield
    finally:
        for value, old in zip(values, before):
            value.copy_(old)


def remove_heads(model: nn.Module, removed: Collection[Head]) -> None:
    """Remove heads from a model, in place.

    Raises:
        InputError: as :func:`fairseq_rela.attention.keep_heads`.
    """
    kept: Dict[str, List[int]] = {}
    for site, modules in attention_modules(model).items():
        for layer, (name, module) in enumerate(modules.items()):
            kept[name] = [n for n in range(count_heads(module)) if Head(site, layer, n) not in removed]
    with torch.no_grad():
        keep_heads_of(model, kept)
