"""Jobs: their rows, claims and leases."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import ColumnElement, and_, func, or_, select, text, update
from sqlalchemy.orm import Session

from service.domain import CancelCause, JobState, TrialState
from service.errors import JobNotFound
from service.store.models import Job, Trial, Worker

_IS_THERE = Job.deleted_at.is_(None)


class JobRepository:
    """The jobs that are not deleted; whoever removes the others has a repository for it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, job: Job) -> None:
        self._session.add(job)
        self._session.flush()

    def get(self, job_id: str) -> Job:
        """Raises: NotFound."""
        job = self._session.get(Job, job_id)
        if job is None or job.deleted_at is not None:
            raise JobNotFound(job_id)
        return job

    def project_of(self, job_id: str) -> str | None:
        """The project of a job; None: no such job."""
        return self._session.scalar(select(Job.project).where(Job.id == job_id, _IS_THERE))

    def check_exists(self, job_id: str) -> None:
        """Raises: NotFound."""
        if self._session.scalar(select(Job.id).where(Job.id == job_id, _IS_THERE)) is None:
            raise JobNotFound(job_id)

    def state_of(self, job_id: str) -> JobState:
        """The state of a job, whether the rest of its row can be read or not. Raises: NotFound."""
        state = self._session.scalar(select(Job.state).where(Job.id == job_id, _IS_THERE))
        if state is None:
            raise JobNotFound(job_id)
        return state

    def get_locked(self, job_id: str) -> Job:
        """The job, locked against other writers until the transaction ends, with its newest values.

        Raises:
            NotFound: no such job.
        """
        statement = select(Job).where(Job.id == job_id, _IS_THERE).with_for_update()
        statement = statement.execution_options(populate_existing=True)
        job = self._session.scalars(statement).one_or_none()
        if job is None:
            raise JobNotFound(job_id)
        return job

    def lock(self, job_id: str) -> None:
        """Locks a job as `get_locked` does, and reads nothing of it. Raises: NotFound."""
        statement = select(Job.id).where(Job.id == job_id, _IS_THERE).with_for_update()
        if self._session.scalar(statement) is None:
            raise JobNotFound(job_id)

    def spent_of(self, job_id: str) -> tuple[str, float]:
        """The project of a job that does not run, and the seconds that its ranks have trained in all."""
        row = self._session.execute(select(Job.project, Job.spent_device_seconds).where(Job.id == job_id)).one()
        return row[0], row[1]

    def mark_deleted(self, job_id: str, now: datetime) -> None:
        """Notes that a locked job is deleted, and frees its idempotency key."""
        self._session.execute(update(Job).where(Job.id == job_id).values(deleted_at=now, idempotency_key=None))

    def find_by_idempotency_key(self, key: str) -> Job | None:
        """The job that a key made, as its row has it. Until the transaction ends, another writer that asks for the same
        key waits."""
        if self._session.get_bind().dialect.name == "postgresql":
            # Two requests at once would both find nothing, and the second insert would fail.
            self._session.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:key, 0))"), {"key": key})
        return self._session.scalars(select(Job).where(Job.idempotency_key == key)).one_or_none()

    def forget_idempotency_keys(self, *, before: datetime) -> None:
        """Removes the keys of the jobs that were made before a time; the jobs stay."""
        old = (Job.idempotency_key.is_not(None), Job.created_at < before)
        self._session.execute(update(Job).where(*old).values(idempotency_key=None))

    def page(self, *, project: str | None, workload: str | None = None, limit: int) -> list[Job]:
        """Up to `limit` jobs, newest first, the archived ones, too; `project` and `workload` None: of any."""
        statement = select(Job).where(_IS_THERE, *_of_project(project)).order_by(Job.id.desc()).limit(limit)
        if workload is not None:
            statement = statement.where(Job.workload == workload)
        return list(self._session.scalars(statement))

    def ids(self) -> list[str]:
        """The ids of all jobs, the oldest first."""
        return list(self._session.scalars(select(Job.id).where(_IS_THERE).order_by(Job.id)))

    def models(self, *, project: str | None) -> list[str]:
        """The names that users have given to their models; `project` None: in any."""
        statement = select(Job.model).where(Job.model.is_not(None), _IS_THERE, *_of_project(project))
        return list(self._session.scalars(statement.distinct().order_by(Job.model)))

    def workloads(self, *, project: str | None) -> list[str]:
        """The names of the workloads that jobs had; `project` None: of any."""
        statement = select(Job.workload).where(_IS_THERE, *_of_project(project))
        return list(self._session.scalars(statement.distinct().order_by(Job.workload)))

    def next_claimable_locked(
        self,
        now: datetime,
        *,
        resting: Collection[str] = (),
        external: bool | None = None,
        allows_code: bool = True,
    ) -> str | None:
        """The id of the first job, by priority and then age, that waits for a worker or whose worker let its lease
        expire.

        It is locked, and nothing else of it is read: that may fail. None: there is none.

        Args:
            resting: projects of which none may begin.
            external: whether others are to train its trials; None: either.
            allows_code: whether it may name code of users.
        """
        statement = (
            select(Job.id)
            .where(*(() if external is None else (Job.is_external == external,)))
            .where(*(() if allows_code else (Job.names_code.is_(False),)))
            .where(
                or_(Job.not_before.is_(None), Job.not_before <= now),
                or_(
                    and_(Job.state == JobState.QUEUED, Job.project.not_in(resting)),
                    and_(Job.state == JobState.RUNNING, Job.lease_expires_at < now),
                ),
            )
            .order_by(Job.priority.desc(), Job.created_at, Job.id)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        return self._session.scalar(statement)

    def queued_ids(self, *, external: bool) -> list[str]:
        """The jobs that wait for a worker, in the order in which they are claimed.

        Args:
            external: those whose trials others train, which workers take beside the others; or those others.
        """
        statement = select(Job.id).where(Job.state == JobState.QUEUED, Job.is_external == external)
        return list(self._session.scalars(statement.order_by(Job.priority.desc(), Job.created_at, Job.id)))

    def external_waits(self, now: datetime) -> bool:
        """True if a job whose trials others train waits for a worker, or its worker let its lease expire."""
        waits = or_(Job.state == JobState.QUEUED, and_(Job.state == JobState.RUNNING, Job.lease_expires_at < now))
        return self._session.scalar(select(Job.id).where(Job.is_external.is_(True), waits).limit(1)) is not None

    def num_leased(self, now: datetime, *, external: bool = False, to_code_workers: bool = False) -> int:
        """The running jobs whose leases hold.

        Args:
            external: those whose trials others train, which workers run beside the others; or those others.
            to_code_workers: those alone that workers have which run code of users.
        """
        statement = select(func.count()).where(
            Job.state == JobState.RUNNING, Job.lease_expires_at >= now, Job.is_external == external
        )
        if to_code_workers:
            taking = select(Worker.id).where(Worker.allows_code.is_(True))
            statement = statement.where(Job.lease_worker_id.in_(taking))
        return self._session.scalar(statement) or 0

    def next_to_thin(self, finished_before: datetime) -> str | None:
        """The id of the job that ended first, before this time, and has not been thinned since; None: there is none."""
        statement = select(Job.id).where(
            Job.state.in_([state for state in JobState if state.is_final]),
            Job.finished_at < finished_before,
            _IS_THERE,
            or_(Job.thinned_at.is_(None), Job.thinned_at < Job.finished_at),
        )
        return self._session.scalar(statement.order_by(Job.finished_at, Job.id).limit(1))

    def mark_thinned(self, job_id: str, now: datetime) -> None:
        self._session.execute(update(Job).where(Job.id == job_id).values(thinned_at=now))

    def leased_to(self, worker_id: str, *, external: bool | None = None) -> list[tuple[str, int]]:
        """The running jobs whose leases `worker_id` holds, each with its last claim; `external`: see above."""
        statement = select(Job.id, Job.attempt).where(Job.lease_worker_id == worker_id, Job.state == JobState.RUNNING)
        if external is not None:
            statement = statement.where(Job.is_external == external)
        return [(job_id, attempt) for job_id, attempt in self._session.execute(statement.order_by(Job.id))]

    def lock_claim(self, job_id: str, worker_id: str, attempt: int) -> bool:
        """True if this claim still holds a running job, which is locked then; nothing else of it is read."""
        held = (Job.state == JobState.RUNNING, Job.lease_worker_id == worker_id, Job.attempt == attempt)
        statement = select(Job.id).where(Job.id == job_id, *held, _IS_THERE).with_for_update()
        return self._session.scalar(statement) is not None

    def renew_leases(self, worker_id: str, expires_at: datetime) -> None:
        """Moves the expiry of every lease that `worker_id` holds on a running job."""
        self._session.execute(
            update(Job)
            .where(Job.lease_worker_id == worker_id, Job.state == JobState.RUNNING)
            .values(lease_expires_at=expires_at)
        )

    def renew_lease(self, job_id: str, expires_at: datetime) -> None:
        self._session.execute(update(Job).where(Job.id == job_id).values(lease_expires_at=expires_at))

    def fail_unread(self, job_id: str, *, failure: str, now: datetime) -> None:
        """Ends a locked job and its unfinished trials without reading them."""
        self._session.execute(
            update(Job)
            .where(Job.id == job_id)
            .values(
                state=JobState.FAILED,
                failure=failure,
                cut_off=None,
                finished_at=now,
                reopened_from=None,
                running_since=None,
                requested=None,
                waiting_since=None,
                waiting_for=None,
                lease_worker_id=None,
                lease_expires_at=None,
                trial_ends=Job.trial_ends + 1,
            )
        )
        unfinished = Trial.state.in_([state for state in TrialState if not state.is_final])
        self._session.execute(
            update(Trial)
            .where(Trial.job_id == job_id, unfinished)
            .values(
                state=TrialState.CANCELLED,
                cancel_cause=CancelCause.JOB_FAILED,
                finished_at=now,
                requested=None,
                detail="the job failed",
            )
        )

    def set_disk_bytes(self, job_id: str, num_bytes: int) -> None:
        self._session.execute(update(Job).where(Job.id == job_id).values(disk_bytes=num_bytes))


def _of_project(project: str | None) -> list[ColumnElement[bool]]:
    return [] if project is None else [Job.project == project]
