"""Table cells of sampled values as HTML: a job's page has thousands, too many for a template to write one by one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from search_spaces import Scalar

MISSING = '<td class="soft">–</td>'


def parameter(value: object) -> str:
    """A parameter's value, short enough for a table."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value)


def asked(value: Scalar) -> str:
    """A parameter's value as those who look for it in a list name it."""
    return value if isinstance(value, str) else json.dumps(value)


def parameter_cells(parameters: Mapping[str, Any], names: Sequence[str]) -> Markup:
    """A cell for each of the names: its value, and where that is longer than is shown, the whole of it as a title."""
    return Markup("".join([_cell(parameters[name]) if name in parameters else MISSING for name in names]))


def _cell(value: object) -> str:
    whole, shown = str(value), parameter(value)
    if not isinstance(value, (int, float)):  # nothing in a number needs an escape
        whole, shown = str(escape(whole)), str(escape(shown))
    return f"<td>{shown}</td>" if whole == shown else f'<td title="{whole}">{shown}</td>'
