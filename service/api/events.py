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
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from starlette.types import Receive, Scope, Send

from service.access.caller import Caller
from service.api import examples, media_types, problems
from service.api.authentication import Authentication
from service.api.capacity import Turns
from service.api.dependencies import AuthenticationDependency, CallerDependency, JobId, ReadSession, holder_of_address
from service.api.one_thread import OneThreadRoute
from service.api.paging import DEFAULT_PAGE_SIZE, LARGEST_BIGINT, PageSize
from service.api.recent_events import RecentEvents
from service.api.schemas.events import EventPage, EventRead
from service.clock import Clock
from service.domain import JobState
from service.errors import ServiceBusy
from service.monitoring.metrics import Metrics
from service.store.repositories import EventRepository, JobRepository
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


def _is_there(job_id: str, session: Session) -> bool:
    return JobRepository(session).project_of(job_id) is not None


async def _stream(
    reader: StreamReader, after: int, newest: int, job_id: str | None, *, is_over: bool = False
) -> AsyncIterator[bytes]:
    """The events after `after` as they come; of one job, up to the one that tells its end.

    Args:
        newest: the newest event, as the request has found it.
        is_over: the job has ended.
    """
    feed = reader.feed
    with feed.metrics.event_streams.track_inprogress():
        yield format_sse_event(retry=RETRY_MS)
        if feed.events.newest > newest:  # seen long ago, maybe, in a database that has been replaced
            await feed.events.look()
        has_caught_up, newest = False, 0
        while not feed.events.closed:
            earlier, newest, recent = newest, feed.events.newest, feed.recent
            went_back = newest < earlier
            if went_back:
                after = min(after, newest)
            try:
                if went_back and job_id is not None and not await feed.read(partial(_is_there, job_id)):
                    return  # an older database does not have the job: its reader asks again, and is answered 404
                if not await reader.is_let_in():
                    return
                project = reader.project if job_id is None else None
                stretch = await recent.after(after, newest, job_id=job_id, project=project)
            except (ServiceBusy, *DATABASE_ERRORS) as error:
                logger.warning("a stream of events ends, its reader will connect again: %s", error)
                return
            after = stretch.seen
            for event in (message.event for message in stretch.messages):
                if job_id is not None and event.kind == "job.state":
                    is_over = JobState(str(event.data["state"])).is_final
                if has_caught_up:
                    feed.note_lag(event)
            if stretch.messages:
                # In one piece: each piece sent to a reader that has gone would be a warning in the log.
                yield b"".join([message.content for message in stretch.messages])
            if is_over and stretch.is_all:  # a job that was resumed has ended before, with further events after it
                return
            has_caught_up = stretch.is_all
            if has_caught_up and not await feed.events.wait(newest, seconds=HEARTBEAT_SECONDS):
                yield KEEPALIVE_COMMENT


@dataclass(frozen=True, slots=True)
class StreamReader:
    """The reader of a stream, for as long as the token holds."""

    feed: EventFeed
    authentication: Authentication
    caller: Caller
    clock: Clock

    @property
    def project(self) -> str | None:
        return self.caller.sees

    async def is_let_in(self) -> bool:
        return await self.authentication.holds(self.caller, self.clock())


async def _reader(request: Request, authentication: AuthenticationDependency, caller: CallerDependency) -> StreamReader:
    return StreamReader(request.app.state.feed, authentication, caller, request.app.state.clock)


Reader = Annotated[StreamReader, Depends(_reader)]

router = APIRouter(tags=["events"], route_class=OneThreadRoute)

LastEventId = Annotated[
    int | None,
    Header(
        alias="Last-Event-ID",
        ge=0,
        le=LARGEST_BIGINT,
        description="Id of the last event received: the stream goes on after it. Browsers send it by themselves.",
    ),
]
After = Annotated[int | None, Query(ge=0, le=LARGEST_BIGINT, description="Begin after this event id.")]

_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events, until the reader leaves; or a page of them.",
        "content": {
            "text/event-stream": {"schema": {"type": "string"}, "example": examples.EVENT_STREAM},
        },
    }
}

Accept = Annotated[
    str,
    Header(
        description="`application/json`: one page, up to what has happened by now; else a stream.",
        include_in_schema=False,
    ),
]


def _page(session: Session, after: int, page_size: int, *, job_id: str | None, project: str | None) -> Response:
    """The events after `after`, as JSON."""
    rows = EventRepository(session).after(after, job_id=job_id, project=project, limit=page_size + 1)
    items = [EventRead.model_validate(row) for row in rows[:page_size]]
    page = EventPage(items=items, next_after=items[-1].id if len(rows) > page_size else None)
    return Response(page.model_dump_json(), media_type=media_types.JSON)


@router.get(
    "/v1/events",
    summary="Follow what happens",
    response_model=EventPage,
    responses={**_STREAM, **problems.documented(422, 503)},
)
def follow_events(
    reader: Reader,
    session: ReadSession,
    accept: Accept = "*/*",
    last_event_id: LastEventId = None,
    after: After = None,
    page_size: PageSize = DEFAULT_PAGE_SIZE,
) -> Response:
    """A stream of the events of every job that the caller sees.

    It begins with what happens from now on, or after `Last-Event-ID`, or after `after` (0: from the beginning), and
    ends only with the connection. A comment every 15 seconds keeps it open.

    With `Accept: application/json`, a page of those that have happened, with the same ids: the oldest first, after
    `after`.
    """
    if media_types.prefers(accept, media_types.JSON, media_types.EVENT_STREAM):
        return _page(session, after or 0, page_size, job_id=None, project=reader.project)
    start = last_event_id if last_event_id is not None else after
    newest = EventRepository(session).last_id()
    # An id above the newest is not of this database: it was told by one that has been replaced.
    start = newest if start is None or start > newest else start
    return EventStream(reader.feed, _stream(reader, start, newest, None))


@router.get(
    "/v1/jobs/{job_id}/events",
    summary="Follow a job",
    response_model=EventPage,
    responses={
        **_STREAM,
        204: {"description": "The job has ended and there are no further events: a browser stops asking."},
        **problems.documented(404, 422, 503),
    },
)
def follow_job(
    reader: Reader,
    session: ReadSession,
    job_id: JobId,
    accept: Accept = "*/*",
    last_event_id: LastEventId = None,
    after: After = None,
    page_size: PageSize = DEFAULT_PAGE_SIZE,
) -> Response:
    """A stream of a job's events, from its beginning or after `Last-Event-ID` or `after`.

    It ends after the `job.state` event of the job's final state, unless the job was resumed since. A browser then
    connects once more and is answered 204, which tells it to stop.

    With `Accept: application/json`, a page of those that have happened, with the same ids: the oldest first, after
    `after`.
    """
    job = JobRepository(session).get(job_id)
    if media_types.prefers(accept, media_types.JSON, media_types.EVENT_STREAM):
        return _page(session, after or 0, page_size, job_id=job_id, project=None)
    events = EventRepository(session)
    start = last_event_id if last_event_id is not None else after or 0
    newest = events.last_id()
    if start > newest:
        start = 0
    if job.state.is_final and not events.after(start, project=None, job_id=job_id, limit=1):
        return Response(status_code=204)
    return EventStream(reader.feed, _stream(reader, start, newest, job_id, is_over=job.state.is_final))
