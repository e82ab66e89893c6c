"""An attention of one's own: softmax with a temperature that each head learns.

    A = softmax(S / t_h),   t_h learnt for each head, from 1

Train it with ``rela --user-dir examples/my_attention reproduce synthetic temperature``.
"""

import torch
from torch import Tensor, nn

import fairseq_rela


class Temperature(nn.Module):
    def __init__(self, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(num_heads, 1, 1))

    def forward(self, scores: Tensor) -> Tensor:  # (B, H, T, S), -inf at forbidden keys
        forbidden = scores == -torch.inf
        # finite, because the gradient of the temperature is the score times 0 there, which is NaN for infinity
        scores = scores.masked_fill(forbidden, -1e9)
        return torch.softmax(scores / self.temperature, dim=-1).masked_fill(forbidden, 0.0)


fairseq_rela.register_variant("temperature", Temperature, label="softmax, learnt temperature", sums_to_one=True)
