"""The trials of jobs taken together: by state and phase, the best of them, and their cost."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain

from service.domain import Phase, TrialState
from service.evidence.best_values import BestTrial, best_of
from service.evidence.in_words.standing import ConfigStanding, standing_of
from service.evidence.in_words.words import Answer, answer_of
from service.evidence.pareto_front import FrontPoint, front_of
from service.store.models import Job
from service.store.repositories import (
    CompletedTrial,
    LeadingTrial,
    RecommendationRepository,
    TrialLengths,
    TrialRepository,
    TrialSummary,
)
from service.store.session import Session, sees_committed

_ENDED = tuple(state for state in TrialState if state.is_final)
_GOING_ON = tuple(state for state in TrialState if not state.is_final)

MAX_REMEMBERED = 2000
"""The most remembered jobs: the longest page has a tenth of them."""


@dataclass(slots=True)
class PhaseCount:
    """Trials of one phase of a job, their steps, and their work: also in steps, or, if trials differ in their number of
    steps, in whole trainings."""

    begun: int = 0
    finished: int = 0
    num_steps: int = 0
    finished_steps: int = 0
    unfinished_max_steps: int = 0
    """Steps of the trials that have begun but not ended, each counted to its end."""
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


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding of a job that has ended, in words."""

    answer: Answer | None
    """None: there is no baseline to compare with."""
    standing: ConfigStanding
    """The standing of the recommended config: whether it was confirmed."""


@dataclass(slots=True)
class JobTrials:
    """The trials of a job taken together."""

    counts: Counter[TrialState] = field(default_factory=Counter)
    phases: defaultdict[Phase, PhaseCount] = field(default_factory=lambda: defaultdict(PhaseCount))
    num_paused: int = 0
    """The queued ones that were measured."""
    spent_seconds: float = 0.0
    best: BestTrial | None = None
    """The best trial of the search; if the job has ended with a recommendation, the one in it."""
    baseline_best: BestTrial | None = None
    baseline_optimizer: str | None = None
    """The optimizer of that trial."""
    front: list[FrontPoint] = field(default_factory=list)
    """With several objectives: what no other completed trial betters in all of them, sorted by the first."""
    finding: Finding | None = None
    """None: the job has not ended with a recommendation."""


class TrialMemory:
    """Remembers the results of ended jobs, and the ended trials of other jobs, so that a list does not count millions
    of them each time.

    A change to a trial of an ended job also continues the job, in the same transaction, and the job then ends again at
    another time. So the results of a job are valid as long as its end time is the same, and those of its ended trials
    until another trial ends. Any number of threads may use it.
    """

    def __init__(self, max_jobs: int = MAX_REMEMBERED) -> None:
        self._max_jobs = max_jobs
        self._found: OrderedDict[tuple[str, datetime], JobTrials] = OrderedDict()
        self._ended: OrderedDict[str, tuple[int, list[TrialSummary]]] = OrderedDict()
        self._lock = threading.Lock()

    def trials_of(self, session: Session, jobs: Sequence[Job]) -> Mapping[str, JobTrials]:
        """The trials of each job by id, with a fixed number of statements, or none if all are remembered."""
        keys = {job.id: (job.id, job.finished_at) for job in jobs if job.finished_at is not None}
        with self._lock:
            found = {job_id: self._found[key] for job_id, key in keys.items() if key in self._found}
            for job_id in found:
                self._found.move_to_end(keys[job_id])
        missing = [job for job in jobs if job.id not in found]
        if missing:
            found |= trials_of(session, missing, summaries_of=self.summaries_of)
        with self._lock:
            for job in missing:
                if job.id in keys:
                    self._found[keys[job.id]] = found[job.id]
            while len(self._found) > self._max_jobs:
                self._found.popitem(last=False)
        return found

    def summaries_of(self, session: Session, jobs: Sequence[Job]) -> Iterable[TrialSummary]:
        """Counts of the trials of jobs; ended ones are counted once, until another one ends."""
        repository = TrialRepository(session)
        if not sees_committed(session):  # if it is rolled back, the same number of ends can come again for other ends
            return repository.summaries([job.id for job in jobs])
        with self._lock:
            known = {job.id: self._ended.get(job.id) for job in jobs}
        found = {job.id: own[1] for job in jobs if (own := known[job.id]) is not None and own[0] == job.trial_ends}
        new: dict[str, list[TrialSummary]] = {job.id: [] for job in jobs if job.id not in found}
        for summary in repository.summaries(new, states=_ENDED) if new else ():
            new[summary.job_id].append(summary)
        with self._lock:
            for job in jobs:
                if job.id in new and not job.state.is_final:  # otherwise all of it is remembered
                    self._ended[job.id] = job.trial_ends, new[job.id]
                    self._ended.move_to_end(job.id)
            while len(self._ended) > self._max_jobs:
                self._ended.popitem(last=False)
        going_on = repository.summaries([job.id for job in jobs], states=_GOING_ON)
        return [*chain.from_iterable((found | new).values()), *going_on]


def _counted(session: Session, jobs: Sequence[Job]) -> Iterable[TrialSummary]:
    return TrialRepository(session).summaries([job.id for job in jobs])


def trials_of(
    session: Session,
    jobs: Sequence[Job],
    *,
    summaries_of: Callable[[Session, Sequence[Job]], Iterable[TrialSummary]] = _counted,
) -> dict[str, JobTrials]:
    """The trials of each job by id, with a fixed number of statements.

    Args:
        summaries_of: counts them.
    """
    ids = [job.id for job in jobs]
    repository = TrialRepository(session)
    found = {job_id: JobTrials() for job_id in ids}
    num_steps = {job.id: job.num_steps for job in jobs}
    differing = [job.id for job in jobs if may_differ_in_steps(job)]
    lengths = {(own.job_id, own.phase, own.state): own for own in (repository.lengths(differing) if differing else ())}
    for summary in summaries_of(session, jobs):
        trials = found[summary.job_id]
        trials.counts[summary.state] += summary.count
        own = lengths.get((summary.job_id, summary.phase, summary.state))
        trials.phases[summary.phase].add(summary, own, num_steps=num_steps[summary.job_id])
        trials.spent_seconds += summary.spent_seconds
        trials.num_paused += summary.num_measured if summary.state is TrialState.QUEUED else 0
    for leading in repository.leading(ids):
        trials = found[leading.job_id]
        if leading.phase is Phase.SEARCH:
            trials.best = _best(leading)
        else:
            trials.baseline_best, trials.baseline_optimizer = _best(leading), leading.optimizer
    _add_fronts(repository, jobs, found)
    _take_recommended(session, jobs, found)
    return found


def may_differ_in_steps(job: Job) -> bool:
    """True if the job's trials have examples or time in common, and may differ in their steps."""
    training = job.specification.training
    counts_examples = training.num_examples is not None or training.num_tokens is not None
    return counts_examples or bool(job.specification.step_times)


def _best(leading: LeadingTrial) -> BestTrial:
    return BestTrial(leading.number, leading.value)


def _add_fronts(repository: TrialRepository, jobs: Sequence[Job], found: Mapping[str, JobTrials]) -> None:
    """Adds the fronts of the jobs with several objectives, by one statement."""
    completed: dict[str, list[CompletedTrial]] = {job.id: [] for job in jobs if len(job.stored_objectives) > 1}
    for trial in repository.completed(completed) if completed else ():
        completed[trial.job_id].append(trial)
    for job in jobs:
        if own := completed.get(job.id):
            found[job.id].front = front_of(
                [(trial.number, trial.phase, trial.metrics) for trial in own], job.objectives
            )


def _take_recommended(session: Session, jobs: Sequence[Job], found: Mapping[str, JobTrials]) -> None:
    """Gives jobs that have ended with a recommendation its best values, by one statement."""
    ended = [job.id for job in jobs if job.state.is_final]
    for recommendation in RecommendationRepository(session).of_jobs(ended) if ended else ():
        evidence = recommendation.evidence
        trials, baseline = found[recommendation.job_id], evidence.baseline
        trials.finding = Finding(answer_of(evidence), standing_of(evidence))
        trials.best = best_of(evidence.confirmation, evidence.best)
        trials.baseline_best = None if baseline is None else best_of(evidence.confirmation, baseline)
        trials.baseline_optimizer = None if baseline is None else baseline.optimizer
