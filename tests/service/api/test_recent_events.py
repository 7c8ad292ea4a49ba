"""The newest events: told to each stream as it would read them itself, and read once for all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from service.api import recent_events
from service.api.recent_events import EventStretch, Message, RecentEvents
from service.store.models import Project
from service.store.repositories import EventRepository, ProjectRepository
from service.store.session import Database, Session
from tests.support import event_loop
from tests.support.service.scenarios import NOW, submit


def _tell(database: Database, *job_ids: str) -> int:
    """Stores an event of each of the jobs; the id of the last."""
    with database.writing() as session:
        for job_id in job_ids:
            EventRepository(session).add(job_id, "trial.measured", {"number": 0}, NOW)
        return EventRepository(session).last_id()


def _jobs(database: Database) -> tuple[str, str]:
    with database.writing() as session:
        ProjectRepository(session).add(Project(name="vision", created_at=NOW))
    return submit(database), submit(database, project="vision")


def _ids(stretch: EventStretch) -> list[int]:
    return [message.event.id for message in stretch.messages]


def test_many_streams_are_told_all_of_theirs_by_one_look(database: Database) -> None:
    ours, theirs = _jobs(database)
    looks: list[int] = []

    async def read(look: Callable[[Session], list[Message]]) -> list[Message]:
        looks.append(1)
        with database.reading() as session:
            return look(session)

    async def told() -> None:
        recent, begun = RecentEvents(read), _tell(database)
        assert (await recent.after(begun, begun, job_id=None, project=None)).messages == []
        newest = _tell(database, ours, theirs, ours)
        streams: tuple[tuple[str | None, str | None], ...] = (
            (None, None), (ours, None), (None, "default"), (theirs, None), (None, "vision")
        )  # fmt: skip
        looks.clear()
        stretches = await asyncio.gather(
            *(recent.after(begun, newest, job_id=job_id, project=project) for job_id, project in streams)
        )
        first, second, third = range(newest - 2, newest + 1)
        expected = [[first, second, third], [first, third], [first, third], [second], [second]]
        assert [_ids(stretch) for stretch in stretches] == expected
        assert len(looks) == 1
        assert {(stretch.seen, stretch.is_all) for stretch in stretches} == {(newest, True)}
        again = await recent.after(newest, newest, job_id=None, project=None)
        assert (list(again.messages), again.seen, len(looks)) == ([], newest, 1)

    event_loop.run(told())


def test_who_is_further_behind_reads_what_is_not_kept(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_events, "KEPT", 3)
    monkeypatch.setattr(recent_events, "BATCH", 4)
    ours, theirs = _jobs(database)

    async def read(look: Callable[[Session], list[Message]]) -> list[Message]:
        with database.reading() as session:
            return look(session)

    async def told() -> None:
        recent, begun = RecentEvents(read), _tell(database)
        await recent.after(begun, begun, job_id=None, project=None)
        newest = _tell(database, *[ours, theirs] * 5)
        seen, ids = begun, list[int]()
        while seen < newest:
            stretch = await recent.after(seen, newest, job_id=ours, project=None)
            ids, seen = ids + _ids(stretch), stretch.seen
        assert ids == list(range(begun + 1, newest, 2))
        late = await recent.after(newest - 3, newest, job_id=None, project=None)
        assert _ids(late) == [newest - 2, newest - 1, newest]
        # One that was deleted since it was seen to be there is not waited for.
        assert (await recent.after(newest, newest + 5, job_id=None, project=None)).seen == newest + 5

    event_loop.run(told())
