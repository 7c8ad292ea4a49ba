"""Tokens, projects and the audit trail, for whoever looks after the service. The command line does the same on the
database itself."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response

from service.access import projects, tokens
from service.api import problems
from service.api.dependencies import (
    AuthenticationDependency,
    CallerDependency,
    DeedDependency,
    Now,
    ReadSession,
    WriteSession,
)
from service.api.one_thread import OneThreadRoute
from service.api.paging import DEFAULT_PAGE_SIZE, PageSize, PageToken, cut, decode_number, decode_token, encode_token
from service.api.schemas.access import (
    AuditRead,
    ProjectChange,
    ProjectCreate,
    ProjectRead,
    TokenCreate,
    TokenCreated,
    TokenRead,
)
from service.api.schemas.common import Page
from service.api.strict_json import refuse_repeated_names
from service.errors import NotFound, ScopeMissing
from service.store.models import Project
from service.store.repositories import AuditRepository, ProjectRepository, TokenRepository
from service.store.session import Session

router = APIRouter(prefix="/v1/admin", tags=["admin"], route_class=OneThreadRoute)

Prefix = Annotated[str, Path(max_length=16, description="The token's prefix.", examples=["c57a46accdda"])]
ProjectName = Annotated[str, Path(max_length=64, description="The project's name.", examples=["vision"])]
Name = Query(min_length=1, max_length=200)


@router.get("/audit", summary="Read the audit trail", responses=problems.documented(422, 503))
def list_audit_entries(
    session: ReadSession,
    project: Annotated[str | None, Name, Query(description="Only of callers of this project.")] = None,
    actor: Annotated[str | None, Name, Query(description="Only of this token, by its name.")] = None,
    page_size: PageSize = DEFAULT_PAGE_SIZE,
    page_token: PageToken = None,
) -> Page[AuditRead]:
    """Lists the audit trail: who did what, to what, and when; newest first. Needs the scope `admin`."""
    before_id = decode_number("audit", page_token) if page_token is not None else None
    rows = AuditRepository(session).page(project=project, actor=actor, before_id=before_id, limit=page_size + 1)
    found, token = cut(rows, page_size, lambda entry: encode_token("audit", entry.id))
    return Page[AuditRead](items=[AuditRead.model_validate(entry) for entry in found], next_page_token=token)


@router.get("/tokens", summary="List tokens", responses=problems.documented(422, 503))
def list_tokens(
    session: ReadSession, now: Now, page_size: PageSize = DEFAULT_PAGE_SIZE, page_token: PageToken = None
) -> Page[TokenRead]:
    """All tokens, revoked and expired ones too, without their secrets, the oldest first. Needs the scope `admin`."""
    after = None if page_token is None else decode_token("token", page_token)
    rows = TokenRepository(session).page(after_prefix=after, limit=page_size + 1)
    found, next_token = cut(rows, page_size, lambda token: encode_token("token", token.prefix))
    return Page[TokenRead](items=[TokenRead.of(each, now) for each in found], next_page_token=next_token)


@router.post(
    "/tokens",
    status_code=201,
    summary="Make a token",
    dependencies=[Depends(refuse_repeated_names)],
    response_model=TokenCreated,
    responses={
        201: {"description": "The token, with its text, which is never shown again."},
        **problems.documented(404, 408, 409, 413, 415, 422, 503),
    },
)
def create_token(
    body: TokenCreate,
    session: WriteSession,
    caller: CallerDependency,
    deed: DeedDependency,
    authentication: AuthenticationDependency,
    now: Now,
    response: Response,
) -> TokenCreated:
    """Makes a token that may do no more than its maker: a scope that the caller lacks, such as `code`, is refused with
    403. On a service that only this machine can reach, the first token ends the open access: from then on every request
    needs one."""
    for scope in body.scopes:
        if not caller.may(scope):
            raise ScopeMissing(scope, f"to give the scope '{scope}'")
    text = tokens.create_token(
        session,
        body.name,
        project=body.project,
        scopes=set(body.scopes),
        expires_at=body.expires_at,
        now=now,
    )
    made = TokenRepository(session).find(text.prefix)
    assert made is not None
    deed.target = f"{made.name} ({made.prefix})"
    authentication.look_again()
    response.headers["Cache-Control"] = "no-store"
    return TokenCreated.made(made, text, now)


@router.post("/tokens/{prefix}/revoke", summary="Revoke a token", responses=problems.documented(404, 422, 503))
def revoke_token(session: WriteSession, deed: DeedDependency, now: Now, prefix: Prefix) -> TokenRead:
    """Revokes a token: within seconds its requests are refused, and pages that logged in with it, too. A token that has
    ended already stays as it is."""
    token = TokenRepository(session).find(prefix)
    if token is None:
        raise NotFound("token", prefix)
    tokens.revoke_token(session, token.prefix, now=now)
    deed.target = f"{token.name} ({token.prefix})"
    return TokenRead.of(token, now)


@router.get("/projects", summary="List projects", responses=problems.documented(422, 503))
def list_projects(
    session: ReadSession, page_size: PageSize = DEFAULT_PAGE_SIZE, page_token: PageToken = None
) -> Page[ProjectRead]:
    """The projects with their quotas and how much of each is used, by name. Needs the scope `admin`."""
    after = None if page_token is None else decode_token("project", page_token)
    rows = ProjectRepository(session).page(after_name=after, limit=page_size + 1)
    found, next_token = cut(rows, page_size, lambda project: encode_token("project", project.name))
    return Page[ProjectRead](items=[_project(session, each) for each in found], next_page_token=next_token)


@router.post(
    "/projects",
    status_code=201,
    summary="Make a project",
    dependencies=[Depends(refuse_repeated_names)],
    response_model=ProjectRead,
    responses={201: {"description": "The project."}, **problems.documented(408, 409, 413, 415, 422, 503)},
)
def create_project(body: ProjectCreate, session: WriteSession, deed: DeedDependency, now: Now) -> ProjectRead:
    """Makes a project; tokens and their jobs can belong to it from then on. Nothing removes one."""
    project = projects.create_project(session, body.name, _quotas(body), now=now)
    deed.target = project.name
    return _project(session, project)


@router.patch(
    "/projects/{name}",
    summary="Change quotas",
    dependencies=[Depends(refuse_repeated_names)],
    responses=problems.documented(404, 408, 413, 415, 422, 503),
)
def change_project(body: ProjectChange, session: WriteSession, deed: DeedDependency, name: ProjectName) -> ProjectRead:
    """Sets the given quotas; the others stay. Running jobs go on; from then on, jobs beyond a quota wait or are
    refused."""
    fields = tuple(field for field in projects.QUOTAS if field in body.model_fields_set)
    project = projects.change_project(session, name, _quotas(body), fields=fields)
    deed.target = project.name
    return _project(session, project)


def _quotas(body: ProjectChange) -> projects.Quotas:
    return projects.Quotas(**{field: getattr(body, field) for field in projects.QUOTAS})


def _project(session: Session, project: Project) -> ProjectRead:
    return ProjectRead.of(project, ProjectRepository(session).usage(project.name))
