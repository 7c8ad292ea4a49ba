"""Jobs and their events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import and_, func, or_, select, text, update
from sqlalchemy.orm import Session

from service.domain import JobState
from service.errors import NotFound
from service.store.models import Event, Job

# Any constant: the key of the lock under which PostgreSQL writes events.
_EVENT_ORDER_LOCK = 7_305_112


class JobRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, job: Job) -> None:
        self._session.add(job)
        self._session.flush()

    def get(self, job_id: str) -> Job:
        """Raises: NotFound."""
        job = self._session.get(Job, job_id)
        if job is None:
            raise NotFound("job", job_id)
        return job

    def get_locked(self, job_id: str) -> Job:
        """The job, locked against other writers until the transaction ends, with its newest values.

        Raises:
            NotFound: no such job.
        """
        statement = select(Job).where(Job.id == job_id).with_for_update().execution_options(populate_existing=True)
        job = self._session.scalars(statement).one_or_none()
        if job is None:
            raise NotFound("job", job_id)
        return job

    def find_by_idempotency_key(self, key: str) -> Job | None:
        """The job a key made. Until the transaction ends, another writer that asks for the same key waits."""
        if self._session.get_bind().dialect.name == "postgresql":
            # Two requests at once would both find nothing, and the second insert would fail.
            self._session.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:key, 0))"), {"key": key})
        return self._session.scalars(select(Job).where(Job.idempotency_key == key)).one_or_none()

    def forget_idempotency_keys(self, *, before: datetime) -> None:
        """Removes the keys of the jobs that were made before a time; the jobs stay."""
        old = (Job.idempotency_key.is_not(None), Job.created_at < before)
        self._session.execute(update(Job).where(*old).values(idempotency_key=None))

    def page(
        self,
        *,
        states: Sequence[JobState] = (),
        workload: str | None = None,
        model: str | None = None,
        before_id: str | None = None,
        limit: int,
    ) -> list[Job]:
        """Up to `limit` jobs, newest first, beginning after the job `before_id`.

        Args:
            workload: its name; None: any.
            model: the user's own name of the model; None: any, or none.
        """
        statement = select(Job).order_by(Job.id.desc()).limit(limit)
        if states:
            statement = statement.where(Job.state.in_(states))
        if workload is not None:
            statement = statement.where(Job.workload == workload)
        if model is not None:
            statement = statement.where(Job.model == model)
        if before_id is not None:
            statement = statement.where(Job.id < before_id)
        return list(self._session.scalars(statement))

    def models(self) -> list[str]:
        """The names that users have given to their models."""
        return list(
            self._session.scalars(select(Job.model).where(Job.model.is_not(None)).distinct().order_by(Job.model))
        )

    def workloads(self) -> list[str]:
        """The names of the workloads that jobs had."""
        return list(self._session.scalars(select(Job.workload).distinct().order_by(Job.workload)))

    def next_claimable_locked(self, now: datetime) -> Job | None:
        """The first job, by priority and then age, that waits for a worker or whose worker let its lease expire.

        It is locked. None: there is none.
        """
        statement = (
            select(Job)
            .where(
                or_(Job.not_before.is_(None), Job.not_before <= now),
                or_(
                    Job.state == JobState.QUEUED,
                    and_(Job.state == JobState.RUNNING, Job.lease_expires_at < now),
                ),
            )
            .order_by(Job.priority.desc(), Job.created_at, Job.id)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        return self._session.scalars(statement).one_or_none()

    def queued_ids(self) -> list[str]:
        """The jobs that wait for a worker, in the order in which they are claimed."""
        statement = select(Job.id).where(Job.state == JobState.QUEUED)
        return list(self._session.scalars(statement.order_by(Job.priority.desc(), Job.created_at, Job.id)))

    def num_leased(self, now: datetime) -> int:
        """The running jobs whose leases hold."""
        statement = select(func.count()).where(Job.state == JobState.RUNNING, Job.lease_expires_at >= now)
        return self._session.scalar(statement) or 0

    def leased_to(self, worker_id: str) -> list[Job]:
        """The running jobs whose leases `worker_id` holds."""
        statement = select(Job).where(Job.lease_worker_id == worker_id, Job.state == JobState.RUNNING)
        return list(self._session.scalars(statement.order_by(Job.id)))

    def renew_leases(self, worker_id: str, expires_at: datetime) -> None:
        """Moves the expiry of every lease that `worker_id` holds on a running job."""
        self._session.execute(
            update(Job)
            .where(Job.lease_worker_id == worker_id, Job.state == JobState.RUNNING)
            .values(lease_expires_at=expires_at)
        )

    def set_disk_bytes(self, job_id: str, num_bytes: int) -> None:
        self._session.execute(update(Job).where(Job.id == job_id).values(disk_bytes=num_bytes))


class EventRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, job_id: str, kind: str, data: dict[str, Any], now: datetime) -> None:
        """Appends an event. Ids grow in commit order, so that a reader who saw id n has seen all before it.

        PostgreSQL draws an id when the row is inserted, not when it is committed: without the lock, held until the
        commit, a reader could see id 8 before 7 exists and never look back. SQLite has one writer anyway.
        """
        if self._session.get_bind().dialect.name == "postgresql":
            self._session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _EVENT_ORDER_LOCK})
        self._session.add(Event(job_id=job_id, kind=kind, data=data, created_at=now))
        self._session.flush()

    def after(self, last_id: int, *, job_id: str | None = None, limit: int) -> list[Event]:
        """Up to `limit` events with an id above `last_id`, oldest first."""
        statement = select(Event).where(Event.id > last_id).order_by(Event.id).limit(limit)
        if job_id is not None:
            statement = statement.where(Event.job_id == job_id)
        return list(self._session.scalars(statement))

    def last_id(self) -> int:
        """The newest event's id; 0: there is none."""
        return self._session.scalar(select(func.coalesce(func.max(Event.id), 0))) or 0
