"""The progress of jobs: their trials by state and phase, the best values so far, and the time left."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from service.domain import JobState, Phase, TrialState
from service.evidence.best_values import BestTrial, best_of
from service.evidence.pareto_front import FrontPoint, front_of
from service.evidence.recommended import evidence_from_json
from service.specification.job import JobSpecification
from service.specification.phases import allot
from service.store.models import Job
from service.store.repositories import (
    CompletedTrial,
    LeadingTrial,
    RecommendationRepository,
    TrialLengths,
    TrialRepository,
    TrialSummary,
)
from service.store.session import Session
from service.use_cases.budgets import cost_of, device_hours, running_seconds


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
    num_paused: int
    """Those of the queued ones that were measured, and wait to go on."""
    phases: dict[Phase, PhaseProgress]
    """Those that the job has, in their order."""
    num_trials: int
    """At most so many, until the job has ended: of each phase those of the plan, or those begun if they are more."""
    num_steps: int
    """Steps measured, of all trials together."""
    max_steps: int
    """The same when the job has ended, if no trial that has not ended is pruned; where batch sizes are searched, those
    yet to begin count as the longest."""
    best: BestTrial | None
    """Of the search: once the job has ended, as its recommendation has it."""
    baseline_best: BestTrial | None
    baseline_optimizer: str | None
    """That trial's."""
    seconds_elapsed: float | None
    """Time that the job has been running, without time in the queue or paused; None before it first ran."""
    seconds_left: float | None
    """Estimate from the training time of the steps so far, or where batch sizes are searched of the shares of their
    examples that trials have seen; None without any, and unless the job runs."""
    device_hours: float
    """Training time of all trials so far, times the ranks of each."""
    cost: float | None
    """Of those device-hours, in the job's currency; None: they have no price."""
    front: list[FrontPoint] = field(default_factory=list)
    """With several objectives: what no other completed trial betters in all of them, sorted by the first."""

    @property
    def num_finished(self) -> int:
        return sum(count for state, count in self.trials.items() if state.is_final)


@dataclass(slots=True)
class _PhaseCount:
    """Trials of one phase of a job, their steps, and their work: steps too, or where trials differ in their number of
    steps, whole trainings."""

    begun: int = 0
    finished: int = 0
    num_steps: int = 0
    finished_steps: int = 0
    unfinished_max_steps: int = 0
    """Of the trials that have begun and not ended, each trained to its end."""
    unfinished_work: float = 0.0
    trained: int = 0
    """Trials that went as far as they were meant to: completed or pruned."""
    trained_work: float = 0.0
    work: float = 0.0

    def add(self, summary: TrialSummary, lengths: TrialLengths | None, *, num_steps: int) -> None:
        """Adds trials, which have `num_steps` steps if there are no `lengths`."""
        work = summary.num_steps if lengths is None else lengths.num_trainings
        self.begun += summary.count
        self.num_steps += summary.num_steps
        self.work += work
        if not summary.state.is_final:
            self.unfinished_max_steps += summary.count * num_steps if lengths is None else lengths.whole_steps
            self.unfinished_work += work
            return
        self.finished += summary.count
        self.finished_steps += summary.num_steps
        if summary.state in (TrialState.COMPLETED, TrialState.PRUNED):
            self.trained += summary.count
            self.trained_work += work


def progress_of(session: Session, jobs: Sequence[Job], *, now: datetime) -> dict[str, JobProgress]:
    """The progress of each job by id, with a fixed number of statements."""
    ids = [job.id for job in jobs]
    repository = TrialRepository(session)
    counts: dict[str, Counter[TrialState]] = {job_id: Counter() for job_id in ids}
    phases: dict[str, dict[Phase, _PhaseCount]] = {job_id: defaultdict(_PhaseCount) for job_id in ids}
    spent_seconds = dict.fromkeys(ids, 0.0)
    paused = dict.fromkeys(ids, 0)
    num_steps = {job.id: job.num_steps for job in jobs}
    of_examples = [job.id for job in jobs if _counts_examples(job)]
    lengths = {
        (own.job_id, own.phase, own.state): own for own in (repository.lengths(of_examples) if of_examples else ())
    }
    for summary in repository.summaries(ids):
        counts[summary.job_id][summary.state] += summary.count
        own = lengths.get((summary.job_id, summary.phase, summary.state))
        phases[summary.job_id][summary.phase].add(summary, own, num_steps=num_steps[summary.job_id])
        spent_seconds[summary.job_id] += summary.spent_seconds
        paused[summary.job_id] += summary.num_measured if summary.state is TrialState.QUEUED else 0
    best: dict[str, dict[Phase, LeadingTrial]] = {job_id: {} for job_id in ids}
    for leading in repository.leading(ids):
        best[leading.job_id][leading.phase] = leading
    completed: dict[str, list[CompletedTrial]] = {job.id: [] for job in jobs if len(job.objectives) > 1}
    for trial in repository.completed(completed) if completed else ():
        completed[trial.job_id].append(trial)
    progress = {
        job.id: _progress(
            job,
            counts[job.id],
            phases[job.id],
            best[job.id],
            completed.get(job.id, []),
            num_paused=paused[job.id],
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
            baseline_optimizer=None if evidence.baseline is None else evidence.baseline.optimizer,
        )
    return changed


def _progress(
    job: Job,
    counts: Counter[TrialState],
    phases: Mapping[Phase, _PhaseCount],
    best: Mapping[Phase, LeadingTrial],
    completed: Sequence[CompletedTrial],
    *,
    num_paused: int,
    spent_seconds: float,
    now: datetime,
) -> JobProgress:
    specification, baseline = job.specification, best.get(Phase.BASELINE)
    elapsed = None if job.started_at is None else running_seconds(job, now)
    by_phase = _phases(job, specification, phases)
    num_trials = sum(phase.num_trials for phase in by_phase.values())
    max_steps = sum(count.finished_steps for count in phases.values())
    if not job.state.is_final:
        num_to_begin = num_trials - sum(count.begun for count in phases.values())
        max_steps += sum(count.unfinished_max_steps for count in phases.values()) + num_to_begin * job.num_steps
    work, whole = sum(count.work for count in phases.values()), 1 if _counts_examples(job) else job.num_steps
    hours = device_hours(specification, spent_seconds)
    return JobProgress(
        trials={state: counts[state] for state in TrialState},
        num_paused=num_paused,
        phases=by_phase,
        num_trials=num_trials,
        num_steps=sum(count.num_steps for count in phases.values()),
        max_steps=max_steps,
        best=_best(best.get(Phase.SEARCH)),
        baseline_best=_best(baseline),
        baseline_optimizer=None if baseline is None else baseline.optimizer,
        front=front_of([(trial.number, trial.phase, trial.metrics) for trial in completed], job.objectives),
        seconds_elapsed=elapsed,
        seconds_left=(
            None
            if elapsed is None or job.state is not JobState.RUNNING or not (spent_seconds and work)
            else _seconds_left(
                specification,
                sum(_work_left(phase, by_phase[phase], phases.get(phase), whole) for phase in by_phase)
                * (spent_seconds / work),
                counts,
                elapsed,
            )
        ),
        device_hours=hours,
        cost=cost_of(job.price, hours),
    )


def _best(leading: LeadingTrial | None) -> BestTrial | None:
    return None if leading is None else BestTrial(leading.number, leading.value)


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


def _counts_examples(job: Job) -> bool:
    """True if the job's trials have examples in common, and may differ in their steps."""
    training = job.specification.training
    return training.num_examples is not None or training.num_tokens is not None


def _work_left(phase: Phase, progress: PhaseProgress, count: _PhaseCount | None, whole: int) -> float:
    """The work to come in a phase: each trial goes on as far as those that have ended did, a confirmation's to its
    end.

    Args:
        whole: the work of a full trial.
    """
    if count is None:
        count = _PhaseCount()
    each = count.trained_work / count.trained if count.trained and phase is not Phase.CONFIRMATION else whole
    return max(0.0, (progress.num_trials - progress.num_finished) * each - count.unfinished_work)


def _seconds_left(
    specification: JobSpecification, training_seconds: float, counts: Counter[TrialState], seconds_elapsed: float
) -> float:
    """The time left until `training_seconds` more have been trained, by as many trials at once as there are now."""
    left = training_seconds / max(1, counts[TrialState.RUNNING])
    limit = specification.budget.wall_clock_seconds
    return left if limit is None else max(0.0, min(left, limit - seconds_elapsed))
