"""The charts of a trial, as figures for Plotly."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from search_spaces.nearest import did_you_mean
from service.api import problems
from service.api.dependencies import JobId, ReadSession, TrialNumber
from service.api.figures.trial_curve import CurveAxis, CurveScale, curve_figure
from service.api.one_thread import OneThreadRoute
from service.domain import FailureReason
from service.errors import InvalidInput
from service.store.repositories import JobRepository, MeasurementRepository, TrialRepository
from service.use_cases.trials.trial_curves import trial_curve

router = APIRouter(prefix="/v1/jobs/{job_id}/trials", tags=["trials"], route_class=OneThreadRoute)


@router.get(
    "/{number}/plots/curve",
    summary="A curve of a trial as a Plotly figure",
    responses=problems.documented(404, 422, 503),
)
def read_trial_plot(
    session: ReadSession,
    job_id: JobId,
    number: TrialNumber,
    metric: Annotated[
        str | None, Query(max_length=200, description="The metric; without: the job's first objective.")
    ] = None,
    x: Annotated[CurveAxis, Query(description="The axis that the curve is drawn over.")] = "step",
    scale: Annotated[CurveScale, Query(description="The scale of the values; `auto` decides by them.")] = "auto",
) -> dict[str, Any]:
    """`{"data": [...], "layout": {...}}` for Plotly: a metric of the trial, that of the best trial of its side, and the
    band of the best baseline's completed trials, from their lowest to their highest value, with their median."""
    job = JobRepository(session).get(job_id)
    trial = TrialRepository(session).get(job_id, number)
    wanted = metric or job.metric
    known = MeasurementRepository(session).metric_names(trial.id)
    if known and wanted not in known:
        raise InvalidInput(
            "metric", f"no measurement has {wanted!r} (known: {', '.join(known)}){did_you_mean(wanted, known)}"
        )
    return curve_figure(
        trial_curve(session, job, trial, wanted),
        number=trial.number,
        phase=trial.phase,
        has_diverged=trial.reason is FailureReason.DIVERGED,
        x=x,
        scale=scale,
    )
