"""Pages of lists: an opaque token says after which item the next page begins."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from fastapi import Query

from service.api.request_body import check_storable
from service.errors import InvalidInput
from service.store.repositories import Place

Row = TypeVar("Row")

DEFAULT_PAGE_SIZE = 50
"""Items, by judgement: some screens full."""
MAX_PAGE_SIZE = 200
"""Items, by judgement: a page is read in one transaction and held in memory whole."""
LARGEST_INT = 2**31 - 1
"""Largest number that a column of PostgreSQL's type INTEGER holds."""
LARGEST_BIGINT = 2**63 - 1
"""Largest number that one of type BIGINT holds, as ids of events and of output are."""

PageSize = Annotated[int, Query(ge=1, le=MAX_PAGE_SIZE, description="Items per page, at most.")]
PageToken = Annotated[
    str | None, Query(max_length=2000, description="`next_page_token` of the page before, with the same filters.")
]


NOT_OURS = InvalidInput("page_token", "is not a token that this list gave")


def encode_token(kind: str, value: str | int) -> str:
    return base64.urlsafe_b64encode(f"{kind}:{value}".encode()).decode().rstrip("=")


def decode_token(kind: str, token: str) -> str:
    """The value that `encode_token` was given.

    Raises:
        InvalidInput: this list gave no such token.
    """
    try:
        text = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        text = ""
    found, separator, value = text.partition(":")
    if found != kind or not separator:
        raise NOT_OURS
    return value


def encode_place(kind: str, place: Place) -> str:
    value = place.value.isoformat() if isinstance(place.value, datetime) else place.value
    return encode_token(kind, json.dumps([value, place.tie], ensure_ascii=False))


def decode_place(kind: str, token: str, *value_types: type, tie_type: type = str) -> Place:
    """The place that `encode_place` was given, in an order by values of these types, or of none.

    Raises:
        InvalidInput: this list gave no such token.
    """
    try:
        found: Any = json.loads(decode_token(kind, token))
        check_storable(found)
        value, tie = found
        if value is not None and value_types == (datetime,):
            value = datetime.fromisoformat(value)
            if value.tzinfo is None:
                raise NOT_OURS
        elif value is not None:
            value = _of_type(value, *value_types)
        return Place(value, _of_type(tie, tie_type))
    except (ValueError, TypeError, RecursionError, InvalidInput):
        raise NOT_OURS from None


def _of_type(value: Any, *kinds: type) -> Any:
    """`value`, if it is of one of the types and the database can hold it. Raises: ValueError."""
    if issubclass(kinds[0], StrEnum):
        return kinds[0](value)
    if type(value) not in kinds or (type(value) is int and not -LARGEST_INT <= value <= LARGEST_INT):
        raise ValueError(f"{value!r} is none of {kinds}")
    return value


def decode_number(kind: str, token: str) -> int:
    """`decode_token` of a number. Raises: InvalidInput."""
    value = decode_token(kind, token)
    if not (value.isascii() and value.isdecimal()) or int(value[:20]) > LARGEST_INT:
        raise NOT_OURS
    return int(value)


def cut(rows: Sequence[Row], page_size: int, token_of: Callable[[Row], str]) -> tuple[Sequence[Row], str | None]:
    """A page and the next page's token, from rows that were asked for with a limit of `page_size + 1`."""
    if len(rows) <= page_size:
        return rows, None
    return rows[:page_size], token_of(rows[page_size - 1])
