"""The version that the database is at, looked at again and again: a newer one may migrate it under a process that goes
on, and each of whose answers could then be wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta

from starlette.concurrency import run_in_threadpool

from service.errors import ServiceBusy
from service.store.migrate import current_revision, why_not_of_this_version
from service.store.session import DATABASE_ERRORS, Database

LOOK_AFTER = timedelta(seconds=2)
"""A request that comes so long after the last look begins another one: as often as tokens are looked up."""
WAIT_AFTER = timedelta(seconds=10)
"""A request that comes so long after the last look waits for the next; others go by what that one found."""
WAIT_SECONDS = 1.0
"""It waits for no longer: where the database does not answer, the request itself finds out."""

logger = logging.getLogger(__name__)


class DatabaseVersion:
    """The database's version, as far as it is known. Lives in one event loop."""

    def __init__(self, database: Database, turn: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        """Args: turn: gives a turn at the database."""
        self._database = database
        self._turn = turn
        self._why_not: str | None = None
        self._looked_at: datetime | None = None
        """The time of the last look that was answered; None: there was none."""
        self._looking: asyncio.Task[None] | None = None

    async def why_not(self, now: datetime) -> str | None:
        """The remedy for tables that are not of this version; None: they are, as far as is known."""
        seen = self._looked_at
        if seen is None or not timedelta(0) <= now - seen < LOOK_AFTER:
            looking = self._look(now)
            if seen is None or not timedelta(0) <= now - seen < WAIT_AFTER:
                await asyncio.wait({looking}, timeout=WAIT_SECONDS)
        return self._why_not

    async def why_not_any_more(self, now: datetime) -> str | None:
        """The remedy at this moment: for what failed, and would not have in tables of this version."""
        if self._looking is not None and not self._looking.done():  # begun before it failed
            await asyncio.wait({self._looking}, timeout=WAIT_SECONDS)
        await asyncio.wait({self._look(now)}, timeout=WAIT_SECONDS)
        return self._why_not

    async def finish(self) -> None:
        """Waits for a look that goes on: whoever closes the database then leaves no connection."""
        if self._looking is not None:
            await asyncio.wait({self._looking})

    def _look(self, now: datetime) -> asyncio.Task[None]:
        if self._looking is None or self._looking.done():
            # A task of its own: whoever gives up waiting does not end it.
            self._looking = asyncio.create_task(self._find(now), name="look at the version of the database")
        return self._looking

    async def _find(self, now: datetime) -> None:
        try:
            async with self._turn():
                found = await run_in_threadpool(lambda: why_not_of_this_version(current_revision(self._database)))
        except (ServiceBusy, *DATABASE_ERRORS):
            return
        if found != self._why_not:
            logger.warning("requests are %s", "answered again" if found is None else f"refused: {found}")
        self._why_not, self._looked_at = found, now
