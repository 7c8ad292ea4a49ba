"""Use cases that submit jobs. State changes only here, in `steer`, `steer_trials`, `leases` and `run`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta

from ulid import ULID

from service.access.quotas import check_room
from service.domain import JobState
from service.errors import IdempotencyKeyReused
from service.specification.identity import ModelOfJob
from service.specification.job import JobSpecification
from service.specification.planning import JobPlan, plan_job
from service.specification.price import Price
from service.store.models import Job
from service.store.repositories import JobRepository
from service.store.session import Session
from service.use_cases.budgets import check_cost
from service.use_cases.earlier_winners import resolve_winners
from service.use_cases.keeping.code import use_code
from service.use_cases.transitions import record_job_event
from trainers.workload.description import ParameterGroup
from trainers.workloads.registry import BUILT_IN

IDEMPOTENCY_KEYS_KEPT = timedelta(days=30)
"""Time after a request for which its key is remembered. Later, the key counts as new."""


def create_job(
    session: Session,
    specification: JobSpecification,
    *,
    name: str | None,
    tags: dict[str, str],
    model: str | None = None,
    of_model: ModelOfJob | None = None,
    plan: JobPlan | None = None,
    priority: int = 0,
    notes: str | None = None,
    cloned_from: str | None = None,
    project: str,
    owner: str | None,
    price: Price | None = None,
    idempotency_key: str | None,
    now: datetime,
) -> tuple[Job, bool]:
    """Queues a job; returns (job, whether it is new). A repeated `idempotency_key` returns the job that it made before
    in the project.

    Args:
        model: the user's own name of the model.
        of_model: the result of `model_for_winners` for the specification.
        owner: the name of the user who submits it, if known.
        cloned_from: the id of the job that it is a clone of.
        plan: its plan, if it has already been made: making it may take seconds.
        price: the price of each of its ranks; None: unknown.

    Raises:
        InvalidInput: the specification is impossible; names the field.
        IdempotencyKeyReused: the key made a job from another request.
        QuotaExceeded: the project may have no further job.
    """
    plan = plan or plan_job(specification)
    check_cost(specification.budget, price)
    requested = specification.model_dump(mode="json")
    asked = [requested, name, tags, priority, *([] if model is None else [model])]
    # Newer fields enter only with their names, so that digests of earlier requests stay the same.
    asked += [{field: given} for field, given in (("notes", notes), ("cloned_from", cloned_from)) if given is not None]
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    jobs = JobRepository(session)
    key = None if idempotency_key is None else hashlib.sha256(f"{project}\0{idempotency_key}".encode()).hexdigest()
    if idempotency_key is not None and key is not None:
        jobs.forget_idempotency_keys(before=now - IDEMPOTENCY_KEYS_KEPT)
        earlier = jobs.find_by_idempotency_key(key)
        if earlier is not None:
            if earlier.request_digest != digest:
                raise IdempotencyKeyReused(idempotency_key)
            return earlier, False
    check_room(session, project)
    if specification.code is not None:
        use_code(session, specification.code.sha256, project=project, now=now)
    job = Job(
        id=f"job_{ULID()}",
        name=name or model or plan.workload.name,
        tags=dict(tags),
        project=project,
        owner=owner,
        notes=notes,
        cloned_from=cloned_from,
        priority=priority,
        state=JobState.QUEUED,
        specification=resolve_winners(session, plan, of_model, project=project),
        workload=plan.workload.name,
        model=model,
        objectives=plan.objectives,
        parameter_groups=[asdict(group) for group in plan.workload.parameter_groups],
        num_trials=plan.num_trials,
        num_steps=plan.num_steps,
        is_external=specification.external is not None,
        names_code=specification.names_code,
        code_sha256=None if specification.code is None else specification.code.sha256,
        idempotency_key=key,
        request_digest=digest,
        device_hour_price=None if price is None else price.per_device_hour,
        currency=None if price is None else price.currency,
        created_at=now,
        waiting_since=now,
    )
    jobs.add(job)
    record_job_event(session, job, now=now)
    return job, True


def parameter_groups_of(job: Job) -> Sequence[ParameterGroup]:
    """The parameters that the job's workload trains with their own settings."""
    if job.parameter_groups is None:
        return BUILT_IN[job.workload].parameter_groups if job.workload in BUILT_IN else ()
    return [ParameterGroup.from_json(group) for group in job.parameter_groups]
