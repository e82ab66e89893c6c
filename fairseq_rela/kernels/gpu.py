"""Check whether the Triton kernels can run. Triton is optional, and this module imports without it."""

import os
from contextlib import nullcontext
from functools import lru_cache
from typing import ContextManager, Optional

import torch

# Triton's interpreter runs the kernels on CPU tensors, slowly. Triton reads this variable when a kernel is defined.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
LARGEST_HEAD = 256
OLDEST_TRITON = (3, 5)  # comes with torch 2.9; the kernels were compiled with 3.5.1 and 3.7.1
OLDEST_GPU = (8, 0)  # Ampere: bfloat16 products, and a maximum that lets NaN through


def unavailable(
    device: torch.device, dtype: torch.dtype = torch.float32, head_dim: int = LARGEST_HEAD
) -> Optional[str]:
    """Return the reason why the kernels cannot compute with such tensors, for a message, or None if they can.

    Args:
        device: device of the tensors.
        dtype: precision of the tensors.
        head_dim: d_h, the number of columns of one head.
    """
    if dtype not in DTYPES:
        return f"they support float16, bfloat16 and float32, not {str(dtype).replace('torch.', '')}"
    if head_dim > LARGEST_HEAD:
        return f"heads of {head_dim} columns are larger than {LARGEST_HEAD}"
    return _missing(torch.device(device))


@lru_cache(maxsize=None)
def _missing(device: torch.device) -> Optional[str]:
    """Return what the GPU, PyTorch or Triton of this machine lacks to run the kernels, or None."""
    if not INTERPRETED:
        if device.type != "cuda":
            return f"they need an NVIDIA GPU, and the device is {device.type}"
        if torch.version.cuda is None or not torch.cuda.is_available():
            return "this PyTorch sees no NVIDIA GPU"
        if torch.cuda.get_device_capability(device) < OLDEST_GPU:
            return f"{torch.cuda.get_device_name(device)} is older than Ampere"
    try:
        import triton
    except ImportError:
        return "Triton is not installed: pip install triton"
    if tuple(int(part) for part in triton.__version__.split(".")[:2]) < OLDEST_TRITON:
        return (
            f"Triton {triton.__version__} is older than {'.'.join(map(str, OLDEST_TRITON))}; torch 2.9 and later bring "
            "a newer one"
        )
    return None


def on_device(device: torch.device) -> ContextManager:
    """Return a context that makes ``device`` the current GPU, because Triton launches kernels on the current GPU."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
