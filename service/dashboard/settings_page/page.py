"""The page of the settings."""

from __future__ import annotations

from datetime import timedelta
from typing import get_args

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from service.access.caller import Caller, Scope
from service.api.dependencies import CallerDependency, Now, ReadSession, SettingsDependency
from service.api.one_thread import OneThreadRoute
from service.api.schemas.webhooks import EventKind, WebhookRead
from service.dashboard.rendering import page
from service.dashboard.settings_page import view
from service.store.repositories import ProjectRepository, TokenRepository, WorkerRepository
from service.store.repositories.webhooks import WebhookRepository
from service.store.session import Session

MAX_LISTED = 200
"""Webhooks, and projects, on the page; the API gives the others."""

router = APIRouter(route_class=OneThreadRoute)


@router.get("/settings", include_in_schema=False)
def settings_page(
    request: Request, session: ReadSession, caller: CallerDependency, settings: SettingsDependency, now: Now
) -> HTMLResponse:
    """Tokens, webhooks and projects: what the caller may see of them, with buttons for what it may do."""
    is_admin = caller.may(Scope.ADMIN)
    alive_since = now - timedelta(seconds=settings.lease_seconds)
    context = {
        "now": now,
        "caller": caller,
        "door": view.door_of(caller, settings.access),
        "doors": view.Door,
        "is_admin": is_admin,
        "may_steer": caller.may(Scope.SUBMIT),
        "scopes": view.SCOPES,
        "may_give": [scope for scope in Scope if caller.may(scope)],
        "tokens": view.tokens_of(TokenRepository(session).all(), now) if is_admin else None,
        "webhooks": [
            WebhookRead.shown_to(caller, webhook)
            for webhook in WebhookRepository(session).page(project=caller.sees, limit=MAX_LISTED)
        ],
        "kinds": get_args(EventKind),
        "num_workers": WorkerRepository(session).alive_since(alive_since),
        "projects": _projects(session, caller),
    }
    return page(request, "settings_page/page.html", context)


def _projects(session: Session, caller: Caller) -> list[view.ProjectRow]:
    """The rows of the projects that the caller sees."""
    repository = ProjectRepository(session)
    if caller.sees is None:
        found = repository.page(limit=MAX_LISTED)
    else:
        own = repository.find(caller.sees)
        found = [] if own is None else [own]
    return [view.project_row(project, repository.usage(project.name)) for project in found]
