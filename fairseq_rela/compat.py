"""Compatibility with the installed fairseq: check that it works, test how it behaves, make it load checkpoints as data.

fairseq 0.12.2, its main branch and the forks for newer Python versions cannot be told apart by their version
strings, so this module tests the behaviour itself.
"""

import functools
import logging
import types
from pathlib import Path
from typing import Any

from .errors import one_line_in_fairseq
from .identity import TASK_STATE, refuse_other_dictionaries

logger = logging.getLogger(__name__)

INSTALL_HINT = (
    "install ve-fairseq 0.12.3 (Python 3.11 and 3.12: pip install --no-deps ve-fairseq==0.12.3), "
    "fairseq-fixed, or fairseq 0.12.2 (Python 3.8 to 3.10)"
)


def require_fairseq() -> None:
    """Import fairseq, or raise an error of one line that says how to install it.

    Raises:
        ImportError: fairseq is missing, does not import on this Python, or its compiled part does not load.
    """
    try:
        import fairseq.models
        import fairseq.tasks
    except ModuleNotFoundError as error:
        if error.name == "fairseq":
            message = f"fairseq_rela needs fairseq, which is not installed: {INSTALL_HINT}"
        else:
            message = f"fairseq does not import, since module {error.name} is missing: pip install {error.name}"
        raise ImportError(message) from None
    except Exception as error:  # a dataclass error on Python 3.11 and later, a broken extension, ...
        reason = " ".join(str(error).split())[:200]
        raise ImportError(
            f"the installed fairseq does not import on this Python ({type(error).__name__}: {reason}): {INSTALL_HINT}"
        ) from None
    try:
        import fairseq.data.data_utils_fast  # noqa: F401
    except Exception as error:  # built for another numpy; fairseq itself reports this as not built
        reason = " ".join(str(error).split())[:200]
        raise ImportError(
            f"fairseq's compiled part fairseq.data.data_utils_fast does not load ({type(error).__name__}: {reason}): "
            "install numpy in the version that fairseq was built for, or build fairseq again"
        ) from None


def drops_last_batch() -> bool:
    """Return whether fairseq drops a last batch whose size is not a multiple of ``required_batch_size_multiple``."""
    import numpy as np
    from fairseq.data import data_utils

    batches = data_utils.batch_by_size(
        np.arange(3),
        num_tokens_fn=lambda index: 1,
        num_tokens_vec=np.ones(3, dtype=np.int64),
        max_tokens=1000,
        required_batch_size_multiple=2,
    )
    return sum(len(batch) for batch in batches) < 3


def restore_numpy_names() -> None:
    """Give numpy the name ``numpy.compat.long`` again, which numpy 2.3 removed and fairseq still uses.

    Without it, ``fairseq-interactive`` fails for language models, in fairseq's ``TokenBlockDataset``.
    """
    import numpy

    if not hasattr(numpy, "compat"):
        numpy.compat = types.SimpleNamespace(long=int)  # type: ignore[attr-defined]


def load_checkpoints_as_data() -> None:
    """Make fairseq refuse checkpoints that would run code when loaded.

    From torch 2.6 on, ``torch.load`` loads data only by default, and this function registers the data classes that
    fairseq's checkpoints hold besides tensors. With an older torch, every file is first loaded by
    :func:`fairseq_rela.safe_loading.load`. A file that is not a checkpoint gives an error of one line.
    """
    import torch
    from fairseq import checkpoint_utils

    from . import safe_loading

    safe = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 6)
    if safe:
        safe_loading.allow_data_classes()
    load = checkpoint_utils.load_checkpoint_to_cpu
    if getattr(load, "refuses", False):  # already replaced
        return

    @functools.wraps(load)
    def load_checkpoint_to_cpu(path: str, *args: Any, **kwargs: Any) -> Any:
        with one_line_in_fairseq():
            if not safe:
                safe_loading.load(Path(path))
            try:
                return load(path, *args, **kwargs)
            except Exception:
                safe_loading.load(Path(path))  # raises a clear error if the file is the cause
                raise

    load_checkpoint_to_cpu.refuses = True  # type: ignore[attr-defined]
    checkpoint_utils.load_checkpoint_to_cpu = load_checkpoint_to_cpu


def compare_dictionaries_in_training() -> None:
    """Make fairseq's training refuse a checkpoint of other dictionaries, be it resumed or the start of a model.

    fairseq gives the task a checkpoint's state in its other commands only. With dictionaries of the same size, every
    embedding would silently belong to another piece.
    """
    from fairseq import checkpoint_utils
    from fairseq.trainer import Trainer

    load = Trainer.load_checkpoint
    if getattr(load, "compares", False):  # already replaced
        return

    @functools.wraps(load)
    def load_checkpoint(self: Any, *args: Any, **kwargs: Any) -> Any:
        given, read = getattr(self.task, "data_identity", None), checkpoint_utils.load_checkpoint_to_cpu

        def read_and_compare(path: str, *more: Any, **options: Any) -> Any:
            state = read(path, *more, **options)
            if given is not None:
                with one_line_in_fairseq():
                    refuse_other_dictionaries((state.get("task_state") or {}).get(TASK_STATE), given, path, "the data")
            return state

        checkpoint_utils.load_checkpoint_to_cpu = read_and_compare
        try:
            return load(self, *args, **kwargs)
        finally:
            checkpoint_utils.load_checkpoint_to_cpu = read

    load_checkpoint.compares = True  # type: ignore[attr-defined]
    Trainer.load_checkpoint = load_checkpoint


def warn_about_last_batch() -> None:
    """Log a warning if fairseq's own commands would drop test sentences."""
    if drops_last_batch():
        logger.warning(
            "this fairseq drops the last batch of a test set unless its size is a multiple of 8: "
            "use --task translation_rela, which does not, or add --required-batch-size-multiple 1"
        )
