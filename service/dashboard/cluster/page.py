"""The page of the cluster."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from service.api.dependencies import (
    Around,
    CallerDependency,
    Now,
    ReadSession,
    SettingsDependency,
    TrialMemoryDependency,
)
from service.api.one_thread import OneThreadRoute
from service.dashboard.cluster import view
from service.dashboard.rendering import page
from service.store.repositories import EventRepository
from service.use_cases.cluster import cluster_state

router = APIRouter(route_class=OneThreadRoute)


@router.get("/cluster", include_in_schema=False)
def cluster_page(
    request: Request,
    session: ReadSession,
    caller: CallerDependency,
    settings: SettingsDependency,
    memory: TrialMemoryDependency,
    now: Now,
    around: Around,
) -> HTMLResponse:
    """Shows what runs now, what waits for what, and which workers there are; of other projects numbers alone."""
    last_event = EventRepository(session).last_id()  # before all else: what happens meanwhile is told again
    state = cluster_state(
        session,
        sees=caller.sees,
        now=now,
        silence_seconds=settings.lease_seconds,
        memory=memory,
        around=around,
    )
    context = {
        "state": state,
        "view": view,
        "now": now,
        "last_event": last_event,
        "sees_all": caller.sees is None,
        "starts_worker": around.starts_worker,
        "worker_fault": around.why_no_worker and around.why_no_worker(),
    }
    return page(request, "cluster/page.html", context)
