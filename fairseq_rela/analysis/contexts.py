"""The contexts of a language model: blocks of pieces that fairseq's task ``language_modeling`` makes of a subset."""

import copy
from typing import Any, List

from fairseq.data import MonolingualDataset
from fairseq.tasks.language_modeling import LanguageModelingTask

from ..errors import InputError
from .sentences import Sentence

TASK = "language_modeling"


def is_language_model(task: Any) -> bool:
    """Return whether a task of fairseq is that of language models."""
    return isinstance(task, LanguageModelingTask)


def load_contexts(task: Any, subset: str) -> MonolingualDataset:
    """Return a subset as fairseq's dataset, in its order; query t of a context is at position t of its batches.

    Raises:
        InputError: the subset does not exist or is empty.
    """
    try:
        task.load_dataset(subset)
    except (FileNotFoundError, OSError) as error:
        raise InputError(f"no subset {subset!r} in the data folder ({error})") from error
    dataset = copy.copy(task.dataset(subset))
    if not len(dataset):
        raise InputError(f"subset {subset!r} is empty; give another one")
    dataset.shuffle = False
    return dataset


def read_contexts(task: Any, subset: str) -> List[Sentence]:
    """Return the pieces that the model predicts in each context, as sentences without a source.

    Step t predicts piece t of a context and consumes piece t - 1, as the decoder of a translation model does.

    Raises:
        InputError: as :func:`load_contexts`.
    """
    dictionary, pad = task.target_dictionary, task.target_dictionary.pad()
    dataset = load_contexts(task, subset)
    targets = [dataset[index]["target"] for index in range(len(dataset))]
    return [Sentence([], [dictionary[int(token)] for token in target if token != pad]) for target in targets]
