"""The progress of jobs: their trials by state and phase, the best values so far, and the time left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from service.domain import JobState, Phase, TrialState
from service.evidence.best_values import BestTrial
from service.evidence.pareto_front import FrontPoint
from service.specification.job import JobSpecification
from service.specification.phases import allot
from service.store.models import Job
from service.store.session import Session
from service.use_cases.budgets import cost_of, device_hours, running_seconds
from service.use_cases.progress.trials import (
    Finding,
    JobTrials,
    PhaseCount,
    TrialMemory,
    may_differ_in_steps,
    trials_of,
)
from service.use_cases.waiting import has_lost_worker


@dataclass(frozen=True, slots=True)
class PhaseProgress:
    """The progress of a phase of a job."""

    num_finished: int
    num_trials: int
    """Trials of the phase; until the job has ended, this is the maximum: a phase may need fewer."""


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress of a job."""

    trials: dict[TrialState, int]
    num_paused: int
    """Queued trials that were measured, and wait to continue."""
    phases: dict[Phase, PhaseProgress]
    """The phases that the job has, in their order."""
    num_trials: int
    """Trials of all phases: for each phase those of the plan, or those begun if they are more; until the job has ended,
    this is the maximum."""
    num_steps: int
    """Steps measured, of all trials together."""
    max_steps: int
    """Steps of all trials when the job has ended, if no unfinished trial is pruned; if batch sizes are searched, trials
    that have not begun count as the longest."""
    best: BestTrial | None
    """The best trial of the search; once the job has ended, the one in its recommendation."""
    baseline_best: BestTrial | None
    baseline_optimizer: str | None
    """The optimizer of that trial."""
    seconds_elapsed: float | None
    """Time that the job has been running, without time in the queue or paused; None before it first ran."""
    seconds_left: float | None
    """Estimate from the training time of the steps so far, or, if batch sizes are searched, of the shares of examples
    that trials have seen; None without any, and unless the job runs and has a worker."""
    device_hours: float
    """Training time of all trials so far, times the ranks of each."""
    cost: float | None
    """The cost of those device-hours, in the job's currency; None: they have no price."""
    training_seconds: float = 0.0
    """Training time of all trials so far, each counted once, however many ranks it has."""
    front: list[FrontPoint] = field(default_factory=list)
    """With several objectives: the completed trials that no other one beats in all of them, sorted by the first."""
    finding: Finding | None = None
    """None: the job has not ended with a recommendation."""

    @property
    def num_finished(self) -> int:
        return sum(count for state, count in self.trials.items() if state.is_final)


def progress_of(
    session: Session, jobs: Sequence[Job], *, now: datetime, memory: TrialMemory | None = None
) -> dict[str, JobProgress]:
    """The progress of each job by id, with a fixed number of statements.

    Args:
        memory: the remembered results of ended jobs; None: all are counted.
    """
    trials = trials_of(session, jobs) if memory is None else memory.trials_of(session, jobs)
    return {job.id: _progress(job, trials[job.id], now=now) for job in jobs}


def _progress(job: Job, trials: JobTrials, *, now: datetime) -> JobProgress:
    specification, counts, phases = job.specification, trials.counts, trials.phases
    elapsed = None if job.started_at is None else running_seconds(job, now)
    by_phase = _phases(job, specification, phases)
    num_trials = sum(phase.num_trials for phase in by_phase.values())
    max_steps = sum(count.finished_steps for count in phases.values())
    if not job.state.is_final:
        num_to_begin = num_trials - sum(count.begun for count in phases.values())
        max_steps += sum(count.unfinished_max_steps for count in phases.values()) + num_to_begin * job.num_steps
    work, whole = sum(count.work for count in phases.values()), 1 if may_differ_in_steps(job) else job.num_steps
    hours = device_hours(specification, trials.spent_seconds)
    return JobProgress(
        trials={state: counts[state] for state in TrialState},
        num_paused=trials.num_paused,
        phases=by_phase,
        num_trials=num_trials,
        num_steps=sum(count.num_steps for count in phases.values()),
        max_steps=max_steps,
        best=trials.best,
        baseline_best=trials.baseline_best,
        baseline_optimizer=trials.baseline_optimizer,
        front=trials.front,
        finding=trials.finding,
        seconds_elapsed=elapsed,
        seconds_left=(
            None
            if elapsed is None
            or job.state is not JobState.RUNNING
            or has_lost_worker(job, now)  # nothing trains, and nobody knows when it will
            or not (trials.spent_seconds and work)
            else _seconds_left(
                specification,
                sum(_work_left(phase, by_phase[phase], phases.get(phase), whole) for phase in by_phase)
                * (trials.spent_seconds / work),
                counts,
                elapsed,
            )
        ),
        device_hours=hours,
        cost=cost_of(job.price, hours),
        training_seconds=trials.spent_seconds,
    )


def _phases(
    job: Job, specification: JobSpecification, counts: Mapping[Phase, PhaseCount]
) -> dict[Phase, PhaseProgress]:
    # A phase may need fewer trials than allotted; the job's own number is corrected when it has ended.
    is_complete = sum(count.finished for count in counts.values()) == job.num_trials
    found = {}
    for phase, allotted in allot(specification).items():
        count = counts.get(phase, PhaseCount())
        # An extended job may confirm other configs than before.
        found[phase] = PhaseProgress(count.finished, count.begun if is_complete else max(count.begun, allotted))
    return found


def _work_left(phase: Phase, progress: PhaseProgress, count: PhaseCount | None, whole: int) -> float:
    """The remaining work of a phase: each trial is assumed to go as far as ended ones did, and a trial of the
    confirmation to its end.

    Args:
        whole: the work of a full trial.
    """
    if count is None:
        count = PhaseCount()
    each = count.trained_work / count.trained if count.trained and phase is not Phase.CONFIRMATION else whole
    return max(0.0, (progress.num_trials - progress.num_finished) * each - count.unfinished_work)


def _seconds_left(
    specification: JobSpecification, training_seconds: float, counts: Counter[TrialState], seconds_elapsed: float
) -> float:
    """The time left until `training_seconds` more have been trained, by as many trials at once as there are now."""
    left = training_seconds / max(1, counts[TrialState.RUNNING])
    limit = specification.budget.wall_clock_seconds
    return left if limit is None else max(0.0, min(left, limit - seconds_elapsed))
