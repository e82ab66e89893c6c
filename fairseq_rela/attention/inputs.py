"""Prepare what fairseq gives to an attention module: masks, and the values of beams."""

from typing import Optional

import torch
from torch import Tensor


def as_minus_infinity(attn_mask: Optional[Tensor]) -> Optional[Tensor]:
    """Return a mask that adds minus infinity at forbidden keys, from a boolean or additive mask.

    fairseq's encoder layer uses -1e8 (-1e4 in float16) instead. With softmax such a key gets weight 0, but not with
    every variant: leaky ReLU gives -1e6. fairseq would add a boolean mask as 0 and 1.
    """
    if attn_mask is None:
        return None
    if attn_mask.dtype == torch.bool:
        return torch.zeros_like(attn_mask, dtype=torch.float32).masked_fill(attn_mask, -torch.inf)
    return attn_mask.masked_fill(attn_mask <= -1e4, -torch.inf)


def for_each_hypothesis(values: Tensor, rows: int, num_heads: int) -> Tensor:
    """Return the values of each hypothesis, ``(B*H, S, d_h)``.

    Args:
        values: ``(B'*H, S, d_h)``. After ``set_beam_size`` the hypotheses of a sentence, which are neighbours in the
            batch, share its values, and B is the beam size times B'; else B = B'.
        rows: B * H.
        num_heads: H.
    """
    if len(values) == rows:
        return values
    of_sentences = values.view(-1, num_heads, values.size(1), values.size(2))
    return of_sentences.repeat_interleave(rows // len(values), dim=0).flatten(0, 1)
