"""Live streams of events (server-sent events), fed from the events table.

Every stream reads its own events from SQL, so nothing is lost between them; one query every `POLL_SECONDS` for all
streams of the process tells them when to look.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends, Header, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from service.access.caller import Caller
from service.api import problems
from service.api.authentication import Authentication
from service.api.capacity import Turns
from service.api.dependencies import AuthenticationDependency, CallerDependency, holder_of_address
from service.api.paging import LARGEST_BIGINT
from service.api.recent_events import RecentEvents
from service.api.schemas.events import EventRead
from service.clock import Clock
from service.errors import ServiceBusy
from service.monitoring.database_version import DatabaseVersion
from service.monitoring.metrics import Metrics
from service.store.repositories import EventRepository
from service.store.repositories.of_trials.outputs import OutputRepository
from service.store.session import DATABASE_ERRORS, Database, Session

Found = TypeVar("Found")

POLL_SECONDS = 0.2
"""Time between two looks for new events, by judgement: a page that is that late seems live."""
HEARTBEAT_SECONDS = 15.0
"""Time without an event after which a stream sends a comment: well below the 60 after which nginx by default cuts what
is silent."""
RETRY_MS = 3000
"""Milliseconds until a browser connects again."""

logger = logging.getLogger(__name__)


class EventStream(StreamingResponse):
    """Server-sent events. Not FastAPI's `EventSourceResponse`, which wants the endpoint itself to be a generator: ours
    can still answer 204 and 404. It is counted for as long as it lasts.
    """

    media_type = "text/event-stream"

    def __init__(self, feed: EventFeed, events: AsyncIterator[bytes], status_code: int = 200) -> None:
        # A buffering proxy would hold events back.
        super().__init__(events, status_code, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._feed = feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        address = holder_of_address(Request(scope)) or ""
        try:
            self._feed.begin_stream(address)
        except ServiceBusy as error:
            await problems.busy(str(error), instance=scope["path"])(scope, receive, send)
            return
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._feed.end_stream(address)


class EventFeed:
    """The streams of a process, counted, and what tells them that there is something new. Lives in one event loop."""

    def __init__(
        self,
        database: Database,
        turns: Turns,
        metrics: Metrics,
        clock: Clock,
        *,
        max_streams: int,
        max_streams_per_address: int,
    ) -> None:
        self._database = database
        self._turns = turns
        self._clock = clock
        self.metrics = metrics
        self.recent = RecentEvents(self.read)
        self.events = Newest(self, lambda session: EventRepository(session).last_id(), went_back=self._forget_recent)
        self.output = Newest(self, lambda session: OutputRepository(session).last_id())
        self._max_streams = max_streams
        self._max_streams_per_address = max_streams_per_address
        self._streams: Counter[str] = Counter()

    def begin_stream(self, address: str) -> None:
        """Counts a stream to an address; `end_stream` is to follow.

        Raises:
            ServiceBusy: there are too many, or too many to that address.
        """
        if self._streams.total() >= self._max_streams:
            raise ServiceBusy(self._max_streams, 0.0, what="streams of events")
        if self._streams[address] >= self._max_streams_per_address:
            raise ServiceBusy(self._max_streams_per_address, 0.0, what="streams of events to one address")
        self._streams[address] += 1

    def end_stream(self, address: str) -> None:
        self._streams[address] -= 1
        if not self._streams[address]:
            del self._streams[address]

    def close(self) -> None:
        """Ends every stream, so that a stopping server need not wait for them."""
        self.events.close()
        self.output.close()

    def _forget_recent(self) -> None:
        # Another object: who is in the middle of a look at the earlier database ends it in the earlier one.
        self.recent = RecentEvents(self.read)

    def note_lag(self, event: EventRead) -> None:
        """Counts how long an event that just happened took to come here."""
        self.metrics.event_lag_seconds.observe(max(0.0, (self._clock() - event.created_at).total_seconds()))

    async def read(self, look: Callable[[Session], Found]) -> Found:
        """Returns what `look` finds in a reading session, when it is its turn."""

        def read() -> Found:
            with self._database.reading() as session:
                return look(session)

        async with self._turns.one():
            return await run_in_threadpool(read)


class Newest:
    """Tells streams that there are newer rows of a table than they have seen: one look for all of them.

    Where the database has been replaced by an older one, the newest row is an older one, too. Streams go on from there.
    """

    def __init__(
        self, feed: EventFeed, last_id: Callable[[Session], int], *, went_back: Callable[[], None] = lambda: None
    ) -> None:
        """Args: went_back: called when the newest row is an older one than before."""
        self._feed = feed
        self._last_id = last_id
        self._went_back = went_back
        self.closed = False
        self.newest = 0
        """The newest row's id, when last looked."""
        self._looking = asyncio.Lock()
        self._waiters: set[asyncio.Future[None]] = set()
        self._watcher: asyncio.Task[None] | None = None

    async def wait(self, seen: int, *, seconds: float) -> bool:
        """Waits until `newest` is not `seen` any more or the feed is closed; False after so many seconds without."""
        if self.closed or self.newest != seen:
            return True
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(self._watch())
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            done, _ = await asyncio.wait({waiter}, timeout=seconds)
            return bool(done)
        finally:
            self._waiters.discard(waiter)

    def close(self) -> None:
        self.closed = True
        self._wake()

    async def _watch(self) -> None:
        """Looks for new rows for as long as anyone waits for them."""
        while self._waiters and not self.closed:
            await self.look()
            await asyncio.sleep(POLL_SECONDS)

    async def look(self) -> None:
        """Looks for new rows now."""
        async with self._looking:  # of two looks at once, the earlier one would seem to have gone back
            try:
                newest = await self._feed.read(self._last_id)
            except (ServiceBusy, *DATABASE_ERRORS) as error:
                logger.warning("cannot look for events: %s", error)
                return
            if newest == self.newest:
                return
            if newest < self.newest:
                self._went_back()
            self.newest = newest
            self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


@dataclass(frozen=True, slots=True)
class StreamReader:
    """The reader of a stream, for as long as it goes on."""

    feed: EventFeed
    authentication: Authentication
    caller: Caller
    clock: Clock
    version: DatabaseVersion

    @property
    def project(self) -> str | None:
        return self.caller.sees

    async def goes_on(self) -> bool:
        """True if whoever reads would be let in again, and answered from tables of this version."""
        now = self.clock()
        return await self.version.why_not(now) is None and await self.authentication.holds(self.caller, now)


async def _reader(request: Request, authentication: AuthenticationDependency, caller: CallerDependency) -> StreamReader:
    state = request.app.state
    return StreamReader(state.feed, authentication, caller, state.clock, state.database_version)


Reader = Annotated[StreamReader, Depends(_reader)]

LastEventId = Annotated[
    int | None,
    Header(
        alias="Last-Event-ID",
        ge=0,
        le=LARGEST_BIGINT,
        description="Id of the last event received: the stream goes on after it. Browsers send it by themselves.",
    ),
]

Accept = Annotated[
    str,
    Header(
        description="`application/json`: one page, up to what has happened by now; else a stream.",
        include_in_schema=False,
    ),
]
