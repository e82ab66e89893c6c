"""Rectified linear attention (Zhang, Titov, Sennrich 2021) as a fairseq plugin.

``--user-dir fairseq_rela`` on any fairseq command, or ``import fairseq_rela`` in Python, registers with fairseq the
models ``transformer_rela`` and ``transformer_lm_rela``, the task ``translation_rela``, the tokenizer ``rela_moses`` and
the BPE ``rela_bpe``. :func:`register_variant` adds an attention of your own.

The import also changes fairseq: the criterion ``label_smoothed_cross_entropy_with_alignment`` is replaced by one that
supports every attention variant, ``--replace-unk`` is made to work with the links of ``translation_rela``, and
checkpoints are loaded as data, without running code that they contain.

Where fairseq is not installed, the import does nothing, and :mod:`fairseq_rela.ops` and :mod:`fairseq_rela.nn` serve
any PyTorch model.
"""

import importlib.util
import sys
from pathlib import Path
from typing import Any

from .register import register

__version__ = "0.1.0"


def _is_command() -> bool:
    """Return whether this process is ``rela`` or ``python -m fairseq_rela.cli`` (the latter from Python 3.10 on)."""
    name = sys.argv[0] if getattr(sys, "argv", None) else ""
    return Path(name).stem == "rela" or (name == "-m" and "fairseq_rela.cli" in getattr(sys, "orig_argv", ()))


def __getattr__(name: str) -> Any:
    """Import the public functions when they are first used, because they need torch."""
    if name == "register_variant":
        from .variants import register_variant

        return register_variant
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# importing fairseq takes seconds, so the command calls register() only where it needs fairseq
if not _is_command() and importlib.util.find_spec("fairseq") is not None:
    register()
