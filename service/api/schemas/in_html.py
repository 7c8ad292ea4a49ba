"""Answers as HTML, for a notebook that shows them. Texts of users are escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape


def shown(title: str, lines: Sequence[str], *, code: str | None = None) -> str:
    """A title, a list of sentences, and code that is folded away."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    folded = "" if code is None else f"<details><summary>Python to paste</summary><pre>{escape(code)}</pre></details>"
    return f"<div><h4>{escape(title)}</h4><ul>{items}</ul>{folded}</div>"


def table(title: str, rows: Mapping[str, object]) -> str:
    """A title, and a row for each name and value."""
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in rows.items())
    return f"<div><h4>{escape(title)}</h4><table>{cells}</table></div>"
