"""Jobs whose rows cannot be read: pages that show them fail, until they are deleted."""

from __future__ import annotations

from service.store.repositories import JobRepository, TrialRepository
from service.store.session import UNREADABLE_ROWS, Session

MAX_WHY_LENGTH = 200
"""Characters of an error, by judgement: its first line or two."""


def unread_jobs(session: Session) -> dict[str, str]:
    """The reason why each of these jobs cannot be read, by its id. Reads every job and trial, and no measurement."""
    jobs, trials, found = JobRepository(session), TrialRepository(session), {}
    for job_id in jobs.ids():
        try:
            job = jobs.get(job_id)
            _ = job.specification, job.objectives
            trials.page(job_id)
        except UNREADABLE_ROWS as error:
            found[job_id] = f"{type(error).__name__}: {error}"[:MAX_WHY_LENGTH]
        session.expunge_all()
    return found
