"""The folder of the drawn figures of a page, which is replaced together with the page."""

import base64
import shutil
import struct
from contextlib import contextmanager
from pathlib import Path
from typing import Dict, Iterator, NamedTuple, Optional, Sequence, Tuple

from ..errors import InputError
from ..files.locks import only_process
from ..files.outputs import work_folder, write_whole
from ..files.records import read_json, write_json
from . import plots
from .figure import Figure
from .groups import Group

FORMAT = 1
INDEX = "figures.json"
_SVG_BYTES = 100_000  # a figure with a larger SVG is shown as PNG, which is then smaller


class Drawn(NamedTuple):
    """A drawn figure, its files (name to content), and the group of runs that it shows, if any."""

    figure: Figure
    files: Dict[str, bytes]
    group: Optional[Group] = None

    @property
    def address(self) -> str:
        """The picture as a ``data:`` address."""
        kind, content = "svg+xml", self.files[f"{self.figure.name}.svg"]
        if len(content) > _SVG_BYTES:
            kind, content = "png", self.files[f"{self.figure.name}.png"]
        return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"

    @property
    def size(self) -> Tuple[int, int]:
        """Width and height in pixels; a page that states them does not move while it loads."""
        return struct.unpack(">II", self.files[f"{self.figure.name}.png"][16:24])


def draw(figure: Figure, measured_on: str, group: Optional[Group] = None) -> Drawn:
    """Draw a figure as PNG and SVG, and write its numbers as JSON and CSV."""
    drawing = figure.draw()
    files = {f"{figure.name}.{kind}": plots.render(drawing, kind) for kind in ("png", "svg")}
    files[f"{figure.name}.json"] = figure.as_json(measured_on).encode()
    files[f"{figure.name}.csv"] = figure.as_csv().encode()
    return Drawn(figure, files, group)


def refuse_foreign_files(folder: Path) -> None:
    """Check that all files of a folder were written by an earlier report, so that it can be replaced.

    Raises:
        InputError: it holds another file, or is not a folder.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"{folder} is a file, but the figures need a folder of this name; give another --output")
    index = read_json(folder / INDEX) if (folder / INDEX).is_file() else {}
    known = {INDEX, *(index.get("files", []) if isinstance(index, dict) else [])}
    foreign = sorted(path.name for path in folder.iterdir() if path.name not in known)
    if foreign:
        raise InputError(f"{folder} holds {foreign[0]}, which no report wrote; give another --output")


def write_pages(pages: Dict[Path, str], folder: Path, drawn: Sequence[Drawn]) -> None:
    """Replace pages and the folder of their figures; if that fails, the old folder stays.

    Args:
        pages: file to content; the first of them is named in the folder's index.
        folder: the folder of the figures.
        drawn: the figures.

    Raises:
        InputError: an output cannot be written, or another process is writing it.
    """
    page = next(iter(pages))
    with only_process(page), _replaced(folder):
        with work_folder(folder) as work:
            files = {name: content for one in drawn for name, content in one.files.items()}
            for name, content in files.items():
                (work / name).write_bytes(content)
            write_json(work / INDEX, {"format": FORMAT, "page": page.name, "files": sorted(files)})
        for path, text in pages.items():
            with write_whole(path) as file:
                file.write(text)


@contextmanager
def _replaced(folder: Path) -> Iterator[None]:
    """Move the old folder away, delete it when the context ends, and restore it after an exception."""
    old = folder.with_name(f".{folder.name}.old")
    if old.exists() and not folder.exists():  # an earlier call was killed before it restored the folder
        old.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        if old.exists():
            old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)
