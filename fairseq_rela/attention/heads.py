"""Remove heads from an attention module, so that it computes the same as with the outputs of these heads zeroed."""

from typing import Any, Optional, Sequence, Tuple

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from ..errors import InputError
from ..threshold import ThresholdedReLU
from ..variants import BASELINE, find_variant


class HeadlessAttention(MultiheadAttention):
    """An attention without heads: its output is the bias of the output projection, at every query.

    Where other modules return weights, this one returns those of one head that is null on every query, because a mean
    over no heads would be NaN. So ``num_heads`` is 1, and measures of null heads count this one.

    Args:
        removed: the attention whose heads were all removed; only its output projection is used.

    Attributes:
        variant_name: the variant of the removed heads.
    """

    def __init__(self, removed: MultiheadAttention) -> None:
        super().__init__(
            removed.out_proj.out_features,
            1,
            kdim=removed.kdim,
            vdim=removed.vdim,
            self_attention=removed.self_attention,
            encoder_decoder_attention=removed.encoder_decoder_attention,
        )
        self.variant_name = getattr(removed, "variant_name", BASELINE)
        self.skip_embed_dim_check = True
        del self.q_proj, self.k_proj, self.v_proj
        self.out_proj = removed.out_proj

    def forward(
        self,
        query: Tensor,
        key: Optional[Tensor],
        value: Optional[Tensor],
        key_padding_mask: Optional[Tensor] = None,
        incremental_state: Any = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Optional[Tensor] = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Return the bias, ``(T, B, d)``, and zeros as weights, ``(B, T, S)`` or ``(1, B, T, S)``, if requested.

        The arguments are those of :meth:`fairseq.modules.MultiheadAttention.forward`.
        """
        queries, sentences = query.shape[:2]
        output = self.out_proj(query.new_zeros(queries, sentences, 0, dtype=self.out_proj.weight.dtype))
        if not (need_weights or need_head_weights):
            return output, None
        weights = torch.zeros(sentences, queries, len(query if key is None else key), device=query.device)
        return output, weights.unsqueeze(0) if need_head_weights else weights


def count_heads(attention: MultiheadAttention) -> int:
    """Return the number of heads of a module."""
    return 0 if isinstance(attention, HeadlessAttention) else attention.num_heads


def keep_heads(attention: MultiheadAttention, heads: Sequence[int]) -> MultiheadAttention:
    r"""Return the attention with some of its heads, which computes what it computed with the others' output zeroed.

    With H' of H heads the projections of queries, keys and values have :math:`d' = H' d_h` outputs instead of d, and
    the output projection has d' inputs. The scale :math:`1 / \sqrt{d_h}` of the scores stays, and the norm goes on
    dividing by d, see :mod:`fairseq_rela.norms`. Parameters keep their names. The result is equal up to rounding,
    because matrix products and the norm add numbers in another order.

    Args:
        attention: a module of :func:`fairseq_rela.attention.build_attention`, changed in place.
        heads: numbers of the heads to keep, from 0, each once.

    Returns:
        ``attention``, or a :class:`HeadlessAttention` if no head is kept.

    Raises:
        InputError: the norm or the weight function is a user's own with parameters that do not tell heads apart, or
            the attention is computed by xFormers.
    """
    if len(heads) == count_heads(attention):
        return attention
    _refuse(attention)
    size = attention.head_dim
    channels = torch.tensor([head * size + i for head in heads for i in range(size)], dtype=torch.long)
    channels = channels.to(attention.out_proj.weight.device)
    with torch.no_grad():
        norm, columns = getattr(attention, "attn_norm", None), attention.out_proj.weight
        kept = columns[:, channels] if norm is None or not heads else norm.keep(channels, columns)
        _set_weight(attention.out_proj, kept)
        if not heads:
            return HeadlessAttention(attention)
        for name in ("q_proj", "k_proj", "v_proj"):
            projection = getattr(attention, name)
            _set_weight(projection, projection.weight[channels])
            if projection.bias is not None:
                projection.bias = nn.Parameter(projection.bias[channels])
        for name in ("bias_k", "bias_v"):
            if getattr(attention, name) is not None:
                setattr(attention, name, nn.Parameter(getattr(attention, name)[..., channels]))
        if isinstance(getattr(attention, "attn_weights", None), nn.Module):
            attention.attn_weights = _weights_of(attention, heads)
    attention.num_heads, attention.embed_dim = len(heads), len(channels)
    attention.skip_embed_dim_check = True  # fairseq would call torch's attention, which takes no other sizes
    return attention


def _refuse(attention: MultiheadAttention) -> None:
    """Raise an error if heads cannot be removed from a module.

    Raises:
        InputError: see :func:`keep_heads`.
    """
    norm = getattr(attention, "attn_norm", None)
    if norm is not None and not hasattr(norm, "keep"):
        raise InputError(
            f"the norm {type(norm).__name__} cannot do without some heads; give it a method `keep` as in "
            "fairseq_rela.norms, or use another model"
        )
    if getattr(attention, "use_xformers", False):
        raise InputError("xFormers computes the attention of this model, and takes no fewer heads; use another model")


def _set_weight(linear: nn.Linear, weight: Tensor) -> None:
    linear.weight = nn.Parameter(weight.clone())
    linear.out_features, linear.in_features = weight.shape


def _weights_of(attention: MultiheadAttention, heads: Sequence[int]) -> nn.Module:
    """Return a module of the weight function for some heads, with the parameters of these heads.

    Raises:
        InputError: a parameter depends on the number of heads in more than one dimension.
    """
    weight, old = attention.q_proj.weight, attention.attn_weights
    threshold = old.options if isinstance(old, ThresholdedReLU) else None
    new: Any = find_variant(attention.variant_name).make_weights(len(heads), attention.head_dim, threshold)
    state, index = new.state_dict(), torch.tensor(list(heads), device=weight.device)
    for name, value in old.state_dict().items():
        different = [i for i, (a, b) in enumerate(zip(value.shape, state[name].shape)) if a != b]
        if len(different) > 1:
            raise InputError(f"{name} of {attention.variant_name} has no dimension of heads; use another model")
        state[name] = value.index_select(different[0], index) if different else value
    new.load_state_dict(state)
    return new.to(weight).train(old.training)
