"""Write a study's tables into the documents that show them."""

from pathlib import Path
from typing import Any, Dict, List

from ..files.outputs import write_whole
from . import tables

DOCUMENTS = (("README.md", "short"), ("docs/results.md", ""))


def fill_documents(study: Dict[str, Any], root: Path) -> List[Path]:
    """Write the study's Markdown between its markers in README.md and docs/results.md; return the files that changed.

    Documents without the markers of this study are not changed.
    """
    changed = []
    for name, kind in DOCUMENTS:
        path = root / name
        old = path.read_text(encoding="utf-8") if path.is_file() else ""
        if tables.between(old, study["study"], kind) is None:
            continue
        new = tables.fill(old, study["study"], kind, tables.short(study) if kind else tables.full(study))
        if new != old:
            with write_whole(path) as file:
                file.write(new)
            changed.append(path)
    return changed
