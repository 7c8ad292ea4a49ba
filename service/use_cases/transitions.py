"""Moves jobs and trials between states: checks that the move is legal, stamps the time, appends the event."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from service.clock import SECONDS_PER_HOUR
from service.domain import JOB_TRANSITIONS, TRIAL_TRANSITIONS, CancelCause, FailureReason, JobState, Phase, TrialState
from service.store.models import Job, Trial
from service.store.repositories import EventRepository, TrialRepository
from service.store.session import Session
from service.use_cases.budgets import device_hours, running_seconds

STOPPED = "stopped by a user"
"""Detail of a trial that was cancelled alone."""
BUDGET_SPENT = "the budget was spent"
"""The reason given for a job, and its trials, that ended because its time, device-hours or cost were used up."""


class IllegalTransition(RuntimeError):
    """A bug of ours: a use case asked for a move that the domain does not allow."""


def move_job(
    session: Session,
    job: Job,
    to: JobState,
    *,
    now: datetime,
    failure: str | None = None,
    cut_off: str | None = None,
    lost: str | None = None,
) -> None:
    """Moves a locked job to another state. Leaving `running` drops the lease and what was asked of the run.

    Args:
        failure: why it failed, for a person.
        cut_off: the cause if it ended before its trials, likewise.
        lost: the cause of its run's death, if another run will continue, likewise.
    """
    if to not in JOB_TRANSITIONS[job.state]:
        raise IllegalTransition(f"job {job.id}: {job.state} -> {to}")
    if job.state is JobState.RUNNING:
        hours = device_hours(job.specification, TrialRepository(session).spent_seconds(job.id))
        job.spent_device_seconds = hours * SECONDS_PER_HOUR
    job.running_seconds = running_seconds(job, now)
    job.running_since = now if to is JobState.RUNNING else None
    job.requested = None
    job.waiting_since, job.waiting_for = (now if to is JobState.QUEUED else None), None
    job.state = to
    if to is JobState.RUNNING and job.started_at is None:
        job.started_at = now
    job.finished_at = now if to.is_final else None
    if to.is_final:
        job.reopened_from = None
    job.failure = None if failure is None else storable(failure)
    job.cut_off = cut_off
    if to is not JobState.RUNNING:
        job.lease_worker_id = None
        job.lease_expires_at = None
    record_job_event(session, job, lost=lost, now=now)


def record_job_event(session: Session, job: Job, *, lost: str | None = None, now: datetime) -> None:
    """Appends an event with a job's present state. `lost`: see `move_job`."""
    data = {"state": job.state.value, "failure": job.failure, "lost": None if lost is None else storable(lost)}
    EventRepository(session).add(job.id, "job.state", data, now)


def record_deletion_event(session: Session, job_id: str, *, now: datetime) -> None:
    """Appends the event of a job's deletion, which is its last one."""
    EventRepository(session).add(job_id, "job.deleted", {}, now)


def record_change_event(session: Session, job: Job, *, now: datetime) -> None:
    """Appends an event with the fields of a job that users can change, and what its run is asked for or waits for."""
    data = {
        "budget": job.specification.budget.model_dump(mode="json"),
        "priority": job.priority,
        "name": job.name,
        "tags": job.tags,
        "archived": job.archived_at is not None,
        "requested": job.requested.value if job.requested else None,
        "waiting_for": job.waiting_for,
    }
    EventRepository(session).add(job.id, "job.changed", data, now)


def move_trial(
    session: Session,
    trial: Trial,
    to: TrialState,
    *,
    now: datetime,
    reason: FailureReason | None = None,
    cancel_cause: CancelCause | None = None,
    detail: str | None = None,
) -> None:
    """Moves a trial of a locked job to another state."""
    if to not in TRIAL_TRANSITIONS[trial.state]:
        raise IllegalTransition(f"trial {trial.job_id}/{trial.number}: {trial.state} -> {to}")
    if (to is TrialState.FAILED) != (reason is not None):
        raise IllegalTransition(f"trial {trial.job_id}/{trial.number}: {to} with reason {reason}")
    if (to is TrialState.CANCELLED) != (cancel_cause is not None):
        raise IllegalTransition(f"trial {trial.job_id}/{trial.number}: {to} with cause {cancel_cause}")
    if trial.state.is_final or to.is_final:
        job = session.get(Job, trial.job_id)
        assert job is not None, "a trial has a job"
        job.trial_ends += 1
    trial.state = to
    trial.reason = reason
    trial.cancel_cause = cancel_cause
    if to is not TrialState.RUNNING:
        trial.requested = None
    trial.detail = None if detail is None else storable(detail)
    if to is TrialState.RUNNING:
        trial.runs += 1
        trial.started_at = trial.started_at or now
    trial.finished_at = now if to.is_final else None
    record_trial_event(session, trial, now=now)


def record_trial_event(session: Session, trial: Trial, *, now: datetime) -> None:
    """Appends an event with a trial's present state."""
    data: dict[str, Any] = {
        "number": trial.number,
        "phase": trial.phase.value,
        "confirms": trial.confirms,
        "forked_from": trial.forked_from,
        "state": trial.state.value,
        "requested": trial.requested.value if trial.requested else None,
        "reason": trial.reason.value if trial.reason else None,
        "step": trial.step,
        "value": trial.value,
    }
    EventRepository(session).add(trial.job_id, "trial.state", data, now)


def record_trial_change_event(session: Session, trial: Trial, *, now: datetime) -> None:
    """Appends the event that a user changed the note of a trial."""
    EventRepository(session).add(trial.job_id, "trial.changed", {"number": trial.number}, now)


def storable(text: str) -> str:
    """The text with escapes for characters that no database stores: NUL, and surrogates such as those in odd file
    names."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


def stop(session: Session, trial: Trial, *, now: datetime) -> None:
    """Cancels a single trial of a locked job, as a user asked."""
    move_trial(session, trial, TrialState.CANCELLED, now=now, cancel_cause=CancelCause.USER, detail=STOPPED)


def cancel_unfinished_trials(session: Session, job: Job, cause: CancelCause, *, now: datetime, detail: str) -> bool:
    """Cancels every queued or running trial of a locked job; True if there was any."""
    unfinished = TrialRepository(session).page(job.id, states=(TrialState.QUEUED, TrialState.RUNNING))
    for trial in unfinished:
        move_trial(session, trial, TrialState.CANCELLED, now=now, cancel_cause=cause, detail=detail)
    return bool(unfinished)


def cut_off_trials(session: Session, job: Job) -> list[Trial]:
    """The trials that the end of a finished job has cut off; they are trained to their ends if it is resumed.

    Trials of the confirmation count however the job ended, because configs are compared on equal seeds. Trials of
    search and baselines count if the budget of the job or its project was spent, because otherwise their side would
    have one trial fewer than the other. They do not count if the job failed, because they may be the reason, nor in a
    population, whose forks have lost the checkpoints that they began from.
    """
    in_search = () if job.specification.pruner.name == "pbt" else (CancelCause.BUDGET, CancelCause.QUOTA)
    in_confirmation = tuple(cause for cause in CancelCause if cause is not CancelCause.USER)
    return [
        trial
        for trial in TrialRepository(session).page(job.id, states=(TrialState.CANCELLED,))
        if trial.cancel_cause in (in_confirmation if trial.phase is Phase.CONFIRMATION else in_search)
    ]
