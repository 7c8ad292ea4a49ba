"""Quotas of projects: checked where jobs come into the queue, and where they begin.

A job that runs is ended by that of device-hours, as by its own budget. Where there is no quota, nothing is counted.
"""

from __future__ import annotations

from service.domain import JobState
from service.errors import QuotaExceeded
from service.store.models import Project
from service.store.repositories import ProjectRepository
from service.store.session import Session


def check_room(session: Session, name: str) -> None:
    """Refuses one more job in a project's queue where a quota is used up. A project with quotas is locked until the
    transaction ends, so that of two jobs at once one takes the last place.

    Raises:
        QuotaExceeded: names the quota.
    """
    projects = ProjectRepository(session)
    project = projects.find(name)
    if project is None or _none_of(project.max_queued_jobs, project.max_device_hours, project.max_stored_bytes):
        return
    project = projects.find_locked(name)
    assert project is not None, "projects are never removed"
    if project.max_queued_jobs is not None:
        _check(name, "max_queued_jobs", project.max_queued_jobs, projects.num_jobs(name, JobState.QUEUED))
    if project.max_device_hours is not None:
        _check(name, "max_device_hours", project.max_device_hours, projects.device_hours(name))
    if project.max_stored_bytes is not None:
        _check(name, "max_stored_bytes", project.max_stored_bytes, projects.stored_bytes(name))


def check_stored_bytes(session: Session, name: str) -> None:
    """Refuses to store more for a project that has used up its quota of bytes. One with such a quota is locked until
    the transaction ends, so that of two at once the second is counted with the first.

    Raises:
        QuotaExceeded: names the quota.
    """
    projects = ProjectRepository(session)
    project = projects.find(name)
    if project is not None and project.max_stored_bytes is not None:
        project = projects.find_locked(name)
        assert project is not None, "projects are never removed"
    if project is not None and project.max_stored_bytes is not None:
        _check(name, "max_stored_bytes", project.max_stored_bytes, projects.stored_bytes(name))


def resting_projects(session: Session) -> list[str]:
    """The projects whose queued jobs may not begin now. Those with quotas are locked until the transaction ends, so
    that of two workers one begins the last job that may."""
    projects = ProjectRepository(session)
    found = []
    for project in projects.all():
        if _none_of(project.max_running_jobs, project.max_device_hours):
            continue
        locked = projects.find_locked(project.name)
        if locked is not None and why_resting(session, locked) is not None:
            found.append(project.name)
    return found


def why_resting(session: Session, project: Project) -> str | None:
    """The reason for which no queued job of a project may begin, for a person; None: one may, or none is queued."""
    projects = ProjectRepository(session)
    if _none_of(project.max_running_jobs, project.max_device_hours):
        return None
    if not projects.num_jobs(project.name, JobState.QUEUED):
        return None
    if project.max_running_jobs is not None:
        running = projects.num_jobs(project.name, JobState.RUNNING)
        if running >= project.max_running_jobs:
            return (
                f"project {project.name} runs {running} of the {project.max_running_jobs} jobs that it may run at once"
            )
    if _hours_are_spent(projects, project):
        return f"project {project.name} has spent its {project.max_device_hours:g} device-hours"
    return None


def hours_are_spent(session: Session, name: str) -> bool:
    """True if a project has spent the device-hours of its quota: what it runs is to end."""
    projects = ProjectRepository(session)
    project = projects.find(name)
    return project is not None and _hours_are_spent(projects, project)


def quota_spent(project: str) -> str:
    """Tells what cut off a job whose project has spent its device-hours, for a person."""
    return f"project {project} has spent the device-hours of its quota (max_device_hours)"


def _hours_are_spent(projects: ProjectRepository, project: Project) -> bool:
    allowed = project.max_device_hours
    return allowed is not None and projects.device_hours(project.name) >= allowed


def _none_of(*limits: float | None) -> bool:
    return all(limit is None for limit in limits)


def _check(project: str, quota: str, limit: float, used: float) -> None:
    if used >= limit:
        raise QuotaExceeded(project, quota, limit=limit, used=used)
