"""Server-sent events, as they come over a connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from service.client.errors import ApiError, ServiceUnreachable


class Numbered(Protocol):
    """A message of a stream that can be gone on with."""

    @property
    def id(self) -> int: ...


Message = TypeVar("Message", bound=Numbered)


class StreamOver(Exception):
    """There is nothing more to come."""


class Reconnection:
    """The state of a broken stream: when it is connected again, and after which message."""

    def __init__(self, *, after: int | None, give_up_seconds: float) -> None:
        self.after = after
        """The id of the last message; None: there was none."""
        self._give_up_seconds = give_up_seconds
        self.connected()

    def connected(self) -> None:
        """Takes in that the service answers."""
        self._pause, self._silent_since = 0.5, time.monotonic()

    def took(self, message_id: int) -> None:
        """Takes in that a message has come."""
        self.after, self._silent_since = message_id, time.monotonic()

    def lost(self, error: ServiceUnreachable | ApiError) -> None:
        """Raises the error if the stream is not to be connected again."""
        lost_for_good = isinstance(error, ApiError) and error.status < 500
        if lost_for_good or time.monotonic() - self._silent_since > self._give_up_seconds:
            raise error

    def next_pause(self) -> float:
        """Seconds to wait before it is connected again."""
        pause = self._pause
        self._pause = min(2 * pause, 5.0)
        return pause


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
    stream = Reconnection(after=after, give_up_seconds=give_up_seconds)
    while True:
        try:
            for message in connect(stream.after):
                if message is None:
                    stream.connected()
                    continue
                stream.took(message.id)
                yield message
        except StreamOver:
            return
        except (ServiceUnreachable, ApiError) as error:
            stream.lost(error)
        time.sleep(stream.next_pause())


async def followed_later(
    connect: Callable[[int | None], AsyncIterator[Message | None]], *, after: int | None, give_up_seconds: float
) -> AsyncIterator[Message]:
    """The messages of `followed`, awaited."""
    stream = Reconnection(after=after, give_up_seconds=give_up_seconds)
    while True:
        try:
            async for message in connect(stream.after):
                if message is None:
                    stream.connected()
                    continue
                stream.took(message.id)
                yield message
        except StreamOver:
            return
        except (ServiceUnreachable, ApiError) as error:
            stream.lost(error)
        await asyncio.sleep(stream.next_pause())


class SseParser:
    """Server-sent events out of the pieces of a connection; comments and messages without data are passed over."""

    def __init__(self) -> None:
        self._rest = b""
        self._event = "message"
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[tuple[str, str]]:
        """(event, data) of the messages that end in this piece."""
        # Lines end in a line feed: `str.splitlines` would split at U+2028 too, which JSON text may hold.
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            text = line.removesuffix(b"\r").decode()
            if not text:
                if self._data:
                    yield self._event, "\n".join(self._data)
                self._event, self._data = "message", []
                continue
            field, _, value = text.partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                self._event = value
            elif field == "data":
                self._data.append(value)


def sse_messages(chunks: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """(event, data) of a stream of server-sent events."""
    parser = SseParser()
    for chunk in chunks:
        yield from parser.feed(chunk)
