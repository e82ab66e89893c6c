"""Checks of an attention variant, for the tests of a project that registers one."""

from typing import Dict, Optional, Tuple

import torch
from torch import Tensor, nn

from .attention import VariantAttention, build_attention
from .errors import InputError
from .variants import find_variant, refuse_broken_weights

HEADS, SIZE, SENTENCES, QUERIES, KEYS = 2, 16, 3, 5, 7


def check_variant(name: str) -> None:
    """Check that a variant computes what fairseq's models expect of an attention.

    - Weights are exactly 0 at forbidden keys, and finite in a row without an allowed key.
    - Padding gives the result of a shorter sentence.
    - Decoding step by step gives the result of the whole sequence, also after beam search reorders the hypotheses.
    - In bfloat16, and in float16 where this PyTorch computes it, the result is close to that in float32.
    - Every parameter has a finite gradient.
    - A saved state gives the same result when it is loaded, and a state of softmax attention can start the variant.

    Args:
        name: a registered variant.

    Raises:
        InputError: a check failed; the message names it.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        refuse_broken_weights(find_variant(name))
        _check_padding(name)
        _check_steps(name)
        _check_beams(name)
        _check_half_precision(name)
        _check_gradients(name)
        _check_state(name)


def _attention(name: str, cross: bool = False, dtype: torch.dtype = torch.float64) -> nn.Module:
    """Return a module in evaluation mode whose parameters are all random, also those that start at a constant."""
    module = build_attention(name, SIZE, HEADS, self_attention=not cross, encoder_decoder_attention=cross)
    module = module.to(dtype).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return module


def _inputs(length: int = QUERIES) -> Tensor:
    return torch.randn(length, SENTENCES, SIZE, dtype=torch.float64)


def _compare(name: str, what: str, found: Tensor, expected: Tensor, tolerance: float = 1e-6) -> None:
    """Raise unless two outputs agree within ``tolerance``, relative to the largest expected value if it exceeds 1."""
    difference = (found.double() - expected.double()).abs().max().item()
    if not difference <= tolerance * max(1.0, expected.abs().max().item()):
        raise InputError(f"variant {name}: {what}: results differ by {difference:.2g}")


def _check_padding(name: str) -> None:
    module, query, key = _attention(name, cross=True), _inputs(), _inputs(KEYS)
    padding = torch.zeros(SENTENCES, KEYS, dtype=torch.bool)
    padding[:, KEYS - 2 :] = True
    padded, weights = module(query, key, key, key_padding_mask=padding)
    short, _ = module(query, key[: KEYS - 2], key[: KEYS - 2])
    _compare(name, "padding must give the result of a shorter sentence", padded, short)
    if (weights[..., KEYS - 2 :] != 0).any():
        raise InputError(f"variant {name}: padding has a weight; it must be exactly 0")


def _future(length: int) -> Tensor:
    return torch.full((length, length), -torch.inf, dtype=torch.float64).triu(1)


def _check_steps(name: str) -> None:
    module, states = _attention(name), _inputs()
    whole, _ = module(states, states, states, attn_mask=_future(QUERIES))
    _compare(name, "steps must give the result of the whole sequence", _by_steps(module, states), whole)
    cross, source = _attention(name, cross=True), _inputs(KEYS)
    padding = torch.zeros(SENTENCES, KEYS, dtype=torch.bool)
    padding[0, KEYS - 3 :] = True
    whole, _ = cross(states, source, source, key_padding_mask=padding)
    cache: Dict[str, Dict[str, Optional[Tensor]]] = {}
    steps = [
        cross(states[i : i + 1], source, source, key_padding_mask=padding, incremental_state=cache, static_kv=True)[0]
        for i in range(QUERIES)
    ]
    _compare(name, "steps of cross-attention must give the result of the whole sequence", torch.cat(steps), whole)


def _by_steps(module: nn.Module, states: Tensor, order: Optional[Tuple[int, Tensor]] = None) -> Tensor:
    """Return the outputs of a decoder's self-attention step by step; ``order`` reorders the sentences before a step."""
    cache: Dict[str, Dict[str, Optional[Tensor]]] = {}
    outputs = []
    for step in range(states.size(0)):
        if order is not None and step == order[0]:
            module.reorder_incremental_state(cache, order[1])
        here = states[step : step + 1]
        outputs.append(module(here, here, here, incremental_state=cache)[0])
    return torch.cat(outputs)


def _check_beams(name: str) -> None:
    module, states = _attention(name), _inputs()
    order, at = torch.tensor([2, 0, 0]), 2
    reordered = torch.cat([states[:at, order], states[at:]])
    whole, _ = module(reordered, reordered, reordered, attn_mask=_future(QUERIES))
    found = _by_steps(module, states, (at, order))[at:]
    _compare(
        name, "steps after beam search reorders hypotheses must give the whole sequence's result", found, whole[at:]
    )


def _check_half_precision(name: str) -> None:
    module, states = _attention(name, dtype=torch.float32), _inputs().float()
    expected, _ = module(states, states, states)
    for dtype in (torch.bfloat16, torch.float16):
        half = build_attention(name, SIZE, HEADS, self_attention=True).eval()
        half.load_state_dict(module.state_dict())
        try:
            found, _ = half.to(dtype)(*[states.to(dtype)] * 3)
        except RuntimeError as error:
            if "not implemented for" in str(error):  # PyTorch before 2.2 has no float16 on CPU
                continue
            raise
        if found.dtype != dtype:
            raise InputError(f"variant {name}: the output of a {dtype} model is {found.dtype}")
        _compare(name, f"{dtype} must be close to float32", found, expected, 0.1)


def _check_gradients(name: str) -> None:
    module, states = _attention(name).train(), _inputs()
    module(states, states, states)[0].square().sum().backward()
    for key, parameter in module.named_parameters():
        if parameter.grad is None or not parameter.grad.isfinite().all():
            raise InputError(f"variant {name}: the gradient of {key} is missing, NaN or infinite")


def _check_state(name: str) -> None:
    module, states = _attention(name), _inputs()
    other = build_attention(name, SIZE, HEADS, self_attention=True).double().eval()
    other.load_state_dict(module.state_dict())
    _compare(
        name, "a loaded state must give the same result", other(states, states, states)[0], module(*[states] * 3)[0]
    )
    softmax = build_attention("softmax", SIZE, HEADS, self_attention=True).state_dict()
    missing, unexpected = other.load_state_dict(softmax, strict=False)
    if unexpected or any(key.startswith(("q_proj", "k_proj", "v_proj", "out_proj")) for key in missing):
        raise InputError(f"variant {name}: a softmax checkpoint does not fit; parameters of projections are renamed")
    if not isinstance(other, VariantAttention) and name != "softmax":
        raise InputError(f"variant {name}: build_attention gave fairseq's own attention")
