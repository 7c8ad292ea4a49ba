"""Counts how long answers take, by the template of the route."""

from __future__ import annotations

import time
from http import HTTPStatus

from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.monitoring.metrics import Metrics

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER = "other"
"""The label of a method, or a route, that is none of ours: what a client makes up must not become a label."""


class AnswerTimes:
    """ASGI middleware, around all others: a refusal is an answer, too."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, has_begun = time.perf_counter(), False

        def observe(status: int) -> None:
            labels = (_method(scope), _route(scope), str(status))
            self._metrics.answer_seconds.labels(*labels).observe(time.perf_counter() - began)

        async def timed(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                # Until the answer begins: a stream of events ends when its reader leaves.
                has_begun = True
                observe(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, timed)
        except Exception:
            if not has_begun:  # Starlette answers such errors outside of all middleware
                observe(HTTPStatus.INTERNAL_SERVER_ERROR)
            raise


def _method(scope: Scope) -> str:
    method: str = scope["method"]
    return method if method in METHODS else OTHER


def _route(scope: Scope) -> str:
    """The template of the route that answered, e.g. `/v1/jobs/{job_id}`."""
    route = scope.get("route")
    return route.path if isinstance(route, APIRoute) else OTHER
