"""The command ``rela VERB ...``: prepare data, train, translate, score, analyse, or run all stages at once."""

from .parser import build_parser, main

__all__ = ["build_parser", "main"]
