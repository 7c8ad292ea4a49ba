"""For those alone who look after the service: the audit trail."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from service.api import problems
from service.api.dependencies import ReadSession
from service.api.one_thread import OneThreadRoute
from service.api.paging import DEFAULT_PAGE_SIZE, PageSize, PageToken, cut, decode_number, encode_token
from service.api.schemas.access import AuditRead
from service.api.schemas.common import Page
from service.store.repositories import AuditRepository

router = APIRouter(prefix="/v1/admin", tags=["admin"], route_class=OneThreadRoute)

Name = Query(min_length=1, max_length=200)


@router.get("/audit", summary="Read the audit trail", responses=problems.documented(422, 503))
def list_audit_entries(
    session: ReadSession,
    project: Annotated[str | None, Name, Query(description="Only of callers of this project.")] = None,
    actor: Annotated[str | None, Name, Query(description="Only of this token, by its name.")] = None,
    page_size: PageSize = DEFAULT_PAGE_SIZE,
    page_token: PageToken = None,
) -> Page[AuditRead]:
    """Who did what to which thing, and when; newest first. Needs the scope `admin`."""
    before_id = decode_number("audit", page_token) if page_token is not None else None
    rows = AuditRepository(session).page(project=project, actor=actor, before_id=before_id, limit=page_size + 1)
    found, token = cut(rows, page_size, lambda entry: encode_token("audit", entry.id))
    return Page[AuditRead](items=[AuditRead.model_validate(entry) for entry in found], next_page_token=token)
