"""A job's page: what it found, its charts, its trials."""

from __future__ import annotations

import json

from fastapi import APIRouter, Request, Response

from service.access.caller import Scope
from service.access.permitted import may_have_run
from service.api.conditional import IfNoneMatch
from service.api.dependencies import CallerDependency, Now, ReadSession, SettingsDependency, TrialMemoryDependency
from service.api.figures import phase_labels, side_labels
from service.api.one_thread import OneThreadRoute
from service.dashboard.budget_bar import bar_of
from service.dashboard.job import view
from service.dashboard.job.confirmation import confirmation_of, members_of
from service.dashboard.job.insights import insights_section
from service.dashboard.live_parts import live_parts
from service.dashboard.rendering import page
from service.evidence.recommended import recommendation_from_json
from service.evidence.snippet import python_snippet
from service.evidence.wording import optimizer_title
from service.evidence.words import currency_lines, status_words
from service.store.repositories import (
    EventRepository,
    InsightsRepository,
    JobRepository,
    RecommendationRepository,
    TrialColumnsRepository,
)
from service.store.repositories.outputs import OutputRepository
from service.use_cases.health import health_of_job
from service.use_cases.progress import progress_of
from service.use_cases.steer import RETRIABLE, budget_is_left
from service.use_cases.waiting import waiting_of

TRIALS_SHOWN = 500
"""Newest trials in a job page's table, beside the best ones; the API gives the others."""

router = APIRouter(route_class=OneThreadRoute)


@router.get("/jobs/{job_id}", include_in_schema=False)
def job_page(
    request: Request,
    session: ReadSession,
    caller: CallerDependency,
    settings: SettingsDependency,
    memory: TrialMemoryDependency,
    now: Now,
    job_id: str,
    known: IfNoneMatch = None,
    parts: bool = False,
) -> Response:
    """One job: what it found, its charts, its trials.

    Args:
        parts: what changes while the job runs, alone; an open page asks for it.
    """
    job = JobRepository(session).get(job_id)
    last_event = EventRepository(session).last_id(job_id)  # before all else: what happens meanwhile is told again
    specification = job.specification
    progress = progress_of(session, [job], now=now, memory=memory)[job.id]
    labels = phase_labels(specification)
    stored = RecommendationRepository(session).of_job(job.id)
    recommendation = recommendation_from_json(stored.content) if stored else None
    evidence = recommendation.evidence if recommendation else None
    confirmation = confirmation_of(evidence)
    best_numbers = {best.number for best in (progress.best, progress.baseline_best) if best is not None}
    front = {point.number for point in progress.front}
    trials, insights = TrialColumnsRepository(session), InsightsRepository(session)
    shown = trials.newest(
        job.id,
        limit=TRIALS_SHOWN,
        always=best_numbers | front | (confirmation.table.numbers if confirmation else set()),
    )
    has_baseline = bool(specification.baselines)
    label_of = {trial.number: optimizer_title(trial.optimizer) for trial in shown}
    named = {str(phase): label for phase, label in labels.items()}
    if progress.baseline_best is not None:
        named["baseline"] = label_of[progress.baseline_best.number]
    context = {
        "job": job,
        "now": now,
        "last_event": last_event,
        "is_whole": not parts,
        "progress": progress,
        "waiting": waiting_of(session, [job], now=now, silence_seconds=settings.lease_seconds)[job.id],
        "bar": bar_of(progress),
        "labels": named,
        "label_of": label_of,
        "may_steer": caller.may(Scope.SUBMIT),
        "may_run_again": may_have_run(specification.workload, specification.sampler, settings, caller=caller),
        "budget": specification.budget,
        "budget_is_left": job.state.is_final and budget_is_left(session, job, now=now),
        "retriable": RETRIABLE,
        "has_baseline": has_baseline,
        "answer": view.answer(job.state, job.direction, progress, labels, has_baseline=has_baseline, evidence=evidence),
        "figures": view.figures(
            progress,
            named,
            has_baseline=has_baseline,
            evidence=evidence if job.state.is_final else None,
            currency=job.currency,
        ),
        "health": health_of_job(session, job, progress, evidence),
        "standing": status_words(evidence) if evidence and job.state.is_final else None,
        "currency_lines": currency_lines(evidence) if evidence and job.state.is_final else [],
        "verdict_caveats": evidence.verdict_caveats if evidence and job.state.is_final else [],
        "confirmation": confirmation,
        "members": members_of(evidence, shown),
        "trials": shown,
        "remarked": None if recommendation else view.remarked(shown),  # else it is one of its caveats
        "printing": OutputRepository(session).numbers_of_job(job.id),
        "num_trials": sum(progress.trials.values()),
        "num_newest": TRIALS_SHOWN,
        "parameter_names": view.parameter_names(shown),
        "best_numbers": best_numbers,
        "insights": insights_section(
            insights.of_job(job.id), side_labels(specification), num_ended=insights.num_ended(job.id)
        ),
        "recommendation": recommendation,
        "snippet": python_snippet(recommendation) if recommendation else None,
        "imported": specification.imported,
        "specification": json.dumps(job.stored_specification, indent=2, ensure_ascii=False),
    }
    if parts:
        return live_parts(request, "job/page.html", context, known)
    return page(request, "job/page.html", context)
