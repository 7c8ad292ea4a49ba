"""JSON for people to read and to copy: indented, with a list of plain values on one line."""

from __future__ import annotations

import json
from collections.abc import Iterable

from pydantic import JsonValue

LONGEST = 100_000
"""Characters of a specification that its page shows, by judgement: those of hundreds of pinned configs."""
_STEP = "  "


def written(value: JsonValue, indent: str = "") -> str:
    """The JSON of a value. `indent` stands before each of its lines but the first."""
    inner = indent + _STEP
    if isinstance(value, dict) and value:
        fields = (f"{json.dumps(name, ensure_ascii=False)}: {written(each, inner)}" for name, each in value.items())
        return _lines("{", fields, "}", indent)
    if isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        return _lines("[", (written(each, inner) for each in value), "]", indent)
    return json.dumps(value, ensure_ascii=False)


def _lines(opening: str, parts: Iterable[str], closing: str, indent: str) -> str:
    inner = f"\n{indent}{_STEP}"
    return f"{opening}{inner}{f',{inner}'.join(parts)}\n{indent}{closing}"
