"""The batches of a training epoch, which save how they were made, to warn if an epoch resumes with other batches.

fairseq saves how many batches of an epoch were used, and skips that many batches when it resumes. If the batch size,
the seed or the number of processes has changed, the skipped batches are not the ones that were used: some sentences
of the epoch are used twice, others never. If ``--update-freq`` does not divide the number of used batches, fairseq
ends the epoch a few batches early and then trains on the whole epoch again.
"""

import hashlib
import logging
from typing import Any, Dict

import numpy as np
from fairseq.data.iterators import EpochBatchIterator

from ..errors import InputError, one_line_in_fairseq

logger = logging.getLogger(__name__)

# arguments of get_batch_iterator that change the batches, and the options that set them
OPTIONS = {
    "max_tokens": "--max-tokens",
    "max_sentences": "--batch-size",
    "required_batch_size_multiple": "--required-batch-size-multiple",
    "seed": "--seed",
    "num_shards": "--distributed-world-size",
    "grouped_shuffling": "--grouped-shuffling",
}
STATE = "made_by"


class TrainingBatches(EpochBatchIterator):
    """fairseq's iterator, with the options and a checksum of its batches in its state."""

    made_by: Dict[str, Any]
    update_freq: Any

    @classmethod
    def of(cls, iterator: EpochBatchIterator, options: Dict[str, Any]) -> "TrainingBatches":
        """Change the class of a fairseq iterator to this one, and return it.

        Args:
            iterator: the iterator, changed in place.
            options: the arguments that it was made with, of which those in :data:`OPTIONS` are kept, and
                ``update_freq``, the number of batches in an update: a list with a number for each epoch, the last one
                also for all later epochs.
        """
        iterator.__class__ = cls
        iterator.made_by = {name: options[name] for name in OPTIONS if options.get(name) is not None}
        iterator.update_freq = options.get("update_freq")
        return iterator

    def checksum(self) -> str:
        """Return a checksum of the batches in order, before they are shuffled and divided among processes.

        It also covers the seed, the number of processes and ``--grouped-shuffling``.
        """
        digest = hashlib.sha256(np.array([len(batch) for batch in self.frozen_batches], dtype=np.int64).tobytes())
        for batch in self.frozen_batches:
            digest.update(np.asarray(batch, dtype=np.int64).tobytes())
        how = self.seed, self.num_shards, getattr(self, "grouped_shuffling", False)
        digest.update(repr(how).encode())
        return digest.hexdigest()

    def state_dict(self) -> Dict[str, Any]:
        """Return fairseq's state, with the options and the checksum of the batches."""
        return {**super().state_dict(), STATE: {**self.made_by, "checksum": self.checksum()}}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Load the state, and log a warning if the epoch continues with different batches than before.

        Raises:
            InputError: the batches have changed, and the epoch now has fewer batches than were used before.
        """
        before, done = state_dict.get(STATE), state_dict.get("iterations_in_epoch", 0)
        changed = self._what_changed(before) if before and done and before["checksum"] != self.checksum() else None
        try:
            super().load_state_dict(state_dict)
        except RuntimeError as error:
            if changed is None:
                raise
            with one_line_in_fairseq():
                raise InputError(
                    f"epoch {state_dict['epoch']} cannot be resumed: {changed}, and it now has fewer batches than were "
                    "trained on; give the old value, or --reset-dataloader to start again with epoch 1"
                ) from error
        if changed is not None and self.shard_id == 0:
            logger.warning(
                f"epoch {state_dict['epoch']} is resumed with other batches: {changed}; in this epoch some sentences "
                "are trained on twice and others not at all; give the old value to avoid that"
            )
        elif done % self._update_freq(state_dict["epoch"]) and self.shard_id == 0:
            logger.warning(
                f"epoch {state_dict['epoch']} is resumed after {done} batches, which --update-freq "
                f"{self._update_freq(state_dict['epoch'])} does not divide: after it, fairseq trains on the whole "
                "epoch again; give the old value to avoid that"
            )

    def _update_freq(self, epoch: int) -> int:
        """Return the number of batches in an update; 1 if ``update_freq`` is not a list."""
        if isinstance(self.update_freq, str) or not self.update_freq:
            return 1
        return int(self.update_freq[min(epoch, len(self.update_freq)) - 1])

    def _what_changed(self, before: Dict[str, Any]) -> str:
        """Return which of :data:`OPTIONS` differ from those in a saved state, for a message."""
        changes = [
            f"{option} is {self.made_by.get(name)}, was {before.get(name)}"
            for name, option in OPTIONS.items()
            if self.made_by.get(name) != before.get(name)
        ]
        return ", ".join(changes) or "the training data, or which of them are too long, have changed"
