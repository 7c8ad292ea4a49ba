"""Server-sent events, as they come over a connection."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from service.client.errors import ApiError, ServiceUnreachable


class Numbered(Protocol):
    """A message of a stream that can be gone on with."""

    @property
    def id(self) -> int: ...


Message = TypeVar("Message", bound=Numbered)


class StreamOver(Exception):
    """There is nothing more to come."""


def followed(
    connect: Callable[[int | None], Iterator[Message | None]], *, after: int | None, give_up_seconds: float
) -> Iterator[Message]:
    """The messages of a stream. A lost connection is made again, without losing or repeating any.

    Args:
        connect: the messages after one with this id, None first, once it is connected; raises `StreamOver` at the end.
        give_up_seconds: without the service for so long, its error is raised.

    Raises:
        ApiError, ServiceUnreachable
    """
    pause, silent_since = 0.5, time.monotonic()
    while True:
        try:
            for message in connect(after):
                if message is None:
                    pause, silent_since = 0.5, time.monotonic()
                    continue
                after, silent_since = message.id, time.monotonic()
                yield message
        except StreamOver:
            return
        except (ServiceUnreachable, ApiError) as error:
            lost_for_good = isinstance(error, ApiError) and error.status < 500
            if lost_for_good or time.monotonic() - silent_since > give_up_seconds:
                raise
        time.sleep(pause)
        pause = min(2 * pause, 5.0)


def sse_messages(chunks: Iterator[bytes]) -> Iterator[tuple[str, str]]:
    """(event, data) of a stream of server-sent events; comments and messages without data are passed over."""
    event, data = "message", list[str]()
    for line in _lines(chunks):
        if not line:
            if data:
                yield event, "\n".join(data)
            event, data = "message", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            event = value
        elif field == "data":
            data.append(value)


def _lines(chunks: Iterator[bytes]) -> Iterator[str]:
    """Lines that end in a line feed. `str.splitlines` would split at U+2028 too, which JSON text may hold."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r").decode()
