"""A metric of a trial over its steps, beside what its baseline and the best of its side had there."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from service.domain import Phase
from service.store.models import Job, Trial
from service.store.repositories import TrialRepository
from service.store.repositories.trial_relations import BestConfig, CurvePoint, TrialRelationRepository
from service.store.session import Session

MAX_BAND_TRIALS = 100
"""Trials of a baseline that a band is made of; of more, an even choice."""


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
class Band:
    """The values of a baseline's completed trials."""

    optimizer: str
    points: Sequence[BandPoint]
    num_trials: int
    """That it is made of."""
    num_completed: int
    """That there are."""


@dataclass(frozen=True, slots=True)
class TrialCurve:
    """A metric of a trial, and of those that it is seen beside."""

    metric: str
    points: Sequence[CurvePoint]
    band: Band | None
    """None: no baseline trial has completed, or none measures it."""
    best_number: int | None
    """Of the trial with the best objective of its side; None: there is none, or it is this one."""
    best_points: Sequence[CurvePoint]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the config of a trial comes from: of one that repeats another, from that one."""

    phase: Phase
    """Search or baseline."""
    optimizer: str


def origin_of(session: Session, trial: Trial) -> Origin:
    """The phase that found the config of a trial, and its optimizer."""
    phase = trial.phase
    if trial.confirms is not None:
        found_by = TrialRepository(session).find(trial.job_id, trial.confirms)
        phase = Phase.SEARCH if found_by is None else found_by.phase
    return Origin(phase, str(trial.config["optimizer"]["name"]))


def best_of_side(session: Session, job: Job, origin: Origin) -> BestConfig | None:
    """The completed trial with the best objective, of those that an origin stands for."""
    relations = TrialRelationRepository(session)
    return relations.best_of_side(job.id, origin.phase, origin.optimizer, job.direction)


def trial_curve(session: Session, job: Job, trial: Trial, metric: str) -> TrialCurve:
    """The curve of a trial, with the band of the baseline that did best."""
    relations = TrialRelationRepository(session)
    best = best_of_side(session, job, origin_of(session, trial))
    best_id = None
    if best is not None and best.number != trial.number:
        best_id = TrialRepository(session).get(job.id, best.number).id
    curves = relations.curves([trial.id, *([best_id] if best_id else [])], metric)
    best_points = [] if best_id is None else curves.get(best_id, [])
    return TrialCurve(
        metric=metric,
        points=curves.get(trial.id, []),
        band=_band(session, job, metric),
        best_number=best.number if best is not None and best_points else None,
        best_points=best_points,
    )


def _band(session: Session, job: Job, metric: str) -> Band | None:
    leading = {found.phase: found for found in TrialRepository(session).leading([job.id])}.get(Phase.BASELINE)
    if leading is None:
        return None
    relations = TrialRelationRepository(session)
    ids = relations.completed_ids(job.id, Phase.BASELINE, leading.optimizer)
    stride = -(-len(ids) // MAX_BAND_TRIALS)
    curves = relations.curves(ids[:: stride or 1], metric)
    points = band_points(curves.values())
    return Band(leading.optimizer, points, num_trials=len(curves), num_completed=len(ids)) if points else None


def band_points(curves: Iterable[Sequence[CurvePoint]]) -> list[BandPoint]:
    """The lowest, the middle and the highest of the values at each step, by step; values that are missing do not
    count."""
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
