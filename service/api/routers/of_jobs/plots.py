"""The charts of a job, as figures for Plotly."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from service.api import problems
from service.api.dependencies import JobId, ReadSession
from service.api.figures import (
    Axis,
    Figure,
    best_so_far,
    choose_curves,
    learning_curves,
    plot_trial,
    side_labels,
    trade_off,
)
from service.api.one_thread import OneThreadRoute
from service.domain import TrialState
from service.errors import InvalidInput, UnknownName
from service.evidence.pareto_front import front_of
from service.store.models import Job
from service.store.repositories import JobRepository, MeasurementRepository, TrialColumnsRepository, TrialRepository

KINDS = ("best-so-far", "learning-curves", "trade-off")
"""Charts of a job, the last one if it has several objectives."""

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=OneThreadRoute)


@router.get(
    "/{job_id}/plots/{kind}",
    summary="A chart of a job as a Plotly figure",
    responses=problems.documented(404, 422, 503),
)
def read_plot(
    session: ReadSession,
    job_id: JobId,
    kind: Annotated[str, Path(description="`best-so-far`, `learning-curves` or `trade-off`.")],
    x: Annotated[Axis, Query(description="The axis that `best-so-far` is drawn over.")] = "trials",
    against: Annotated[
        str | None,
        Query(max_length=200, description="The objective that `trade-off` is drawn over; without: the second one."),
    ] = None,
) -> dict[str, Any]:
    """`{"data": [...], "layout": {...}}` for Plotly; `kind` is `best-so-far`, `learning-curves` or, of a job with
    several objectives, `trade-off`."""
    job = JobRepository(session).get(job_id)
    if kind == "best-so-far":
        return _best_so_far(session, job, x)
    if kind == "learning-curves":
        return _learning_curves(session, job)
    has_several = len(job.objectives) > 1
    if kind == "trade-off" and has_several:
        return _trade_off(session, job, against)
    hint = "it takes a job with several objectives" if kind == "trade-off" else ""
    raise UnknownName("kind", kind, KINDS if has_several else KINDS[:-1], hint=hint)


def _best_so_far(session: ReadSession, job: Job, axis: Axis) -> Figure:
    trials = TrialRepository(session).plotted(job.id)
    return best_so_far(
        [plot_trial(trial, started_at=job.started_at) for trial in trials],
        metric=job.metric,
        direction=job.direction,
        labels=side_labels(job.specification),
        axis=axis,
    )


def _learning_curves(session: ReadSession, job: Job) -> Figure:
    """Chooses the trials to draw first, so that a job of thousands loads the measurements of a hundred."""
    trials = TrialRepository(session).plotted(job.id)
    ids = {trial.number: trial.id for trial in trials}
    rows = [plot_trial(trial, started_at=job.started_at) for trial in trials if trial.step]
    chosen = choose_curves(rows, direction=job.direction)
    curves = MeasurementRepository(session).curves([ids[row.number] for row in chosen], job.metric)
    batch_sizes = {ids[trial.number]: trial.batch_size for trial in trials}
    counts_examples = len(set(batch_sizes.values())) > 1  # equal steps are not equally far then
    if counts_examples:
        curves = {key: [(step * batch_sizes[key], value) for step, value in curve] for key, curve in curves.items()}
    parameters = TrialColumnsRepository(session).parameters(job.id, [row.number for row in chosen])
    return learning_curves(
        [
            dataclasses.replace(row, points=curves.get(ids[row.number], []), parameters=parameters[row.number])
            for row in chosen
        ],
        metric=job.metric,
        direction=job.direction,
        labels=side_labels(job.specification),
        over="examples" if counts_examples else "step",
    )


def _trade_off(session: ReadSession, job: Job, against: str | None) -> Figure:
    others = [objective.metric for objective in job.objectives[1:]]
    if against is not None and against not in others:
        raise InvalidInput(
            "against", f"{against!r} is no objective of the job beside the first (there is {', '.join(others)})"
        )
    metrics = against or others[0], job.metric
    trials = TrialRepository(session).plotted(job.id)
    completed = [trial for trial in trials if trial.state is TrialState.COMPLETED]
    values = TrialRepository(session).metrics_of_completed(job.id)
    parameters = TrialColumnsRepository(session).parameters(job.id, [trial.number for trial in completed])
    return trade_off(
        [
            dataclasses.replace(plot_trial(trial, started_at=job.started_at), parameters=parameters[trial.number])
            for trial in completed
        ],
        {number: (found.get(metrics[0]), found.get(metrics[1])) for number, found in values.items()},
        [
            point.number
            for point in front_of(
                ((trial.number, trial.phase, values[trial.number]) for trial in completed), job.objectives
            )
        ],
        metrics=metrics,
        labels=side_labels(job.specification),
    )
