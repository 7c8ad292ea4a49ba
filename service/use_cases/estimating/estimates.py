"""The cost of a job, estimated before it is submitted: from its plan, and from the measurements of a similar earlier
job.

Nothing is trained. `memory_estimates` predicts the memory of a model, in a process that has torch.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.domain import Phase, Side, TrialState
from service.specification.estimate import EarlierMeasurements, Estimate, MemoryEstimate, StartUp
from service.specification.identity import ModelOfJob
from service.specification.job import EarlierWinner, JobSpecification
from service.specification.length import takes_equal_seconds
from service.specification.phases import num_left_over
from service.specification.planning import JobPlan
from service.specification.price import Price
from service.store.models import Job, Trial
from service.store.repositories import (
    Archived,
    JobListRepository,
    JobQuery,
    JobRepository,
    MeasurementRepository,
    TrialRepository,
)
from service.store.session import Session
from service.use_cases.budgets import allowed_device_hours, cost_of, device_hours
from service.use_cases.earlier_winners import resolve_winners
from service.use_cases.untuned.presets import presets_near
from trainers.identity.values import ModelShape

JOBS_LOOKED_AT = 50
"""The number of a workload's newest jobs that are searched for a similar one."""
ASSUMED_START_UP_SECONDS = 60.0
"""The time to start up if no job has measured it: enough on a quiet machine; a busy one takes minutes."""
UNLIKE = {
    "num_steps",
    "num_examples",
    "num_tokens",
    "evaluate_every",
    "evaluate_every_examples",
    "evaluate_every_tokens",
    "evaluate_every_epochs",
    "evaluate_every_seconds",
    "seed",
    "checkpoint_every",
    "keep_checkpoints",
    "report_timeout_seconds",
    "max_loss",
    "gradient_clip_norm",
    "batch_size",
}
"""Fields of `training` that do not change the time of a step, and the batch size, by which trials are looked up."""


def estimate_job(
    session: Session,
    plan: JobPlan,
    *,
    project: str,
    memory: MemoryEstimate | None = None,
    of_model: ModelOfJob | None = None,
    price: Price | None = None,
    shape: ModelShape | None = None,
) -> Estimate:
    """The most that the job of `plan` would cost, according to earlier jobs of the project; stores nothing.

    Args:
        memory: what `predict_job` says of it, which takes too long for a transaction.
        of_model: the result of `model_for_winners`, likewise.
        price: the price of each of its ranks; None: unknown.
        shape: what `predict_job` says of its model.
    """
    specification = plan.specification
    equal_seconds = takes_equal_seconds(specification, plan.spaces)
    max_steps = plan.num_steps * sum(plan.allotments.values())
    found = _measured(session, plan, project)
    start_up = _start_up(session, plan, project)
    hours = [allowed_device_hours(specification.budget, price)]
    seconds = [specification.budget.wall_clock_seconds]
    if found is not None:
        of_sides = found.side_step_seconds
        if equal_seconds:
            of_sides = dict.fromkeys(of_sides, min(of_sides.values()))
        training = plan.num_steps * _seconds_of_a_step_each(plan, of_sides)
        hours.append(device_hours(specification, training))
        overhead = plan.num_trials * (found.measured.trial_overhead_seconds or 0.0)
        at_once = min(specification.resources.parallel_trials or 1, plan.num_trials)
        seconds.append(start_up.seconds + (training + overhead) / at_once)
    max_hours = min((limit for limit in hours if limit is not None), default=None)
    return Estimate(
        num_trials=dict(plan.allotments),
        num_baseline_trials={side: plan.side_allotments[side] for side in plan.baselines},
        num_left_over=num_left_over(specification),
        num_steps=plan.num_steps,
        num_examples=plan.length.num_examples,
        equal_seconds=equal_seconds,
        smallest_batch=None if plan.length.num_examples is None else plan.length.smallest_batch,
        max_steps=max_steps,
        confirmation_share=plan.allotments.get(Phase.CONFIRMATION, 0) / plan.num_trials,
        measured=None if found is None else found.measured,
        step_seconds=None if found is None else found.step_seconds,
        side_step_seconds={} if found is None else found.side_step_seconds,
        unmeasured_sides=[] if found is None else found.unmeasured_sides,
        start_up=start_up,
        max_seconds=min((limit for limit in seconds if limit is not None), default=None),
        max_device_hours=max_hours,
        max_cost=None if max_hours is None else cost_of(price, max_hours),
        currency=None if price is None else price.currency,
        winners=_winners(session, plan, of_model, project),
        memory=memory,
        presets=None if shape is None else presets_near(session, plan, shape, project=project),
    )


def _winners(
    session: Session, plan: JobPlan, of_model: ModelOfJob | None, project: str
) -> dict[Side, list[EarlierWinner]]:
    asked = plan.specification.pinned_of_sides
    resolved = resolve_winners(session, plan, of_model, project=project).pinned_of_sides
    return {
        side: [entry for entry in found if isinstance(entry, EarlierWinner)]
        for side, pinned, found in zip(plan.spaces, asked, resolved, strict=True)
        if "winners" in pinned
    }


@dataclass(frozen=True, slots=True)
class EarlierStep:
    """The time of a step, measured by trials of an earlier job."""

    job_id: str
    num_trials: int
    step_seconds: float
    """The median of those trials."""


def earlier_step(session: Session, job: Job, *, optimizer: str, batch_size: int) -> EarlierStep | None:
    """The step time that was known before a job began. It is from the newest earlier job with the same number of ranks
    and similar steps, by its completed trials with this optimizer and batch size. None: there was no such job."""
    wanted, resources = _kind(job.specification), job.specification.resources
    before = JobQuery(sees=job.project, workload=job.workload, created_before=job.created_at, archived=Archived.ALL)
    for earlier in JobListRepository(session).page(before, limit=JOBS_LOOKED_AT):
        has_as_many = earlier.specification.resources.workers_per_trial == resources.workers_per_trial
        if not has_as_many or _kind(earlier.specification) != wanted:
            continue
        trials = TrialRepository(session).page(earlier.id, states=(TrialState.COMPLETED,))
        alike = [
            trial.metrics
            for trial in trials
            if trial.stored_config.optimizer == optimizer and trial.stored_config.batch_size == batch_size
        ]
        if speeds := list(_values(alike, "step_seconds")):
            return EarlierStep(earlier.id, len(speeds), statistics.median(speeds))
    return None


@dataclass(frozen=True, slots=True)
class _Speed:
    """The speed of the job to be estimated."""

    measured: EarlierMeasurements
    step_seconds: float
    """The time of a step with the job's own number of ranks."""
    side_step_seconds: Mapping[Side, float]
    """The time of a step, likewise, of the slowest trial with the optimizer of each side; if there is none, of the
    slowest trial of all."""
    unmeasured_sides: Sequence[Side]
    """Sides without any such trial."""


@dataclass(frozen=True, slots=True)
class _MeasuredJob:
    """An earlier job with trials that have measured the speed of the one to be estimated."""

    job: Job
    batch_size: int
    trials: Sequence[Trial]
    """Its trials with that batch size."""
    all_trials: Sequence[Trial]
    """Its trials with any batch size."""

    def scaled(self, step_seconds: float, optimizer_share: float, plan: JobPlan) -> float:
        """The time of a step of these trials, scaled to the smallest batch of `plan` on its ranks.

        The optimizer works on whole parameters, whatever a rank's share of the batch.
        """
        ranks = self.job.specification.resources.workers_per_trial
        of_batch = max(1.0, plan.length.smallest_batch / self.batch_size)
        wanted = plan.specification.resources.workers_per_trial
        return step_seconds * of_batch * (optimizer_share + (1 - optimizer_share) * ranks / wanted)

    def slowest(self, plan: JobPlan) -> dict[str, float]:
        """The slowest of the steps with each optimizer, scaled."""
        found: dict[str, float] = {}
        for trial in self.trials:
            metrics, optimizer = trial.metrics, trial.stored_config.optimizer
            seconds = self.scaled(float(metrics["step_seconds"]), float(metrics.get("optimizer_share") or 0.0), plan)
            found[optimizer] = max(seconds, found.get(optimizer, 0.0))
        return found


def _seconds_of_a_step_each(plan: JobPlan, of_sides: Mapping[Side, float]) -> float:
    """The seconds of one step of every trial of the plan, added up.

    It is not known which baseline the comparing seeds of a confirmation will train: the slowest is assumed.
    """
    seconds = sum(num * of_sides[side] for side, num in plan.side_allotments.items())
    if (sizes := plan.confirmation) is not None:
        slowest = max((of_sides[side] for side in plan.baselines), default=0.0)
        seconds += sizes.top_k * sizes.num_choosing * sum(of_sides[side] for side in plan.spaces)
        seconds += sizes.num_comparing * (of_sides[Phase.SEARCH.value] + slowest)
    return seconds


def _measured(session: Session, plan: JobPlan, project: str) -> _Speed | None:
    """The measurements of the newest job like that of `plan`, by its trials with the job's batch size; None: no such
    job has measured the speed.

    If batch sizes are searched, the steps are those of the smallest batch, or if no trial had that, of the nearest one:
    a step of a smaller batch takes at most as long, and a step of a larger batch is longer at most in proportion.
    """
    wanted, newest = {space.optimizer for space in plan.spaces.values()}, None
    slowest: dict[str, float] = {}
    for found in _measured_jobs(session, plan, project):
        newest = newest or found
        slowest = found.slowest(plan) | slowest
        if wanted <= slowest.keys():
            break
    if newest is None:
        return None
    # If a job has trials of several batch sizes, all of them count for memory and for the time outside steps.
    alike = newest.trials if plan.length.num_examples is None else newest.all_trials
    metrics = [trial.metrics for trial in newest.trials]
    measured_with = newest.job.specification.resources.workers_per_trial
    are_as_many = measured_with == plan.specification.resources.workers_per_trial
    step_seconds = statistics.median(_values(metrics, "step_seconds"))
    optimizer_share = statistics.median(list(_values(metrics, "optimizer_share")) or [0.0])
    return _Speed(
        EarlierMeasurements(
            job_id=newest.job.id,
            num_trials=len(newest.trials),
            workers_per_trial=measured_with,
            batch_size=newest.batch_size,
            step_seconds=step_seconds,
            trial_overhead_seconds=_overhead_seconds(alike),
            optimizer_state_bytes=_largest(alike, "optimizer_state_bytes") if are_as_many else None,
            peak_memory_bytes=_largest(alike, "peak_memory_bytes") if are_as_many else None,
        ),
        newest.scaled(step_seconds, optimizer_share, plan),
        {side: slowest.get(space.optimizer, max(slowest.values())) for side, space in plan.spaces.items()},
        [side for side, space in plan.spaces.items() if space.optimizer not in slowest],
    )


def _measured_jobs(session: Session, plan: JobPlan, project: str) -> Iterator[_MeasuredJob]:
    """The jobs like that of `plan` that have measured its speed, those with as many ranks first, then the newest."""
    wanted, num_ranks = _kind(plan.specification), plan.specification.resources.workers_per_trial
    alike = [job for job in _jobs_of(session, project, plan.workload.name) if _kind(job.specification) == wanted]
    for job in sorted(alike, key=lambda job: job.specification.resources.workers_per_trial != num_ranks):
        measured = [
            trial
            for trial in TrialRepository(session).page(job.id, states=(TrialState.COMPLETED,))
            if trial.metrics.get("step_seconds") is not None
        ]
        batch_size = _nearest_batch(plan, measured)
        trials = [trial for trial in measured if trial.stored_config.batch_size == batch_size]
        if batch_size is not None and trials:
            yield _MeasuredJob(job, batch_size, trials, measured)


def _nearest_batch(plan: JobPlan, measured: Sequence[Trial]) -> int | None:
    """The batch size of these trials that says most about the job's steps; None: none does."""
    wanted = plan.length.smallest_batch
    if plan.length.num_examples is None:
        return wanted
    return min(
        (trial.stored_config.batch_size for trial in measured),
        key=lambda size: abs(math.log(size / wanted)),
        default=None,
    )


def _overhead_seconds(trials: Sequence[Trial]) -> float | None:
    # A job's first trial waits for its ranks to start. A trial that was started twice has waited in between.
    found = [
        max(0.0, (trial.finished_at - trial.started_at).total_seconds() - trial.spent_seconds)
        for trial in trials
        if trial.number > 0 and trial.runs == 1 and trial.started_at is not None and trial.finished_at is not None
    ]
    return statistics.median(found) if found else None


def _start_up(session: Session, plan: JobPlan, project: str) -> StartUp:
    """The start-up of the newest job that measured anything, of one with this workload if there is any."""
    measurements = MeasurementRepository(session)
    # Other workloads differ only in their data.
    for job in (*_jobs_of(session, project, plan.workload.name), *_jobs_of(session, project)):
        first = measurements.first_of_job(job.id)
        if job.started_at is not None and first is not None:
            seconds = (first.recorded_at - job.started_at).total_seconds() - first.seconds
            return StartUp(max(0.0, seconds), job.id)
    return StartUp(ASSUMED_START_UP_SECONDS, None)


def _jobs_of(session: Session, project: str, workload: str | None = None) -> list[Job]:
    return JobRepository(session).page(project=project, workload=workload, limit=JOBS_LOOKED_AT)


def _kind(specification: JobSpecification) -> tuple[Any, ...]:
    """The settings that decide how long a step takes, apart from the hyperparameters and the number of ranks."""
    resources = specification.resources.model_dump(
        exclude={"parallel_trials", "workers_per_trial", "memory_per_worker"}
    )
    training = specification.training
    alike = tuple(getattr(training, each.name) for each in dataclasses.fields(training) if each.name not in UNLIKE)
    return specification.workload.model_dump(), alike, resources


def _largest(trials: Iterable[Trial], name: str) -> float | None:
    return max(_values((trial.metrics for trial in trials), name), default=None)


def _values(metrics: Iterable[Mapping[str, Any]], name: str) -> Iterable[float]:
    for measured in metrics:
        if measured.get(name) is not None:
            yield float(measured[name])
