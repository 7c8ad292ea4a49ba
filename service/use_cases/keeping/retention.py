"""Thinning the data of ended jobs: the curves of trials that are not recommended, the events of trials, and the output
of ranks.

A thinned curve keeps the first, the last and the best measurement, those where a fork began, and about thirty others:
at each twentieth of the training, which includes the rungs of `auto`, and at the powers of 2 and 3, which include those
of halving. Trials that an answer is based on keep all measurements. Events of the job itself are kept; the output of
ranks is removed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from service.domain import Direction, Phase
from service.store.models import Job
from service.store.repositories import (
    EventRepository,
    JobRepository,
    MeasurementRepository,
    PlottedTrial,
    RecommendationRepository,
    TrialRepository,
)
from service.store.repositories.of_trials.outputs import OutputRepository
from service.store.session import Session

SHARES = sorted({*(k / 20 for k in range(1, 20)), *(2.0**-k for k in range(1, 7)), *(3.0**-k for k in range(1, 5))})
"""Shares of a whole training: the first measurement at or beyond each is kept."""
TRIALS_AT_ONCE = 20
EVENTS_AT_ONCE = 2000
OUTPUTS_AT_ONCE = 20
"""All are numbers of rows that one transaction works on, by judgement: it stays short, so that others can write. An
output and a trial's curve are far larger than an event."""


@dataclass(frozen=True, slots=True)
class Thinning:
    """A step of the thinning of a job."""

    after_number: int
    """The trials up to this one are done."""
    is_done: bool


def next_to_thin(session: Session, *, finished_before: datetime) -> str | None:
    """A job that ended before this time, and has not been thinned since; None: there is none."""
    return JobRepository(session).next_to_thin(finished_before)


def thin(session: Session, job_id: str, *, after_number: int, now: datetime) -> Thinning:
    """Thins some trials of a job by number, then some of its events and output; call it until it is done.

    A job that continues meanwhile is left unchanged.
    """
    job = JobRepository(session).get_locked(job_id)
    if not job.state.is_final:
        return Thinning(after_number, is_done=True)
    trials = TrialRepository(session).plotted(job_id)
    left = [trial for trial in trials if trial.number > after_number][:TRIALS_AT_ONCE]
    if left:
        _thin_curves(session, job, trials, left)
        return Thinning(left[-1].number, is_done=False)
    if EventRepository(session).delete_of_trials(job_id, limit=EVENTS_AT_ONCE):
        return Thinning(after_number, is_done=False)
    if OutputRepository(session).delete_of_job(job_id, limit=OUTPUTS_AT_ONCE):
        return Thinning(after_number, is_done=False)
    job.thinned_at = now
    return Thinning(after_number, is_done=True)


def _thin_curves(session: Session, job: Job, trials: Sequence[PlottedTrial], some: Sequence[PlottedTrial]) -> None:
    whole = _kept_whole(session, job, trials)
    measurements = MeasurementRepository(session)
    ids = [trial.id for trial in some if trial.number not in whole]
    curves = measurements.curves(ids, job.metric)
    forks = TrialRepository(session).fork_steps(job.id)
    for trial in some:
        curve = curves.get(trial.id, [])
        kept = kept_steps(
            curve, direction=job.direction, num_steps=job.num_steps, forks=forks.get(trial.number, frozenset())
        )
        measurements.delete(trial.id, [step for step, _ in curve if step not in kept])


def _kept_whole(session: Session, job: Job, trials: Sequence[PlottedTrial]) -> set[int | None]:
    """The trials that an answer is based on."""
    found: set[int | None] = {trial.confirms for trial in trials}
    found |= {trial.number for trial in trials if trial.phase is Phase.CONFIRMATION}
    stored = RecommendationRepository(session).of_job(job.id)
    if stored is not None:
        evidence = stored.evidence
        winners = [evidence.best, *([evidence.baseline] if evidence.baseline else [])]
        found |= {winner.number for winner in winners}
        found |= {best.number for best in evidence.baselines} | {point.number for point in evidence.front}
    return found


def kept_steps(
    curve: Sequence[tuple[int, float | None]], *, direction: Direction, num_steps: int, forks: Collection[int]
) -> set[int]:
    """The steps of a curve that stay.

    Args:
        curve: (step, value) in order of steps; None: it was not finite.
        num_steps: steps of a whole training.
        forks: the steps at which others began from this one.
    """
    if not curve:
        return set()
    kept = {curve[0][0], curve[-1][0], *forks}
    finite = [(value, step) for step, value in curve if value is not None]
    if finite:
        best = min(finite) if direction is Direction.MINIMIZE else max(finite, key=lambda point: (point[0], -point[1]))
        kept.add(best[1])
    marks = [share * num_steps for share in SHARES]
    for (before, _), (step, _) in pairwise(curve):
        if any(before < mark <= step for mark in marks):
            kept.add(step)
    return kept
