"""The list of jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from service.access.caller import Scope
from service.api.dependencies import CallerDependency, Now, ReadSession, SettingsDependency, TrialMemoryDependency
from service.api.lists.job_filters import JobFilters
from service.api.one_thread import OneThreadRoute
from service.dashboard.budget_bar import bar_of
from service.dashboard.job_list.address import ListAddress
from service.dashboard.rendering import page
from service.domain import JobState
from service.store.repositories import JobListRepository, Place
from service.use_cases.progress import progress_of
from service.use_cases.waiting import waiting_of

JOBS_PER_PAGE = 25

router = APIRouter(route_class=OneThreadRoute)


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
        {"job": job, "progress": progress[job.id], "bar": bar_of(progress[job.id]), "waiting": waiting[job.id]}
        for job in jobs
    ]
    context = {
        "rows": rows,
        "now": now,
        "states": list(JobState),
        "query": query,
        "address": ListAddress(request.query_params.multi_items()),
        "before": before,
        "next_before": jobs[-1].id if more else None,
        "may_submit": caller.may(Scope.SUBMIT),
        "sends_token": caller.name is not None,
        "service_url": str(request.base_url).rstrip("/"),
    }
    return page(request, "job_list/page.html", context)
