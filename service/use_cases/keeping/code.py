"""Code that comes with jobs: kept once in a project, and for as long as a job names it."""

from __future__ import annotations

from datetime import datetime, timedelta

from service.access.quotas import check_stored_bytes
from service.code.archive import CodeArchive
from service.errors import Conflict, InvalidInput
from service.store.models import Code
from service.store.repositories import CodeRepository
from service.store.session import Session

KEPT_UNUSED = timedelta(hours=24)
"""Time for which code that no job names is kept, since it was last sent or named."""


def keep_code(
    session: Session, archive: CodeArchive, *, project: str, owner: str | None, now: datetime
) -> tuple[Code, bool]:
    """Stores code; returns (the stored code, whether it is new).

    Raises:
        QuotaExceeded: the project may store no more.
    """
    codes = CodeRepository(session)
    if codes.use(project, archive.sha256, now=now):
        found = codes.find(project, archive.sha256)
        assert found is not None, "it was there a moment ago, and is locked"
        return found, False
    check_stored_bytes(session, project)
    code = Code(
        project=project,
        sha256=archive.sha256,
        archive=archive.content,
        stored_bytes=len(archive.content),
        num_files=archive.num_files,
        num_bytes=archive.num_bytes,
        owner=owner,
        created_at=now,
        used_at=now,
    )
    codes.add(code)
    return code, True


def use_code(session: Session, sha256: str, *, project: str, now: datetime) -> None:
    """Notes that a new job names code.

    Raises:
        InvalidInput: the project has none of this hash.
    """
    if not CodeRepository(session).use(project, sha256, now=now):
        raise unknown_code(sha256)


def unknown_code(sha256: str) -> InvalidInput:
    """The error for a request that names code that the project does not have."""
    return InvalidInput("code.sha256", f"this project has no code {sha256!r}: send it with POST /v1/code first")


def remove_code(session: Session, sha256: str, *, project: str) -> None:
    """Removes code that no job names.

    Raises:
        NotFound: the project has none of this hash.
        Conflict: a job names it, and may continue or be cloned.
    """
    codes = CodeRepository(session)
    num_jobs = codes.num_jobs_locked(project, sha256)
    if num_jobs:
        who = "1 job names" if num_jobs == 1 else f"{num_jobs} jobs name"
        raise Conflict(f"{who} code {sha256!r}: it goes a day after the last of them is deleted")
    codes.delete(project, sha256)


def remove_unused_code(session: Session, *, now: datetime) -> int:
    """Removes code that no job has named for a day; returns how many were removed."""
    return CodeRepository(session).delete_unused(now - KEPT_UNUSED)


def has_unused_code(session: Session, *, now: datetime) -> bool:
    """True if `remove_unused_code` would remove any; it locks nothing."""
    return CodeRepository(session).has_unused(now - KEPT_UNUSED)
