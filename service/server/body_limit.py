"""Refuses request bodies that are too large with 413, whether their length is declared or turns out, and those that
do not come in time with 408."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.problems import BodyTooLarge, BodyTooSlow, too_large

BODY_SECONDS = 20.0
"""From a request's headers to the last byte of its body."""


class BodyLimit:
    """ASGI middleware. FastAPI's own `max_body_size` answers in plain text where the length is declared."""

    def __init__(self, app: ASGIApp, max_bytes: int, max_seconds: float) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._max_seconds = max_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > self._max_bytes:
            await too_large(self._max_bytes, instance=scope["path"])(scope, receive, send)
            return
        received, is_whole, answered = 0, False, asyncio.Event()
        deadline = asyncio.get_running_loop().time() + self._max_seconds

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
                raise BodyTooSlow(self._max_seconds) from None
            is_whole = not message.get("more_body", False)
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                raise BodyTooLarge(self._max_bytes)
            return message

        async def noted(message: Message) -> None:
            answered.set()
            await send(message)

        await self._app(scope, counted, noted)
