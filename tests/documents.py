"""The code blocks of README.md, CONTRIBUTING.md and docs/, as the tests of the documentation read them."""

import re
from pathlib import Path
from typing import List, NamedTuple

from conftest import ROOT

PAGES = [
    *(ROOT / "docs" / name for name in ("corpus.md", "getting-started.md", "analysis.md", "ranking.md")),
    ROOT / "README.md",
    *(ROOT / "docs" / name for name in ("fairseq.md", "variants.md", "performance.md", "results.md", "wmt.md")),
]
PAGES += sorted({*(ROOT / "docs").glob("*.md"), ROOT / "CONTRIBUTING.md"} - set(PAGES))

# the marks of a block in the comment above it
MARKS = ("run", "parse", "run elsewhere, ", "needs the internet", "needs a GPU")

_BLOCK = re.compile(
    r"(?:<!-- (?P<kind>sh|py): (?P<mark>[^>]*) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)


class Block(NamedTuple):
    """A fenced block: its page, its language, the comment above it (None where there is none), and its text."""

    page: Path
    line: int
    language: str
    mark: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def commands(self) -> List[str]:
        """Return the command lines of a block of shell, with continued lines joined, without comments and variables."""
        joined = self.text.replace("\\\n", " ")
        lines = (re.sub(r"(^|\s)#.*$", "", line).strip() for line in joined.splitlines())
        return [re.sub(r"^(?:[A-Z_]+=\S+ +)+", "", line) for line in lines if line]


def blocks(page: Path) -> List[Block]:
    """Return every fenced block of a page."""
    content = page.read_text(encoding="utf-8")
    return [
        Block(page, content.count("\n", 0, found.start()) + 1, found["language"], found["mark"], found["text"])
        for found in _BLOCK.finditer(content)
    ]
