"""The output of the ranks of a trial: pages of it, and a stream that follows it."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event

from service.api import examples, media_types, problems
from service.api.dependencies import JobId, ReadSession, TrialNumber
from service.api.events import HEARTBEAT_SECONDS, RETRY_MS, Accept, EventStream, LastEventId, Reader, StreamReader
from service.api.lists.query_times import Moment
from service.api.one_thread import OneThreadRoute
from service.api.paging import LARGEST_BIGINT, LARGEST_INT
from service.api.schemas.trials import OutputPage, OutputRead
from service.domain import OutputStream
from service.errors import InvalidInput, NotFound, ServiceBusy
from service.store.repositories import TrialRepository
from service.store.repositories.of_trials.outputs import OutputRepository, StoredChunk
from service.store.session import DATABASE_ERRORS, Session

CHUNKS_PER_PAGE = 50
"""Chunks of a page, of at most 32 KiB each."""
MAX_TAIL = 2000
"""Lines, by judgement: they come in one answer, not in pages."""
LINGERING_SECONDS = 3.0
"""Seconds for which a stream goes on after a trial's end: its last words may come a moment later."""

logger = logging.getLogger(__name__)

router = APIRouter(prefix="/v1/jobs/{job_id}/trials", tags=["trials"], route_class=OneThreadRoute)

Rank = Annotated[int | None, Query(ge=0, le=LARGEST_INT, description="The rank whose lines are wanted.")]
Stream = Annotated[OutputStream | None, Query(description="The stream whose lines are wanted.")]
Since = Annotated[Moment | None, Query(description="Only what was printed at or after this time.")]
Tail = Annotated[int | None, Query(ge=1, le=MAX_TAIL, description="Only so many lines, the last ones.")]
Contains = Annotated[
    str | None,
    Query(min_length=1, max_length=200, description="Only lines that hold this text, in upper or lower case."),
]
AfterOutput = Annotated[int | None, Query(ge=0, le=LARGEST_BIGINT, description="Begin after this id.")]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The part of a trial's output that is asked for."""

    trial_id: str
    rank: int | None = None
    stream: OutputStream | None = None
    since: datetime | None = None
    contains: str | None = None

    def after(self, session: Session, after_id: int, *, limit: int) -> list[StoredChunk]:
        """Up to `limit` chunks with ids above `after_id`, the oldest first, whatever they contain."""
        return OutputRepository(session).after(
            self.trial_id, after_id=after_id, rank=self.rank, stream=self.stream, since=self.since, limit=limit
        )

    def tail(self, session: Session, num_lines: int) -> list[StoredChunk]:
        """The chunks with the last lines, of the first one no more than is asked for."""
        found, missing, before = list[StoredChunk](), num_lines, None
        while missing > 0:
            some = OutputRepository(session).newest(
                self.trial_id,
                rank=self.rank,
                stream=self.stream,
                since=self.since,
                before_id=before,
                limit=CHUNKS_PER_PAGE,
            )
            for chunk in reversed(some):
                held = self.held(chunk)
                if missing > 0 and held is not None:
                    found.append(_last_lines(held, missing))
                    missing -= len(held.lines)
            if len(some) < CHUNKS_PER_PAGE:
                break
            before = some[0].id
        return found[::-1]

    def held(self, chunk: StoredChunk) -> StoredChunk | None:
        """The part of a chunk with the lines that are asked for; None: it has none of them."""
        if self.contains is None:
            return chunk
        sought = self.contains.casefold()
        lines = [line for line in chunk.lines if sought in line.casefold()]
        return dataclasses.replace(chunk, content="\n".join(lines), omitted_bytes=0) if lines else None


@router.get(
    "/{number}/logs",
    summary="Read what a trial prints",
    response_model=OutputPage,
    responses={
        200: {
            "description": "What its ranks have printed; or a stream of what they print.",
            "content": {media_types.EVENT_STREAM: {"schema": {"type": "string"}, "example": examples.OUTPUT_STREAM}},
        },
        204: {"description": "The trial has ended and there is nothing further: a browser stops asking."},
        **problems.documented(404, 422, 503),
    },
)
def read_logs(
    reader: Reader,
    session: ReadSession,
    job_id: JobId,
    number: TrialNumber,
    accept: Accept = "*/*",
    rank: Rank = None,
    stream: Stream = None,
    since: Since = None,
    contains: Contains = None,
    tail: Tail = None,
    after: AfterOutput = None,
    last_event_id: LastEventId = None,
) -> Response:
    """All that the ranks of a trial wrote to standard output and error in all runs: the oldest first, in pages, or the
    last lines of it.

    The beginning and the end of each rank's output are kept (`log_bytes_per_rank` of the settings), and the gap between
    them is marked. Lines arrive within seconds. They are what the trial's own code prints, so they can contain anything
    that it knows; values of secret environment variables are hidden.

    With `Accept: text/event-stream`, a stream that goes on with what is printed from now on, until the trial ends. It
    begins with all that is kept, or with the last lines, or after `after` or `Last-Event-ID`.
    """
    if tail is not None and after is not None:
        raise InvalidInput("tail", "counts back from the end, and after says where to begin: give one of them")
    trial = TrialRepository(session).get(job_id, number)
    wanted = Wanted(trial.id, rank, stream, since, contains)
    start = last_event_id if last_event_id is not None else after or 0
    if not media_types.prefers(accept, media_types.EVENT_STREAM, media_types.JSON):
        return _page(session, wanted, start, tail)
    if start > OutputRepository(session).last_id():  # of a database that has been replaced
        start = 0
    first = wanted.tail(session, tail) if tail is not None and last_event_id is None else []
    if trial.state.is_final and not first and not wanted.after(session, start, limit=1):
        return Response(status_code=204)
    return EventStream(reader.feed, _stream(reader, wanted, start, first, job_id=job_id, number=number))


def _page(session: Session, wanted: Wanted, after: int, tail: int | None) -> Response:
    found = wanted.after(session, after, limit=CHUNKS_PER_PAGE + 1) if tail is None else wanted.tail(session, tail)
    is_cut = tail is None and len(found) > CHUNKS_PER_PAGE
    shown = found[:CHUNKS_PER_PAGE] if is_cut else found
    # Those of the last lines were looked through already.
    held = [chunk for chunk in map(wanted.held, shown) if chunk is not None] if tail is None else shown
    items = [OutputRead.model_validate(chunk) for chunk in held]
    page = OutputPage(
        items=items,
        ranks=OutputRepository(session).ranks(wanted.trial_id),
        next_after=shown[-1].id if is_cut else None,
    )
    return Response(page.model_dump_json(), media_type=media_types.JSON)


def _last_lines(chunk: StoredChunk, count: int) -> StoredChunk:
    lines = chunk.lines
    if len(lines) <= count:
        return chunk
    return dataclasses.replace(chunk, content="\n".join(lines[-count:]), omitted_bytes=0)


async def _stream(
    reader: StreamReader, wanted: Wanted, after: int, first: list[StoredChunk], *, job_id: str, number: int
) -> AsyncIterator[bytes]:
    """Streams what is printed after `after` and, if there is any, `first`, until the trial has ended."""
    feed = reader.feed
    with feed.metrics.event_streams.track_inprogress():
        yield format_sse_event(retry=RETRY_MS)
        if first:
            after = first[-1].id
            yield _messages(first)
        ended_at, told_at, newest = None, time.monotonic(), 0
        while not feed.output.closed:
            earlier, newest = newest, feed.output.newest
            if newest < earlier:
                after = min(after, newest)
            try:
                if not await reader.goes_on():
                    return
                chunks, is_final = await feed.read(_look(wanted, after, job_id, number))
            except NotFound:  # it was deleted
                return
            except (ServiceBusy, *DATABASE_ERRORS) as error:
                logger.warning("a stream of output ends, its reader will connect again: %s", error)
                return
            if chunks:
                after, told_at = chunks[-1].id, time.monotonic()
                if held := [each for each in map(wanted.held, chunks) if each is not None]:
                    yield _messages(held)
            elif time.monotonic() - told_at >= HEARTBEAT_SECONDS:
                told_at = time.monotonic()
                yield KEEPALIVE_COMMENT
            ended_at = (ended_at or time.monotonic()) if is_final else None
            if ended_at is not None and not chunks and time.monotonic() - ended_at >= LINGERING_SECONDS:
                return
            if len(chunks) < CHUNKS_PER_PAGE:
                await feed.output.wait(newest, seconds=LINGERING_SECONDS)


def _look(wanted: Wanted, after: int, job_id: str, number: int) -> Callable[[Session], tuple[list[StoredChunk], bool]]:
    """Reads the next chunks, and whether the trial has ended."""

    def look(session: Session) -> tuple[list[StoredChunk], bool]:
        is_final = TrialRepository(session).get(job_id, number).state.is_final
        return wanted.after(session, after, limit=CHUNKS_PER_PAGE), is_final

    return look


def _messages(chunks: list[StoredChunk]) -> bytes:
    """The messages in one piece: each piece sent to a reader that has gone would be a warning in the log."""
    messages = [OutputRead.model_validate(chunk) for chunk in chunks]
    return b"".join(
        format_sse_event(data_str=each.model_dump_json(), event="log", id=str(each.id)) for each in messages
    )
