"""The progress of jobs: their trials by state and phase, the best values so far, and the time left."""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from service.domain import JobState, Phase, TrialState
from service.evidence.best_values import BestTrial, best_of
from service.evidence.pareto_front import FrontPoint, front_of
from service.evidence.types import evidence_from_json
from service.specification.job import JobSpecification
from service.specification.phases import allot
from service.store.models import Job
from service.store.repositories import (
    CompletedTrial,
    RecommendationRepository,
    TrainedTrial,
    TrialRepository,
    TrialSummary,
)
from service.store.session import Session
from service.use_cases.budgets import device_hours, running_seconds

RECENT_TRIALS = 50
"""Trials from which the time left is estimated."""


@dataclass(frozen=True, slots=True)
class PhaseProgress:
    """The progress of a phase of a job."""

    num_finished: int
    num_trials: int
    """At most so many, until the job has ended: a phase may need fewer."""


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress of a job."""

    trials: dict[TrialState, int]
    phases: dict[Phase, PhaseProgress]
    """Those that the job has, in their order."""
    num_trials: int
    """At most so many, until the job has ended: of each phase those of the plan, or those begun if they are more."""
    num_steps: int
    """Steps measured, of all trials together."""
    max_steps: int
    """The same when the job has ended, if no trial that has not ended is pruned."""
    best: BestTrial | None
    """Of the search: once the job has ended, as its recommendation has it."""
    baseline_best: BestTrial | None
    seconds_elapsed: float | None
    """Time that the job has been running, without time in the queue or paused; None before it first ran."""
    seconds_left: float | None
    """Estimate from the trials finished last; None without any, and unless the job runs."""
    device_hours: float
    """Training time of all trials so far, times the ranks of each."""
    front: list[FrontPoint] = field(default_factory=list)
    """With several objectives: what no other completed trial betters in all of them, sorted by the first."""

    @property
    def num_finished(self) -> int:
        return sum(count for state, count in self.trials.items() if state.is_final)


@dataclass(slots=True)
class _PhaseCount:
    """Trials of one phase of a job."""

    begun: int = 0
    finished: int = 0

    def add(self, summary: TrialSummary) -> None:
        self.begun += summary.count
        self.finished += summary.count if summary.state.is_final else 0


@dataclass(slots=True)
class _StepCount:
    """Steps of a job's trials."""

    ended: int = 0
    unfinished: int = 0

    def add(self, summary: TrialSummary) -> None:
        if summary.state.is_final:
            self.ended += summary.num_steps
        else:
            self.unfinished += summary.num_steps


def progress_of(session: Session, jobs: Sequence[Job], *, now: datetime) -> dict[str, JobProgress]:
    """The progress of each job by id, with a fixed number of statements."""
    ids = [job.id for job in jobs]
    repository = TrialRepository(session)
    counts: dict[str, Counter[TrialState]] = {job_id: Counter() for job_id in ids}
    phases: dict[str, dict[Phase, _PhaseCount]] = {job_id: defaultdict(_PhaseCount) for job_id in ids}
    spent_seconds = dict.fromkeys(ids, 0.0)
    steps: dict[str, _StepCount] = {job_id: _StepCount() for job_id in ids}
    for summary in repository.summaries(ids):
        counts[summary.job_id][summary.state] += summary.count
        phases[summary.job_id][summary.phase].add(summary)
        spent_seconds[summary.job_id] += summary.spent_seconds
        steps[summary.job_id].add(summary)
    best: dict[str, dict[Phase, BestTrial]] = {job_id: {} for job_id in ids}
    for leading in repository.leading(ids):
        best[leading.job_id][leading.phase] = BestTrial(leading.number, leading.value)
    completed: dict[str, list[CompletedTrial]] = {job.id: [] for job in jobs if len(job.objectives) > 1}
    for trial in repository.completed(completed) if completed else ():
        completed[trial.job_id].append(trial)
    recent: dict[str, list[TrainedTrial]] = {job.id: [] for job in jobs if job.state is JobState.RUNNING}
    for trained in repository.last_finished(recent, limit=RECENT_TRIALS) if recent else ():
        recent[trained.job_id].append(trained)
    progress = {
        job.id: _progress(
            job,
            counts[job.id],
            phases[job.id],
            steps[job.id],
            best[job.id],
            completed.get(job.id, []),
            recent.get(job.id, []),
            spent_seconds=spent_seconds[job.id],
            now=now,
        )
        for job in jobs
    }
    return progress | _as_recommended(session, jobs, progress)


def _as_recommended(
    session: Session, jobs: Sequence[Job], progress: Mapping[str, JobProgress]
) -> dict[str, JobProgress]:
    """The progress of the jobs that have ended with a recommendation, with its best values; by one statement."""
    changed = {}
    ended = [job.id for job in jobs if job.state.is_final]
    for recommendation in RecommendationRepository(session).of_jobs(ended) if ended else ():
        evidence = evidence_from_json(recommendation.content["evidence"])
        changed[recommendation.job_id] = dataclasses.replace(
            progress[recommendation.job_id],
            best=best_of(evidence.confirmation, evidence.best),
            baseline_best=(None if evidence.baseline is None else best_of(evidence.confirmation, evidence.baseline)),
        )
    return changed


def _progress(
    job: Job,
    counts: Counter[TrialState],
    phases: Mapping[Phase, _PhaseCount],
    steps: _StepCount,
    best: Mapping[Phase, BestTrial],
    completed: Sequence[CompletedTrial],
    recent: Sequence[TrainedTrial],
    *,
    spent_seconds: float,
    now: datetime,
) -> JobProgress:
    specification = job.specification
    elapsed = None if job.started_at is None else running_seconds(job, now)
    by_phase = _phases(job, specification, phases)
    num_trials = sum(phase.num_trials for phase in by_phase.values())
    num_left = num_trials - sum(phase.num_finished for phase in by_phase.values())
    return JobProgress(
        trials={state: counts[state] for state in TrialState},
        phases=by_phase,
        num_trials=num_trials,
        num_steps=steps.ended + steps.unfinished,
        max_steps=steps.ended + (0 if job.state.is_final else num_left * job.num_steps),
        best=best.get(Phase.SEARCH),
        baseline_best=best.get(Phase.BASELINE),
        front=front_of([(trial.number, trial.phase, trial.metrics) for trial in completed], job.objectives),
        seconds_elapsed=elapsed,
        seconds_left=None if elapsed is None else _seconds_left(specification, num_left, counts, recent, elapsed),
        device_hours=device_hours(specification, spent_seconds),
    )


def _phases(
    job: Job, specification: JobSpecification, counts: Mapping[Phase, _PhaseCount]
) -> dict[Phase, PhaseProgress]:
    # A phase may need fewer trials than it was allotted; the job's own number is corrected when it has ended.
    is_complete = sum(count.finished for count in counts.values()) == job.num_trials
    found = {}
    for phase, allotted in allot(specification).items():
        count = counts.get(phase, _PhaseCount())
        # An extended job may confirm other configs than those it confirmed before.
        found[phase] = PhaseProgress(count.finished, count.begun if is_complete else max(count.begun, allotted))
    return found


def _seconds_left(
    specification: JobSpecification,
    num_left: int,
    counts: Counter[TrialState],
    recent: Sequence[TrainedTrial],
    seconds_elapsed: float,
) -> float | None:
    """Trials to come, each as long as the recent ones took, as many at once as there are now."""
    # A job's first trial waits for its ranks to start, which the later ones find warm. An interrupted one has waited.
    typical = [trial for trial in recent if trial.number > 0 and trial.runs == 1] or recent
    durations = [(trial.finished_at - trial.started_at).total_seconds() for trial in typical]
    if not durations:
        return None
    at_once = max(1, counts[TrialState.RUNNING])
    left = num_left * statistics.fmean(durations) / at_once
    limit = specification.budget.wall_clock_seconds
    return left if limit is None else max(0.0, min(left, limit - seconds_elapsed))
