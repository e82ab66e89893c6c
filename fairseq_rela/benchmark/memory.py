"""Measure the memory that a computation saves for the backward pass, and its peak memory."""

import weakref
from typing import Any, Callable, Dict, Sequence

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten


def saved_bytes(forward: Callable[[], Any], inputs: Sequence[torch.Tensor] = ()) -> int:
    """Return the bytes of the tensors that autograd saves in a forward pass.

    Memory that several tensors share counts once. The inputs do not count.

    Args:
        forward: runs the forward pass.
        inputs: tensors that exist before.
    """
    given = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    sizes: Dict[int, int] = {}
    kept = []  # keeps the tensors alive, so that no two of them have the same address

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
    """Return the peak memory of ``run`` in bytes, beyond the memory in use before.

    On a GPU, torch's allocator reports it. On a CPU, only the results of operations count; memory that an operation
    allocates and frees internally is not included.
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
    """Track the storages that operations allocate, and the largest total (``peak``, in bytes)."""

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
