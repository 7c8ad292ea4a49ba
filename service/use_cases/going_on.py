"""Continuing paused and ended jobs: the rest of their budgets, and which of their trials are queued again."""

from __future__ import annotations

import dataclasses
from collections import Counter
from datetime import datetime, timedelta

from service.access.quotas import check_room
from service.domain import JobRequest, JobState, Phase, TrialState
from service.errors import BudgetSpent
from service.specification.phases import allot
from service.store.models import Job, Trial
from service.store.repositories import TrialRepository
from service.store.session import Session
from service.use_cases.budgets import Spent, cost_of, device_hours, running_seconds, why_spent
from service.use_cases.keeping.checkpoints import goes_on
from service.use_cases.transitions import cut_off_trials, move_job, move_trial


def budget_is_left(session: Session, job: Job, *, now: datetime) -> bool:
    """True if the budget of a job would allow further trials."""
    return _why_spent(session, job, num_trials=job.num_trials, now=now) is None


def restart_run(job: Job) -> None:
    """Asks the run of a running job to end, so that the next run starts from the current rows."""
    if job.state is JobState.RUNNING and job.requested is None:
        job.requested = JobRequest.RESTART


def begin_again(session: Session, trial: Trial, *, now: datetime, detail: str) -> None:
    """Queues an ended trial as if nothing of it had been trained; its measurements stay until they are made again."""
    trial.started_at, trial.step, trial.seconds, trial.value, trial.metrics = None, 0, 0.0, None, {}
    trial.losses, trial.memory_failures = 0, 0
    move_trial(session, trial, TrialState.QUEUED, now=now, detail=detail)


def queue_again(session: Session, job: Job, *, kept: timedelta, now: datetime, needs_trials: bool) -> None:
    """Puts a paused or finished job back in the queue, with the trials that its end cut off.

    Args:
        kept: for how long from the end of a job its checkpoints are kept.
        needs_trials: whether its budget must leave another trial to try, and not only time.

    Raises:
        BudgetSpent: the job has finished, and its budget leaves nothing.
        QuotaExceeded: its project may have no further job in the queue.
    """
    check_room(session, job.project)
    if job.state.is_final:
        num_trials = job.num_trials if needs_trials else None
        why = _why_spent(session, job, num_trials=num_trials, now=now)
        if why is not None:
            raise BudgetSpent(job.id, job.state, why)
        job.reopened_at, job.reopened_from = now, job.state
        job.num_trials = sum(allot(job.specification).values())  # its end had reduced it to those it needed
        for trial in cut_off_trials(session, job):
            if goes_on(job, trial, kept=kept, now=now):
                detail = "cut off by the end of the job; goes on from its last checkpoint"
                move_trial(session, trial, TrialState.QUEUED, now=now, detail=detail)
            else:
                begin_again(session, trial, now=now, detail="cut off by the end of the job; begins again")
    job.crashes, job.not_before = 0, None
    move_job(session, job, JobState.QUEUED, now=now)


def _why_spent(session: Session, job: Job, *, num_trials: int | None, now: datetime) -> str | None:
    """The `why_spent` of a finished job: the trials that begin again with it have not begun."""
    spent = spent_of(session, job, now=now)
    trials = Counter(spent.trials)
    if job.state.is_final:
        trials.subtract(trial.phase for trial in cut_off_trials(session, job))
    return why_spent(job.specification, dataclasses.replace(spent, trials=trials), num_trials=num_trials)


def spent_of(session: Session, job: Job, *, now: datetime) -> Spent:
    """The part of its budget that a job has used."""
    trials, seconds = Counter[Phase](), 0.0
    for summary in TrialRepository(session).summaries([job.id]):
        trials[summary.phase] += summary.count
        seconds += summary.spent_seconds
    hours = device_hours(job.specification, seconds)
    return Spent(trials, running_seconds(job, now), hours, cost_of(job.price, hours))
