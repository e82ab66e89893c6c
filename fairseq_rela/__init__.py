"""Rectified linear attention (Zhang, Titov, Sennrich 2021) as a fairseq plugin.

``--user-dir fairseq_rela`` on any fairseq command, or ``import fairseq_rela`` in Python, registers with fairseq the
model ``transformer_rela``, the task ``translation_rela``, the tokenizer ``rela_moses`` and the BPE ``rela_bpe``.

The import also changes fairseq: the criterion ``label_smoothed_cross_entropy_with_alignment`` is replaced by one that
supports every attention variant, ``--replace-unk`` is made to work with the links of ``translation_rela``, and
checkpoints are loaded as data, without running code that they contain.
"""

import sys
from pathlib import Path

__version__ = "0.1.0"


def register() -> None:
    """Check the installed fairseq and register the plugin's classes with it.

    Raises:
        ImportError: fairseq is missing or broken, or another plugin has taken the name of the model or the task.
    """
    from . import compat

    compat.require_fairseq()
    compat.load_checkpoints_as_data()

    from fairseq.models import MODEL_REGISTRY
    from fairseq.tasks import TASK_REGISTRY

    from . import criterions, encoders, readers  # noqa: F401
    from .models import transformer_rela
    from .tasks import translation_rela

    # newer versions of fairseq keep the class that was registered first under a name, without an error
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
    """Return whether this process is ``rela`` or ``python -m fairseq_rela.cli`` (the latter from Python 3.10 on)."""
    name = sys.argv[0] if getattr(sys, "argv", None) else ""
    return Path(name).stem == "rela" or (name == "-m" and "fairseq_rela.cli" in getattr(sys, "orig_argv", ()))


# importing fairseq takes seconds, so the command calls register() only where it needs fairseq
if not _is_command():
    register()
