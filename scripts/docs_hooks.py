"""Hooks of mkdocs: show the Sphinx roles of docstrings, such as :math:`...`, as plain code."""

import re
from typing import Any

_ROLE = re.compile(r":(?:math|class|func|mod|meth|data|attr):(?=<code>)")
_FORMULA = re.compile(r"<p>\.\. math:: (.*?)</p>", re.DOTALL)


def on_page_content(html: str, **_: Any) -> str:
    """Return a page's HTML without the names of roles, and with formulas as code."""
    return _FORMULA.sub(r"<p><code>\1</code></p>", _ROLE.sub("", html))
