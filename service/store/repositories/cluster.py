"""Workers, what the runs of their jobs have of a cluster, and the whole with its queue, of all projects together."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, and_, delete, exists, func, or_, select, update
from sqlalchemy.orm import Session

from service.domain import JobState
from service.store.models import ClusterShare, Job, Trial, Worker
from trainers.identity.values import Environment


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job that waits for a worker."""

    id: str
    project: str
    place: int
    """1, 2, ... in the order in which workers take them, over all projects."""


class ClusterRepository:
    """Reads only; `WorkerRepository` and `ClusterShareRepository` keep what it reads."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def running_jobs(self) -> list[Job]:
        """The jobs that a worker has, the first to begin first."""
        statement = select(Job).where(Job.state == JobState.RUNNING, Job.deleted_at.is_(None))
        return list(self._session.scalars(statement.order_by(Job.running_since, Job.id)))

    def queue(self) -> list[QueuedJob]:
        """The jobs that wait for a worker, in the order in which they are taken."""
        statement = select(Job.id, Job.project).where(Job.state == JobState.QUEUED, Job.deleted_at.is_(None))
        ordered = self._session.execute(statement.order_by(Job.priority.desc(), Job.created_at, Job.id))
        return [QueuedJob(row[0], row[1], place) for place, row in enumerate(ordered, start=1)]

    def jobs(self, ids: Collection[str]) -> dict[str, Job]:
        """The jobs with these ids that are there, by id."""
        found = self._session.scalars(select(Job).where(Job.id.in_(ids), Job.deleted_at.is_(None)))
        return {job.id: job for job in found}

    def workers(self, *, heard_since: datetime, with_jobs: Collection[str], limit: int) -> list[Worker]:
        """Workers that were heard of lately and have not ended, or have one of these jobs; the longest-lived first.

        Args:
            with_jobs: ids of workers that are listed, whenever they were heard of, or ended.
            limit: so many of them at most, the ones that were heard of last.
        """
        wanted = or_(is_alive_since(heard_since), Worker.id.in_(with_jobs))
        newest = select(Worker).where(wanted).order_by(Worker.heartbeat_at.desc(), Worker.id).limit(limit)
        return sorted(self._session.scalars(newest), key=lambda worker: (worker.started_at, worker.id))

    def num_workers_alive(self, *, heard_since: datetime) -> int:
        return WorkerRepository(self._session).alive_since(heard_since)

    def shares(self, *, now: datetime) -> list[tuple[ClusterShare, Job]]:
        """The shares that living runs have of clusters that jobs share, each with its job."""
        own = and_(Job.id == ClusterShare.job_id, Job.attempt == ClusterShare.attempt)
        statement = (
            select(ClusterShare, Job)
            .join(Job, own)
            .where(Job.state == JobState.RUNNING, Job.lease_expires_at >= now, Job.deleted_at.is_(None))
        )
        found = self._session.execute(statement.order_by(ClusterShare.cluster, ClusterShare.job_id))
        return [(share, job) for share, job in found]

    def environments(self, job_ids: Sequence[str]) -> dict[str, Environment]:
        """The environment of each job's newest measured trial, by the job's id."""
        newest = (
            select(Trial.job_id, func.max(Trial.number).label("number"))
            .where(Trial.job_id.in_(job_ids), Trial.fingerprint.is_not(None))
            .group_by(Trial.job_id)
            .subquery()
        )
        statement = select(Trial.job_id, Trial.environment).join(
            newest, and_(Trial.job_id == newest.c.job_id, Trial.number == newest.c.number)
        )
        found = self._session.execute(statement)
        return {job_id: Environment.from_json(content) for job_id, content in found if content is not None}


def is_alive_since(moment: datetime) -> ColumnElement[bool]:
    """The condition on a worker that was heard of since `moment` and has not ended."""
    return and_(Worker.heartbeat_at >= moment, Worker.ended_at.is_(None))


def _is_gone_since(moment: datetime) -> tuple[ColumnElement[bool], ...]:
    """True of a worker that was last heard of before `moment`, and after which others were, and that holds no job."""
    last_heard_of = select(func.max(Worker.heartbeat_at)).scalar_subquery()
    holds_a_job = exists().where(Job.lease_worker_id == Worker.id)
    return Worker.heartbeat_at < moment, Worker.heartbeat_at < last_heard_of, ~holds_a_job


class WorkerRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, worker: Worker) -> None:
        self._session.add(worker)
        self._session.flush()

    def beat(self, worker_id: str, now: datetime) -> None:
        self._session.execute(update(Worker).where(Worker.id == worker_id).values(heartbeat_at=now))

    def end(self, worker_id: str, now: datetime) -> None:
        self._session.execute(update(Worker).where(Worker.id == worker_id).values(heartbeat_at=now, ended_at=now))

    def end_process(self, host: str, pid: int, *, since: datetime, now: datetime) -> None:
        """Ends the worker, if it has not ended, that registered from a process since a moment. When it was last heard
        of stays."""
        is_it = and_(Worker.host == host, Worker.pid == pid, Worker.started_at >= since, Worker.ended_at.is_(None))
        self._session.execute(update(Worker).where(is_it).values(ended_at=now))

    def has_gone(self, before: datetime) -> bool:
        """True if `delete_gone` would delete any; it locks nothing."""
        return bool(self._session.scalar(select(exists().where(*_is_gone_since(before)))))

    def delete_gone(self, before: datetime) -> int:
        """Deletes workers that were last heard of before a moment and hold no job, but for the one that was heard of
        last of all; how many there were."""
        statement = delete(Worker).where(*_is_gone_since(before)).returning(Worker.id)
        return len(self._session.scalars(statement).all())

    def allows_code(self, worker_id: str) -> bool:
        """True if the worker takes jobs that name code of users."""
        return bool(self._session.scalar(select(Worker.allows_code).where(Worker.id == worker_id)))

    def alive_since(self, moment: datetime, *, allows_code: bool = False) -> int:
        """Workers heard of since `moment` that have not ended; `allows_code`: those that run code of users alone."""
        allowing = (Worker.allows_code.is_(True),) if allows_code else ()
        return self._session.scalar(select(func.count()).where(is_alive_since(moment), *allowing)) or 0

    def heartbeats(self, worker_ids: Collection[str]) -> dict[str, datetime]:
        """The time at which each of these workers was last heard of, by id."""
        found = self._session.execute(select(Worker.id, Worker.heartbeat_at).where(Worker.id.in_(worker_ids)))
        return {row[0]: row[1] for row in found}

    def last_heartbeat(self) -> datetime | None:
        """The time at which a worker was last heard of; None: there was never one."""
        return self._session.scalars(select(Worker.heartbeat_at).order_by(Worker.heartbeat_at.desc()).limit(1)).first()


class ClusterShareRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def put(self, share: ClusterShare) -> None:
        """Stores what a job's run has, in place of what it had."""
        self._session.merge(share)
        self._session.flush()

    def of_cluster(self, cluster: str, *, now: datetime) -> list[tuple[ClusterShare, str, int]]:
        """The shares that living runs have of a cluster, each with its job's project and priority."""
        statement = (
            select(ClusterShare, Job.project, Job.priority)
            .join(Job, and_(Job.id == ClusterShare.job_id, Job.attempt == ClusterShare.attempt))
            .where(ClusterShare.cluster == cluster, Job.state == JobState.RUNNING, Job.lease_expires_at >= now)
            .order_by(ClusterShare.job_id)
        )
        return [(share, project, priority) for share, project, priority in self._session.execute(statement)]
