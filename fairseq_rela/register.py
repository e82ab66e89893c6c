"""Register the plugin's classes with fairseq."""

import logging
import warnings


def register() -> None:
    """Check the installed fairseq and register the plugin's classes with it.

    Raises:
        ImportError: fairseq is missing or broken, or another plugin has taken the name of the model or the task.
    """
    from . import compat

    compat.require_fairseq()
    compat.load_checkpoints_as_data()
    compat.restore_numpy_names()
    compat.compare_dictionaries_in_training()

    from fairseq.models import MODEL_REGISTRY
    from fairseq.tasks import TASK_REGISTRY

    from . import criterions, encoders, readers  # noqa: F401
    from .models import transformer_lm_rela, transformer_rela
    from .tasks import translation_rela

    # newer versions of fairseq keep the class that was registered first under a name, without an error
    models = transformer_rela, transformer_lm_rela
    for kind, name, cls, module in (
        *(("model", module.MODEL_NAME, MODEL_REGISTRY[module.MODEL_NAME], module) for module in models),
        ("task", "translation_rela", TASK_REGISTRY["translation_rela"], translation_rela),
    ):
        if cls.__module__ != module.__name__:
            raise ImportError(f"the {kind} name {name} is taken by {cls.__module__}; load only one of the two plugins")
    criterions.register()
    readers.let_unknown_words_follow_links()
    compat.warn_about_last_batch()


def load_plugin() -> None:
    """Import fairseq and register the plugin, without the log messages that are meant for fairseq's commands.

    Raises:
        ImportError: fairseq is missing or broken.
    """
    for name in ("fairseq", "fairseq_rela.compat"):
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.getLogger("fairseq_rela.models").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*pin_memory")
    register()
