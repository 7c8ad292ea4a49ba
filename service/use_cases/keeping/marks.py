"""Marks that people set: jobs put away, and notes of trials. Neither changes anything that is trained.

An archived job is unchanged, continues to run if it runs, and is left out of lists.
"""

from __future__ import annotations

from datetime import datetime

from service.store.models import Job, Trial
from service.store.repositories import JobRepository, TrialRepository
from service.store.session import Session
from service.use_cases.transitions import record_change_event, record_trial_change_event


def set_archived(session: Session, job_id: str, *, archived: bool, now: datetime) -> Job:
    """Archives a job, or restores it; if that is already done, it changes nothing.

    Raises:
        NotFound: no such job.
    """
    job = JobRepository(session).get_locked(job_id)
    if archived != (job.archived_at is not None):
        job.archived_at = now if archived else None
        record_change_event(session, job, now=now)
    return job


def change_trial(session: Session, job_id: str, number: int, *, note: str, now: datetime) -> Trial:
    """Changes the note of a trial; empty: no note. Nothing is restarted for it.

    Raises:
        NotFound: no such job or trial.
    """
    JobRepository(session).get_locked(job_id)
    trial = TrialRepository(session).get(job_id, number)
    before = trial.note
    trial.note = note or None
    if trial.note != before:
        record_trial_change_event(session, trial, now=now)
    return trial
