"""The record of a training in its folder, by which a run with other settings is refused."""

from pathlib import Path
from typing import Any, Dict

from ..errors import InputError
from ..files.records import read_record, write_json
from .naming import canonical


def is_trained(folder: Path, settings: Dict[str, Any]) -> bool:
    """Return whether the folder holds a finished training with these settings.

    Raises:
        InputError: it holds a finished training with other settings.
    """
    done = folder / "train.json"
    if done.is_file():
        refuse_different(folder, "was trained", read_record(done), settings)
    return done.is_file()


def record_start(folder: Path, settings: Dict[str, Any]) -> None:
    """Record the settings with which a run starts, unless the folder holds checkpoints of another run.

    Raises:
        InputError: the folder holds checkpoints of a run with other settings, or not made by ``rela train``.
    """
    started = folder / "train.started.json"
    begun = any(folder.glob("checkpoint*.pt"))
    if begun and started.is_file():
        refuse_different(folder, "holds a run begun", read_record(started), settings)
    elif begun:
        raise InputError(f"{folder} holds checkpoints that `rela train` did not make; train elsewhere")
    write_json(started, settings)


def refuse_different(folder: Path, what: str, record: Dict[str, Any], settings: Dict[str, Any]) -> None:
    """Raise if the recorded settings of a run differ from the given ones; overrides may be spelled differently.

    Args:
        folder: the run's folder.
        what: a verb phrase for the message, such as ``was trained``.
        record: the recorded settings.
        settings: the given settings.

    Raises:
        InputError: they differ; the message starts with ``folder`` and ``what``.
    """
    old, new = _comparable(record), _comparable(settings)
    different = next((key for key in new if old.get(key) != new[key]), None)
    if different is None:
        return
    names, before, now = different, old.get(different), new[different]
    if isinstance(before, dict) and isinstance(now, dict):
        keys = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
        names += ": " + ", ".join(keys[:3])
    raise InputError(
        f"{folder} {what} with other {names}; remove it, or give another --save-dir (of `rela train`) or --root"
    )


def _comparable(record: Dict[str, Any]) -> Dict[str, Any]:
    """Return a training record with its overrides in canonical form, so that equal settings compare equal."""
    configs = record.get("configs")
    if isinstance(configs, dict):
        record = {**record, "configs": {name: configs[name] for name in configs if not name.startswith("sites/")}}
    overrides = record.get("overrides")
    if isinstance(overrides, list) and all(isinstance(override, str) for override in overrides):
        record = {**record, "overrides": canonical(overrides)}
    return record
