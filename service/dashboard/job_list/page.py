"""The list of jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from service.access.caller import Scope
from service.api.dependencies import (
    Around,
    CallerDependency,
    Now,
    ReadSession,
    SettingsDependency,
    TrialMemoryDependency,
)
from service.api.lists.job_filters import JobFilters
from service.api.one_thread import OneThreadRoute
from service.api.paging import decode_place, encode_place
from service.api.routers.of_jobs.jobs import SORTED_BY
from service.dashboard.job_list.address import ListAddress
from service.dashboard.job_list.view import ORDERS, job_row
from service.dashboard.rendering import page
from service.domain import JobState
from service.errors import InvalidInput
from service.store.models import Job
from service.store.repositories import EventRepository, JobListRepository, JobOrder, JobQuery, Place
from service.store.session import Session
from service.use_cases.progress import progress_of
from service.use_cases.waiting import waiting_of

JOBS_PER_PAGE = 25
"""Jobs of a page, by judgement: about a screen full."""

router = APIRouter(route_class=OneThreadRoute)

Token = Annotated[str | None, Query(max_length=2000)]


@router.get("/jobs", include_in_schema=False)
def shortened_address(request: Request) -> RedirectResponse:
    """The list, for whoever cuts the job off the address of a job's page."""
    return RedirectResponse(f"/?{request.url.query}" if request.url.query else "/")


@router.get("/", include_in_schema=False)
def jobs_page(
    request: Request,
    session: ReadSession,
    caller: CallerDependency,
    settings: SettingsDependency,
    memory: TrialMemoryDependency,
    now: Now,
    around: Around,
    query: JobFilters,
    order_by: JobOrder = JobOrder.NEWEST,
    after: Token = None,
    before: Token = None,
) -> HTMLResponse:
    """A page of jobs, filtered and ordered as in the API's list. `after` is the place of the last job of the page
    before, `before` the place of the first job of the page behind."""
    last_event = EventRepository(session).last_id()  # before all else: what happens meanwhile is told again
    jobs, has_previous, has_next = _page(session, query, order_by, after, before)
    progress = progress_of(session, jobs, now=now, memory=memory)
    waiting = waiting_of(session, jobs, now=now, silence_seconds=settings.lease_seconds, around=around)
    address = ListAddress(request.query_params.multi_items())
    kind = _kind(order_by)
    tokens = [encode_place(kind, order_by.place_of(job)) for job in (jobs[:1] + jobs[-1:])]
    context = {
        "rows": [job_row(job, progress[job.id], waiting[job.id]) for job in jobs],
        "now": now,
        "last_event": last_event,
        "states": list(JobState),
        "orders": ORDERS,
        "order_by": order_by,
        "query": query,
        "address": address,
        "previous": address.before(tokens[0]) if has_previous else None,
        "next": address.after(tokens[-1]) if has_next else None,
        "is_later": after is not None,
        "may_submit": caller.may(Scope.SUBMIT),
        "sends_token": caller.name is not None,
        "service_url": str(request.base_url).rstrip("/"),
    }
    return page(request, "job_list/page.html", context)


def _page(
    session: Session, query: JobQuery, order: JobOrder, after: str | None, before: str | None
) -> tuple[list[Job], bool, bool]:
    """The jobs of a page, and whether there are pages in front of it and behind it."""
    repository, limit = JobListRepository(session), JOBS_PER_PAGE + 1
    kind, value = _kind(order), SORTED_BY[order]
    if before is not None:
        end = _place("before", kind, before, value)
        found = repository.page_before(query, order=order, before=end, limit=limit)
        if len(found) == limit:
            return found[1:], True, True
        after = None  # the first page, whole
    place = None if after is None else _place("after", kind, after, value)
    found = repository.page(query, order=order, after=place, limit=limit)
    return found[:JOBS_PER_PAGE], after is not None and bool(found), len(found) == limit


def _place(name: str, kind: str, token: str, value_type: type) -> Place:
    """The place that a parameter of the address holds. Raises: InvalidInput: of this name, which is not the API's."""
    try:
        return decode_place(kind, token, value_type)
    except InvalidInput as error:
        raise InvalidInput(name, error.message) from None


def _kind(order: JobOrder) -> str:
    """The kind of this order's tokens, which is that of the API's list."""
    return f"job {order}"
