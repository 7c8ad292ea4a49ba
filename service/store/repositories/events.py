"""The events of jobs, numbered in the order in which they become visible."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, insert, select, text
from sqlalchemy.orm import Session

from service.store.models import Event, Job

# Any constant: the key of the lock under which PostgreSQL writes events.
_EVENT_ORDER_LOCK = 7_305_112

# Of the table, not of the class: the ORM takes three times as long for a row, and writers wait for each other.
_INSERT_EVENT = insert(Event.metadata.tables[Event.__tablename__])

TRIAL_EVENTS = ("trial.state", "trial.changed", "trial.measured")


def lock_event_order(session: Session) -> None:
    """Makes other writers of events wait until the transaction ends, on PostgreSQL; SQLite has one writer anyway."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _EVENT_ORDER_LOCK})


class EventRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, job_id: str, kind: str, data: dict[str, Any], now: datetime) -> None:
        """Appends an event; see `add_all`."""
        self.add_all(job_id, kind, [data], now)

    def add_all(self, job_id: str, kind: str, data: Iterable[dict[str, Any]], now: datetime) -> None:
        """Appends an event for each of the data, in their order. Ids grow in commit order, so that a reader who saw
        id n has seen all before it.

        PostgreSQL draws an id when the row is inserted, not when it is committed: without the lock, held until the
        commit, a reader could see id 8 before 7 exists and never look back. SQLite has one writer anyway.
        """
        rows = [{"job_id": job_id, "kind": kind, "data": each, "created_at": now} for each in data]
        if not rows:
            return
        lock_event_order(self._session)
        self._session.flush()
        self._session.execute(_INSERT_EVENT, rows)

    def after(self, last_id: int, *, project: str | None, job_id: str | None = None, limit: int) -> list[Event]:
        """Up to `limit` events with an id above `last_id`, oldest first; of one job, if it is given;
        `project` None: of any."""
        statement = select(Event).where(Event.id > last_id).order_by(Event.id).limit(limit)
        if project is not None:
            statement = statement.join(Job, Job.id == Event.job_id).where(Job.project == project)
        if job_id is not None:
            statement = statement.where(Event.job_id == job_id)
        return list(self._session.scalars(statement))

    def with_projects_after(self, last_id: int, *, limit: int) -> list[tuple[Event, str]]:
        """Up to `limit` events of all jobs with an id above `last_id`, oldest first, each with its project."""
        statement = select(Event, Job.project).join(Job, Job.id == Event.job_id).where(Event.id > last_id)
        return [(row[0], row[1]) for row in self._session.execute(statement.order_by(Event.id).limit(limit))]

    def delete_of_trials(self, job_id: str, *, limit: int) -> int:
        """Deletes up to `limit` events of a job's trials, the oldest first; how many there were. Those of the job
        itself stay: they tell its end to whoever follows it, and the first one numbers it."""
        ids = select(Event.id).where(Event.job_id == job_id, Event.kind.in_(TRIAL_EVENTS)).order_by(Event.id)
        found = list(self._session.scalars(ids.limit(limit)))
        self._session.execute(delete(Event).where(Event.id.in_(found)))
        return len(found)

    def last_id(self, job_id: str | None = None) -> int:
        """The newest event's id, of all or of one job; 0: there is none."""
        statement = select(func.coalesce(func.max(Event.id), 0))
        return self._session.scalar(statement if job_id is None else statement.where(Event.job_id == job_id)) or 0
