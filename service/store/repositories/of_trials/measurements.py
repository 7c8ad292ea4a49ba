"""Measurements of trials, and the names of their metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Select, delete, func, select
from sqlalchemy.orm import Session, selectinload

from service.store.models import MeasurementRow, MetricSet, Trial
from service.store.packing import digest_of, pack, unpack, value_at
from service.store.repositories.events import lock_event_order
from service.store.session import MAX_IDS

SCANNED_AT_ONCE = 1000
"""Rows that the database hands over at a time, which bounds memory; by judgement."""
_METRICS = selectinload(MeasurementRow.metric_set)


@dataclass(frozen=True, slots=True)
class StoredMeasurement:
    """A measurement as it is stored; its values are read when they are asked for."""

    step: int
    epoch: float
    seconds: float
    names: Sequence[str]
    packed: bytes
    recorded_at: datetime

    @property
    def metrics(self) -> dict[str, float | None]:
        return dict(zip(self.names, unpack(self.packed), strict=True))


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A measurement as a curve shows it."""

    step: int
    epoch: float
    seconds: float
    value: float | None
    """None: the metric was not measured, or not finite."""


class MeasurementRepository:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._metric_sets: dict[tuple[str, ...], int] = {}
        self._looked_up: dict[tuple[str, int], MeasurementRow | None] = {}

    def look_up(self, trial_id: str, steps: Sequence[int]) -> None:
        """Reads at once the rows that `put` would ask for one by one, each time writing what it was given before."""
        for start in range(0, len(steps), MAX_IDS):
            some = steps[start : start + MAX_IDS]
            self._looked_up.update({(trial_id, step): None for step in some})
            rows = select(MeasurementRow).where(MeasurementRow.trial_id == trial_id, MeasurementRow.step.in_(some))
            self._looked_up.update({(trial_id, row.step): row for row in self._session.scalars(rows)})

    def put(
        self,
        trial_id: str,
        *,
        step: int,
        epoch: float,
        seconds: float,
        metrics: Mapping[str, float | None],
        recorded_at: datetime,
    ) -> float | None:
        """Adds a measurement, or replaces the one of the same step (a resumed trial measures a step again).

        Returns the `seconds` of the one replaced; None: the step was not measured before.
        """
        place = (trial_id, step)
        row = self._looked_up[place] if place in self._looked_up else self._session.get(MeasurementRow, place)
        replaced = None if row is None else row.seconds
        if row is None:
            row = MeasurementRow(trial_id=trial_id, step=step)
        row.epoch, row.seconds, row.recorded_at = epoch, seconds, recorded_at
        row.metric_set_id, row.packed_values = self.metric_set(tuple(metrics)), pack(metrics.values())
        if replaced is None:
            self._session.add(row)
        if place in self._looked_up:
            self._looked_up[place] = row
        return replaced

    def metric_set(self, names: tuple[str, ...]) -> int:
        """The id of the set of these names, which is made if need be."""
        if names in self._metric_sets:
            return self._metric_sets[names]
        find = select(MetricSet.id).where(MetricSet.digest == (digest := digest_of(names)))
        found = self._session.scalar(find)
        if found is None:
            # Another run may be about to make the same. Events are written in the same transactions under this lock:
            # another one beside it could be waited for crosswise.
            lock_event_order(self._session)
            found = self._session.scalar(find)
        if found is None:
            made = MetricSet(digest=digest, names=list(names))
            self._session.add(made)
            self._session.flush()
            found = made.id
        self._metric_sets[names] = found
        return found

    def find(self, trial_id: str, step: int) -> MeasurementRow | None:
        statement = self._select().where(MeasurementRow.trial_id == trial_id, MeasurementRow.step == step)
        return self._session.scalars(statement).one_or_none()

    def first_of_job(self, job_id: str) -> MeasurementRow | None:
        """The measurement of a job that was recorded first; None: it has none."""
        statement = self._select().join(MeasurementRow.trial).where(Trial.job_id == job_id)
        return self._session.scalars(
            statement.order_by(MeasurementRow.recorded_at, MeasurementRow.step).limit(1)
        ).one_or_none()

    def of_trial(
        self,
        trial_id: str,
        *,
        after_step: int | None = None,
        since: datetime | None = None,
        limit: int | None = None,
    ) -> list[MeasurementRow]:
        statement = self._select().where(*_of_trial(trial_id, after_step, since))
        return list(self._session.scalars(statement.order_by(MeasurementRow.step).limit(limit)))

    def metric_names(self, trial_id: str) -> list[str]:
        """The metrics that measurements of a trial have, by name."""
        sets = select(MeasurementRow.metric_set_id).where(MeasurementRow.trial_id == trial_id).distinct()
        found = self._session.scalars(select(MetricSet.names).where(MetricSet.id.in_(sets)))
        return sorted({name for names in found for name in names})

    def steps(
        self, trial_id: str, *, after_step: int | None = None, since: datetime | None = None
    ) -> tuple[int, int] | None:
        """The first and the last step at which a trial was measured; None: it was not."""
        statement = select(func.min(MeasurementRow.step), func.max(MeasurementRow.step))
        first, last = self._session.execute(statement.where(*_of_trial(trial_id, after_step, since))).one()
        return None if first is None or last is None else (first, last)

    def scan(
        self, trial_id: str, *, after_step: int | None = None, since: datetime | None = None
    ) -> Iterator[StoredMeasurement]:
        """The measurements of a trial by step, a few in memory at a time, and no objects that the session keeps."""
        statement = (
            select(
                MeasurementRow.step,
                MeasurementRow.epoch,
                MeasurementRow.seconds,
                MeasurementRow.metric_set_id,
                MeasurementRow.packed_values,
                MeasurementRow.recorded_at,
            )
            .where(*_of_trial(trial_id, after_step, since))
            .order_by(MeasurementRow.step)
            .execution_options(yield_per=SCANNED_AT_ONCE)
        )
        sets = {row[0]: row[1] for row in self._session.execute(select(MetricSet.id, MetricSet.names))}
        for step, epoch, seconds, set_id, packed, recorded_at in self._session.execute(statement):
            yield StoredMeasurement(step, epoch, seconds, sets[set_id], packed, recorded_at)

    def metric_names_of_job(self, job_id: str) -> list[str]:
        """The names of all metrics that trials of a job have measured, in the order in which they are reported."""
        used = select(MeasurementRow.metric_set_id).join(MeasurementRow.trial).where(Trial.job_id == job_id).distinct()
        statement = select(MetricSet.names).where(MetricSet.id.in_(used)).order_by(MetricSet.id)
        return list(dict.fromkeys(name for names in self._session.scalars(statement) for name in names))

    def curves(self, trial_ids: Sequence[str], metric: str) -> dict[str, list[tuple[int, float | None]]]:
        """A metric of these trials by trial: (step, value) in order of steps; None: it was not measured, or not finite.

        Only this one value of each measurement is made an object, not a dictionary of all.
        """
        if not trial_ids:
            return {}
        sets = self._session.execute(select(MetricSet.id, MetricSet.names))
        index_in = {set_id: names.index(metric) for set_id, names in sets if metric in names}
        found: dict[str, list[tuple[int, float | None]]] = {}
        for start in range(0, len(trial_ids), MAX_IDS):
            statement = (
                select(
                    MeasurementRow.trial_id,
                    MeasurementRow.step,
                    MeasurementRow.metric_set_id,
                    MeasurementRow.packed_values,
                )
                .where(MeasurementRow.trial_id.in_(trial_ids[start : start + MAX_IDS]))
                .order_by(MeasurementRow.trial_id, MeasurementRow.step)
            )
            for trial_id, step, set_id, packed in self._session.execute(statement):
                index = index_in.get(set_id)
                value = None if index is None else value_at(packed, index)
                found.setdefault(trial_id, []).append((step, value))
        return found

    def first_from(self, trial_ids: Sequence[str], metric: str, *, step: int) -> dict[str, tuple[int, float]]:
        """A metric of these trials, by trial, where each was first measured at a step or after it: (step, value). Those
        are left out that were not, or had no finite value there."""
        found: dict[str, tuple[int, float]] = {}
        for start in range(0, len(trial_ids), MAX_IDS):
            some = trial_ids[start : start + MAX_IDS]
            first = (
                select(MeasurementRow.trial_id, func.min(MeasurementRow.step).label("step"))
                .where(MeasurementRow.trial_id.in_(some), MeasurementRow.step >= step)
                .group_by(MeasurementRow.trial_id)
                .subquery()
            )
            statement = select(
                MeasurementRow.trial_id, MeasurementRow.step, MetricSet.names, MeasurementRow.packed_values
            ).where(
                MeasurementRow.trial_id == first.c.trial_id,
                MeasurementRow.step == first.c.step,
                MeasurementRow.metric_set_id == MetricSet.id,
            )
            for trial_id, at, names, packed in self._session.execute(statement):
                value = value_at(packed, names.index(metric)) if metric in names else None
                if value is not None:
                    found[trial_id] = (at, value)
        return found

    def delete(self, trial_id: str, steps: Sequence[int]) -> None:
        """Deletes the measurements of a trial at these steps."""
        for start in range(0, len(steps), MAX_IDS):
            some = MeasurementRow.step.in_(steps[start : start + MAX_IDS])
            self._session.execute(delete(MeasurementRow).where(MeasurementRow.trial_id == trial_id, some))

    def _select(self) -> Select[MeasurementRow]:
        return select(MeasurementRow).options(_METRICS)


def _of_trial(trial_id: str, after_step: int | None, since: datetime | None) -> list[ColumnElement[bool]]:
    conditions = [MeasurementRow.trial_id == trial_id]
    if after_step is not None:
        conditions.append(MeasurementRow.step > after_step)
    if since is not None:
        conditions.append(MeasurementRow.recorded_at >= since)
    return conditions
