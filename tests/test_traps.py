"""The table of traps has a row for each trap, and names tests that exist."""

import re

import pytest
from conftest import ROOT, SHARED

TABLE = (ROOT / "tests" / "TRAPS.md").read_text(encoding="utf-8")
ROWS = [line for line in TABLE.splitlines() if line.startswith("| ") and "`" in line.rpartition("|")[0]]


def named_in(row):
    """Return (file, test) for each name in the last column; a name without file belongs to the file before it."""
    named, module = [], None
    for file, test in re.findall(r"`(\w+\.py)?::(\w+)`", row.split(" | ")[-1]):
        module = file or module
        named.append((module, test))
    return named


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:20])
def test_every_trap_has_tests_that_exist(row):
    named = named_in(row)
    assert named
    # the column contains only tests, by file and function
    assert row.split(" | ")[-1].strip(" |").count("`") == 2 * len(named)
    for module, test in named:
        assert re.search(rf"^def {test}\(", (ROOT / "tests" / module).read_text(encoding="utf-8"), re.M), (module, test)


def test_every_trap_is_listed_once():
    wanted = [*range(1, 16), *range(17, 23), *range(26, 34), *range(35, 41), 42, 43, 45, 46, *range(48, 51)]
    assert re.findall(r"^\| (B\d+) \|", TABLE, re.M) == [f"B{n:02d}" for n in wanted]
    if (SHARED / "TRAPS.md").is_file():
        headings = re.findall(r"^### (B\d+)", (SHARED / "TRAPS.md").read_text(encoding="utf-8"), re.M)
        assert [f"B{n:02d}" for n in wanted] == headings
