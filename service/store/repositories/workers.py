"""Workers, and what the runs of their jobs have of a cluster."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import and_, func, select, update
from sqlalchemy.orm import Session

from service.domain import JobState
from service.store.models import ClusterShare, Job, Worker


class WorkerRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, worker: Worker) -> None:
        self._session.add(worker)
        self._session.flush()

    def beat(self, worker_id: str, now: datetime) -> None:
        self._session.execute(update(Worker).where(Worker.id == worker_id).values(heartbeat_at=now))

    def alive_since(self, moment: datetime) -> int:
        """Workers heard of since `moment`."""
        return self._session.scalar(select(func.count()).where(Worker.heartbeat_at >= moment)) or 0

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

    def of_cluster(self, cluster: str, *, now: datetime) -> list[tuple[ClusterShare, int]]:
        """The shares that living runs have of a cluster, each with its job's priority."""
        statement = (
            select(ClusterShare, Job.priority)
            .join(Job, and_(Job.id == ClusterShare.job_id, Job.attempt == ClusterShare.attempt))
            .where(ClusterShare.cluster == cluster, Job.state == JobState.RUNNING, Job.lease_expires_at >= now)
            .order_by(ClusterShare.job_id)
        )
        return [(share, priority) for share, priority in self._session.execute(statement)]
