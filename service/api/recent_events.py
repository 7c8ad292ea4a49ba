"""The newest events, read from SQL once for all streams of a process; what is older, each stream reads itself.

Ids grow in the order of commits, so a stretch of them that was read has no gaps that are filled later.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fastapi.sse import format_sse_event

from service.api.schemas.events import EventRead
from service.store.repositories import EventRepository
from service.store.session import Session

BATCH = 200
"""Events that a stream reads at once of those that are not kept."""
KEPT = 2000
"""Events, by judgement: ten batches. A stream that has fallen further behind reads them from SQL."""

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Message:
    """An event, as it was stored and as streams tell it."""

    event: EventRead
    project: str | None
    """The project of its job; None: nobody asked."""
    content: bytes

    @classmethod
    def of(cls, event: EventRead, project: str | None = None) -> Message:
        content = format_sse_event(data_str=event.model_dump_json(), event=event.kind, id=str(event.id))
        return cls(event, project, content)


@dataclass(frozen=True, slots=True)
class EventStretch:
    """The next events of a stream."""

    messages: Sequence[Message]
    seen: int
    """The stream goes on after this id: none of its events up to there is missing."""
    is_all: bool
    """True if there were no more."""


class RecentEvents:
    """Keeps the newest events. Lives in one event loop."""

    def __init__(self, read: Callable[[Callable[[Session], list[Message]]], Awaitable[list[Message]]]) -> None:
        """Args: read: has a function look at the database, in a thread, when it is its turn."""
        self._read = read
        self._kept: deque[Message] = deque()
        self._from = self._until = 0
        """All events with ids above the one, up to the other, are kept."""
        self._reading = asyncio.Lock()

    async def after(self, seen: int, newest: int, *, job_id: str | None, project: str | None) -> EventStretch:
        """The next events of one job, of one project, or of all.

        Args:
            seen: the stream has those up to this id.
            newest: an id that there is; events up to it are told.
        """
        async with self._reading:
            if not self._until:
                self._from = self._until = newest
            while self._until < newest:
                await self._read_on(newest)
        if seen < self._from or not self._until:
            messages = await self._read(lambda session: _stored(session, seen, job_id=job_id, project=project))
            is_all = len(messages) < BATCH
            last = messages[-1].event.id if messages else seen
            return EventStretch(messages, max(last, newest) if is_all else last, is_all)
        messages = [
            each
            for each in self._kept
            if each.event.id > seen
            and (job_id is None or each.event.job_id == job_id)
            and (project is None or each.project == project)
        ]
        return EventStretch(messages, max(seen, self._until), is_all=True)

    async def _read_on(self, newest: int) -> None:
        messages = await self._read(lambda session: _newer(session, self._until))
        self._kept.extend(messages)
        last = messages[-1].event.id if messages else self._until
        self._until = last if len(messages) == BATCH else max(last, newest)  # those that are gone are not waited for
        while len(self._kept) > KEPT:
            self._from = self._kept.popleft().event.id


def _newer(session: Session, seen: int) -> list[Message]:
    found = EventRepository(session).with_projects_after(seen, limit=BATCH)
    return [Message.of(EventRead.model_validate(event), project) for event, project in found]


def _stored(session: Session, seen: int, *, job_id: str | None, project: str | None) -> list[Message]:
    events = EventRepository(session).after(seen, job_id=job_id, project=project, limit=BATCH)
    return [Message.of(EventRead.model_validate(event)) for event in events]
