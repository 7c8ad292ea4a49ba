"""Bodies about tokens, projects and the audit trail, for whoever looks after the service."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, TypeAlias

from pydantic import ConfigDict, Field, StringConstraints

from service.access.caller import Scope
from service.access.token_state import TokenState, state_of
from service.api import examples
from service.api.lists.query_times import Moment
from service.api.request_body import RequestModel
from service.api.schemas.common import ReadModel
from service.domain import DEFAULT_PROJECT

if TYPE_CHECKING:
    from service.access.tokens import TokenText
    from service.store.models import Project, Token
    from service.store.repositories import Usage


Name: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=100)]
Count: TypeAlias = Annotated[int, Field(ge=0, le=2**31 - 1)]
NumBytes: TypeAlias = Annotated[int, Field(ge=0, le=2**63 - 1)]
Hours: TypeAlias = Annotated[float, Field(ge=0)]


class TokenCreate(RequestModel):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.TOKEN_CREATE]})

    name: Name
    """Name of the token, shown in jobs and in the audit trail: letters, digits and `. _ @ -`. It is unique among the
    tokens that are not revoked."""
    project: Name = DEFAULT_PROJECT
    """The project that the token belongs to."""
    scopes: Annotated[list[Annotated[Scope, Field(strict=False)]], Field(min_length=1, max_length=len(Scope))]
    """The scopes that the token grants, all of which its maker must have."""
    expires_at: Moment | None
    """The time at which it ends; null: never."""


class TokenRead(ReadModel):
    """A token, but never its secret."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.TOKEN]})

    prefix: str
    """The prefix of its text, which identifies it and is not secret."""
    name: str
    """Name of the token, shown in jobs and in the audit trail."""
    project: str
    """The project that the token belongs to."""
    scopes: list[Scope]
    """The scopes that the token grants."""
    state: TokenState
    """The state of the token now; only a valid one is let in."""
    created_at: datetime
    """The time at which it was made."""
    expires_at: datetime | None
    """The time at which it ends; null: never."""
    revoked_at: datetime | None
    """The time at which it was revoked; null: it was not."""
    last_used_at: datetime | None
    """The time at which it was last used, to some minutes; null: never."""

    @classmethod
    def of(cls, token: Token, now: datetime) -> TokenRead:
        """A token, in the state that it is in now."""
        return TokenRead(
            prefix=token.prefix,
            name=token.name,
            project=token.project,
            scopes=[Scope(value) for value in token.scopes],
            state=state_of(token, now),
            created_at=token.created_at,
            expires_at=token.expires_at,
            revoked_at=token.revoked_at,
            last_used_at=token.last_used_at,
        )


class TokenCreated(TokenRead):
    model_config = ConfigDict(json_schema_extra={"examples": [{**examples.TOKEN, "token": examples.TOKEN_TEXT}]})

    token: str
    """The token itself, to be sent as `Authorization: Bearer ...`. It is shown only once: the service keeps a digest of
    it."""

    @classmethod
    def made(cls, token: Token, text: TokenText, now: datetime) -> TokenCreated:
        """A new token, with its text."""
        return TokenCreated(**dict(TokenRead.of(token, now)), token=str(text))


class ProjectChange(RequestModel):
    """Quotas of a project; those that are left out stay, and null is no limit."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.PROJECT_CHANGE]})

    max_running_jobs: Count | None = None
    """The jobs that may run at once; further ones wait."""
    max_queued_jobs: Count | None = None
    """The jobs that may wait at once; further ones are refused."""
    max_device_hours: Hours | None = None
    """The limit on device-hours of all trials of all its jobs, ever."""
    max_stored_bytes: NumBytes | None = None
    """The limit on bytes of checkpoints, temporary files, logs and code of all its jobs."""


class ProjectCreate(ProjectChange):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.PROJECT_CREATE]})

    name: Name
    """Small letters, digits, `_` and `-`, at most 64."""


class UsageRead(ReadModel):
    """The resources that the jobs of a project use."""

    running_jobs: int
    """Now."""
    queued_jobs: int
    """Now."""
    device_hours: float
    """Training time of all trials, deleted ones too, times the ranks of each."""
    stored_bytes: int
    """Bytes of checkpoints, temporary files, logs and code, at the workers' last check."""


class ProjectRead(ReadModel):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.PROJECT]})

    name: str
    """The name of the project."""
    created_at: datetime
    """The time at which it was made."""
    max_running_jobs: int | None
    """The jobs that may run at once; null: no limit."""
    max_queued_jobs: int | None
    """The jobs that may wait at once; null: no limit."""
    max_device_hours: float | None
    """The limit on device-hours of all trials of all its jobs, ever; null: no limit."""
    max_stored_bytes: int | None
    """The limit on bytes of checkpoints, temporary files, logs and code of all its jobs; null: no limit."""
    usage: UsageRead
    """The part of the quotas that the project's jobs use."""

    @classmethod
    def of(cls, project: Project, usage: Usage) -> ProjectRead:
        """A project, with what its jobs take."""
        quotas = {field: getattr(project, field) for field in ProjectChange.model_fields}
        taken = UsageRead.model_validate(usage)
        return ProjectRead(name=project.name, created_at=project.created_at, usage=taken, **quotas)


class AuditRead(ReadModel):
    """An entry of the audit trail."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.AUDIT_ENTRY]})

    id: int
    """The number of the entry, which grows with time."""
    at: datetime
    """The time at which it was done."""
    actor: str | None
    """The name of a token, or `shell:` and the account that ran a command; null: the service asked for no token."""
    token: str | None
    """The prefix of the token."""
    project: str
    """The project of the actor."""
    action: str
    """The `operationId` of the request, or the name of a command."""
    target: str
    """The object of the action, e.g. a job's id, with a trial's number after a slash."""
    address: str | None
    """The address that the request came from."""
