"""The pages of the dashboard. Everything here reads; the pages' buttons call the API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import jinja2
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse
from starlette.responses import Response
from starlette.templating import Jinja2Templates

from service.access.caller import Scope
from service.access.permitted import may_have_run
from service.api import problems
from service.api.dependencies import CallerDependency, Now, ReadSession, SettingsDependency, TrialMemoryDependency
from service.api.figures import phase_labels
from service.api.lists.job_filters import JobFilters
from service.api.media_types import JSON, weights_of
from service.api.one_thread import OneThreadRoute
from service.dashboard import view
from service.dashboard.assets import PLOTLY_PATH
from service.dashboard.cells import parameter, parameter_cells
from service.domain import JobState
from service.errors import NotFound
from service.evidence.recommended import recommendation_from_json
from service.evidence.snippet import python_snippet
from service.evidence.wording import cost_words, device_hours, duration, number, optimizer_title, spread
from service.evidence.words import alternative_words, branches_words, currency_lines, has_own_examples, ratio_words
from service.store.repositories import (
    JobListRepository,
    JobRepository,
    Place,
    RecommendationRepository,
    TrialColumnsRepository,
)
from service.store.repositories.outputs import OutputRepository
from service.use_cases.progress import progress_of
from service.use_cases.steer import RETRIABLE, budget_is_left
from service.use_cases.waiting import waiting_of

JOBS_PER_PAGE = 25
TRIALS_SHOWN = 500
"""Newest trials in a job page's table, beside the best ones; the API gives the others."""

# Plotly writes style elements, hence 'unsafe-inline' for styles; scripts come from files only.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'"
)
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
        parameter=parameter,
        parameter_cells=parameter_cells,
        duration=duration,
        alternative_words=alternative_words,
        branches_words=branches_words,
        ratio_words=ratio_words,
        has_own_examples=has_own_examples,
        optimizer_title=optimizer_title,
        ago=view.ago,
        iso=view.iso,
        absolute=view.absolute,
    )
    environment.globals.update(device_hours=device_hours, cost_words=cost_words)
    environment.globals["plotly_url"] = f"{PLOTLY_PATH}/plotly.min.js"
    return environment


router = APIRouter(route_class=OneThreadRoute)
templates = Jinja2Templates(env=_environment())


@router.get("/", include_in_schema=False)
def jobs_page(
    request: Request,
    session: ReadSession,
    caller: CallerDependency,
    settings: SettingsDependency,
    memory: TrialMemoryDependency,
    now: Now,
    query: JobFilters,
    before: Annotated[str | None, Query(max_length=40)] = None,
) -> HTMLResponse:
    """The jobs, newest first, found by what the API's list takes; `before` is the id of the last job of the page
    before."""
    after = None if before is None else Place(before, before)
    found = JobListRepository(session).page(query, after=after, limit=JOBS_PER_PAGE + 1)
    jobs, more = found[:JOBS_PER_PAGE], len(found) > JOBS_PER_PAGE
    progress = progress_of(session, jobs, now=now, memory=memory)
    waiting = waiting_of(session, jobs, now=now, silence_seconds=settings.lease_seconds)
    rows = [
        {"job": job, "progress": progress[job.id], "bar": view.bar(progress[job.id]), "waiting": waiting[job.id]}
        for job in jobs
    ]
    context = {
        "rows": rows,
        "now": now,
        "states": list(JobState),
        "query": query,
        "address": view.ListAddress(request.query_params.multi_items()),
        "before": before,
        "next_before": jobs[-1].id if more else None,
        "may_submit": caller.may(Scope.SUBMIT),
        "sends_token": caller.name is not None,
        "service_url": str(request.base_url).rstrip("/"),
    }
    return templates.TemplateResponse(request, "jobs.html", context, headers=HEADERS)


@router.get("/jobs/{job_id}", include_in_schema=False)
def job_page(
    request: Request,
    session: ReadSession,
    caller: CallerDependency,
    settings: SettingsDependency,
    memory: TrialMemoryDependency,
    now: Now,
    job_id: str,
) -> HTMLResponse:
    """One job: what it found, its charts, its trials."""
    job = JobRepository(session).get(job_id)
    specification = job.specification
    progress = progress_of(session, [job], now=now, memory=memory)[job.id]
    labels = phase_labels(specification)
    stored = RecommendationRepository(session).of_job(job.id)
    recommendation = recommendation_from_json(stored.content) if stored else None
    evidence = recommendation.evidence if recommendation else None
    seeds = view.seed_table(evidence)
    best_numbers = {best.number for best in (progress.best, progress.baseline_best) if best is not None}
    front = {point.number for point in progress.front}
    trials = TrialColumnsRepository(session)
    shown = trials.newest(job.id, limit=TRIALS_SHOWN, always=best_numbers | front | (seeds.numbers if seeds else set()))
    has_baseline = bool(specification.baselines)
    label_of = {trial.number: optimizer_title(trial.optimizer) for trial in shown}
    named = {str(phase): label for phase, label in labels.items()}
    if progress.baseline_best is not None:
        named["baseline"] = label_of[progress.baseline_best.number]
    context = {
        "job": job,
        "now": now,
        "progress": progress,
        "waiting": waiting_of(session, [job], now=now, silence_seconds=settings.lease_seconds)[job.id],
        "bar": view.bar(progress),
        "labels": named,
        "label_of": label_of,
        "may_steer": caller.may(Scope.SUBMIT),
        "may_run_again": may_have_run(specification.workload, specification.sampler, settings, caller=caller),
        "budget": specification.budget,
        "budget_is_left": job.state.is_final and budget_is_left(session, job, now=now),
        "retriable": RETRIABLE,
        "has_baseline": has_baseline,
        "answer": view.answer(job.state, job.direction, progress, labels, has_baseline=has_baseline, evidence=evidence),
        "currency_lines": currency_lines(evidence) if evidence and job.state.is_final else [],
        "verdict_caveats": evidence.verdict_caveats if evidence and job.state.is_final else [],
        "seeds": seeds,
        "trials": shown,
        "remarked": None if recommendation else view.remarked(shown),  # else it is one of its caveats
        "printing": OutputRepository(session).numbers_of_job(job.id),
        "num_trials": sum(progress.trials.values()),
        "num_newest": TRIALS_SHOWN,
        "parameter_names": view.parameter_names(shown),
        "best_numbers": best_numbers,
        "recommendation": recommendation,
        "snippet": python_snippet(recommendation) if recommendation else None,
        "imported": specification.imported,
        "specification": json.dumps(job.stored_specification, indent=2, ensure_ascii=False),
    }
    return templates.TemplateResponse(request, "job.html", context, headers=HEADERS)


async def unknown_address(request: Request, error: Exception) -> Response:
    """404 of an address that there is not: a page for people, and a problem for programs and below `/v1`."""
    path = request.scope["path"]
    if path == "/v1" or path.startswith("/v1/") or not prefers_html(request.headers.get("accept", "")):
        return await problems.http_error(request, error)
    context = {"kind": "page", "name": path}
    return templates.TemplateResponse(request, "not_found.html", context, status_code=404, headers=HEADERS)


async def unknown_thing(request: Request, error: Exception) -> Response:
    """404 of a thing that there is not, or not for whoever asks: a page below `/jobs`, else a problem."""
    assert isinstance(error, NotFound)
    if not request.scope["path"].startswith("/jobs/"):
        return await problems.answer_to(request, error)
    context = {"kind": error.kind, "name": error.identifier}
    return templates.TemplateResponse(request, "not_found.html", context, status_code=404, headers=HEADERS)


def prefers_html(accept: str) -> bool:
    """True if an `Accept` names HTML, as browsers do, and JSON not before it."""
    weights = weights_of(accept)
    json_weight = max(weights.get(JSON, 0.0), weights.get(problems.MEDIA_TYPE, 0.0))
    return weights.get("text/html", 0.0) > json_weight
