"""The measurements of a trial: pages of them, or a curve with few points."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query

from search_spaces.nearest import did_you_mean
from service.api import problems
from service.api.dependencies import JobId, ReadSession, TrialNumber
from service.api.figures.min_max import MinMax, fewest_points
from service.api.lists.query_times import Moment
from service.api.one_thread import OneThreadRoute
from service.api.paging import LARGEST_INT
from service.api.schemas.trials import MeasurementPage, MeasurementRead
from service.errors import InvalidInput
from service.specification.external.trials import MAX_METRICS
from service.store.repositories import MeasurementRepository, TrialRepository
from service.store.repositories.of_trials.measurements import StoredMeasurement

MAX_MEASUREMENTS = 10_000
"""Measurements of a page, or points of a curve, at most; by judgement: more than any chart shows."""

router = APIRouter(prefix="/v1/jobs/{job_id}/trials", tags=["trials"], route_class=OneThreadRoute)


@router.get("/{number}/measurements", summary="Read a trial's curve", responses=problems.documented(404, 422, 503))
def list_measurements(
    session: ReadSession,
    job_id: JobId,
    number: TrialNumber,
    metric: Annotated[
        list[str],
        Query(default_factory=list, max_length=MAX_METRICS, description="These metrics alone. Repeat it for several."),
    ],
    after_step: Annotated[int, Query(ge=-1, le=LARGEST_INT, description="Only measurements of later steps.")] = -1,
    since: Annotated[Moment | None, Query(description="Only those recorded at or after this time.")] = None,
    max_points: Annotated[
        int | None,
        Query(
            ge=fewest_points(1),
            le=MAX_MEASUREMENTS,
            description="The most measurements to answer with: see above.",
        ),
    ] = None,
    limit: Annotated[
        int, Query(ge=1, le=MAX_MEASUREMENTS, description="The measurements of a page; not with `max_points`.")
    ] = 1000,
) -> MeasurementPage:
    """The measurements of a trial, by step, in pages.

    With `max_points` they come in one page. If there are more, these remain: the first, the last, and in equal
    stretches of steps those with the lowest and the highest value of each metric (the method MinMax of
    [M4](https://www.vldb.org/pvldb/vol7/p797-jugel.pdf)), so that a chart shows every peak.
    """
    trial = TrialRepository(session).get(job_id, number)
    measurements = MeasurementRepository(session)
    wanted = list(dict.fromkeys(metric))
    if wanted or max_points is not None:
        _check_metrics(wanted, measurements.metric_names(trial.id))
    if max_points is not None:
        names = wanted or measurements.metric_names(trial.id)
        points = _few(measurements, trial.id, after_step, since, names, max_points=max_points)
        return MeasurementPage(items=[_read(point, wanted) for point in points], next_after_step=None)
    rows = measurements.of_trial(trial.id, after_step=after_step, since=since, limit=limit + 1)
    items = [_cut(MeasurementRead.model_validate(row), wanted) for row in rows[:limit]]
    return MeasurementPage(items=items, next_after_step=items[-1].step if len(rows) > limit else None)


def _check_metrics(wanted: Sequence[str], known: Sequence[str]) -> None:
    unknown = next((name for name in wanted if name not in known), None)
    if unknown is not None and known:
        hint = did_you_mean(unknown, known)
        raise InvalidInput("metric", f"no measurement has {unknown!r} (known: {', '.join(known)}){hint}")


def _few(
    measurements: MeasurementRepository,
    trial_id: str,
    after_step: int,
    since: datetime | None,
    names: Sequence[str],
    *,
    max_points: int,
) -> Sequence[StoredMeasurement]:
    steps = measurements.steps(trial_id, after_step=after_step, since=since)
    if steps is None:
        return []
    if max_points < fewest_points(len(names)):
        raise InvalidInput("max_points", f"must be at least {fewest_points(len(names))} for {len(names)} metrics")
    curve = MinMax[StoredMeasurement](
        first_step=steps[0], last_step=steps[1], num_curves=len(names), max_points=max_points
    )
    for measurement in measurements.scan(trial_id, after_step=after_step, since=since):
        metrics = measurement.metrics
        curve.take(measurement.step, [metrics.get(name) for name in names], measurement)
    return curve.points()


def _read(stored: StoredMeasurement, wanted: Collection[str]) -> MeasurementRead:
    return _cut(MeasurementRead.model_validate(stored), wanted)


def _cut(measurement: MeasurementRead, wanted: Collection[str]) -> MeasurementRead:
    """A measurement with the metrics that are wanted alone; none named: all."""
    if not wanted:
        return measurement
    metrics = {name: value for name, value in measurement.metrics.items() if name in wanted}
    return measurement.model_copy(update={"metrics": metrics})
