"""Lists of jobs: found by what is asked for, in an order, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import assert_never

from sqlalchemy import ColumnElement, Select, exists, func, or_, select
from sqlalchemy.orm import Session, defer

from service.domain import JobState
from service.store.models import Job
from service.store.repositories.keyset import Keyset, Place
from service.store.session import UNREADABLE_ROWS


class Archived(StrEnum):
    """The jobs that are listed, by whether they are archived."""

    NO = "false"
    YES = "true"
    ALL = "all"


class JobOrder(StrEnum):
    """An order of jobs; a minus: descending."""

    NEWEST = "-created_at"
    OLDEST = "created_at"
    LAST_FINISHED = "-finished_at"
    FIRST_FINISHED = "finished_at"
    HIGHEST_PRIORITY = "-priority"
    LOWEST_PRIORITY = "priority"
    NAME = "name"
    NAME_BACKWARDS = "-name"

    @property
    def is_descending(self) -> bool:
        return self.startswith("-")

    def place_of(self, job: Job) -> Place:
        """The place of a job in this order."""
        match self.removeprefix("-"):
            case "created_at":
                return Place(job.id, job.id)
            case "finished_at":
                return Place(job.finished_at, job.id)
            case "priority":
                return Place(job.priority, job.id)
            case _:
                return Place(job.name, job.id)


@dataclass(frozen=True, slots=True)
class TagFilter:
    """A tag that jobs must have."""

    name: str
    value: str | None
    """None: any."""


_UNREAD = defer(Job.parameter_groups)
"""Columns that no list shows; each is read when it is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuery:
    """A question about jobs; a field that is None, or empty, leaves them all."""

    states: Sequence[JobState] = ()
    sees: str | None
    """The project that whoever asks sees alone; None: it sees them all."""
    project: str | None = None
    owner: str | None = None
    workload: str | None = None
    model: str | None = None
    """The user's own name."""
    tags: Sequence[TagFilter] = ()
    text: str | None = None
    """Stands somewhere in the name or the notes, in capitals or not."""
    created_after: datetime | None = None
    created_before: datetime | None = None
    finished_after: datetime | None = None
    finished_before: datetime | None = None
    archived: Archived = Archived.NO


class JobListRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def page(
        self, query: JobQuery, *, order: JobOrder = JobOrder.NEWEST, after: Place | None = None, limit: int
    ) -> list[Job]:
        """Up to `limit` jobs, beginning behind a place in the order."""
        keyset = _keyset(order)
        statement = select(Job).options(_UNREAD).where(*self._conditions(query)).order_by(*keyset.order_by).limit(limit)
        if after is not None:
            statement = statement.where(keyset.after(after))
        return self._readable(statement)

    def page_before(
        self, query: JobQuery, *, order: JobOrder = JobOrder.NEWEST, before: Place, limit: int
    ) -> list[Job]:
        """Up to `limit` jobs, in the order, that end in front of a place in it."""
        keyset = _keyset(order)
        statement = select(Job).options(_UNREAD).where(*self._conditions(query), keyset.before(before))
        return self._readable(statement.order_by(*keyset.order_by_backwards).limit(limit))[::-1]

    def _readable(self, statement: Select[Job]) -> list[Job]:
        """The jobs of a statement, without those whose rows cannot be read."""
        unread: list[str] = []
        while True:
            asked = statement.where(Job.id.not_in(unread))
            try:
                found = list(self._session.scalars(asked))
                for job in found:
                    _ = job.specification, job.objectives
            except UNREADABLE_ROWS:
                further = [
                    job_id
                    for job_id in self._session.scalars(asked.with_only_columns(Job.id))
                    if self._is_unread(job_id)
                ]
                if not further:  # it was mended meanwhile, or something else is wrong
                    raise
                unread += further
            else:
                return found

    def _is_unread(self, job_id: str) -> bool:
        try:
            (job,) = self._session.scalars(select(Job).where(Job.id == job_id).options(_UNREAD))
            _ = job.specification, job.objectives
        except UNREADABLE_ROWS:
            return True
        return False

    def _conditions(self, query: JobQuery) -> list[ColumnElement[bool]]:
        found: list[ColumnElement[bool]] = [Job.deleted_at.is_(None)]
        if query.states:
            found.append(Job.state.in_(query.states))
        equal = (
            (Job.project, query.project),
            (Job.project, query.sees),
            (Job.owner, query.owner),
            (Job.workload, query.workload),
            (Job.model, query.model),
        )
        found += [column == wanted for column, wanted in equal if wanted is not None]
        found += [self._has_tag(tag) for tag in query.tags]
        if query.text is not None:
            found.append(
                or_(Job.name.icontains(query.text, autoescape=True), Job.notes.icontains(query.text, autoescape=True))
            )
        if query.created_after is not None:
            found.append(Job.created_at > query.created_after)
        if query.created_before is not None:
            found.append(Job.created_at < query.created_before)
        if query.finished_after is not None:
            found.append(Job.finished_at > query.finished_after)
        if query.finished_before is not None:
            found.append(Job.finished_at < query.finished_before)
        match query.archived:
            case Archived.NO:
                found.append(Job.archived_at.is_(None))
            case Archived.YES:
                found.append(Job.archived_at.is_not(None))
            case Archived.ALL:
                pass
            case _:
                assert_never(query.archived)
        return found

    def _has_tag(self, tag: TagFilter) -> ColumnElement[bool]:
        # Rows of names and values: a name may hold what a path in JSON could not.
        is_sqlite = self._session.get_bind().dialect.name == "sqlite"
        pairs = (func.json_each if is_sqlite else func.jsonb_each_text)(Job.tags).table_valued("key", "value")
        found = select(pairs.c.key).where(pairs.c.key == tag.name)
        if tag.value is not None:
            found = found.where(pairs.c.value == tag.value)
        return exists(found.correlate(Job))


def _keyset(order: JobOrder) -> Keyset:
    match order.removeprefix("-"):
        case "created_at":  # ids grow with time
            return Keyset(Job.id, Job.id, order.is_descending)
        case "finished_at":
            return Keyset(Job.finished_at, Job.id, order.is_descending, nullable=True)
        case "priority":
            return Keyset(Job.priority, Job.id, order.is_descending)
        case _:
            return Keyset(Job.name, Job.id, order.is_descending)
