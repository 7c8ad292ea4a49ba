"""A trial's place among the others of its job: neighbours, relatives, the best of its side, what others measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, case, func, select
from sqlalchemy.orm import Session

from service.domain import Direction, Phase, TrialState
from service.store.models import MeasurementRow, MetricSet, Trial
from service.store.packing import value_at
from service.store.repositories.of_trials.measurements import CurvePoint


@dataclass(frozen=True, slots=True)
class RelatedTrial:
    """A trial that repeats another one, or began from its checkpoint."""

    number: int
    state: TrialState
    seed: int
    value: float | None
    step: int
    forked_at_step: int | None


@dataclass(frozen=True, slots=True)
class BestConfig:
    """The completed trial of a side with the best value."""

    number: int
    value: float
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PlaceAmongOthers:
    """The place of a trial's objective among those of others."""

    num_others: int
    num_better: int
    best: float | None
    """The best value of the others; None: there are none."""


class TrialRelationRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def neighbours(self, job_id: str, number: int) -> tuple[int | None, int | None]:
        """The numbers of the trials before and after one of a job."""
        own = Trial.job_id == job_id
        before = self._session.scalar(select(func.max(Trial.number)).where(own, Trial.number < number))
        after = self._session.scalar(select(func.min(Trial.number)).where(own, Trial.number > number))
        return before, after

    def confirmed_by(self, job_id: str, number: int) -> list[RelatedTrial]:
        """The trials of the confirmation that repeat one, by number."""
        return self._related(Trial.job_id == job_id, Trial.phase == Phase.CONFIRMATION, Trial.confirms == number)

    def forks_of(self, job_id: str, number: int) -> list[RelatedTrial]:
        """The trials that began from a checkpoint of one, by number."""
        return self._related(Trial.job_id == job_id, Trial.forked_from == number)

    def _related(self, *conditions: ColumnElement[bool]) -> list[RelatedTrial]:
        statement = select(
            Trial.number, Trial.state, Trial.config["seed"].as_integer(), Trial.value, Trial.step, Trial.forked_at_step
        ).where(*conditions)
        return [RelatedTrial(*row) for row in self._session.execute(statement.order_by(Trial.number))]

    def best_of_side(self, job_id: str, phase: Phase, optimizer: str, direction: Direction) -> BestConfig | None:
        """The completed trial with the best value, the earliest of equals; None: there is none."""
        order = Trial.value.asc() if direction is Direction.MINIMIZE else Trial.value.desc()
        statement = (
            select(Trial.number, Trial.value, Trial.parameters)
            .where(*_completed(job_id, phase, optimizer))
            .order_by(order, Trial.number)
            .limit(1)
        )
        found = self._session.execute(statement).one_or_none()
        return None if found is None else BestConfig(found[0], found[1] or 0.0, found[2])

    def measured_at(
        self, job_id: str, phase: Phase, optimizer: str, *, step: int, metric: str, before: datetime | None
    ) -> dict[int, float]:
        """The finite values of a metric that trials of a side had measured at a step, by number.

        Args:
            before: only what was recorded by then; None: all.
        """
        statement = (
            select(Trial.number, MeasurementRow.metric_set_id, MeasurementRow.packed_values)
            .join(MeasurementRow, MeasurementRow.trial_id == Trial.id)
            .where(*_of_side(job_id, phase, optimizer), MeasurementRow.step == step)
        )
        if before is not None:
            statement = statement.where(MeasurementRow.recorded_at <= before)
        index_in = self._places_of(metric)
        found = {
            number: value_at(packed, index_in[set_id])
            for number, set_id, packed in self._session.execute(statement)
            if set_id in index_in
        }
        return {number: value for number, value in found.items() if value is not None}

    def place_of(self, trial: Trial, phase: Phase, optimizer: str, direction: Direction) -> PlaceAmongOthers:
        """The place of a completed trial with a value among the others of its side that completed."""
        is_better = Trial.value < trial.value if direction is Direction.MINIMIZE else Trial.value > trial.value
        best = func.min(Trial.value) if direction is Direction.MINIMIZE else func.max(Trial.value)
        statement = select(func.count(), func.coalesce(func.sum(case((is_better, 1), else_=0)), 0), best)
        others = (*_completed(trial.job_id, phase, optimizer), Trial.number != trial.number)
        return PlaceAmongOthers(*self._session.execute(statement.where(*others)).one())

    def completed_ids(self, job_id: str, phase: Phase, optimizer: str) -> list[str]:
        """The ids of the completed trials of a side, by number."""
        statement = select(Trial.id).where(*_completed(job_id, phase, optimizer)).order_by(Trial.number)
        return list(self._session.scalars(statement))

    def last_metrics(self, job_id: str, phase: Phase, optimizer: str, *, limit: int) -> list[Mapping[str, Any]]:
        """The last metrics of the newest completed trials of a side."""
        statement = select(Trial.metrics).where(*_completed(job_id, phase, optimizer))
        return list(self._session.scalars(statement.order_by(Trial.number.desc()).limit(limit)))

    def curves(self, trial_ids: Sequence[str], metric: str) -> dict[str, list[CurvePoint]]:
        """A metric of these trials by trial, in order of steps."""
        index_in = self._places_of(metric)
        statement = (
            select(
                MeasurementRow.trial_id,
                MeasurementRow.step,
                MeasurementRow.epoch,
                MeasurementRow.seconds,
                MeasurementRow.metric_set_id,
                MeasurementRow.packed_values,
            )
            .where(MeasurementRow.trial_id.in_(trial_ids))
            .order_by(MeasurementRow.trial_id, MeasurementRow.step)
        )
        found: dict[str, list[CurvePoint]] = {}
        for trial_id, step, epoch, seconds, set_id, packed in self._session.execute(statement):
            index = index_in.get(set_id)
            value = None if index is None else value_at(packed, index)
            found.setdefault(trial_id, []).append(CurvePoint(step, epoch, seconds, value))
        return found

    def _places_of(self, metric: str) -> dict[int, int]:
        """The place of a metric in each set of metrics that has it."""
        sets = self._session.execute(select(MetricSet.id, MetricSet.names))
        return {set_id: names.index(metric) for set_id, names in sets if metric in names}


def _of_side(job_id: str, phase: Phase, optimizer: str) -> list[ColumnElement[bool]]:
    found = [Trial.job_id == job_id, Trial.phase == phase]
    if phase is Phase.BASELINE:  # the search has one optimizer, and not to look at it leaves all to an index
        found.append(Trial.config["optimizer"]["name"].as_string() == optimizer)
    return found


def _completed(job_id: str, phase: Phase, optimizer: str) -> list[ColumnElement[bool]]:
    is_completed = Trial.state == TrialState.COMPLETED, Trial.value.is_not(None)
    return [*_of_side(job_id, phase, optimizer), *is_completed]
