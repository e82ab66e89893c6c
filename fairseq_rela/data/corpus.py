"""The raw files of a task, and what is checked before they are read."""

import gzip
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from ..corpora.spec import SPLITS, Expected
from ..errors import InputError
from ..files.lines import count_lines, read_lines
from ..files.outputs import refuse_small_disk
from ..files.plain_text import refuse_not_text
from ..files.records import sha256
from .settings import Settings

_DISK = 3.0  # bytes of a data folder per byte of raw text, rounded up
_SPEED, _SPEED_OF_JIEBA = 1e6, 0.5e6  # bytes of raw text per second and core
_UNPACKED = 3.5  # bytes of text per byte of .gz


@dataclass
class Corpus:
    """The raw files of a task.

    Attributes:
        files: for each split (``train``, ``valid``, ``test``), its source and target file, plain or ``.gz``.
        expected: for each split, the number of pairs that it must have, if known.
        kept: the number of training pairs that must be left after cleaning, if known.
        subsets: for each subset of the test set that gets its own score, a file of the numbers of its lines, from 0.
    """

    files: Dict[str, Tuple[Path, Path]]
    expected: Dict[str, int] = field(default_factory=dict)
    kept: Optional[Expected] = None
    subsets: Dict[str, Path] = field(default_factory=dict)

    def checksums(self, languages: Tuple[str, str], workers: int) -> Dict[str, Dict[str, str]]:
        """Return the checksums of the files by split and file name, or ``LANG:NAME`` if both sides have one name.

        Raises:
            InputError: a split has no files, a file is missing, or a file of a subset has other lines than numbers of
                the test set, each once.
        """
        for split in SPLITS:
            if split not in self.files:
                raise InputError(f"no files for the {split} set; give --{split}")
        for split, files in self.files.items():
            for path in files:
                if not path.is_file():
                    raise InputError(f"{path}: no such file (the {split} set)")
        subsets = list(self.subsets.values())
        found = checksums([path for files in [*self.files.values(), subsets] for path in files], workers)
        inputs = {}
        for split, files in self.files.items():
            same = files[0].name == files[1].name
            names = [f"{lang}:{path.name}" if same else path.name for lang, path in zip(languages, files)]
            inputs[split] = {name: found[path] for name, path in zip(names, files)}
        for path in subsets:
            _check_subset(path, self.files["test"][0])
        return {**inputs, "subsets": {path.name: found[path] for path in subsets}} if subsets else inputs

    def refuse_not_text(self) -> None:
        """Raise if a file is not plain text, see :func:`.plain_text.refuse_not_text`."""
        for files in self.files.values():
            for path in files:
                refuse_not_text(path)

    def print_needs(self, settings: Settings, folder: Path, workers: int) -> None:
        """Print about how long the data take to make and how large they will be.

        Raises:
            InputError: the disk of ``folder`` is too small.
        """
        packed = {path: path.suffix == ".gz" for files in self.files.values() for path in files}
        size = sum(path.stat().st_size * (_UNPACKED if gz else 1) for path, gz in packed.items())
        needed = _DISK * size
        jieba = "zh" in settings.languages and settings.tokeniser != "none" and "train" not in settings.tokenised
        minutes = size / (_SPEED_OF_JIEBA if jieba else _SPEED) / workers / 60
        print(
            f"{size / 1e9:.2f} GB of raw text: about {minutes:.0f} minutes on {workers} cores, "
            f"{needed / 1e9:.1f} GB of disk ({shutil.disk_usage(folder).free / 1e9:.1f} are free)"
        )
        refuse_small_disk(folder, needed)

    def copy_raw(self, folder: Path, languages: Tuple[str, str]) -> None:
        """Copy the dev and test set, decompressed, and the subsets of the test set."""
        folder.mkdir()
        for split in ("valid", "test"):
            for path, lang in zip(self.files[split], languages):
                opener: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
                with opener(path, "rb") as reader, open(folder / f"{split}.{lang}", "wb") as writer:
                    shutil.copyfileobj(reader, writer)
        for name, path in self.subsets.items():
            shutil.copyfile(path, folder / f"test.{name}.lines")


def checksums(paths: List[Path], workers: int) -> Dict[Path, str]:
    """Return the SHA-256 checksum of each file."""
    with ThreadPoolExecutor(workers) as threads:  # hashlib releases the GIL
        return dict(zip(paths, threads.map(sha256, paths)))


def _check_subset(path: Path, test: Path) -> None:
    """Raise if a line is not the number of a line of the test set or repeats one, or the file is empty."""
    size = count_lines(test)
    seen: Set[int] = set()
    for number, line in enumerate(read_lines(path), 1):
        if not re.fullmatch(r"[0-9]{1,9}", line) or int(line) >= size or int(line) in seen:
            raise InputError(
                f"{path}, line {number}: {line!r} is repeated or not the number of a test line, 0 to {size - 1}"
            )
        seen.add(int(line))
    if not seen:
        raise InputError(f"{path}: no lines; remove it, or give numbers of test lines from 0")
