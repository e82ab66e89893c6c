"""Resume an interrupted training: choose the checkpoint to restore, and find half-written ones."""

import shutil
from pathlib import Path
from typing import List, Optional, Sequence

from ..checkpoints import Found
from ..errors import InputError
from ..safe_loading import load
from .naming import keys_of, split_override


def start_file(overrides: Sequence[str]) -> Optional[Path]:
    """Return the checkpoint from another run that overrides name as the start of a training, or None."""
    keys = ("checkpoint.restore_file", "checkpoint.finetune_from_model")
    given = [value for key, value in map(split_override, overrides) if key in keys]
    return next((Path(value) for value in given if value not in ("null", "checkpoint_last.pt")), None)


def restore_file(folder: Path, overrides: Sequence[str], good: Optional[Found]) -> Optional[Path]:
    """Return the checkpoint that fairseq must restore, or None if it finds the right one by itself.

    Args:
        folder: the run's folder.
        overrides: Hydra overrides of the run.
        good: the newest checkpoint that loads, or None.

    Raises:
        InputError: no checkpoint of the folder can be loaded.
    """
    last = folder / "checkpoint_last.pt"
    if not last.exists() and not any(folder.glob("checkpoint*.pt")):
        return None
    if good is None:
        raise InputError(f"{folder}: none of its checkpoints can be loaded; remove the folder and train again")
    if good.path == last:
        print(f"resuming from update {good.updates:,}")
        return last if "checkpoint.restore_file" in keys_of(overrides) else None
    print(f"{last}: damaged or missing; resuming from {good.path.name} at update {good.updates:,}")
    return good.path


def complete(folder: Path, good: Optional[Found]) -> bool:
    """Return whether the newest good checkpoint already has all updates, and make it ``checkpoint_last.pt``.

    This happens if a run dies after its last update and before its record is written. fairseq, started again, would
    make one more update.
    """
    if good is None:
        return False
    limit = load(good.path)["cfg"]["optimization"]["max_update"]
    if not 0 < limit <= good.updates:
        return False
    last = folder / "checkpoint_last.pt"
    if good.path != last:  # fairseq copies the state to this name last
        copy = folder / "checkpoint_last.pt.tmp"
        shutil.copyfile(good.path, copy)
        copy.replace(last)
    return True


def half_written(folder: Path) -> List[Path]:
    """Return the half-written checkpoints of a process that died; fairseq first writes to names ending in ``.tmp``."""
    return [path for path in folder.glob("checkpoint*.pt.tmp") if path.is_file()]


def refuse_full_disk(folder: Path) -> None:
    """Raise if the disk is full; called after a failed training, because fairseq's error does not name this cause.

    Removes half-written checkpoints before raising.

    Raises:
        InputError: less space is free than the largest checkpoint takes, or than 1 MiB if there is none.
    """
    partial = half_written(folder)
    sizes = [path.stat().st_size for path in [*folder.glob("checkpoint*.pt"), *partial]]
    free = shutil.disk_usage(folder).free
    if free < max(sizes, default=1 << 20):
        for path in partial:
            path.unlink()
        raise InputError(
            f"{folder}: no space left on the disk for a checkpoint ({free / 1e6:,.0f} MB free); make room and rerun "
            "the same command, which resumes from the newest good checkpoint"
        )
