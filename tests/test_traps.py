"""The table of traps names tests that exist."""

import re

from conftest import ROOT


def test_every_test_in_the_table_exists():
    text = (ROOT / "tests" / "TRAPS.md").read_text()
    named = 0
    for row in text.splitlines():
        module = None
        for file, test in re.findall(r"`(\w+\.py)?::(\w+)`", row):
            module = file or module
            assert re.search(rf"^def {test}\(", (ROOT / "tests" / module).read_text(), re.M), (module, test)
            named += 1
    assert named > 40
    traps = set(re.findall(r"^\| (B\d+) \|", text, re.M))
    wanted = [*range(1, 12), 13, 17, 18, 22, 26, 27, 28, 32, 33, *range(36, 41), 50]
    assert {f"B{n:02d}" for n in wanted} <= traps
