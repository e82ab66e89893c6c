"""Show the progress of a training: size of an update, disk space, remaining time, and one line per epoch."""

import re
import shutil
import time
from pathlib import Path
from typing import Dict, Optional

from tqdm import tqdm

_SETTINGS = re.compile(
    r"'(max_update|max_tokens|distributed_world_size|keep_interval_updates|keep_last_epochs)': (-?\d+)"
)
_FREQUENCY = re.compile(r"'update_freq': \[(\d+)\]")
_PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+)")
_UPDATE = re.compile(r"\bloss=(\S+), .*\bups=([\d.]+), .*\bnum_updates=(\d+)")
_EPOCH = re.compile(r"epoch 0*(\d+) \| loss (\S+) .* ppl (\S+) \| wps (\S+) .* num_updates (\d+) ")
_BYTES_A_PARAMETER = 12  # weight and two moments of Adam, float32
_GIGA = 1e9


class TrainingProgress:
    """Function that takes a line of fairseq-train's log and returns the text to print for it, or None.

    In a terminal, a progress bar shows the updates and the remaining time.

    Args:
        folder: the folder of the checkpoints, whose free disk space is reported.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._settings: Dict[str, int] = {}
        self._bar: Optional[tqdm] = None
        self._told_time = False

    def __call__(self, line: str) -> Optional[str]:
        if "'optimization': {" in line and not self._settings:  # fairseq prints its whole configuration in one line
            self._settings = {key: int(value) for key, value in _SETTINGS.findall(line)}
            frequency = _FREQUENCY.search(line)
            self._settings["update_freq"] = int(frequency.group(1)) if frequency else 1
            return None
        parameters = _PARAMETERS.search(line)
        if parameters:
            return f"{line.strip()}\n{self._cost(int(parameters.group(1).replace(',', '')))}"
        epoch = _EPOCH.match(line)
        if epoch:
            number, loss, perplexity, speed, updates = epoch.groups()
            updates = f"{int(updates):,}"
            return f"epoch {number:>3} | update {updates:>7} | loss {loss} | perplexity {perplexity} | {speed} words/s"
        update = _UPDATE.search(line)
        if update:
            return self._time(update.group(1), float(update.group(2)), int(update.group(3)))
        return line.strip() if line.startswith("attention:") else None

    def close(self) -> None:
        """Close the progress bar."""
        if self._bar is not None:
            self._bar.close()

    def _cost(self, parameters: int) -> str:
        """Return the number of target tokens in an update and the disk space of all checkpoints, in GB (1e9 bytes)."""
        size = parameters * _BYTES_A_PARAMETER / _GIGA
        kept = sum(max(self._settings.get(key, 0), 0) for key in ("keep_interval_updates", "keep_last_epochs"))
        needed = size * (kept + 3)  # best, last, and the one being written
        free = shutil.disk_usage(self._folder).free / _GIGA
        text = f"checkpoints: up to {kept + 2} of {size:.2f} GB, {needed:.1f} GB in all; {free:.1f} GB are free"
        if needed > free:
            text += ": TOO LITTLE; make room, or lower checkpoint.keep_last_epochs"
        tokens, frequency, devices = (
            self._settings.get(key, 0) for key in ("max_tokens", "update_freq", "distributed_world_size")
        )
        if tokens:
            devices = max(devices, 1)
            text = (
                f"an update: at most {tokens * frequency * devices:,} target tokens "
                f"({tokens:,} x {frequency} batches x {devices} devices)\n{text}"
            )
        return text

    def _time(self, loss: str, speed: float, updates: int) -> Optional[str]:
        planned = self._settings.get("max_update", 0)
        if planned <= 0:
            return None
        if self._bar is None:
            self._bar = tqdm(total=planned, initial=updates, desc="updates", unit=" updates", disable=None)
        self._bar.set_postfix(loss=loss, refresh=False)
        self._bar.update(updates - self._bar.n)
        if self._told_time or speed <= 0:
            return None
        self._told_time = True
        seconds = (planned - updates) / speed
        end = time.strftime("%Y-%m-%d %H:%M", time.localtime(time.time() + seconds))
        return f"update {updates:,} of {planned:,}; at {speed:g} updates/s {_duration(seconds)} remain, until {end}"


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"
