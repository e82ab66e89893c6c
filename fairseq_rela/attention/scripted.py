"""Attention in the subset of Python that TorchScript compiles; ``torch.jit.script`` of a model takes it by itself.

TorchScript knows no ``super()``, no hooks and no functions as arguments. It asks each module for another one to compile
in its place (``__prepare_scriptable__``), and puts that into the model that it is given. The models of this package
give it a copy instead, see :mod:`fairseq_rela.models.scriptable`.
"""

import types
from typing import Dict, Optional, Tuple

from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from ..functional import at_least_float32
from .inputs import as_minus_infinity
from .plain import VariantAttention
from .scripted_weights import scripted_norm, scripted_weights


def _fairseqs_forward(name: str) -> types.FunctionType:
    """Return a copy of the forward method of fairseq's attention, with another name, for a class with its own forward.

    It calls a static method by the name of its class, which TorchScript knows only if it has compiled that class; in
    the copy, the name is that of a module with this function.
    """
    forward, append = MultiheadAttention.forward, MultiheadAttention._append_prev_key_padding_mask
    names = types.ModuleType(MultiheadAttention.__name__)
    setattr(names, append.__name__, append)
    new = types.FunctionType(
        forward.__code__, {**forward.__globals__, names.__name__: names}, name, forward.__defaults__
    )
    new.__annotations__ = forward.__annotations__
    return new


class ScriptedAttention(VariantAttention):
    """Compute the plain path of :class:`VariantAttention`, with the parameters of ``attention``, in TorchScript.

    Scores are in the precision of the model; all that follows is in float32 or float64.

    Args:
        attention: the module whose parameters, buffers and options this one shares.

    Raises:
        InputError: TorchScript cannot compile the weight function or the norm of a variant.
    """

    scores_and_values = _fairseqs_forward("scores_and_values")

    def __init__(self, attention: VariantAttention) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(attention.__dict__)
        self._modules = dict(attention._modules)
        self.original = [attention]  # torch remembers replaced modules by id, which must not be that of another one
        self.attn_weights = scripted_weights(attention.variant_name, attention.attn_weights)
        self.attn_norm = scripted_norm(attention.variant_name, attention.attn_norm)

    def __prepare_scriptable__(self) -> MultiheadAttention:
        """Return this module; TorchScript compiles it as it is."""
        return self

    def forward(
        self,
        query: Tensor,
        key: Optional[Tensor],
        value: Optional[Tensor],
        key_padding_mask: Optional[Tensor] = None,
        incremental_state: Optional[Dict[str, Dict[str, Optional[Tensor]]]] = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Optional[Tensor] = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Compute the attention output, with the interface of :meth:`VariantAttention.forward`."""
        scores, values = self.scores_and_values(
            query,
            key,
            value,
            key_padding_mask,
            incremental_state,
            True,
            static_kv,
            as_minus_infinity(attn_mask),
            True,
            False,
        )  # (B*H, T, S), (B*H, S, d_h)
        assert values is not None
        if before_softmax:
            return scores, values
        context, weights = self.attend(at_least_float32(scores), at_least_float32(values))
        output = self.out_proj(context.to(query.dtype))
        if need_head_weights:
            return output, weights.transpose(0, 1)
        if need_weights:
            return output, weights.mean(dim=1)
        return output, None
