"""A metric of a trial over its steps, with the values of its baseline and of the best trial of its side."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.domain import Phase
from service.evidence.best_values import BestTrial, best_of
from service.store.models import Job, Trial
from service.store.repositories import RecommendationRepository, TrialRepository
from service.store.repositories.of_trials.measurements import CurvePoint
from service.store.repositories.of_trials.trial_relations import TrialRelationRepository
from service.store.session import Session

MAX_BAND_TRIALS = 100
"""The most trials of a baseline in a band; of more, an even selection."""


@dataclass(frozen=True, slots=True)
class BandPoint:
    """The values of several trials at one step."""

    step: int
    epoch: float
    seconds: float
    """The median of theirs."""
    low: float
    median: float
    high: float
    num_trials: int


@dataclass(frozen=True, slots=True)
class BaselineBand:
    """The values of a baseline's completed trials."""

    optimizer: str
    points: Sequence[BandPoint]
    num_trials: int
    """Number of trials that it is made of."""
    num_completed: int
    """Number of completed trials that there are."""


@dataclass(frozen=True, slots=True)
class TrialCurve:
    """A metric of a trial, and of the trials that it is shown with."""

    metric: str
    points: Sequence[CurvePoint]
    band: BaselineBand | None
    """None: no baseline trial has completed, or none measures it."""
    best_number: int | None
    """The number of the trial with the best objective of its side; None: there is none, or it is this one."""
    best_points: Sequence[CurvePoint]


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a trial's config; if it repeats another trial, the origin of that one."""

    phase: Phase
    """Search or baseline."""
    optimizer: str


def origin_of(session: Session, trial: Trial) -> Origin:
    """The phase that found the config of a trial, and its optimizer."""
    phase = trial.phase
    if trial.confirms is not None:
        found_by = TrialRepository(session).find(trial.job_id, trial.confirms)
        phase = Phase.SEARCH if found_by is None else found_by.phase
    return Origin(phase, trial.stored_config.optimizer)


@dataclass(frozen=True, slots=True)
class SideBest:
    """The best config of a side; if the job has ended with a recommendation, the one in it."""

    best: BestTrial
    optimizer: str
    parameters: Mapping[str, Any]


def best_of_side(session: Session, job: Job, origin: Origin) -> SideBest | None:
    """The best trial with this origin; None: none has completed."""
    winner = _winner(session, job, origin.phase)
    if winner is not None and winner.optimizer == origin.optimizer:
        return winner
    found = TrialRelationRepository(session).best_of_side(job.id, origin.phase, origin.optimizer, job.direction)
    return None if found is None else SideBest(BestTrial(found.number, found.value), origin.optimizer, found.parameters)


def best_of_baselines(session: Session, job: Job) -> SideBest | None:
    """The best of all baselines; None: none has completed."""
    winner = _winner(session, job, Phase.BASELINE)
    if winner is not None:
        return winner
    leading = {found.phase: found for found in TrialRepository(session).leading([job.id])}.get(Phase.BASELINE)
    return None if leading is None else best_of_side(session, job, Origin(Phase.BASELINE, leading.optimizer))


def _winner(session: Session, job: Job, phase: Phase) -> SideBest | None:
    """The config that a job's recommendation names for a phase; None: there is no recommendation, or it names none."""
    row = RecommendationRepository(session).of_job(job.id) if job.state.is_final else None
    if row is None:
        return None
    evidence = row.evidence
    winner = evidence.best if phase is Phase.SEARCH else evidence.baseline
    trial = None if winner is None else TrialRepository(session).find(job.id, winner.number)
    if winner is None or trial is None:
        return None
    return SideBest(best_of(evidence.confirmation, winner), winner.optimizer, trial.parameters)


def trial_curve(session: Session, job: Job, trial: Trial, metric: str) -> TrialCurve:
    """The curve of a trial, with the band of the baseline that did best."""
    relations = TrialRelationRepository(session)
    found = best_of_side(session, job, origin_of(session, trial))
    best_number = None if found is None or found.best.number == trial.number else found.best.number
    best_id = None if best_number is None else TrialRepository(session).get(job.id, best_number).id
    curves = relations.curves([trial.id, *([best_id] if best_id else [])], metric)
    best_points = [] if best_id is None else curves.get(best_id, [])
    return TrialCurve(
        metric=metric,
        points=curves.get(trial.id, []),
        band=_band(session, job, metric),
        best_number=best_number if best_points else None,
        best_points=best_points,
    )


def _band(session: Session, job: Job, metric: str) -> BaselineBand | None:
    leading = best_of_baselines(session, job)
    if leading is None:
        return None
    relations = TrialRelationRepository(session)
    ids = relations.completed_ids(job.id, Phase.BASELINE, leading.optimizer)
    stride = -(-len(ids) // MAX_BAND_TRIALS)
    curves = relations.curves(ids[:: stride or 1], metric)
    points = band_points(curves.values())
    return BaselineBand(leading.optimizer, points, num_trials=len(curves), num_completed=len(ids)) if points else None


def band_points(curves: Iterable[Sequence[CurvePoint]]) -> list[BandPoint]:
    """The lowest, the middle and the highest value at each step, by step; missing values do not count."""
    by_step: dict[int, list[tuple[CurvePoint, float]]] = {}
    for curve in curves:
        for point in curve:
            if point.value is not None:
                by_step.setdefault(point.step, []).append((point, point.value))
    return [_band_point(step, by_step[step]) for step in sorted(by_step)]


def _band_point(step: int, found: Sequence[tuple[CurvePoint, float]]) -> BandPoint:
    values = [value for _, value in found]
    return BandPoint(
        step=step,
        epoch=statistics.median(point.epoch for point, _ in found),
        seconds=statistics.median(point.seconds for point, _ in found),
        low=min(values),
        median=statistics.median(values),
        high=max(values),
        num_trials=len(values),
    )
