"""Deletion of jobs: at once for users, and then, a little at a time, by a worker.

`delete_job` makes a job disappear for all users: it is in no list, its address is answered with 404, and its
recommendation is no longer used, so an earlier one that it had replaced is valid again. Copies stay: a config that
became a pinned trial of a later job as one of its winners, and the entries of the audit trail. Its device-hours stay
spent in its project's quota. Its `Idempotency-Key` is free: the same request makes a new job.

`remove_some` then removes its rows in short transactions. If that is interrupted, the next call continues: the deletion
is recorded in the job's own row, which is removed last.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from service.errors import JobNotFinished
from service.store.models import DeletedJob
from service.store.repositories import DeletionRepository, JobRepository
from service.store.session import Session
from service.use_cases.transitions import record_deletion_event

GRACE = timedelta(seconds=30)
"""Time from the deletion until rows are removed: meanwhile streams report it, and a run that was just cancelled
ends."""
MEASUREMENTS_AT_ONCE = 2000
TRIALS_AT_ONCE = 20
EVENTS_AT_ONCE = 2000
"""All are numbers of rows removed in one transaction, by judgement: it stays short, so that others can write. Trials
are fewer, because everything that belongs to a trial is removed with it."""


def delete_job(session: Session, job_id: str, *, now: datetime) -> None:
    """Deletes a job that has ended, with everything that belongs to it, even if its rows cannot be read.

    Raises:
        NotFound: no such job.
        JobNotFinished: it has not ended; cancel it first.
    """
    jobs = JobRepository(session)
    jobs.lock(job_id)
    state = jobs.state_of(job_id)
    if not state.is_final:
        raise JobNotFinished(job_id, state)
    project, rank_seconds = jobs.spent_of(job_id)
    deletions = DeletionRepository(session)
    deletions.add(DeletedJob(id=job_id, project=project, rank_seconds=rank_seconds, deleted_at=now))
    deletions.delete_recommendation(job_id)
    jobs.mark_deleted(job_id, now)
    record_deletion_event(session, job_id, now=now)


def next_to_remove(session: Session, *, now: datetime) -> str | None:
    """A deleted job with rows left to remove; None: there is none yet."""
    return DeletionRepository(session).next_to_remove(now - GRACE)


def remove_some(session: Session, job_id: str) -> bool:
    """Removes some rows of a deleted job, its own row last; True if there may be more."""
    deletions = DeletionRepository(session)
    if (
        deletions.delete_measurements(job_id, limit=MEASUREMENTS_AT_ONCE)
        or deletions.delete_trials(job_id, limit=TRIALS_AT_ONCE)
        or deletions.delete_events(job_id, limit=EVENTS_AT_ONCE)
    ):
        return True
    deletions.delete_job(job_id)
    return False
