"""The notes that people keep about trials."""

from __future__ import annotations

from datetime import datetime

from service.store.models import Trial
from service.store.repositories import JobRepository, TrialRepository
from service.store.session import Session
from service.use_cases.transitions import record_trial_change_event


def change_trial(session: Session, job_id: str, number: int, *, note: str, now: datetime) -> Trial:
    """Changes what is noted of a trial; empty: nothing. Nothing starts anew for it.

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
