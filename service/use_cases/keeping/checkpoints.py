"""The trials of an ended job whose checkpoints stay: those that its budget cut off, which go on where it gets more."""

from __future__ import annotations

from datetime import datetime, timedelta

from service.domain import CancelCause
from service.settings import CHECKPOINTS_KEPT_DAYS
from service.store.models import Job, Trial
from service.store.session import Session
from service.use_cases.transitions import cut_off_trials

KEPT = timedelta(days=CHECKPOINTS_KEPT_DAYS)
"""Time from the end of a job for which its checkpoints stay, unless the settings say otherwise."""


def goes_on(job: Job, trial: Trial, *, kept: timedelta, now: datetime) -> bool:
    """True if a trial that the end of its job cut off goes on from its last checkpoint where the job does now.

    Elsewhere it begins again: what a user has cancelled takes no room on the disk, nor what ended long ago, and clients
    that train trials themselves are told that theirs have ended.

    Args:
        kept: for so long from the end of a job its checkpoints stay.
    """
    is_kept = job.finished_at is not None and now - job.finished_at <= kept
    of_budget = trial.cancel_cause in (CancelCause.BUDGET, CancelCause.QUOTA)
    return is_kept and of_budget and job.specification.external is None


def trials_that_go_on(session: Session, job: Job, *, kept: timedelta, now: datetime) -> set[int]:
    """The numbers of the trials of an ended job whose checkpoints stay, for as long as `kept` from its end."""
    return {trial.number for trial in cut_off_trials(session, job) if goes_on(job, trial, kept=kept, now=now)}
