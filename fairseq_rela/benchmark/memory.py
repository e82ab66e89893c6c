"""Bytes that a computation keeps for its gradient, and the most that are alive at a time."""

import weakref
from typing import Any, Callable, Dict, Sequence

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten


def saved_bytes(forward: Callable[[], Any], inputs: Sequence[torch.Tensor] = ()) -> int:
    """Of the tensors that autograd keeps after a forward pass; memory that several share counts once.

    The inputs themselves do not count: they are there before.
    """
    given = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    sizes: Dict[int, int] = {}
    kept = []  # the addresses of what is alive are different

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in given:
            sizes[storage.data_ptr()] = storage.nbytes()
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = forward()
    del output
    return sum(sizes.values())


def peak_bytes(run: Callable[[], Any], device: torch.device) -> int:
    """The most bytes of tensors alive at a time beyond those from before.

    On a GPU what torch's allocator says. On a CPU the tensors that operations hand out; memory that an operation
    takes and gives back within itself is not seen.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with _Alive() as alive:
        run()
    return alive.peak


class _Alive(TorchDispatchMode):
    """Follows the storages that operations make."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: Dict[int, int] = {}
        self.total = 0
        self.peak = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = {x.untyped_storage()._cdata for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)}
        output = function(*args, **(kwargs or {}))
        for tensor in tree_flatten(output)[0]:
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                key = storage._cdata
                if key not in self.sizes and key not in given:
                    self.sizes[key] = storage.nbytes()
                    self.total += storage.nbytes()
                    self.peak = max(self.peak, self.total)
                    weakref.finalize(storage, self._freed, key)
        return output

    def _freed(self, key: int) -> None:
        self.total -= self.sizes.pop(key, 0)
