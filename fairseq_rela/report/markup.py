"""Build HTML in which all text is escaped, so that no content can break the markup."""

import html
import json
from pathlib import PurePath
from typing import Any, Iterable, Union

from .characters import visible

_VOID = ("br", "img", "input", "meta", "rect")


class Html(str):
    """A string that is HTML already and is not escaped again."""


Content = Union[str, int, PurePath, Iterable[Any], None]


def text(content: Content) -> str:
    """Return content as HTML: text is escaped, :class:`Html` is kept, and the items of an iterable are joined.

    Invisible characters are written as escapes, see :func:`fairseq_rela.report.plots.visible`.
    """
    if content is None:
        return ""
    if isinstance(content, Html):
        return str(content)
    if isinstance(content, (str, int, PurePath)):
        return html.escape(visible(str(content)))
    return "".join(map(text, content))


def element(name: str, /, *content: Content, **attributes: Any) -> Html:
    """Return an HTML element, as in ``element("td", "<", class_="n")``.

    Args:
        name: name of the element.
        content: content of the element, see :func:`text`.
        attributes: attributes of the element. A final ``_`` is removed, other ``_`` become ``-``. True gives an
            attribute without a value; None and False give no attribute.
    """
    given = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{html.escape(visible(str(value)))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Html(f"<{name}{given}>" if name != "rect" else f"<rect{given}></rect>")
    return Html(f"<{name}{given}>{text(content)}</{name}>")


def embedded_json(value: Any) -> Html:
    """Return a value as JSON for a script element, without characters that end the element or break a line."""
    content = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        content = content.replace(character, f"\\u{ord(character):04x}")
    return Html(content)
