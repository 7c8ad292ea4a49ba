"""Projects: made, and given quotas."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from service.errors import Conflict, InvalidInput, UnknownName
from service.store.models import Project
from service.store.repositories import ProjectRepository
from service.store.session import Session

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """The most that a project may take; None: no limit."""

    max_running_jobs: int | None = None
    max_queued_jobs: int | None = None
    max_device_hours: float | None = None
    max_stored_bytes: int | None = None


QUOTAS = ("max_running_jobs", "max_queued_jobs", "max_device_hours", "max_stored_bytes")
"""The fields of `Quotas`."""


def create_project(session: Session, name: str, quotas: Quotas, *, now: datetime) -> Project:
    """Stores a new project.

    Raises:
        InvalidInput: its name is none.
        Conflict: there is one of that name.
    """
    if not _NAME.fullmatch(name):
        raise InvalidInput("name", f"{name!r} must be small letters, digits, _ and -, at most 64, not a sign first")
    projects = ProjectRepository(session)
    projects.lock_names()
    if projects.find(name) is not None:
        raise Conflict(f"there is a project {name!r} already")
    project = Project(name=name, created_at=now)
    _set(project, quotas, QUOTAS)
    projects.add(project)
    return project


def change_project(session: Session, name: str, quotas: Quotas, *, fields: tuple[str, ...]) -> Project:
    """Gives a project the quotas named in `fields`; the others stay.

    Raises:
        UnknownName: there is no such project.
    """
    projects = ProjectRepository(session)
    project = projects.find_locked(name)
    if project is None:
        raise UnknownName("project", name, [known.name for known in projects.all()])
    _set(project, quotas, fields)
    session.flush()
    return project


def _set(project: Project, quotas: Quotas, fields: tuple[str, ...]) -> None:
    for field in fields:
        value = getattr(quotas, field)
        if value is not None and value < 0:
            raise InvalidInput(field, f"must not be negative, got {value:g}")
        setattr(project, field, value)
