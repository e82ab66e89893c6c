"""Average the last checkpoints of a run, and record which they are."""

import sys
from pathlib import Path
from typing import Optional

from .. import checkpoints
from ..errors import InputError
from ..files.locks import only_process
from ..files.records import read_json, sha256, write_json


def average_last(folder: Path, number: int, output: Path) -> None:
    """Average the last checkpoints of a run and print which they are.

    Writes a record beside the average, ``OUTPUT.json``. If the record shows the same checkpoints, nothing is written.

    Args:
        folder: the run's folder.
        number: how many checkpoints to average.
        output: the file to write.

    Raises:
        InputError: too few checkpoints, an output without a name, or as :func:`fairseq_rela.checkpoints.average`.
    """
    if not output.name:
        raise InputError(f"--output {output}: give the name of a file to write")
    choice = checkpoints.choose_last(folder, number)
    with only_process(output, "written"):
        _average_chosen(choice, output)


def newest_update(average: Path) -> Optional[int]:
    """Return the newest update in an average, or None if there is none, or it is not the one of its record."""
    path = _record_of(average)
    if not (average.is_file() and path.is_file()):
        return None
    record = read_json(path)
    updates = [checkpoint["updates"] for checkpoint in record["checkpoints"]]
    return max(updates) if record["sha256"] == sha256(average) else None


def _record_of(average: Path) -> Path:
    return average.with_name(f"{average.name}.json")


def _average_chosen(choice: checkpoints.Choice, output: Path) -> None:
    record_path = _record_of(output)
    record = {
        "checkpoints": [{"file": f.path.name, "updates": f.updates, "sha256": sha256(f.path)} for f in choice.chosen],
        "save_interval": choice.interval,
        "missing_updates": choice.missing,
    }
    if output.is_file() and record_path.is_file() and read_json(record_path) == {**record, "sha256": sha256(output)}:
        print(f"{output}: already averaged")
        return
    for found in choice.chosen:
        print(f"update {found.updates:,}: {found.path.name}")
    if choice.missing:
        missing = ", ".join(f"{update:,}" for update in choice.missing)
        print(f"warning: unequal spacing, because update {missing} has no checkpoint", file=sys.stderr)
    checkpoints.average([found.path for found in choice.chosen], output)
    write_json(record_path, {**record, "sha256": sha256(output)})
    print(f"{output}: the mean of {len(choice.chosen)} checkpoints")
