"""Use cases that steer single trials: stop, retry or propose one. As in `steer`, they only change rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime, timedelta

from pydantic import JsonValue
from ulid import ULID

from service.domain import JobState, Phase, Side, TrialRequest, TrialState
from service.errors import (
    ForkNotRetriable,
    IdempotencyKeyReused,
    InvalidInput,
    TrialAlreadyFinished,
    TrialNotRetriable,
)
from service.specification.job import MAX_TRIALS
from service.specification.phases import allot
from service.specification.planning import JobPlan, check_proposal, plan_job, proposed_side
from service.store.models import Job, Trial
from service.store.repositories import JobRepository, TrialRepository
from service.store.session import Session
from service.use_cases.going_on import begin_again, queue_again, restart_run
from service.use_cases.keeping.checkpoints import KEPT
from service.use_cases.submit import IDEMPOTENCY_KEYS_KEPT
from service.use_cases.transitions import record_change_event, record_trial_event, stop
from trainers.workload.description import WorkloadDescription

RETRIABLE = (TrialState.PRUNED, TrialState.FAILED, TrialState.CANCELLED)
"""States of trials that may be tried again."""


def stop_trial(session: Session, job_id: str, number: int, *, now: datetime) -> tuple[Job, Trial]:
    """Cancels one trial; in a running job at its next measurement. Repeated calls change nothing.

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
    """Queues a pruned, failed or cancelled trial again, with the same config; its job continues if it has finished.

    It continues from its checkpoint if there is one, and to its end: it is not pruned again. Earlier measurements stay
    until they are made again. `checkpoints_kept` is as for `resume_job`.

    Raises:
        NotFound: no such job or trial.
        TrialNotRetriable: the trial has completed, or has not ended.
        ForkNotRetriable: it began from the checkpoint of another trial.
        BudgetSpent: the job has finished, and its budget leaves no time.
    """
    job = JobRepository(session).get_locked(job_id)
    trial = TrialRepository(session).get(job_id, number)
    if trial.state not in RETRIABLE:
        raise TrialNotRetriable(job.id, number, trial.state)
    if trial.forked_from is not None:
        raise ForkNotRetriable(job.id, number, parent=trial.forked_from, step=trial.forked_at_step or 0)
    trial.spared = True
    begin_again(session, trial, now=now, detail="to be tried again")
    if job.state.is_final:
        queue_again(session, job, kept=checkpoints_kept, now=now, needs_trials=False)
    elif job.state is JobState.RUNNING:
        restart_run(job)
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
    """Queues a trial that a user proposes, in addition to the job's own trials; returns (job, trial, whether it is
    new).

    Its side gets one more trial. A running job tries it within seconds, before anything that the search chooses; a
    paused one when it is resumed; a finished job continues. A repeated `idempotency_key` returns the trial that it
    proposed before.

    Args:
        workload: the description of the job's workload, if it is already known: asking for it may take seconds.
        parameters: values by name; those left out take their defaults.
        optimizer: the optimizer of the baseline in question; None: that of the only one, or of the search.
        beyond_bounds: whether they may be outside the space's ranges, if the optimizer accepts them.
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
        queue_again(session, job, kept=checkpoints_kept, now=now, needs_trials=False)
    restart_run(job)
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
