"""Refuses request bodies that are too large with 413, whether their length is declared or turns out, and those that
do not come in time with 408."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.problems import BodyTooLarge, BodyTooSlow, too_large
from service.api.routers import code
from service.code.archive import MAX_SENT_BYTES

BODY_SECONDS = 20.0
"""Longest time from a request's headers to the last byte of its body."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The largest size of a request's body, and the longest time for it."""

    max_bytes: int
    max_seconds: float
    """Time from the headers to the body's last byte."""


LARGER_BODIES = {code.PATH: Limit(MAX_SENT_BYTES, 120.0)}
"""Limits of the requests that send files."""


class BodyLimit:
    """ASGI middleware. FastAPI's own `max_body_size` answers in plain text where the length is declared."""

    def __init__(self, app: ASGIApp, limit: Limit, *, others: Mapping[str, Limit] | None = None) -> None:
        """Wraps `app`.

        Args:
            others: limits of paths that have their own.
        """
        self._app = app
        self._limit = limit
        self._others = others or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._others.get(scope["path"], self._limit)
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > limit.max_bytes:
            await too_large(limit.max_bytes, instance=scope["path"])(scope, receive, send)
            return
        received, is_whole, answered = 0, False, asyncio.Event()
        deadline = asyncio.get_running_loop().time() + limit.max_seconds

        async def counted() -> Message:
            nonlocal received, is_whole
            if is_whole or answered.is_set():  # what comes now is the end of the connection
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                if answered.is_set():
                    return {"type": "http.disconnect"}
                raise BodyTooSlow(limit.max_seconds) from None
            is_whole = not message.get("more_body", False)
            received += len(message.get("body", b""))
            if received > limit.max_bytes:
                raise BodyTooLarge(limit.max_bytes)
            return message

        async def noted(message: Message) -> None:
            answered.set()
            await send(message)

        await self._app(scope, counted, noted)
