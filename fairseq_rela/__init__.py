"""Rectified linear attention (Zhang, Titov, Sennrich 2021) as a fairseq plugin.

``--user-dir fairseq_rela`` on any fairseq command, or ``import fairseq_rela`` in Python, makes the model
``transformer_rela``, the task ``translation_rela``, the tokenizer ``rela_moses`` and the BPE ``rela_bpe`` known
to fairseq, and puts guided alignment for every variant in the place of fairseq's. Nothing else happens on import.
"""

import sys
from pathlib import Path

__version__ = "0.1.0"


def register() -> None:
    """Check the fairseq found and make the plugin's classes known to it.

    Raises:
        ImportError: fairseq is missing or broken, or one of our names is taken by another plugin.
    """
    from . import compat

    compat.require_fairseq()
    compat.load_checkpoints_as_data()

    from fairseq.models import MODEL_REGISTRY
    from fairseq.tasks import TASK_REGISTRY

    from . import criterions, encoders, readers  # noqa: F401
    from .models import transformer_rela
    from .tasks import translation_rela

    # newer versions of fairseq keep the older class of a name, and our own would be that one, without a word
    for kind, name, cls, module in (
        ("model", transformer_rela.MODEL_NAME, MODEL_REGISTRY[transformer_rela.MODEL_NAME], transformer_rela),
        ("task", "translation_rela", TASK_REGISTRY["translation_rela"], translation_rela),
    ):
        if cls.__module__ != module.__name__:
            raise ImportError(f"the {kind} name {name} is taken by {cls.__module__}; load only one of the two plugins")
    criterions.register()
    readers.let_unknown_words_follow_links()
    compat.warn_about(compat.probe_fairseq())


def _is_command() -> bool:
    """Whether this is ``rela``, or ``python -m fairseq_rela.cli`` (from Python 3.10 on, which tells)."""
    name = sys.argv[0] if getattr(sys, "argv", None) else ""
    return Path(name).stem == "rela" or (name == "-m" and "fairseq_rela.cli" in getattr(sys, "orig_argv", ()))


# The command starts in a blink and calls register() where it needs fairseq, whose import takes seconds.
if not _is_command():
    register()
