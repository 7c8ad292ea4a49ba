"""Endpoints for what happens: streams of events, and pages of them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event

from service.api import examples, media_types, problems
from service.api.dependencies import JobId, ReadSession
from service.api.events import HEARTBEAT_SECONDS, RETRY_MS, Accept, EventStream, LastEventId, Reader, StreamReader
from service.api.one_thread import OneThreadRoute
from service.api.paging import DEFAULT_PAGE_SIZE, LARGEST_BIGINT, PageSize
from service.api.schemas.events import EventPage, EventRead
from service.domain import JobState
from service.errors import ServiceBusy
from service.store.repositories import EventRepository, JobRepository
from service.store.session import DATABASE_ERRORS, Session

logger = logging.getLogger(__name__)

router = APIRouter(tags=["events"], route_class=OneThreadRoute)

After = Annotated[int | None, Query(ge=0, le=LARGEST_BIGINT, description="Begin after this event id.")]

_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events, until the reader leaves; or a page of them.",
        "content": {
            "text/event-stream": {"schema": {"type": "string"}, "example": examples.EVENT_STREAM},
        },
    }
}


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
                if not await reader.goes_on():
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
