"""Use cases of those who steer a job: pause, resume, cancel or change it, stop, retry or propose a trial.

They only change rows. What needs the run of a running job is written as a request: the run looks for requests several
times a second and ends in order, or stops the trial at its next measurement. If it dies instead, whoever takes the job
from it (`leases.put_back`) does what was asked.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from pydantic import JsonValue
from ulid import ULID

from service.access.quotas import check_room
from service.domain import CancelCause, JobRequest, JobState, Phase, Side, TrialRequest, TrialState
from service.errors import (
    BudgetSpent,
    ForkNotRetriable,
    IdempotencyKeyReused,
    InvalidInput,
    JobAlreadyFinished,
    TrialAlreadyFinished,
    TrialNotRetriable,
)
from service.specification.job import MAX_TRIALS, Budget, JobSpecification
from service.specification.phases import allot, allot_sides
from service.specification.planning import JobPlan, check_proposal, plan_job, proposed_side
from service.specification.search.population import population_sizes
from service.store.models import Job, Trial
from service.store.repositories import JobRepository, TrialRepository
from service.store.session import Session
from service.use_cases.budgets import Spent, check_cost, cost_of, device_hours, running_seconds, why_spent
from service.use_cases.keeping.checkpoints import KEPT, goes_on
from service.use_cases.leases import put_back
from service.use_cases.recommending import store_recommendation
from service.use_cases.submit import IDEMPOTENCY_KEYS_KEPT
from service.use_cases.transitions import (
    cancel_unfinished_trials,
    cut_off_trials,
    move_job,
    move_trial,
    record_change_event,
    record_trial_event,
    stop,
)
from trainers.workload.description import WorkloadDescription

RETRIABLE = (TrialState.PRUNED, TrialState.FAILED, TrialState.CANCELLED)


def pause_job(session: Session, job_id: str, *, now: datetime) -> Job:
    """Pauses a job; one that runs keeps its state until its run has ended, within seconds. Again, it changes nothing.

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
            put_back(session, job, now=now, crash=None)  # its worker is dead, and perhaps there is no other
        else:
            record_change_event(session, job, now=now)
    return job


def resume_job(session: Session, job_id: str, *, checkpoints_kept: timedelta = KEPT, now: datetime) -> Job:
    """Puts a paused job back in the queue, and a finished one whose budget is not spent; else it changes nothing.

    Trials that have ended stay as they are, but for those that the end of the job cut off
    (`transitions.cut_off_trials`): they go on from their last checkpoints where these are kept, else they begin again.
    `checkpoints_kept`: for so long from the end of a job.

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
        _queue_again(session, job, kept=checkpoints_kept, now=now, needs_trials=True)
    return job


def cancel_job(session: Session, job_id: str, *, now: datetime) -> Job:
    """Cancels a job and its unfinished trials; the run, if any, notices and ends.

    One whose search was over and that was confirming its configs has an answer by what is known, a provisional one
    unless they had been compared. One that had succeeded, and was to try more, has succeeded again: its answer stands,
    or is made anew where more was tried.

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
    """Changes fields of a job's budget. A running job goes on with the new one within seconds, a finished one when it
    is resumed.

    Args:
        changes: values by field of `Budget`; fields left out stay.

    Raises:
        NotFound: no such job.
        InvalidInput: fewer trials than have begun, or too few for the job's phases, or a cost without a price.
    """
    job = JobRepository(session).get_locked(job_id)
    specification = job.specification
    budget = Budget.model_validate({**specification.budget.model_dump(), **changes})
    if budget == specification.budget:
        return job
    check_cost(budget, job.price)
    changed = specification.model_copy(update={"budget": budget})
    before, allotted = allot(specification), _allot(changed)
    for phase, begun in _spent(session, job, now=now).trials.items():
        # After an extension other configs may be the best, and be confirmed beside those that were. A job of before
        # sides had equally many may have begun one more than it is allotted today.
        if phase is not Phase.CONFIRMATION and begun > allotted[phase] and allotted[phase] < before[phase]:
            message = f"{budget.num_trials} would leave {allotted[phase]} for the {phase}, which has begun {begun}"
            raise InvalidInput("budget.num_trials", message)
    job.specification = changed
    job.num_trials = sum(allotted.values())
    _restart(job)
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
    """Changes what a job is called, what is noted of it, and how soon its turn comes; None: as it is. Nothing starts
    anew for it.

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


def stop_trial(session: Session, job_id: str, number: int, *, now: datetime) -> tuple[Job, Trial]:
    """Cancels one trial; one of a running job at its next measurement. Again, it changes nothing.

    Raises:
        NotFound: no such job or trial.
        TrialAlreadyFinished: the trial is in a final state.
    """
    job = JobRepository(session).get_locked(job_id)
    trial = TrialRepository(session).get(job_id, number)
    if trial.state.is_final:
        raise TrialAlreadyFinished(job.id, number, trial.state)
    if job.state is not JobState.RUNNING:
        stop(session, trial, now=now)
    elif trial.requested is None:
        trial.requested = TrialRequest.STOP
        record_trial_event(session, trial, now=now)
    return job, trial


def retry_trial(
    session: Session, job_id: str, number: int, *, checkpoints_kept: timedelta = KEPT, now: datetime
) -> tuple[Job, Trial]:
    """Queues a trial again that was pruned, failed or was cancelled, with the same config; its job goes on if it has
    finished.

    It goes on from its checkpoint if there is one, and to its end: it is not pruned again. What it measured before
    stays until it is measured again. `checkpoints_kept` is as for `resume_job`.

    Raises:
        NotFound: no such job or trial.
        TrialNotRetriable: the trial has completed, or has not ended.
        ForkNotRetriable: it began from the checkpoint of another one.
        BudgetSpent: the job has finished, and its budget leaves no time.
    """
    job = JobRepository(session).get_locked(job_id)
    trial = TrialRepository(session).get(job_id, number)
    if trial.state not in RETRIABLE:
        raise TrialNotRetriable(job.id, number, trial.state)
    if trial.forked_from is not None:
        raise ForkNotRetriable(job.id, number, parent=trial.forked_from, step=trial.forked_at_step or 0)
    trial.spared = True
    _begin_again(session, trial, now=now, detail="to be tried again")
    if job.state.is_final:
        _queue_again(session, job, kept=checkpoints_kept, now=now, needs_trials=False)
    elif job.state is JobState.RUNNING:
        _restart(job)
        record_change_event(session, job, now=now)
    return job, trial


def propose_trial(
    session: Session,
    job_id: str,
    *,
    workload: WorkloadDescription | None = None,
    phase: Phase,
    parameters: Mapping[str, JsonValue],
    optimizer: str | None = None,
    beyond_bounds: bool = False,
    idempotency_key: str | None,
    checkpoints_kept: timedelta = KEPT,
    now: datetime,
) -> tuple[Job, Trial, bool]:
    """Queues a trial that a user proposes, beside those that the job was to have; (job, trial, whether it is new).

    Its side gets one trial more. A running job tries it within seconds, before anything that the search would choose;
    a paused one when it is resumed; a finished one thereby goes on. A repeated `idempotency_key` gives back the trial
    that it proposed before.

    Args:
        workload: the description of the job's, where it was asked already: that may take seconds.
        parameters: values by name; those left out take their defaults.
        optimizer: the optimizer of the baseline in question; None: that of the only one, or of the search.
        beyond_bounds: whether they may lie beyond the space's ranges, as far as the optimizer accepts them.
        checkpoints_kept: as `resume_job` takes it.

    Raises:
        NotFound: no such job.
        InvalidInput: the job has no such phase, or its space no such values; names the field.
        IdempotencyKeyReused: the key proposed another trial of this job.
        BudgetSpent: the job has finished, and its budget leaves no time.
    """
    jobs, trials = JobRepository(session), TrialRepository(session)
    plan = plan_job(jobs.get(job_id).specification, workload)
    side = proposed_side(plan, phase, optimizer)
    values, config = check_proposal(plan, side, parameters, beyond_bounds=beyond_bounds)
    job = jobs.get_locked(job_id)
    digest = hashlib.sha256(
        json.dumps([phase, dict(parameters), *([optimizer] if optimizer else [])], sort_keys=True).encode()
    ).hexdigest()
    if idempotency_key is not None:
        trials.forget_idempotency_keys(job_id, before=now - IDEMPOTENCY_KEYS_KEPT)
        earlier = trials.find_by_idempotency_key(job_id, idempotency_key)
        if earlier is not None:
            if earlier.request_digest != digest:
                raise IdempotencyKeyReused(idempotency_key)
            return job, earlier, False
    _add_trial_to_budget(job, plan, side)
    trial = Trial(
        id=f"trial_{ULID()}",
        job_id=job_id,
        number=trials.next_number(job_id),
        phase=phase,
        state=TrialState.QUEUED,
        detail="proposed by a user",
        parameters=dict(values),
        config=config.to_json(),
        proposed=True,
        idempotency_key=idempotency_key,
        request_digest=digest,
        metrics={},
        created_at=now,
    )
    trials.add(trial)
    record_trial_event(session, trial, now=now)
    if job.state.is_final:
        _queue_again(session, job, kept=checkpoints_kept, now=now, needs_trials=False)
    _restart(job)
    record_change_event(session, job, now=now)
    return job, trial, True


def _add_trial_to_budget(job: Job, plan: JobPlan, side: Side) -> None:
    specification = job.specification
    budget, baselines = specification.budget, list(specification.baselines)
    if side == Phase.SEARCH:
        extra, field = budget.extra_search_trials + 1, "budget.extra_search_trials"
        budget = budget.model_copy(update={"extra_search_trials": extra})
    else:
        index = plan.baselines.index(side)
        extra, field = baselines[index].extra_trials + 1, f"baselines[{index}].extra_trials"
        baselines[index] = baselines[index].model_copy(update={"extra_trials": extra})
    if extra > MAX_TRIALS:
        raise InvalidInput("phase", f"{field} is {MAX_TRIALS} already, which is the most there can be")
    changed = specification.model_copy(update={"budget": budget, "baselines": baselines})
    job.specification = changed
    job.num_trials = sum(allot(changed).values())


def budget_is_left(session: Session, job: Job, *, now: datetime) -> bool:
    """True if the budget of a job would allow further trials."""
    return _why_spent(session, job, num_trials=job.num_trials, now=now) is None


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
    except InvalidInput as error:
        if error.field.startswith("budget."):
            raise
        raise InvalidInput("budget.num_trials", f"{specification.budget.num_trials} is too few: {error}") from error


def _restart(job: Job) -> None:
    """Has the run of a running job end, so that the next one goes by what the rows say now."""
    if job.state is JobState.RUNNING and job.requested is None:
        job.requested = JobRequest.RESTART


def _begin_again(session: Session, trial: Trial, *, now: datetime, detail: str) -> None:
    """Queues a trial that has ended, as if nothing of it had been trained; what it measured stays until that is
    measured again."""
    trial.started_at, trial.step, trial.seconds, trial.value, trial.metrics = None, 0, 0.0, None, {}
    trial.losses, trial.memory_failures = 0, 0
    move_trial(session, trial, TrialState.QUEUED, now=now, detail=detail)


def _completed_since(trial: Trial, moment: datetime | None) -> bool:
    """True of a trial that completed after a moment; None: no."""
    ended = trial.finished_at if trial.state is TrialState.COMPLETED else None
    return ended is not None and moment is not None and ended >= moment


def _queue_again(session: Session, job: Job, *, kept: timedelta, now: datetime, needs_trials: bool) -> None:
    check_room(session, job.project)
    if job.state.is_final:
        num_trials = job.num_trials if needs_trials else None
        why = _why_spent(session, job, num_trials=num_trials, now=now)
        if why is not None:
            raise BudgetSpent(job.id, job.state, why)
        job.reopened_at, job.reopened_from = now, job.state
        job.num_trials = sum(allot(job.specification).values())  # its end had corrected it to those it needed
        for trial in cut_off_trials(session, job):
            if goes_on(job, trial, kept=kept, now=now):
                detail = "cut off by the end of the job; goes on from its last checkpoint"
                move_trial(session, trial, TrialState.QUEUED, now=now, detail=detail)
            else:
                _begin_again(session, trial, now=now, detail="cut off by the end of the job; begins again")
    job.crashes, job.not_before = 0, None
    move_job(session, job, JobState.QUEUED, now=now)


def _why_spent(session: Session, job: Job, *, num_trials: int | None, now: datetime) -> str | None:
    """The `why_spent` of a finished job: the trials that begin again with it have not begun."""
    spent = _spent(session, job, now=now)
    trials = Counter(spent.trials)
    if job.state.is_final:
        trials.subtract(trial.phase for trial in cut_off_trials(session, job))
    return why_spent(job.specification, dataclasses.replace(spent, trials=trials), num_trials=num_trials)


def _spent(session: Session, job: Job, *, now: datetime) -> Spent:
    trials, seconds = Counter[Phase](), 0.0
    for summary in TrialRepository(session).summaries([job.id]):
        trials[summary.phase] += summary.count
        seconds += summary.spent_seconds
    hours = device_hours(job.specification, seconds)
    return Spent(trials, running_seconds(job, now), hours, cost_of(job.price, hours))
