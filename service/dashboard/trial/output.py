"""The page with what the ranks of a trial print."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from service.api.dependencies import ReadSession
from service.api.one_thread import OneThreadRoute
from service.api.paging import LARGEST_INT
from service.api.routers.of_trials.output import Wanted
from service.dashboard.rendering import page
from service.dashboard.trial.page import trial_number
from service.store.repositories import JobRepository, TrialRepository
from service.store.repositories.of_trials.outputs import OutputRepository

LINES_SHOWN = 500
"""The last ones, by judgement: what a reader scrolls through. All of them come by the API."""

router = APIRouter(route_class=OneThreadRoute)


@router.get("/jobs/{job_id}/trials/{number}/logs", include_in_schema=False)
def output_page(
    request: Request,
    session: ReadSession,
    job_id: str,
    number: str,
    rank: Annotated[int | None, Query(ge=0, le=LARGEST_INT)] = None,
) -> HTMLResponse:
    """The last lines; a script adds those that come."""
    job = JobRepository(session).get(job_id)
    trial = TrialRepository(session).get(job_id, trial_number(job_id, number))
    context = {
        "job": job,
        "trial": trial,
        "rank": rank,
        "ranks": OutputRepository(session).ranks(trial.id),
        "chunks": Wanted(trial.id, rank=rank).tail(session, LINES_SHOWN),
        "num_lines": LINES_SHOWN,
    }
    return page(request, "trial/output.html", context)
