"""Answers HEAD as GET is answered, without the content: FastAPI's routes know only the methods that they name."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Head:
    """ASGI middleware. A stream ends with its headers, as if its reader had left."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        is_answered = False

        async def left() -> Message:
            return {"type": "http.disconnect"} if is_answered else await receive()

        async def send_headers(message: Message) -> None:
            nonlocal is_answered
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b""})
                is_answered = True

        await self._app({**scope, "method": "GET"}, left, send_headers)
