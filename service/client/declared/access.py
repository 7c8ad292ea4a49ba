"""The requests of whoever looks after the service, each declared once for both clients. They need the scope `admin`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from service.access.caller import Scope
from service.api.schemas.access import AuditRead, ProjectRead, TokenCreated, TokenRead
from service.api.schemas.common import Page
from service.client.calls import Call, Pages, given, page_of, reading
from service.domain import DEFAULT_PROJECT

PATH = "/v1/admin"


def tokens() -> Pages[TokenRead]:
    """All tokens there have been, without their secrets, the oldest first."""
    return Pages(page_of(Page[TokenRead]), f"{PATH}/tokens")


def create_token(
    name: str, *, scopes: Sequence[Scope], expires_at: datetime | None, project: str = DEFAULT_PROJECT
) -> Call[TokenCreated]:
    """Makes a token; the answer alone has its text.

    Args:
        expires_at: with its zone; None: never.

    Raises:
        ApiError: 403: the caller may not do that itself; 404: there is no such project; 409: a token has the name; 422:
            the problem names the field.
    """
    body = {
        "name": name,
        "project": project,
        "scopes": [Scope(scope).value for scope in scopes],
        "expires_at": None if expires_at is None else expires_at.isoformat(),
    }
    return Call(reading(TokenCreated), "POST", f"{PATH}/tokens", body=body)


def revoke_token(prefix: str) -> Call[TokenRead]:
    """Ends a token. Raises: ApiError (404)."""
    path = f"{PATH}/tokens/{quote(prefix, safe='')}/revoke"
    return Call(reading(TokenRead), "POST", path, repeatable=True)


def projects() -> Pages[ProjectRead]:
    """The projects with their quotas and what they take, by name."""
    return Pages(page_of(Page[ProjectRead]), f"{PATH}/projects")


def create_project(name: str, **quotas: float | None) -> Call[ProjectRead]:
    """Makes a project.

    Args:
        quotas: `max_running_jobs`, `max_queued_jobs`, `max_device_hours`, `max_stored_bytes`; None: no limit.

    Raises:
        ApiError: 409: there is one of that name; 422: the problem names the field.
    """
    return Call(reading(ProjectRead), "POST", f"{PATH}/projects", body={"name": name, **quotas})


def change_project(name: str, **quotas: float | None) -> Call[ProjectRead]:
    """Sets quotas of a project, as `create_project` takes them; what is left out stays.

    Raises:
        ApiError: 404; 422: the problem names the field.
    """
    body: dict[str, Any] = dict(quotas)
    return Call(reading(ProjectRead), "PATCH", f"{PATH}/projects/{quote(name, safe='')}", body=body)


def audit(*, project: str | None = None, actor: str | None = None) -> Pages[AuditRead]:
    """Lists who did what to which thing, and when; newest first. None: of any project, by anybody."""
    return Pages(page_of(Page[AuditRead]), f"{PATH}/audit", given(project=project, actor=actor))
