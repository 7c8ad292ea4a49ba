"""Probes: whether the process lives, and whether it can do its work."""

from __future__ import annotations

from datetime import timedelta

from fastapi import APIRouter, Request, Response

from service.api import problems
from service.api.dependencies import Now, ProbeDependency, SettingsDependency
from service.api.schemas.common import Health, Readiness
from service.store.session import DATABASE_ERRORS

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Is the process alive?")
async def read_health(request: Request) -> Health:
    """Answers as long as the process runs; touches nothing else."""
    return Health(status="ok", version=request.app.version)


@router.get(
    "/readyz",
    summary="Can requests be served?",
    response_model=Readiness,
    responses=problems.documented(503),
)
async def read_readiness(
    request: Request, probe: ProbeDependency, settings: SettingsDependency, now: Now
) -> Readiness | Response:
    """Ready when the database is reachable and migrated to this version. Answers however busy the service is."""
    instance = request.url.path
    try:
        seen = await probe.look(alive_since=now - timedelta(seconds=settings.lease_seconds))
    except TimeoutError as error:
        return problems.unavailable(str(error), instance=instance)
    except DATABASE_ERRORS:
        return problems.unavailable("the database is unavailable", instance=instance)
    if not seen.is_current:
        return problems.unavailable(
            "the database is not migrated to this version: run `shampoo-tuner migrate`", instance=instance
        )
    return Readiness(status="ready", num_workers=seen.num_workers)
