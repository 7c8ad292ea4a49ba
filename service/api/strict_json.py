"""Request bodies read strictly: an object that gives a name twice is refused, where Python's reader keeps the last."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from fastapi import Request

from service.errors import InvalidInput


class _RepeatedName(Exception):
    """An object in JSON gives a name twice; not a `ValueError`, as what is no JSON is."""


async def refuse_repeated_names(request: Request) -> None:
    """Refuses JSON that means one thing to one reader and another to the next. The body has been read and is kept.

    Raises:
        InvalidInput: an object in the body has a name twice; names it.
    """
    try:
        with suppress(ValueError, RecursionError):  # no JSON, which is told elsewhere
            json.loads(await request.body(), object_pairs_hook=_unique)
    except _RepeatedName as error:
        raise InvalidInput("body", f"gives the name {str(error)[:80]!a} twice in one object") from None


def _unique(pairs: list[tuple[str, Any]]) -> None:
    seen = set[str]()
    for name, _ in pairs:
        if name in seen:
            raise _RepeatedName(name)
        seen.add(name)
