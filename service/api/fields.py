"""Paths of fields in a request body: from a validation error's location to `a.b[0]`, and from there to the value."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from pydantic import JsonValue, TypeAdapter, ValidationError

from service.api.text import join_field

LARGEST_VALUE = 200
"""Characters of JSON up to which a value is given back with its error."""

_PART = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]|\['([^']*)'\]")
_JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)


def field_of(location: Sequence[str | int], body: object) -> str:
    """The path of a pydantic error's location in `body`, without the names of union members that pydantic puts in."""
    path, node = "", body
    for index, part in enumerate(location):
        last = index == len(location) - 1
        if isinstance(node, Mapping):
            if part in node:
                path, node = join_field(path, part), node[part]
            elif last:
                path = join_field(path, part)  # the field that is missing
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            path, node = join_field(path, part), node[part]
    return path


def value_at(body: object, field: str) -> JsonValue:
    """The value at a path of `body` if it is there and small, else None."""
    node = body
    for name, index, quoted in _PART.findall(field):
        if index and isinstance(node, list) and int(index) < len(node):
            node = node[int(index)]
        elif isinstance(node, Mapping) and (name or quoted) in node:
            node = node[name or quoted]
        else:
            return None
    return small(node)


def small(value: object) -> JsonValue:
    """`value` if it is JSON that can be shown in an error, else None."""
    try:
        text = json.dumps(value, allow_nan=False)
        text.encode()
        if len(text) > LARGEST_VALUE or "\\ud" in text.lower():
            return None
        return _JSON.validate_python(value)
    except (TypeError, ValueError, RecursionError, ValidationError):
        return None
