"""Bodies for whoever looks after the service."""

from __future__ import annotations

from datetime import datetime

from pydantic import ConfigDict

from service.api import examples
from service.api.schemas.common import ReadModel


class AuditRead(ReadModel):
    """Something that somebody did."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.AUDIT_ENTRY]})

    id: int
    """Grows with time."""
    at: datetime
    """When it was done."""
    actor: str | None
    """The name of a token, or `shell:` and the account that ran a command; null: nobody had to say who asks."""
    token: str | None
    """Its prefix."""
    project: str
    """Of the actor."""
    action: str
    """The `operationId` of what was asked, or the name of a command."""
    target: str
    """The thing that it was done to, e.g. a job's id, with a trial's number behind a slash."""
    address: str | None
    """From where it was asked."""
