"""Pages of lists: an opaque token says after which item the next page begins."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from fastapi import Query

from service.errors import InvalidInput

Row = TypeVar("Row")

DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 200
LARGEST_INT = 2**31 - 1
LARGEST_BIGINT = 2**63 - 1

PageSize = Annotated[int, Query(ge=1, le=MAX_PAGE_SIZE, description="Items per page, at most.")]
PageToken = Annotated[
    str | None, Query(max_length=200, description="`next_page_token` of the page before, with the same filters.")
]


def encode_token(kind: str, value: str | int) -> str:
    return base64.urlsafe_b64encode(f"{kind}:{value}".encode()).decode().rstrip("=")


def decode_token(kind: str, token: str) -> str:
    """The value that `encode_token` was given.

    Raises:
        InvalidInput: this list gave no such token.
    """
    try:
        text = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        text = ""
    found, separator, value = text.partition(":")
    if found != kind or not separator or (not value.isalnum() and not value.replace("_", "").isalnum()):
        raise InvalidInput("page_token", "is not a token that this list gave")
    return value


def decode_number(kind: str, token: str) -> int:
    """`decode_token` of a number. Raises: InvalidInput."""
    value = decode_token(kind, token)
    if not value.isdecimal() or int(value[:20]) > LARGEST_INT:
        raise InvalidInput("page_token", "is not a token that this list gave")
    return int(value)


def cut(rows: Sequence[Row], page_size: int, token_of: Callable[[Row], str]) -> tuple[Sequence[Row], str | None]:
    """A page and the next page's token, from rows that were asked for with a limit of `page_size + 1`."""
    if len(rows) <= page_size:
        return rows, None
    return rows[:page_size], token_of(rows[page_size - 1])
