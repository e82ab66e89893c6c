"""Write the results of a study between its markers in README.md and docs/results.md."""

from pathlib import Path
from typing import Any, Dict, List, Optional

from ..errors import InputError
from ..files.outputs import write_whole
from . import tables

# file, and the kind of Markdown that it shows
DOCUMENTS = (("README.md", "short"), ("docs/results.md", ""), ("docs/results.md", "rows"))
KINDS = {"": tables.full, "short": tables.short, "rows": tables.rows}


def fill_documents(study: Dict[str, Any], root: Path) -> List[Path]:
    """Write the study's Markdown between its markers in the :data:`DOCUMENTS`, and return the files that changed.

    Documents without the markers of this study stay as they are.

    Args:
        study: the content of ``study.json``.
        root: the folder of the documents, a checkout.

    Raises:
        InputError: a document has a marker twice, or the end before the beginning.
    """
    changed = []
    for name, kind in DOCUMENTS:
        path = root / name
        old = path.read_text(encoding="utf-8") if path.is_file() else ""
        if between(old, study["study"], kind) is None:
            continue
        new = fill(old, study["study"], kind, KINDS[kind](study))
        if new != old:
            with write_whole(path) as file:
                file.write(new)
            changed.append(path)
    return changed


def markers(name: str, kind: str = "") -> List[str]:
    """Return the comments before and after a study's Markdown in a document; ``kind`` is a key of :data:`KINDS`."""
    middle = f"study:{name}:{kind}" if kind else f"study:{name}"
    return [f"<!-- {middle} begin -->", f"<!-- {middle} end -->"]


def fill(document: str, name: str, kind: str, content: str) -> str:
    """Return a document with the text between the markers of a study replaced by ``content``.

    Raises:
        InputError: the document does not have each marker once, in this order.
    """
    begin, end = markers(name, kind)
    places = document.find(begin), document.find(end)
    if document.count(begin) != 1 or document.count(end) != 1 or places[0] > places[1]:
        raise InputError(
            f"the document needs {begin} and, after it, {end}, once each; write both on lines of their own"
        )
    return f"{document[: places[0] + len(begin)]}\n{content}\n{document[places[1] :]}"


def between(document: str, name: str, kind: str = "") -> Optional[str]:
    """Return the text between the markers of a study, or None if the document lacks them."""
    begin, end = markers(name, kind)
    if begin not in document or end not in document:
        return None
    return document.split(begin, 1)[1].split(end, 1)[0].strip("\n")
