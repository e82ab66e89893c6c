"""Whether torch is recording the program instead of computing."""

from typing import Any

import torch


def is_compiling() -> bool:
    """Return whether ``torch.compile`` or ``torch.export`` records this call; False where torch is older than 2.1."""
    compiler: Any = getattr(torch, "compiler", None)
    return hasattr(compiler, "is_compiling") and compiler.is_compiling()


def is_exporting() -> bool:
    """Return whether ``torch.export`` records this call; False where torch is older than 2.7."""
    compiler: Any = getattr(torch, "compiler", None)
    return hasattr(compiler, "is_exporting") and compiler.is_exporting()
