"""The pages of the dashboard and the data of its charts. Everything here reads; the pages' buttons call the API."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import jinja2
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse
from starlette.responses import Response
from starlette.templating import Jinja2Templates

from service.api import problems
from service.api.dependencies import Now, ReadSession, SettingsDependency
from service.api.figures import Axis, Figure, Point, best_so_far, choose_curves, learning_curves, trade_off
from service.dashboard import view
from service.dashboard.assets import PLOTLY_PATH, static_mounts
from service.domain import JobState, TrialState
from service.errors import InvalidInput, NotFound
from service.evidence.best_values import number, spread
from service.evidence.pareto_front import front_of
from service.evidence.recommend import snippet_from_json
from service.evidence.types import evidence_from_json
from service.store.models import Job
from service.store.repositories import (
    JobRepository,
    MeasurementRepository,
    RecommendationRepository,
    TrialRepository,
)
from service.use_cases.progress import progress_of
from service.use_cases.steer import RETRIABLE, budget_is_left
from service.use_cases.waiting import waiting_of

__all__ = ["router", "static_mounts"]

JOBS_PER_PAGE = 25
TRIALS_SHOWN = 500
"""Newest trials in a job page's table, beside the best ones; the API gives the others."""

# Plotly writes style elements, hence 'unsafe-inline' for styles; scripts come from files only.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'"
)
_WEIGHT = re.compile(r"[01](?:\.[0-9]{0,3})?")
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=number,
        spread=spread,
        parameter=view.parameter,
        duration=view.duration,
        ago=view.ago,
        iso=view.iso,
        absolute=view.absolute,
    )
    environment.globals["plotly_url"] = f"{PLOTLY_PATH}/plotly.min.js"
    return environment


router = APIRouter()
_templates = Jinja2Templates(env=_environment())


@router.get("/", include_in_schema=False)
def jobs_page(
    request: Request,
    session: ReadSession,
    settings: SettingsDependency,
    now: Now,
    state: Annotated[JobState | None, Query()] = None,
    before: Annotated[str | None, Query(max_length=40)] = None,
) -> HTMLResponse:
    """The jobs, newest first; `before` is the id of the last job of the page before."""
    states = [state] if state else []
    found = JobRepository(session).page(states=states, before_id=before, limit=JOBS_PER_PAGE + 1)
    jobs, more = found[:JOBS_PER_PAGE], len(found) > JOBS_PER_PAGE
    progress = progress_of(session, jobs, now=now)
    waiting = waiting_of(session, jobs, now=now, silence_seconds=settings.lease_seconds)
    rows = [
        {"job": job, "progress": progress[job.id], "bar": view.bar(progress[job.id]), "waiting": waiting[job.id]}
        for job in jobs
    ]
    context = {
        "rows": rows,
        "now": now,
        "states": list(JobState),
        "state": state,
        "before": before,
        "next_before": jobs[-1].id if more else None,
        "service_url": str(request.base_url).rstrip("/"),
    }
    return _templates.TemplateResponse(request, "jobs.html", context, headers=HEADERS)


@router.get("/jobs/{job_id}", include_in_schema=False)
def job_page(
    request: Request, session: ReadSession, settings: SettingsDependency, now: Now, job_id: str
) -> HTMLResponse:
    """One job: what it found, its charts, its trials."""
    try:
        job = JobRepository(session).get(job_id)
    except NotFound:
        return _templates.TemplateResponse(
            request, "not_found.html", {"kind": "job", "name": job_id}, status_code=404, headers=HEADERS
        )
    progress = progress_of(session, [job], now=now)[job.id]
    trials = TrialRepository(session).page(job.id)
    labels = view.phase_labels(job.stored_specification, trials)
    recommendation = RecommendationRepository(session).of_job(job.id)
    evidence = recommendation.content["evidence"] if recommendation else None
    told = evidence_from_json(evidence) if evidence and job.state.is_final else None
    seeds = view.seed_table(evidence, labels)
    best_numbers = {best.number for best in (progress.best, progress.baseline_best) if best is not None}
    front = {point.number for point in progress.front}
    shown = view.shown_trials(trials, best_numbers | front | (seeds.numbers if seeds else set()), limit=TRIALS_SHOWN)
    context = {
        "job": job,
        "now": now,
        "progress": progress,
        "waiting": waiting_of(session, [job], now=now, silence_seconds=settings.lease_seconds)[job.id],
        "bar": view.bar(progress),
        "labels": labels,
        "budget": job.specification.budget,
        "budget_is_left": job.state.is_final and budget_is_left(session, job, now=now),
        "retriable": () if job.specification.pruner.name == "pbt" else RETRIABLE,
        "has_baseline": job.specification.baseline is not None,
        "verdict": view.verdict(
            job, progress, labels, has_baseline=job.specification.baseline is not None, evidence=evidence
        ),
        "verdict_caveats": told.verdict_caveats if told else [],
        "seeds": seeds,
        "phase_of": {trial.number: trial.phase for trial in trials},
        "trials": shown,
        "num_trials": len(trials),
        "num_newest": TRIALS_SHOWN,
        "parameter_names": view.parameter_names(shown),
        "best_numbers": best_numbers,
        "recommendation": recommendation.content if recommendation else None,
        "snippet": snippet_from_json(recommendation.content) if recommendation else None,
        "specification": json.dumps(job.stored_specification, indent=2, ensure_ascii=False),
    }
    return _templates.TemplateResponse(request, "job.html", context, headers=HEADERS)


async def unknown_address(request: Request, error: Exception) -> Response:
    """404 of an address that there is not: a page for people, and a problem for programs and below `/v1`."""
    path = request.scope["path"]
    if path == "/v1" or path.startswith("/v1/") or not _prefers_html(request.headers.get("accept", "")):
        return await problems.http_error(request, error)
    context = {"kind": "page", "name": path}
    return _templates.TemplateResponse(request, "not_found.html", context, status_code=404, headers=HEADERS)


def _prefers_html(accept: str) -> bool:
    """Whether an `Accept` names HTML, as browsers do, and JSON not before it."""
    weights = dict[str, float]()
    for choice in accept.lower().split(","):
        media_type, *parameters = (part.strip() for part in choice.split(";"))
        weight = next((part[2:] for part in parameters if part.startswith("q=")), "1")
        weights[media_type] = float(weight) if _WEIGHT.fullmatch(weight) else 0.0
    json_weight = max(weights.get("application/json", 0.0), weights.get(problems.MEDIA_TYPE, 0.0))
    return weights.get("text/html", 0.0) > json_weight


@router.get("/v1/jobs/{job_id}/plots/{kind}", tags=["jobs"], summary="A chart of a job as a Plotly figure")
def read_plot(
    session: ReadSession,
    job_id: str,
    kind: str,
    x: Annotated[Axis, Query(description="What `best-so-far` is drawn over.")] = "trials",
    against: Annotated[
        str | None,
        Query(
            max_length=200, description="The further objective that `trade-off` is drawn over; without: the first one."
        ),
    ] = None,
) -> dict[str, Any]:
    """`{"data": [...], "layout": {...}}` for Plotly; `kind` is `best-so-far`, `learning-curves` or, of a job with
    several objectives, `trade-off`."""
    job = JobRepository(session).get(job_id)
    if kind == "best-so-far":
        return _best_so_far(session, job, x)
    if kind == "learning-curves":
        return _learning_curves(session, job)
    if kind == "trade-off" and len(job.objectives) > 1:
        return _trade_off(session, job, against)
    raise NotFound("plot", kind)


def _best_so_far(session: ReadSession, job: Job, axis: Axis) -> Figure:
    trials = TrialRepository(session).page(job.id)
    return best_so_far(
        [view.plot_trial(trial, started_at=job.started_at) for trial in trials],
        metric=job.metric,
        direction=job.direction,
        labels=view.phase_labels(job.stored_specification, trials),
        axis=axis,
    )


def _learning_curves(session: ReadSession, job: Job) -> Figure:
    """Chooses the trials to draw first, so that a job of thousands loads the measurements of a hundred."""
    trials = TrialRepository(session).page(job.id)
    ids = {trial.number: trial.id for trial in trials}
    rows = [view.plot_trial(trial, started_at=job.started_at) for trial in trials if trial.step]
    chosen = choose_curves(rows, direction=job.direction)
    curves = _curves(session, [ids[row.number] for row in chosen], job.metric)
    return learning_curves(
        [dataclasses.replace(row, points=curves.get(ids[row.number], [])) for row in chosen],
        metric=job.metric,
        direction=job.direction,
        labels=view.phase_labels(job.stored_specification, trials),
    )


def _trade_off(session: ReadSession, job: Job, against: str | None) -> Figure:
    further = [metric for metric, _ in job.objectives[1:]]
    if against is not None and against not in further:
        raise InvalidInput("against", f"{against!r} is no further objective of the job (there is {', '.join(further)})")
    metrics = against or further[0], job.metric
    trials = TrialRepository(session).page(job.id)
    completed = [trial for trial in trials if trial.state is TrialState.COMPLETED]
    return trade_off(
        [view.plot_trial(trial, started_at=job.started_at) for trial in completed],
        {trial.number: (trial.metrics.get(metrics[0]), trial.metrics.get(metrics[1])) for trial in completed},
        [
            point.number
            for point in front_of(((trial.number, trial.phase, trial.metrics) for trial in completed), job.objectives)
        ],
        metrics=metrics,
        labels=view.phase_labels(job.stored_specification, trials),
    )


def _curves(session: ReadSession, trial_ids: Sequence[str], metric: str) -> dict[str, list[Point]]:
    """(step, objective) of each trial's measurements, by the trial's id."""
    curves: dict[str, list[Point]] = {}
    for measurement in MeasurementRepository(session).of_trials(trial_ids):
        curves.setdefault(measurement.trial_id, []).append((measurement.step, measurement.metrics.get(metric)))
    return curves
