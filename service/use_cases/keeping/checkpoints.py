"""The trials of an ended job whose checkpoints are kept: those that its budget cut off, which continue if the job gets
more."""

from __future__ import annotations

from datetime import datetime, timedelta

from service.domain import CancelCause
from service.settings import CHECKPOINTS_KEPT_DAYS
from service.store.models import Job, Trial
from service.store.session import Session
from service.use_cases.transitions import cut_off_trials

KEPT = timedelta(days=CHECKPOINTS_KEPT_DAYS)
"""Time from the end of a job for which its checkpoints are kept, unless the settings say otherwise."""


def goes_on(job: Job, trial: Trial, *, kept: timedelta, now: datetime) -> bool:
    """True if a trial that was cut off by the end of its job would continue from its last checkpoint if the job
    continued now.

    Otherwise it begins again: cancelled jobs and those that ended long ago keep no checkpoints on the disk, and clients
    that train trials themselves are told that their trials have ended.

    Args:
        kept: how long after the end of a job its checkpoints are kept.
    """
    is_kept = job.finished_at is not None and now - job.finished_at <= kept
    of_budget = trial.cancel_cause in (CancelCause.BUDGET, CancelCause.QUOTA)
    return is_kept and of_budget and job.specification.external is None


def trials_that_go_on(session: Session, job: Job, *, kept: timedelta, now: datetime) -> set[int]:
    """The numbers of the trials of an ended job whose checkpoints are kept, for the time `kept` after its end."""
    return {trial.number for trial in cut_off_trials(session, job) if goes_on(job, trial, kept=kept, now=now)}
