"""Jobs that were deleted: their rows removed a little at a time, and what must be known of them afterwards."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Delete, delete, func, select
from sqlalchemy.orm import Session

from service.store.models import DeletedJob, Event, Job, MeasurementRow, RecommendationRow, Trial


class DeletionRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, deleted: DeletedJob) -> None:
        self._session.add(deleted)
        self._session.flush()

    def next_to_remove(self, deleted_before: datetime) -> str | None:
        """The job that was deleted first, before this time, and still has rows; None: there is none."""
        # "IS NOT NULL" is what the index is for.
        statement = select(Job.id).where(Job.deleted_at.is_not(None), Job.deleted_at < deleted_before)
        return self._session.scalar(statement.order_by(Job.deleted_at, Job.id).limit(1))

    def among(self, job_ids: Collection[str]) -> set[str]:
        """The ids among these of jobs that were deleted."""
        return set(self._session.scalars(select(DeletedJob.id).where(DeletedJob.id.in_(list(job_ids)))))

    def delete_recommendation(self, job_id: str) -> None:
        self._session.execute(delete(RecommendationRow).where(RecommendationRow.job_id == job_id))

    def delete_measurements(self, job_id: str, *, limit: int) -> int:
        """Deletes measurements of one trial of a job; how many there were, 0: the job has none."""
        # Each trial's stand together in the table.
        first = (
            select(MeasurementRow.trial_id)
            .join(Trial, Trial.id == MeasurementRow.trial_id)
            .where(Trial.job_id == job_id)
        )
        trial_id = self._session.scalar(first.limit(1))
        if trial_id is None:
            return 0
        own = select(MeasurementRow.step).where(MeasurementRow.trial_id == trial_id)
        steps = list(self._session.scalars(own.order_by(MeasurementRow.step).limit(limit)))
        self._session.execute(
            delete(MeasurementRow).where(MeasurementRow.trial_id == trial_id, MeasurementRow.step <= steps[-1])
        )
        return len(steps)

    def delete_trials(self, job_id: str, *, limit: int) -> int:
        """Deletes trials of a job, with all that hangs on them; how many there were."""
        found = list(self._session.scalars(select(Trial.id).where(Trial.job_id == job_id).limit(limit)))
        return self._removed(delete(Trial).where(Trial.id.in_(found)), len(found))

    def delete_events(self, job_id: str, *, limit: int) -> int:
        """Deletes events of a job; how many there were."""
        found = list(self._session.scalars(select(Event.id).where(Event.job_id == job_id).limit(limit)))
        return self._removed(delete(Event).where(Event.id.in_(found)), len(found))

    def delete_job(self, job_id: str) -> None:
        self._session.execute(delete(Job).where(Job.id == job_id))

    def rank_seconds(self, project: str | None) -> float:
        """Training time of all trials of deleted jobs times their ranks; `project` None: of any."""
        statement = select(func.coalesce(func.sum(DeletedJob.rank_seconds), 0.0))
        if project is not None:
            statement = statement.where(DeletedJob.project == project)
        return float(self._session.scalar(statement) or 0.0)

    def _removed(self, statement: Delete, count: int) -> int:
        if count:
            self._session.execute(statement)
        return count
