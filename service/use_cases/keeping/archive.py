"""Putting jobs away: an archived job stays as it is, runs if it runs, and is left out of lists."""

from __future__ import annotations

from datetime import datetime

from service.store.models import Job
from service.store.repositories import JobRepository
from service.store.session import Session
from service.use_cases.transitions import record_change_event


def set_archived(session: Session, job_id: str, *, archived: bool, now: datetime) -> Job:
    """Puts a job away, or brings it back; again, it changes nothing.

    Raises:
        NotFound: no such job.
    """
    job = JobRepository(session).get_locked(job_id)
    if archived != (job.archived_at is not None):
        job.archived_at = now if archived else None
        record_change_event(session, job, now=now)
    return job
