"""Give ``torch.jit.script`` a copy of a model that it can compile, so that it leaves the model itself as it is."""

import copy
from typing import Dict, Type

from torch import nn

from ..attention import ScriptedAttention, VariantAttention


class Scriptable:
    """Mixin of the modules of a model.

    Attributes:
        scripted_as: the class of fairseq that TorchScript compiles in place of this one.
    """

    scripted_as: Type[nn.Module]

    def __prepare_scriptable__(self) -> nn.Module:
        """Return the module that ``torch.jit.script`` compiles in place of this one."""
        return as_scriptable(self, {})


def as_scriptable(module: nn.Module, memo: Dict[int, nn.Module]) -> nn.Module:
    """Return a copy of a module, of fairseq's own classes, in which a :class:`ScriptedAttention` replaces each variant.

    The copy shares parameters, buffers and options with the module, and computes the same by plain PyTorch.

    Args:
        module: the module.
        memo: from the ``id`` of a module to its copy, for modules that are used twice; changed in place.
    """
    if isinstance(module, VariantAttention):
        return ScriptedAttention(module)
    if id(module) not in memo:
        twin = memo[id(module)] = copy.copy(module)
        if isinstance(module, Scriptable):
            twin.__class__ = module.scripted_as
        twin._modules = {
            name: None if child is None else as_scriptable(child, memo) for name, child in module._modules.items()
        }
    return memo[id(module)]
