"""Times in queries, as RFC 3339 writes them: with their zone, and nothing else that could be taken for one."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, WithJsonSchema

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def _read_moment(text: object) -> datetime:
    """A time in UTC. Raises: ValueError."""
    if not isinstance(text, str) or not _MOMENT.fullmatch(text):
        raise ValueError(f"must be a time with its zone, such as 2026-03-01T12:00:00Z, got {str(text)[:80]!r}")
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text!r} is no time: {error}") from None


Moment: TypeAlias = Annotated[
    datetime, BeforeValidator(_read_moment), WithJsonSchema({"type": "string", "format": "date-time"})
]
"""A number, which pydantic would take for seconds, is none."""
