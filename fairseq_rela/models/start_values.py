r"""Start values of a Transformer's layers, as in the paper's released code.

In that code (the repository zero, ``func.py`` and ``modules/rela.py``) the weights of a linear layer are drawn from
:math:`U(-a, a)` with :math:`a = \sqrt{6 / (inputs + outputs)}`, and the bias is 0. Self-attention has one linear layer
with 3d outputs for queries, keys and values; cross-attention has three with d outputs. For d = 512 and an FFN of
2,048 the values of :math:`a` are

======================================= ============= =================
layer                                   released code fairseq
======================================= ============= =================
FFN, both layers                        0.0484        0.0442 and 0.0221
self-attention: queries, keys, values   0.0541        0.0541
cross-attention: queries, keys, values  0.0765        0.0541
output projection of an attention       0.0765        0.0765
bias of the output projection           0             0
all other biases                        0             random
======================================= ============= =================

Embeddings (normal distribution with standard deviation :math:`d^{-1/2}`), LayerNorm, and the norms of
:mod:`fairseq_rela.norms` start from the same values in both.
"""

import math

from fairseq.modules import MultiheadAttention
from torch import nn

from ..errors import InputError

CHOICES = {
    "fairseq": "fairseq's own",
    "paper": "those of the paper's released code, in the FFN and the attention of all sites, softmax too",
}


def refuse_start_values(name: str) -> None:
    """Raise an error if ``name`` is not a key of :data:`CHOICES`.

    Raises:
        InputError: ``name`` is not one of them.
    """
    if name not in CHOICES:
        raise InputError(f"--rela-init {name}: choose one of {', '.join(CHOICES)}")


def start_as_released(layer: nn.Module) -> None:
    """Draw the start values of an encoder or decoder layer again, in the way of the paper's released code."""
    for linear in (layer.fc1, layer.fc2):
        _start(linear, linear.out_features)
    for attention in layer.children():
        if isinstance(attention, MultiheadAttention):
            own = 1 if attention.encoder_decoder_attention else 3
            for linear in (attention.q_proj, attention.k_proj, attention.v_proj):
                _start(linear, own * linear.out_features)
            _start(attention.out_proj, attention.out_proj.out_features)


def _start(linear: nn.Module, outputs: int) -> None:
    bound = math.sqrt(6.0 / (linear.in_features + outputs))
    nn.init.uniform_(linear.weight, -bound, bound)
    nn.init.zeros_(linear.bias)
