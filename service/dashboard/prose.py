"""Prose of schemas as HTML: what stands between backticks is code."""

from __future__ import annotations

from markupsafe import Markup, escape


def prose(text: str) -> Markup:
    """The text with `code` for what stands between backticks, all else inert."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one is not closed
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if index % 2 else part for index, part in enumerate(parts)
    )
