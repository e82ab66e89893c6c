"""Rectified linear attention as a PyTorch module; torch is the only package that this module imports."""

from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .errors import InputError
from .norms import GatedRMSNorm
from .ops import gated_rms_norm, rela_attention, rela_weights


class RectifiedLinearAttention(nn.Module):
    r"""Compute ReLA-g (Zhang et al. 2021) with the interface of :class:`torch.nn.MultiheadAttention`.

    .. math:: A = \max(Q K^T / \sqrt{d_h} + mask, 0), \quad z = concat_h(dropout(A) V), \quad
        y = (\sigma(w \odot z) \odot g \odot z / RMS(z)) W_o + b_o

    Weights are not normalised; they are exactly 0 at forbidden keys, and a query without an allowed key gives
    :math:`b_o`. They are in float32 or float64, as is the norm.

    Parameters have the names and shapes of the attention in a ``transformer_rela`` model of fairseq: ``q_proj``,
    ``k_proj``, ``v_proj``, ``out_proj``, ``attn_norm.weight`` (:math:`g`) and ``attn_norm.gate`` (:math:`w`).

    Args:
        embed_dim: d, the size of queries and outputs.
        num_heads: H, a divisor of d.
        dropout: probability of dropping a weight in training.
        bias: whether the projections have a bias.
        kdim, vdim: sizes of keys and values; None for d.
        batch_first: inputs and outputs are ``(B, T, d)`` instead of ``(T, B, d)``.
        device, dtype: of the parameters.

    Raises:
        InputError: H does not divide d, or the dropout is not in [0, 1).
    """

    # nn.TransformerEncoderLayer reads these two: they keep it off its own kernel, which computes softmax
    in_proj_bias = None
    _qkv_same_embed_dim = False

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        kdim: Optional[int] = None,
        vdim: Optional[int] = None,
        batch_first: bool = False,
        device: Optional[torch.device] = None,
        dtype: Optional[torch.dtype] = None,
    ) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads:
            raise InputError(f"{num_heads} attention heads do not divide embed_dim {embed_dim}; choose another number")
        if not 0.0 <= dropout < 1.0:
            raise InputError(f"attention dropout {dropout} is not a probability below 1")
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.dropout, self.batch_first = dropout, batch_first
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.k_proj = nn.Linear(embed_dim if kdim is None else kdim, embed_dim, bias=bias)
        self.v_proj = nn.Linear(embed_dim if vdim is None else vdim, embed_dim, bias=bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.attn_norm = GatedRMSNorm(embed_dim)
        self._reset_parameters()
        self.to(device=device, dtype=dtype)

    def _reset_parameters(self) -> None:
        """Draw the start values of the projections as torch's module does; those of the norm are the paper's."""
        joint = self.k_proj.in_features == self.v_proj.in_features == self.embed_dim
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            nn.init.xavier_uniform_(projection.weight, gain=0.5**0.5 if joint else 1.0)  # joint: of one (3d, d) matrix
        for projection in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Optional[Tensor] = None,
        need_weights: bool = True,
        attn_mask: Optional[Tensor] = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Compute the attention output, with the interface of :meth:`torch.nn.MultiheadAttention.forward`.

        Args:
            query: ``(T, B, d)``; ``(B, T, d)`` with ``batch_first``; or ``(T, d)`` without sentences.
            key, value: the same with S keys.
            key_padding_mask: ``(B, S)``, or ``(S,)`` without sentences; boolean, True at padding, or added.
            need_weights: also return the weights. Without them, long inputs need less memory.
            attn_mask: ``(T, S)`` or ``(B * H, T, S)``; boolean, True at FORBIDDEN keys, or added to the scores.
            average_attn_weights: return the average over the heads.
            is_causal: query i sees only the keys 0 to i; ``attn_mask``, if given, is that mask, and is not read.

        Returns:
            the output, in the shape of the query; and None or the weights before dropout in float32 or float64,
            ``(B, T, S)``, or ``(B, H, T, S)`` for each head; without B if there are no sentences.

        Raises:
            InputError: shapes do not fit.
        """
        single = query.dim() == 2
        if single:
            query, key, value = (x.unsqueeze(0) for x in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        q, k, v = (
            projection(x).unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)  # (B, H, T, d_h)
            for projection, x in ((self.q_proj, query), (self.k_proj, key), (self.v_proj, value))
        )
        mask = self._as_in_sdpa(attn_mask, q, k, is_causal and need_weights)
        dropout_p = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            weights = rela_weights(q, k, mask, key_padding_mask=key_padding_mask)  # (B, H, T, S)
            context = F.dropout(weights, dropout_p) @ v.to(weights.dtype)
        else:
            context = rela_attention(
                q, k, v, None if is_causal else mask, dropout_p, is_causal, key_padding_mask=key_padding_mask
            )
        context = self.attn_norm.by(gated_rms_norm, context.transpose(1, 2).flatten(2))  # (B, T, d)
        output = self.out_proj(context.to(self.out_proj.weight.dtype))
        if weights is not None and average_attn_weights:
            weights = weights.mean(dim=1)
        if single:
            return output.squeeze(0), None if weights is None else weights.squeeze(0)
        return output if self.batch_first else output.transpose(0, 1), weights

    def _as_in_sdpa(self, attn_mask: Optional[Tensor], q: Tensor, k: Tensor, causal: bool) -> Optional[Tensor]:
        """Return the mask of :func:`fairseq_rela.ops.rela_attention`, where True is an allowed key.

        Args:
            attn_mask: as in :meth:`forward`.
            q, k: ``(B, H, T, d_h)`` and ``(B, H, S, d_h)``.
            causal: return the mask of the future instead.
        """
        if causal:
            return torch.ones(q.size(-2), k.size(-2), dtype=torch.bool, device=q.device).tril()
        if attn_mask is None:
            return None
        if attn_mask.dim() == 3:
            if attn_mask.size(0) != q.size(0) * self.num_heads:
                raise InputError(f"attn_mask {tuple(attn_mask.shape)}: give (T, S) or (B * H, T, S)")
            attn_mask = attn_mask.unflatten(0, (q.size(0), self.num_heads))
        return ~attn_mask if attn_mask.dtype == torch.bool else attn_mask
