"""The cost of a job, told before it is submitted: from its plan, and from the measurements of an earlier job like it.

Nothing is trained. What memory a model's shape takes is told by `service.use_cases.memory_estimates`, in a process that
has torch.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from service.domain import Phase, TrialState
from service.specification.estimate import EarlierMeasurements, Estimate, MemoryEstimate
from service.specification.job import EarlierWinner, JobSpecification
from service.specification.planning import JobPlan
from service.store.models import Job
from service.store.repositories import JobRepository, TrialRepository
from service.store.session import Session
from service.use_cases.budgets import device_hours
from service.use_cases.earlier_winners import resolve_winners

JOBS_LOOKED_AT = 50
"""The number of a workload's newest jobs that are searched for one like that to be estimated."""
UNLIKE = {
    "num_steps",
    "evaluate_every",
    "evaluate_every_epochs",
    "evaluate_every_seconds",
    "seed",
    "checkpoint_every",
    "keep_checkpoints",
    "report_timeout_seconds",
    "max_loss",
    "gradient_clip_norm",
}
"""Fields of `training` that do not change what a step takes."""


def estimate_job(session: Session, plan: JobPlan, *, memory: MemoryEstimate | None = None) -> Estimate:
    """The most that the job of `plan` would cost; stores nothing.

    Args:
        memory: what `estimate_memory` said of it, which takes too long for a transaction.
    """
    specification = plan.specification
    max_steps = plan.num_steps * sum(plan.allotments.values())
    measured = _measured(session, plan)
    limits = [] if specification.budget.device_hours is None else [specification.budget.device_hours]
    if measured is not None:
        limits.append(device_hours(specification, max_steps * measured.step_seconds))
    return Estimate(
        num_trials=dict(plan.allotments),
        num_steps=plan.num_steps,
        max_steps=max_steps,
        confirmation_share=plan.allotments.get(Phase.CONFIRMATION, 0) / plan.num_trials,
        measured=measured,
        max_device_hours=min(limits, default=None),
        winners=_winners(session, plan),
        memory=memory,
    )


def _winners(session: Session, plan: JobPlan) -> dict[Phase, list[EarlierWinner]]:
    asked, resolved = plan.specification, resolve_winners(session, plan)
    by_phase = {Phase.SEARCH: (asked.pinned, resolved.pinned)}
    if asked.baseline is not None and resolved.baseline is not None:
        by_phase[Phase.BASELINE] = (asked.baseline.pinned, resolved.baseline.pinned)
    return {
        phase: [entry for entry in found if isinstance(entry, EarlierWinner)]
        for phase, (pinned, found) in by_phase.items()
        if "winners" in pinned
    }


def _measured(session: Session, plan: JobPlan) -> EarlierMeasurements | None:
    """The measurements of the newest job like that of `plan`; None: there is none that has measured its speed."""
    wanted = _kind(plan.specification)
    for job in _jobs_of(session, plan.workload.name):
        if _kind(job.specification) != wanted:
            continue
        metrics = [trial.metrics for trial in TrialRepository(session).page(job.id, states=(TrialState.COMPLETED,))]
        speeds = list(_values(metrics, "step_seconds"))
        if speeds:
            return EarlierMeasurements(
                job_id=job.id,
                num_trials=len(speeds),
                step_seconds=statistics.median(speeds),
                optimizer_state_bytes=max(_values(metrics, "optimizer_state_bytes"), default=None),
                peak_memory_bytes=max(_values(metrics, "peak_memory_bytes"), default=None),
            )
    return None


def _jobs_of(session: Session, model: str) -> list[Job]:
    return JobRepository(session).page(model=model, limit=JOBS_LOOKED_AT)


def _kind(specification: JobSpecification) -> tuple[Any, ...]:
    """The settings that decide how long a step takes, apart from the hyperparameters."""
    resources = specification.resources.model_dump(exclude={"parallel_trials"})
    training = specification.training
    alike = tuple(getattr(training, each.name) for each in dataclasses.fields(training) if each.name not in UNLIKE)
    return specification.workload.model_dump(), alike, resources


def _values(metrics: Iterable[Mapping[str, Any]], name: str) -> Iterable[float]:
    for measured in metrics:
        if measured.get(name) is not None:
            yield float(measured[name])
