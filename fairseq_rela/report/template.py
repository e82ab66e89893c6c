"""Fill the templates of the pages. All text is escaped, so that the content of a corpus cannot break the markup."""

import base64
import hashlib
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from .characters import visible
from .table import number, percent

STYLE_SHEET = Path(__file__).with_name("report.css")  # shared by all pages


def read_assets(*paths: Path) -> Markup:
    """Return style sheets or scripts as one string, which a template does not escape."""
    return Markup("".join(path.read_text(encoding="utf-8") for path in paths))


def fill(template: Path, **values: Any) -> str:
    """Return a page.

    The template can extend and import those beside it and those of the report. In it, text is escaped and its
    invisible characters are written as escapes (see :func:`visible`); an unknown name is an error.

    Args:
        template: the template file.
        values: the names that the template uses.
    """
    environment = Environment(
        loader=FileSystemLoader([template.parent, Path(__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(number=number, percent=percent, policy_hash=_policy_hash)
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment.get_template(template.name).render(values)


def _shown(value: Any) -> Any:
    return value if isinstance(value, Markup) else visible(str(value))


def _policy_hash(content: str) -> str:
    """Return the hash by which a Content-Security-Policy allows an inline style or script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
