"""A data folder while it is being made, and the progress of its steps."""

import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, Callable, Iterator, List, NamedTuple, Sequence

from tqdm import tqdm

from ..files.outputs import write_whole
from .settings import Settings

BLOCK = 2000  # lines that a process works on at once


class Draft(NamedTuple):
    """A data folder while it is being made.

    Attributes:
        path: the folder.
        settings: how to prepare the text.
        workers: number of processes.
    """

    path: Path
    settings: Settings
    workers: int

    def text(self, split: str) -> List[Path]:
        """Return the files of the tokens of both sides."""
        return [self.path / "text" / f"{split}.{lang}" for lang in self.settings.languages]

    def bpe(self, split: str) -> List[Path]:
        """Return the files of the BPE pieces of both sides."""
        return [self.path / "bpe" / f"{split}.{lang}" for lang in self.settings.languages]


@contextmanager
def write_sides(paths: Sequence[Path]) -> Iterator[List[IO[Any]]]:
    """Yield a file for the bytes of each side; the files appear complete when the context ends."""
    with ExitStack() as stack:
        yield [stack.enter_context(write_whole(path, "wb")) for path in paths]


def encode_lines(lines: Sequence[str]) -> bytes:
    """Return lines as UTF-8, each with its LF."""
    return "".join(line + "\n" for line in lines).encode("utf-8")


@contextmanager
def progress(what: str, unit: str) -> Iterator[Callable[[int], None]]:
    """Yield a callback that advances the progress bar by n; print a line with the speed at the end."""
    start = time.monotonic()
    with tqdm(desc=what, unit=f" {unit}", unit_scale=True, disable=None, leave=False) as bar:
        done: List[int] = []

        def advance(more: int) -> None:
            done.append(more)
            bar.update(more)

        yield advance
    print_speed(what, sum(done), unit, start)


def print_speed(what: str, done: int, unit: str, start: float) -> None:
    """Print how much was done since ``start``, a time of ``time.monotonic``."""
    seconds = max(time.monotonic() - start, 1e-3)
    print(f"{what}: {done:,} {unit} in {seconds:.1f} s, {done / seconds:,.0f} a second", flush=True)
