"""Names each request: by the `X-Request-ID` that it brings, or a new one, which stands in its answer and in its log."""

from __future__ import annotations

import logging
import re
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from ulid import ULID

from service.monitoring.logs import begin_request

HEADER = "X-Request-ID"
_GIVEN = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
"""Ids that are taken as given: those of proxies and tracers, and nothing that needs an escape anywhere."""

logger = logging.getLogger(__name__)


class RequestIds:
    """ASGI middleware, around all others."""

    def __init__(self, app: ASGIApp, *, logs_requests: bool) -> None:
        """Args: logs_requests: whether each answer is a line in the log, when it begins."""
        self._app = app
        self._logs_requests = logs_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        request_id = given if _GIVEN.fullmatch(given) else f"req_{ULID()}"
        scope.setdefault("state", {})["request_id"] = request_id
        begin_request(request_id)
        began = time.perf_counter()

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = request_id
                if self._logs_requests:
                    took = time.perf_counter() - began
                    told = (scope["method"], scope["path"], message["status"], took)
                    logger.info("%s %s: %d in %.3f s", *told)
            await send(message)

        await self._app(scope, receive, named)


def request_id_of(scope: Scope) -> str:
    """The id of a request that came through `RequestIds`."""
    request_id: str = scope["state"]["request_id"]
    return request_id
