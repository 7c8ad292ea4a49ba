"""Rows for the charts of a job's page: columns of trials, and points of some curves with every axis they can have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from service.domain import FailureReason, Phase, TrialState
from service.store.models import Event, MeasurementRow, MetricSet, Trial
from service.store.packing import value_at
from service.store.repositories.of_trials.measurements import CurvePoint
from service.store.session import MAX_IDS

SOUGHT = (Phase.SEARCH, Phase.BASELINE)
"""The phases that seek."""
FINAL = tuple(state for state in TrialState if state.is_final)


@dataclass(frozen=True, slots=True)
class ChartTrial:
    """A trial as the charts choose and group them: nothing of it is JSON, which takes most of the time to read."""

    id: str
    number: int
    phase: Phase
    state: TrialState
    reason: FailureReason | None
    confirms: int | None
    step: int
    value: float | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class ChartConfig:
    """The part of a trial's config that its curve tells."""

    optimizer: str
    batch_size: int
    parameters: dict[str, Any]


@dataclass(slots=True)
class Curves:
    """The points of some trials, by trial and then by step, and which metrics there are of them."""

    points: dict[str, list[CurvePoint]] = field(default_factory=dict)
    metrics: list[str] = field(default_factory=list)
    """Names of the metrics, in the order in which they are reported."""


@dataclass(frozen=True, slots=True)
class LaneTrial:
    """A trial as the timeline shows it."""

    number: int
    phase: Phase
    state: TrialState
    reason: FailureReason | None
    runs: int
    losses: int
    memory_failures: int
    forked_from: int | None
    forked_at_step: int | None
    step: int
    value: float | None
    started_at: datetime | None
    finished_at: datetime | None
    device_name: str | None
    """The device of its last run; None: the CPU, or it was never measured."""
    places: dict[str, Any] | None
    """The places of its runs, as `Trial.places`."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A change of a trial's state, when it happened."""

    number: int
    state: TrialState
    at: datetime


class ChartRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def trials(self, job_id: str, numbers: Collection[int] | None = None) -> list[ChartTrial]:
        """Trials of a job by number: all, or these."""
        statement = select(
            Trial.id,
            Trial.number,
            Trial.phase,
            Trial.state,
            Trial.reason,
            Trial.confirms,
            Trial.step,
            Trial.value,
            Trial.finished_at,
        ).where(Trial.job_id == job_id)
        if numbers is not None:
            statement = statement.where(Trial.number.in_(list(numbers)))
        return [ChartTrial(*row) for row in self._session.execute(statement.order_by(Trial.number))]

    def configs(self, job_id: str, numbers: Collection[int]) -> dict[int, ChartConfig]:
        """The parts that curves tell of the configs of some trials, by number."""
        statement = select(
            Trial.number,
            Trial.config["optimizer"]["name"].as_string(),
            Trial.config["batch_size"].as_integer(),
            Trial.parameters,
        ).where(Trial.job_id == job_id, Trial.number.in_(list(numbers)))
        return {row[0]: ChartConfig(row[1], row[2], row[3]) for row in self._session.execute(statement)}

    def optimizers(self, job_id: str, phase: Phase) -> dict[int, str]:
        """The optimizers of the trials of a phase, by number."""
        statement = select(Trial.number, Trial.config["optimizer"]["name"].as_string())
        found = self._session.execute(statement.where(Trial.job_id == job_id, Trial.phase == phase))
        return {row[0]: row[1] for row in found}

    def num_finished(self, job_id: str) -> int:
        """Trials of search and baselines that have ended."""
        statement = select(func.count()).where(Trial.job_id == job_id, Trial.phase.in_(SOUGHT), Trial.state.in_(FINAL))
        return self._session.scalar(statement) or 0

    def curves(self, trial_ids: Sequence[str], metric: str) -> Curves:
        """A metric of these trials."""
        found = Curves()
        for start in range(0, len(trial_ids), MAX_IDS):
            self._read(found, metric, MeasurementRow.trial_id.in_(trial_ids[start : start + MAX_IDS]))
        return found

    def ends_of_curves(self, first_steps: Mapping[str, int], metric: str) -> Curves:
        """A metric of trials, each from a step on."""
        found = Curves()
        for trial_id, step in first_steps.items():
            self._read(found, metric, MeasurementRow.trial_id == trial_id, MeasurementRow.step >= step)
        return found

    def _read(self, found: Curves, metric: str, *conditions: ColumnElement[bool]) -> None:
        statement = (
            select(
                MeasurementRow.trial_id,
                MeasurementRow.step,
                MeasurementRow.epoch,
                MeasurementRow.seconds,
                MeasurementRow.metric_set_id,
                MeasurementRow.packed_values,
            )
            .where(*conditions)
            .order_by(MeasurementRow.trial_id, MeasurementRow.step)
        )
        rows = list(self._session.execute(statement))
        sets = {row[4] for row in rows}
        named = self._session.execute(select(MetricSet.id, MetricSet.names).where(MetricSet.id.in_(sets)))
        names = {row[0]: row[1] for row in named.all()}
        index_in = {set_id: own.index(metric) for set_id, own in names.items() if metric in own}
        found.metrics = list(dict.fromkeys([*found.metrics, *(name for key in sorted(names) for name in names[key])]))
        for trial_id, step, epoch, seconds, set_id, packed in rows:
            index = index_in.get(set_id)
            value = None if index is None else value_at(packed, index)
            found.points.setdefault(trial_id, []).append(CurvePoint(step, epoch, seconds, value))

    def lanes(self, job_id: str) -> list[LaneTrial]:
        """Every trial of a job that was begun, by number."""
        statement = select(
            Trial.number,
            Trial.phase,
            Trial.state,
            Trial.reason,
            Trial.runs,
            Trial.losses,
            Trial.memory_failures,
            Trial.forked_from,
            Trial.forked_at_step,
            Trial.step,
            Trial.value,
            Trial.started_at,
            Trial.finished_at,
            Trial.environment["device_name"].as_string(),
            Trial.places,
        ).where(Trial.job_id == job_id, Trial.started_at.is_not(None))
        rows: Iterable[Any] = self._session.execute(statement.order_by(Trial.number))  # more columns than are typed
        return [LaneTrial(*row) for row in rows]

    def turns(self, job_id: str) -> list[Turn]:
        """The changes of state of a job's trials in their order; none of a job whose events were removed."""
        statement = select(Event.data["number"].as_integer(), Event.data["state"].as_string(), Event.created_at).where(
            Event.job_id == job_id, Event.kind == "trial.state"
        )
        return [Turn(row[0], TrialState(row[1]), row[2]) for row in self._session.execute(statement.order_by(Event.id))]
