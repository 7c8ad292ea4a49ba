"""The capacity of one API process: requests that use the database take turns, and probes need no turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from anyio import CapacityLimiter, to_thread

from service.errors import ServiceBusy
from service.store.migrate import current_revision, why_not_of_this_version
from service.store.repositories import WorkerRepository
from service.store.session import Database

WAIT_SECONDS = 20.0  # clients commonly give up after 30
"""A request that has had no turn for so long is told that the service is busy."""
FURTHER_THREADS = 20
"""Beside those of the requests that use the database: for files, and for checks of what was sent and is answered."""
PROBE_SECONDS = 10.0
"""A database that has not answered a probe for so long is not ready."""


class Turns:
    """Lets as many users at the database as it has connections; the others wait, without a thread, in their order.

    FastAPI runs a request's parts in threads one after the other, and the request keeps its connection from the first
    to the last. If requests waited for connections in those threads, they would take the threads that the requests
    which have the connections need to go on and give them back.
    """

    def __init__(self, num_turns: int) -> None:
        self.num_turns = num_turns
        self._free = asyncio.Semaphore(num_turns)

    def provide_threads(self) -> None:
        """Gives this event loop enough threads for every turn, and some more."""
        to_thread.current_default_thread_limiter().total_tokens = self.num_turns + FURTHER_THREADS

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Waits for a turn and has it until the end of the block.

        Raises:
            ServiceBusy: there was none in time.
        """
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._free.acquire()
        except TimeoutError as error:
            raise ServiceBusy(self.num_turns, WAIT_SECONDS) from error
        try:
            yield
        finally:
            self._free.release()


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The state of the database, as a probe finds it."""

    why_not_migrated: str | None
    """The remedy for tables that are not of this version; None: they are."""
    num_workers: int
    """Workers that are alive; 0 if the tables are not of this version."""
    why_not_written: str | None
    """The reason why the last write of this process failed, and one of the probe's own since; None: it succeeded."""


class Probe:
    """Looks at the database on a connection and a thread of its own, so that it sees it however busy the service is."""

    def __init__(self, database: Database) -> None:
        """Args: database: the one that requests are answered from."""
        self._database = Database(database.url, num_connections=1, writes=database.writes)
        self._looking: asyncio.Task[ProbeResult] | None = None

    def close(self) -> None:
        self._database.close()

    async def look(self, *, alive_since: datetime) -> ProbeResult:
        """Looks at the database; whoever asks while it looks is given the same result.

        Raises:
            DBAPIError: SQLAlchemy's; the database is out of reach.
            TimeoutError: it has not answered in time.
        """
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(
                to_thread.run_sync(self._look, alive_since, limiter=CapacityLimiter(1)), name="probe"
            )
            self._looking.add_done_callback(_take_error)
        # A task of its own: whoever gives up waiting does not end it, and a second one would need another connection.
        looking = self._looking
        done, _ = await asyncio.wait({looking}, timeout=PROBE_SECONDS)
        if not done:
            raise TimeoutError(f"the database has not answered for {PROBE_SECONDS:g} s")
        return looking.result()

    def _look(self, alive_since: datetime) -> ProbeResult:
        if why_not_migrated := why_not_of_this_version(current_revision(self._database)):
            return ProbeResult(why_not_migrated, num_workers=0, why_not_written=None)
        with self._database.reading() as session:
            num_workers = WorkerRepository(session).alive_since(alive_since)
        writes = self._database.writes
        if writes.why_not is not None:
            self._database.try_to_write()  # else a service that is asked for nothing would never be ready again
        return ProbeResult(None, num_workers=num_workers, why_not_written=writes.why_not)


def _take_error(looking: asyncio.Task[ProbeResult]) -> None:
    """Keeps asyncio from logging an error that came after whoever asked had given up."""
    if not looking.cancelled():
        looking.exception()
