"""The page that is a job's report: it asks for nothing beside itself, and can be opened from a disk."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from service.api.dependencies import Now, ReadSession, TrialMemoryDependency
from service.api.figures import best_so_far, learning_curves, phase_labels, plot_trial, side_labels
from service.api.one_thread import OneThreadRoute
from service.dashboard.job import view
from service.dashboard.job.confirmation import confirmation_of
from service.dashboard.rendering import page
from service.dashboard.report.drawing import Drawing, drawing_of
from service.dashboard.written_json import written
from service.domain import Phase
from service.evidence.formats.snippet import python_snippet
from service.evidence.in_words.standing import standing_of
from service.evidence.in_words.wording import optimizer_title
from service.evidence.in_words.words import evidence_lines
from service.evidence.types import Evidence
from service.store.models import Job
from service.store.repositories import (
    JobRepository,
    MeasurementRepository,
    PlottedTrial,
    RecommendationRepository,
    TrialColumnsRepository,
    TrialRepository,
)
from service.store.session import Session
from service.use_cases.health import health_of_job
from service.use_cases.progress import progress_of

STYLES = ("shared/base.css", "job/page.css", "report/page.css")

router = APIRouter(route_class=OneThreadRoute)


@router.get("/jobs/{job_id}/report", include_in_schema=False)
def report_page(
    request: Request, session: ReadSession, memory: TrialMemoryDependency, now: Now, job_id: str
) -> HTMLResponse:
    """A job's answer with its evidence, config, curves, confirmation, health, versions, and how to do it again."""
    job = JobRepository(session).get(job_id)
    specification = job.specification
    progress = progress_of(session, [job], now=now, memory=memory)[job.id]
    labels = phase_labels(specification)
    stored = RecommendationRepository(session).of_job(job.id) if job.state.is_final else None
    recommendation = stored.recommended if stored else None
    evidence = recommendation.evidence if recommendation else None
    named = {str(phase): label for phase, label in labels.items()}
    if progress.baseline_optimizer is not None:
        named["baseline"] = optimizer_title(progress.baseline_optimizer)
    confirmation = confirmation_of(evidence)
    table = None if confirmation is None else confirmation.table
    trials = TrialRepository(session).plotted(job.id)
    has_baseline = bool(specification.baselines)
    context = {
        "job": job,
        "now": now,
        "styles": _styles(),
        "address": f"{request.base_url}jobs/{job.id}",
        "version": request.app.version,
        "progress": progress,
        "answer": view.answer(job.state, job.direction, progress, labels, has_baseline=has_baseline, evidence=evidence),
        "standing": standing_of(evidence).sentence if evidence else None,
        "figures": view.figures(
            progress, named, has_baseline=has_baseline, evidence=evidence, currency=job.currency, ahead={}
        ),
        "lines": evidence_lines(evidence) if evidence else [],
        "health": health_of_job(session, job, progress, evidence),
        "drawings": [
            ("Best so far", _best_so_far(job, trials)),
            ("Learning curves of the best configs", _curves(session, job, trials, evidence)),
        ],
        "table": table,
        "label_of": {} if table is None else _labels_of(session, job, table.numbers),
        "snippet": python_snippet(recommendation) if recommendation else None,
        "environment": None if stored is None else stored.stored_environment,
        "fingerprint": None if stored is None else stored.fingerprint,
        "data_digest": None if stored is None else stored.data_digest,
        "specification": written(job.stored_specification),
    }
    answer = page(request, "report/page.html", context)
    answer.headers["Content-Disposition"] = f'inline; filename="{job.id}-report.html"'
    return answer


@functools.cache
def _styles() -> Markup:
    """The styles of the job's page and the report's own, as they stand in one file."""
    static = Path(__file__).parents[1] / "static"
    return Markup("\n".join((static / name).read_text(encoding="utf-8") for name in STYLES))


def _labels_of(session: Session, job: Job, numbers: set[int]) -> dict[int, str]:
    listed = TrialColumnsRepository(session).listed(job.id, numbers)
    return {number: optimizer_title(trial.optimizer) for number, trial in listed.items()}


def _best_so_far(job: Job, trials: list[PlottedTrial]) -> Drawing | None:
    rows = [plot_trial(trial, started_at=job.started_at) for trial in trials]
    labels = side_labels(job.specification)
    return drawing_of(best_so_far(rows, metric=job.metric, direction=job.direction, labels=labels))


def _curves(session: Session, job: Job, trials: list[PlottedTrial], evidence: Evidence | None) -> Drawing | None:
    """The curves of the recommended config and of the baseline's best: with each new seed, or else as found."""
    if evidence is None:
        return None
    chosen = {winner.number for winner in (evidence.best, evidence.baseline) if winner is not None}
    by_number = {trial.number: trial for trial in trials}
    repeats = [trial for trial in trials if trial.confirms in chosen and trial.step]
    shown = repeats or [by_number[number] for number in sorted(chosen) if number in by_number]
    points = MeasurementRepository(session).curves([trial.id for trial in shown], job.metric)
    rows = []
    for trial in shown:
        found = trial if trial.confirms is None else by_number.get(trial.confirms, trial)
        side = Phase.SEARCH.value if found.phase is Phase.SEARCH else found.optimizer
        row = plot_trial(trial, started_at=job.started_at)
        rows.append(dataclasses.replace(row, phase=found.phase, side=side, points=points.get(trial.id, [])))
    labels = side_labels(job.specification)
    return drawing_of(learning_curves(rows, metric=job.metric, direction=job.direction, labels=labels))
