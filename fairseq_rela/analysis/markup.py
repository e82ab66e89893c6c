"""Markup that cannot be broken by its content: all that is not markup already is escaped."""

import html
import json
from pathlib import PurePath
from typing import Any, Iterable, Union

from .plots import visible

_VOID = ("br", "img", "input", "meta", "rect")


class Html(str):
    """Text that is markup."""


Content = Union[str, int, PurePath, Iterable[Any], None]


def text(content: Content) -> str:
    """Markup as it is, other text escaped, several of them one after the other; what cannot be seen is made visible."""
    if content is None:
        return ""
    if isinstance(content, Html):
        return str(content)
    if isinstance(content, (str, int, PurePath)):
        return html.escape(visible(str(content)))
    return "".join(map(text, content))


def element(name: str, /, *content: Content, **attributes: Any) -> Html:
    """``element("td", "<", class_="n")``; ``data_x`` becomes ``data-x``, True a bare attribute, None and False none."""
    given = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{html.escape(visible(str(value)))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Html(f"<{name}{given}>" if name != "rect" else f"<rect{given}></rect>")
    return Html(f"<{name}{given}>{text(content)}</{name}>")


def embedded_json(value: Any) -> Html:
    """JSON that can stand in a script element: nothing in it ends the element or is a line break to JavaScript."""
    content = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        content = content.replace(character, f"\\u{ord(character):04x}")
    return Html(content)
