"""Refusal of every request while the database is of another version: 503, and what to do.

Probes and the files of the pages are answered: they are not of the database, or say so themselves.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from service.access.required_scopes import OPEN_BELOW, PROBES
from service.api import problems
from service.clock import Clock
from service.monitoring.database_version import DatabaseVersion


class VersionGate:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, version: DatabaseVersion, clock: Clock) -> None:
        self._app = app
        self._version = version
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _is_of_no_database(scope["path"]):
            why_not = await self._version.why_not(self._clock())
            if why_not is not None:
                await problems.unavailable(why_not, instance=scope["path"])(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _is_of_no_database(path: str) -> bool:
    return path in PROBES or path.startswith(OPEN_BELOW)
