"""The masks of attention scores."""

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
