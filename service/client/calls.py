"""Requests as values: what is asked, and how its answer is read. `Client` sends them, and so does `AsyncClient`."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from pydantic import BaseModel

from service.api.schemas.common import Page

Result = TypeVar("Result")
Item = TypeVar("Item")
Read = TypeVar("Read", bound=BaseModel)
Params: TypeAlias = Mapping[str, str | int | Sequence[str]]
IDEMPOTENCY_KEY = "Idempotency-Key"


@dataclass(frozen=True, slots=True)
class Call(Generic[Result]):
    """One request."""

    read: Callable[[bytes], Result]
    """Reads the body of a successful answer. Raises: pydantic.ValidationError."""
    method: str
    path: str
    params: Params = field(default_factory=dict)
    body: object = None
    """JSON-able, but for paths and NumPy's numbers, which are made so; None: there is none."""
    raw: bytes | None = None
    """A body that is no JSON."""
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool | None = None
    """True if it may be sent again when nobody knows what became of it; None: what is read may, and what has an
    idempotency key."""

    @property
    def may_be_repeated(self) -> bool:
        if self.repeatable is not None:
            return self.repeatable
        return self.method == "GET" or IDEMPOTENCY_KEY in self.headers

    @property
    def content(self) -> bytes | None:
        return self.raw if self.body is None else json.dumps(self.body, allow_nan=False, default=_plain).encode()

    @property
    def sent_headers(self) -> Mapping[str, str]:
        return self.headers if self.body is None else {"Content-Type": "application/json", **self.headers}


@dataclass(frozen=True, slots=True)
class Part(Generic[Item]):
    """A page of a list, and the parameters that ask for the next one; None: it is the last."""

    items: Sequence[Item]
    following: Params | None


@dataclass(frozen=True, slots=True)
class Pages(Generic[Item]):
    """A list that comes in pages."""

    read: Callable[[bytes], Part[Item]]
    path: str
    params: Params = field(default_factory=dict)

    def page(self, following: Params | None = None) -> Call[Part[Item]]:
        """The request for a page; None: the first one."""
        return Call(self.read, "GET", self.path, params={**self.params, **(following or {})})


def _plain(value: object) -> object:
    """Makes a path a text, and a number or an array of NumPy or torch one of Python.

    Raises: TypeError: it is something else.
    """
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if (tolist := getattr(value, "tolist", None)) is not None:
        return tolist()
    raise TypeError(f"a request cannot have a {type(value).__name__} in it, got {value!r:.200}")


def reading(schema: type[Read]) -> Callable[[bytes], Read]:
    """Reads an answer that is one object."""
    return lambda content: schema.model_validate_json(content)


def nothing(_content: bytes) -> None:
    """Reads an answer that has no body."""


def page_of(schema: type[Page[Item]]) -> Callable[[bytes], Part[Item]]:
    """Reads a page of a list whose next one has a token."""

    def read(content: bytes) -> Part[Item]:
        page = schema.model_validate_json(content)
        token = page.next_page_token
        return Part(page.items, None if token is None else {"page_token": token})

    return read


def keyed(idempotency_key: str | None) -> dict[str, str]:
    """The header that lets a request be repeated: with the key that is given, or one of its own."""
    return {IDEMPOTENCY_KEY: secrets.token_hex(16) if idempotency_key is None else idempotency_key}


def given(**asked: Any) -> dict[str, Any]:
    """The parameters that are asked for: those that are not None."""
    return {name: value for name, value in asked.items() if value is not None}
