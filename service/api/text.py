"""Refuses what JSON can say and the store cannot keep, before anything else looks at a request body."""

from __future__ import annotations

import math
import re

from service.errors import InvalidInput

MAX_DEPTH = 32
"""Levels of arrays and objects in a request body; a job needs about seven."""

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def join_field(path: str, part: str | int) -> str:
    """The field `part` of the field `path`: `a` and `b` give `a.b`, and with an index `a[0]`."""
    if isinstance(part, int):
        return f"{path}[{part}]"
    if not _PLAIN_NAME.fullmatch(part):
        return f"{path}[{part[:80]!a}]"
    return f"{path}.{part}" if path else part


def check_storable(value: object, field: str = "", depth: int = 0) -> None:
    """Checks a decoded JSON value for NUL characters, lone surrogates, NaN, infinities and excessive nesting.

    PostgreSQL's text holds no NUL, UTF-8 no lone surrogates, and JSON itself no NaN.

    Raises:
        InvalidInput: names the first offending field.
    """
    if depth > MAX_DEPTH:
        raise InvalidInput(field or "body", f"is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, str):
        problem = _text_problem(value)
        if problem:
            raise InvalidInput(field or "body", problem)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInput(field or "body", f"must be a finite number, got {value}")
    elif isinstance(value, dict):
        for key, item in value.items():
            problem = _text_problem(key)
            if problem:
                raise InvalidInput(join_field(field, key), f"the name {problem}")
            check_storable(item, join_field(field, key), depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            check_storable(item, join_field(field, index), depth + 1)


def _text_problem(text: str) -> str | None:
    if "\0" in text:
        return "must not contain the NUL character"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "must be valid Unicode: it contains half of a surrogate pair"
    return None
