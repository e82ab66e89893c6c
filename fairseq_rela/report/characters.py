"""Make the text of a corpus safe to show, to write, and to use in file names."""

import unicodedata
from typing import Any


def visible(text: str) -> str:
    """Return text with invisible characters, such as line breaks and U+2028, written as escapes."""
    return "".join(
        character if not unicodedata.category(character).startswith(("C", "Zl", "Zp")) else f"\\u{ord(character):04x}"
        for character in text
    )


def writable(text: Any) -> str:
    """Return text with lone surrogates replaced, which JSON can contain but UTF-8 cannot."""
    return str(text).encode("utf-8", "replace").decode()


def file_name(text: str) -> str:
    """Return text with everything but ASCII letters, digits, ``-`` and ``_`` replaced by ``_``."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in text)
