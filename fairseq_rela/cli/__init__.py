"""The command ``rela``."""

from .main import main

__all__ = ["main"]
