"""Probes: whether the process lives, and whether it can do its work."""

from __future__ import annotations

from datetime import timedelta
from importlib.metadata import version

from fastapi import APIRouter, Request, Response

from service.api import problems
from service.api.dependencies import DatabaseDependency, Now, SettingsDependency
from service.api.service_schemas import Health, Readiness
from service.store.migrate import is_current
from service.store.repositories import WorkerRepository
from service.store.session import DATABASE_ERRORS

router = APIRouter(tags=["health"])

VERSION = version("shampoo-tuner")


@router.get("/healthz", summary="Is the process alive?")
async def read_health() -> Health:
    """Answers as long as the process runs; touches nothing else."""
    return Health(status="ok", version=VERSION)


@router.get(
    "/readyz",
    summary="Can requests be served?",
    response_model=Readiness,
    responses=problems.documented(503),
)
def read_readiness(
    request: Request, database: DatabaseDependency, settings: SettingsDependency, now: Now
) -> Readiness | Response:
    """Ready when the database is reachable and migrated to this version."""
    instance = request.url.path
    try:
        if not is_current(database):
            return problems.unavailable(
                "the database is not migrated to this version: run `shampoo-tuner migrate`", instance=instance
            )
        with database.reading() as session:
            since = now - timedelta(seconds=settings.lease_seconds)
            num_workers = WorkerRepository(session).alive_since(since)
    except DATABASE_ERRORS:
        return problems.unavailable("the database is unavailable", instance=instance)
    return Readiness(status="ready", num_workers=num_workers)
