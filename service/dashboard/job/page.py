"""A job's page: what it found, its charts, its trials."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from service.access.caller import Scope
from service.access.permitted import may_have_run
from service.api.conditional import IfNoneMatch
from service.api.dependencies import (
    Around,
    CallerDependency,
    Now,
    ReadSession,
    SettingsDependency,
    TrialMemoryDependency,
)
from service.api.figures import phase_labels, side_labels
from service.api.one_thread import OneThreadRoute
from service.dashboard.job import view
from service.dashboard.job.confirmation import confirmation_of, members_of
from service.dashboard.job.insights import insights_section
from service.dashboard.job.parallel import axes_of
from service.dashboard.job.trials import AskedOfTable, best_numbers_of, table_of
from service.dashboard.job.view import bar_of
from service.dashboard.rendering import live_parts, page
from service.dashboard.written_json import LONGEST, written
from service.domain import JobState, Phase, TrialState
from service.evidence.formats.snippet import python_snippet
from service.evidence.in_words.standing import standing_of
from service.evidence.in_words.wording import optimizer_title
from service.evidence.in_words.words import currency_lines
from service.evidence.recommended import weights_links
from service.specification.estimate_lines import left_over_words
from service.specification.phases import num_left_over, spaces_of
from service.store.models import Job
from service.store.repositories import (
    EventRepository,
    InsightsRepository,
    JobRepository,
    RecommendationRepository,
    TrialColumnsRepository,
)
from service.store.repositories.of_trials.trial_columns import UnfinishedTrial
from service.use_cases.going_on import budget_is_left
from service.use_cases.health import health_of_job
from service.use_cases.progress import JobProgress, progress_of
from service.use_cases.steer_trials import RETRIABLE
from service.use_cases.waiting import waiting_of

NEWEST_REMARKS = 500
"""Trials: what the newest completed one of so many remarked of the data stands on the page."""

TRAINING_SHOWN = 3
"""Trials that train are named beside the budget, by judgement; the table has all."""

router = APIRouter(route_class=OneThreadRoute)


@router.get("/jobs/{job_id}", include_in_schema=False)
def job_page(
    request: Request,
    session: ReadSession,
    caller: CallerDependency,
    settings: SettingsDependency,
    memory: TrialMemoryDependency,
    now: Now,
    around: Around,
    job_id: str,
    asked: AskedOfTable,
    known: IfNoneMatch = None,
    parts: bool = False,
) -> Response:
    """One job: what it found, its charts, its trials.

    Args:
        asked: of the table of trials.
        parts: what changes while the job runs, alone; an open page asks for it. The table has an address of its own.
    """
    job = JobRepository(session).get(job_id)
    last_event = EventRepository(session).last_id(job_id)  # before all else: what happens meanwhile is told again
    specification = job.specification
    progress = progress_of(session, [job], now=now, memory=memory)[job.id]
    labels = phase_labels(specification)
    stored = RecommendationRepository(session).of_job(job.id)
    recommendation = stored.recommended if stored else None
    evidence = recommendation.evidence if recommendation else None
    confirmation = confirmation_of(evidence)
    best_numbers = best_numbers_of(progress)
    front = {point.number for point in progress.front}
    trials, insights = TrialColumnsRepository(session), InsightsRepository(session)
    named_trials = trials.listed(job.id, {*best_numbers, *front, *(confirmation.table.numbers if confirmation else ())})
    num_trials = sum(progress.trials.values())
    has_baseline = bool(specification.baselines)
    label_of = {number: optimizer_title(trial.optimizer) for number, trial in named_trials.items()}
    named = {str(phase): label for phase, label in labels.items()}
    if progress.baseline_best is not None:
        named["baseline"] = label_of[progress.baseline_best.number]
    may_steer = caller.may(Scope.SUBMIT)
    may_run_again = may_have_run(specification.workload, specification.sampler, settings, caller=caller)
    axes = axes_of(spaces_of(specification))
    specification_text = written(job.stored_specification)
    context = {
        "job": job,
        "now": now,
        "last_event": last_event,
        "is_whole": not parts,
        "progress": progress,
        "state_in_title": view.state_in_title(job.state, progress),
        "waiting": waiting_of(session, [job], now=now, silence_seconds=settings.lease_seconds, around=around)[job.id],
        "bar": bar_of(progress),
        "labels": named,
        "label_of": label_of,
        "may_steer": may_steer,
        "may_run_again": may_run_again,
        "budget": specification.budget,
        "left_over": left_over_words(left) if (left := num_left_over(specification)) else None,
        "budget_is_left": job.state.is_final and budget_is_left(session, job, now=now),
        "retriable": RETRIABLE,
        "places_of": view.places_of,
        "places_of_caveat": view.places_of_caveat,
        "failure_places": view.places_of_failure(job.id, progress, may_clone=may_steer and may_run_again),
        "has_baseline": has_baseline,
        "answer": view.answer(job.state, job.direction, progress, labels, has_baseline=has_baseline, evidence=evidence),
        "figures": view.figures(
            progress,
            named,
            has_baseline=has_baseline,
            evidence=evidence if job.state.is_final else None,
            currency=job.currency,
            ahead=_ahead(trials, job, progress),
            is_running=job.state is JobState.RUNNING,
        ),
        "training": trials.training(job.id, limit=TRAINING_SHOWN) if progress.trials[TrialState.RUNNING] else [],
        "training_shown": TRAINING_SHOWN,
        "health": health_of_job(session, job, progress, evidence),
        "standing": standing_of(evidence).sentence if evidence and job.state.is_final else None,
        "currency_lines": currency_lines(evidence) if evidence and job.state.is_final else [],
        "verdict_caveats": evidence.verdict_caveats if evidence and job.state.is_final else [],
        "recommendation_id": stored.id if stored else None,
        "confirmation": confirmation,
        "members": members_of(evidence, list(named_trials.values())),
        # Of the newest completed trial; where there is a recommendation, it is one of its caveats.
        "remarked": None if recommendation else trials.remarked(job.id, among=NEWEST_REMARKS),
        "table": None if parts else table_of(session, job, asked, best=best_numbers, num_trials=num_trials),
        "axes": axes,
        "best_numbers": best_numbers,
        "insights": insights_section(
            insights.of_job(job.id), side_labels(specification), num_ended=insights.num_ended(job.id)
        ),
        "recommendation": recommendation,
        "searched_beside": view.searched_beside(recommendation, {axis.name for axis in axes}) if recommendation else {},
        "standing_word": standing_of(recommendation.evidence).word if recommendation else None,
        "weights": weights_links(job.id, recommendation) if recommendation else {},
        "snippet": python_snippet(recommendation) if recommendation else None,
        "imported": specification.imported,
        "known_configs": view.known_configs_of(specification, job.num_steps),
        "specification": specification_text[:LONGEST],
        "num_left_out": max(0, len(specification_text) - LONGEST),
    }
    if parts:
        return live_parts(request, "job/page.html", context, known)
    return page(request, "job/page.html", context)


def _ahead(trials: TrialColumnsRepository, job: Job, progress: JobProgress) -> dict[Phase, UnfinishedTrial]:
    """The trials that have come to the best values, of the phases of a job that goes on in which none has completed."""
    found = {Phase.SEARCH: progress.best, Phase.BASELINE: progress.baseline_best}
    phases = [] if job.state.is_final else [phase for phase, best in found.items() if best is None]
    ahead = {phase: trials.ahead(job.id, phase, job.direction) for phase in phases}
    return {phase: trial for phase, trial in ahead.items() if trial is not None}
