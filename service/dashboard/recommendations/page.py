"""The recommendations that there are, and the page of each."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.responses import Response

from service.access.caller import Scope
from service.api.dependencies import CallerDependency, Now, ReadSession
from service.api.one_thread import OneThreadRoute
from service.dashboard.job.confirmation import confirmation_of, members_of
from service.dashboard.recommendations import view
from service.dashboard.recommendations.asked import NAMES, PATH, Address, Asked
from service.dashboard.rendering import page
from service.errors import UnknownName
from service.evidence.formats.snippet import FRONT_SHOWN
from service.evidence.in_words.wording import optimizer_title
from service.evidence.in_words.words import evidence_lines
from service.store.repositories import (
    JobRepository,
    RecommendationQuery,
    RecommendationRepository,
    StoredAnswer,
    TrialColumnsRepository,
)
from service.store.session import Session
from service.use_cases.found_recommendations import MAX_VALUES, field_named, find_answers, values_elsewhere

PER_PAGE = 20
"""Recommendations, by judgement: about a screen full."""
MAX_PAGE = 100_000
"""Largest number of a page, by judgement beyond any: the database is asked to skip no more."""
MAX_HISTORY = 50
"""Recommendations of one key that are shown, the newest first."""

router = APIRouter(route_class=OneThreadRoute)


@router.get(PATH, include_in_schema=False)
def recommendations_page(
    request: Request,
    session: ReadSession,
    caller: CallerDependency,
    now: Now,
    query: Asked,
    name: Annotated[str, Query(max_length=200)] = "",
    number: Annotated[int, Query(alias="page", ge=1, le=MAX_PAGE)] = 1,
) -> Response:
    """Lists recommendations, the best evidence first; `name` is one of a model, a workload or a fingerprint."""
    address = Address(request.query_params.multi_items())
    try:
        if name.strip():
            field = field_named(session, name.strip(), project=query.project)
            return RedirectResponse(address.named(field, name.strip()), status_code=303)
        found = find_answers(session, query, limit=PER_PAGE + 1, offset=(number - 1) * PER_PAGE)
    except UnknownName as unknown:
        context = _context(session, query, address) | {"unknown": unknown, "name": unknown.name, "rows": []}
        return page(request, "recommendations/page.html", context, status_code=404)
    context = _context(session, query, address) | {
        "now": now,
        "rows": _listed(session, found[:PER_PAGE]),
        "page_before": number - 1 if number > 1 else None,
        "page_after": number + 1 if len(found) > PER_PAGE else None,
        "elsewhere": [] if found else values_elsewhere(session, query),
        "may_submit": caller.may(Scope.SUBMIT),
    }
    return page(request, "recommendations/page.html", context)


@router.get(PATH + "/{recommendation_id}", include_in_schema=False)
def recommendation_page(
    request: Request, session: ReadSession, caller: CallerDependency, now: Now, recommendation_id: str
) -> HTMLResponse:
    """One recommendation: its config to copy, its evidence in words, where it came from, what came before and after."""
    repository = RecommendationRepository(session)
    found = repository.get(recommendation_id, project=caller.sees)
    recommendation = found.row.recommended
    evidence = recommendation.evidence
    confirmation = confirmation_of(evidence)
    trials = (
        list(TrialColumnsRepository(session).listed(found.row.job_id, confirmation.table.numbers).values())
        if confirmation
        else []
    )
    history = _listed(session, repository.of_key_of(found.row, limit=MAX_HISTORY))
    context = {
        "now": now,
        "one": view.listed(found, JobRepository(session).get(found.row.job_id).name),
        "standing_now": next((other for other in history if not other.is_superseded), None),
        "recommendation": recommendation,
        "lines": evidence_lines(evidence, num_front=FRONT_SHOWN),
        "confirmation": confirmation,
        "members": members_of(evidence, trials),
        "label_of": {trial.number: optimizer_title(trial.optimizer) for trial in trials},
        "held_for": view.held_for(found.row),
        "origin": view.origin(found.row),
        "copies": view.copies(recommendation),
        "history": history,
        "sends_token": caller.name is not None,
        "service_url": str(request.base_url).rstrip("/"),
    }
    return page(request, "recommendations/one.html", context)


def _context(session: Session, query: RecommendationQuery, address: Address) -> dict[str, object]:
    """The search form, and what each page of the list has."""
    known = RecommendationRepository(session).known_values(query, limit=MAX_VALUES, of_all_filters=True)
    jobs = JobRepository(session)
    return {
        "address": address,
        "query": query,
        "names": {field: getattr(query, field) for field in NAMES if getattr(query, field) is not None},
        "suggested": sorted({*jobs.models(project=query.project), *jobs.workloads(project=query.project)}),
        "choices": view.choices(query, known),
        "unknown": None,
        "name": "",
        "page_before": None,
        "page_after": None,
        "elsewhere": [],
    }


def _listed(session: Session, found: list[StoredAnswer]) -> list[view.Listed]:
    jobs = JobRepository(session)
    return [view.listed(answer, jobs.get(answer.row.job_id).name) for answer in found]
