"""Use cases that steer a job: pause, resume, cancel or change it. `steer_trials` has those for its trials.

They only change rows. If the run of a running job has to act, they write a request: the run looks for requests several
times a second and ends cleanly, or stops the trial at its next measurement. If it dies instead, `leases.put_back`,
which takes the job from it, does what was requested.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from service.domain import CancelCause, JobRequest, JobState, Phase, TrialState
from service.errors import InvalidInput, JobAlreadyFinished, TooFewTrials
from service.specification.job import Budget, JobSpecification
from service.specification.phases import allot, allot_sides
from service.specification.search.population import population_sizes
from service.store.models import Job, Trial
from service.store.repositories import JobRepository, TrialRepository
from service.store.session import Session
from service.use_cases.budgets import check_cost
from service.use_cases.going_on import queue_again, restart_run, spent_of
from service.use_cases.keeping.checkpoints import KEPT
from service.use_cases.leases import put_back
from service.use_cases.recommending import store_recommendation
from service.use_cases.transitions import cancel_unfinished_trials, move_job, record_change_event


def pause_job(session: Session, job_id: str, *, now: datetime) -> Job:
    """Pauses a job; a running one keeps its state until its run has ended, within seconds. Repeated calls change
    nothing.

    Raises:
        NotFound: no such job.
        JobAlreadyFinished: the job is in a final state.
    """
    job = _unfinished_job(session, job_id)
    if job.state is JobState.QUEUED:
        move_job(session, job, JobState.PAUSED, now=now)
    elif job.state is JobState.RUNNING and job.requested is not JobRequest.PAUSE:
        job.requested = JobRequest.PAUSE
        if job.lease_expires_at is not None and job.lease_expires_at < now:
            put_back(session, job, now=now, crash=None)  # its worker is dead, and there may be no other
        else:
            record_change_event(session, job, now=now)
    return job


def resume_job(session: Session, job_id: str, *, checkpoints_kept: timedelta = KEPT, now: datetime) -> Job:
    """Puts a paused job back in the queue, and a finished one whose budget is not spent; else it changes nothing.

    Ended trials are unchanged, except those that the end of the job cut off (`transitions.cut_off_trials`): they
    continue from their last checkpoints if these are kept, else they begin again. `checkpoints_kept`: how long after
    the end of a job its checkpoints are kept.

    Raises:
        NotFound: no such job.
        BudgetSpent: the job has finished, and its budget leaves nothing to try.
        QuotaExceeded: its project may have no further job in the queue.
    """
    job = JobRepository(session).get_locked(job_id)
    if job.requested is JobRequest.PAUSE:
        job.requested = JobRequest.RESTART  # whether the run has seen it already is not known
        record_change_event(session, job, now=now)
    elif job.state is JobState.PAUSED or job.state.is_final:
        queue_again(session, job, kept=checkpoints_kept, now=now, needs_trials=True)
    return job


def cancel_job(session: Session, job_id: str, *, now: datetime) -> Job:
    """Cancels a job and its unfinished trials; the run, if any, notices and ends.

    If its search was over and it was confirming configs, it gets an answer from the known results, a provisional one
    unless the configs had been compared. If it had succeeded before and was extended, it has succeeded again: its
    answer stays, or is made again if more was tried.

    Raises:
        NotFound: no such job.
        JobAlreadyFinished: the job is in a final state.
    """
    job = _unfinished_job(session, job_id)
    cancel_unfinished_trials(session, job, CancelCause.JOB_CANCELLED, now=now, detail="the job was cancelled")
    trials = TrialRepository(session)
    if job.reopened_from is JobState.SUCCEEDED:
        all_trials = trials.with_measurements(job.id)
        if any(_completed_since(trial, job.reopened_at) for trial in all_trials):
            store_recommendation(session, job, all_trials, now=now)
        job.num_trials = len(all_trials)
        move_job(session, job, JobState.SUCCEEDED, now=now)
        return job
    if trials.page(job.id, phase=Phase.CONFIRMATION, limit=1):
        store_recommendation(session, job, trials.with_measurements(job.id), now=now)
    move_job(session, job, JobState.CANCELLED, now=now)
    return job


def change_budget(session: Session, job_id: str, changes: Mapping[str, Any], *, now: datetime) -> Job:
    """Changes fields of a job's budget. A running job continues with the new budget within seconds, a finished one when
    it is resumed.

    Args:
        changes: values by field of `Budget`; fields left out stay.

    Raises:
        NotFound: no such job.
        TooFewTrials: fewer than have begun, or too few for the job's phases.
        InvalidInput: a cost without a price.
    """
    job = JobRepository(session).get_locked(job_id)
    specification = job.specification
    budget = Budget.model_validate({**specification.budget.model_dump(), **changes})
    if budget == specification.budget:
        return job
    check_cost(budget, job.price)
    changed = specification.model_copy(update={"budget": budget})
    before, allotted = allot(specification), _allot(changed)
    for phase, begun in spent_of(session, job, now=now).trials.items():
        # After an extension other configs may be the best, and be confirmed in addition to the earlier ones. An old
        # job, from before sides had equal numbers, may have begun one more than it is allotted today.
        if phase is not Phase.CONFIRMATION and begun > allotted[phase] and allotted[phase] < before[phase]:
            message = f"{budget.num_trials} would leave {allotted[phase]} for the {phase}, which has begun {begun}"
            raise TooFewTrials(message)
    job.specification = changed
    job.num_trials = sum(allotted.values())
    restart_run(job)
    record_change_event(session, job, now=now)
    return job


def change_job(
    session: Session,
    job_id: str,
    *,
    name: str | None = None,
    tags: Mapping[str, str] | None = None,
    priority: int | None = None,
    notes: str | None = None,
    now: datetime,
) -> Job:
    """Changes the name, tags, priority or notes of a job; None: unchanged. Its run is not restarted.

    Raises:
        NotFound: no such job.
    """
    job = JobRepository(session).get_locked(job_id)
    before = job.name, job.tags, job.priority, job.notes
    job.name = job.name if name is None else name
    job.tags = job.tags if tags is None else dict(tags)
    job.priority = job.priority if priority is None else priority
    job.notes = job.notes if notes is None else notes or None
    if (job.name, job.tags, job.priority, job.notes) != before:
        record_change_event(session, job, now=now)
    return job


def _unfinished_job(session: Session, job_id: str) -> Job:
    job = JobRepository(session).get_locked(job_id)
    if job.state.is_final:
        raise JobAlreadyFinished(job.id, job.state)
    return job


def _allot(specification: JobSpecification) -> dict[Phase, int]:
    try:
        if specification.pruner.name == "pbt":
            population_sizes(specification.pruner.population, allot_sides(specification))
        return allot(specification)
    except TooFewTrials:
        raise
    except InvalidInput as error:  # the bound of another field, although only the budget has changed
        raise TooFewTrials(f"{specification.budget.num_trials} is too few: {error}") from error


def _completed_since(trial: Trial, moment: datetime | None) -> bool:
    """True if a trial completed after a moment; None: it did not."""
    ended = trial.finished_at if trial.state is TrialState.COMPLETED else None
    return ended is not None and moment is not None and ended >= moment
