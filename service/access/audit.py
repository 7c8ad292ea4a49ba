"""The audit trail: who did what to which thing, and when. Written in the transaction of the deed itself."""

from __future__ import annotations

import getpass
from datetime import datetime

from service.access.caller import Caller
from service.domain import DEFAULT_PROJECT
from service.store.models import AuditEntry
from service.store.repositories import AuditRepository
from service.store.session import Session


def record_deed(
    session: Session, caller: Caller, action: str, target: str, *, address: str | None, now: datetime
) -> None:
    """Notes what a request did.

    Args:
        target: the thing that it was done to, e.g. a job's id.
        address: the address of whoever asked.
    """
    entry = AuditEntry(
        at=now,
        actor=caller.name,
        token=caller.token,
        project=caller.project,
        action=action,
        target=target[:200],
        address=address,
    )
    AuditRepository(session).add(entry)


def record_command(session: Session, action: str, target: str, *, now: datetime) -> None:
    """Notes what a command on this machine did to the database itself."""
    try:
        account = getpass.getuser()
    except (KeyError, OSError):  # an account without a name, as in many containers
        account = "unknown"
    entry = AuditEntry(
        at=now, actor=f"shell:{account}"[:200], project=DEFAULT_PROJECT, action=action, target=target[:200]
    )
    AuditRepository(session).add(entry)
