"""Probes: whether the process lives, and whether it can do its work."""

from __future__ import annotations

from datetime import timedelta

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from service.api import problems
from service.api.dependencies import DataAreHere, Now, ProbeDependency, SettingsDependency
from service.api.schemas.common import FieldError, Health, Readiness
from service.monitoring.readiness import check_files
from service.store.session import DATABASE_ERRORS
from service.store.writes import why_it_fails

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Is the process alive?")
async def read_health(request: Request) -> Health:
    """Answers as long as the process runs, and checks nothing else."""
    return Health(status="ok", version=request.app.version)


@router.get(
    "/readyz",
    summary="Can requests be served?",
    response_model=Readiness,
    responses=problems.documented(503),
)
async def read_readiness(
    request: Request, probe: ProbeDependency, settings: SettingsDependency, data_are_here: DataAreHere, now: Now
) -> Readiness | Response:
    """Ready when the database is reachable, takes writes and is migrated to this version, and there is room on the
    disk; else `errors` names what is not ready. Answers however busy the service is."""
    why_not: dict[str, str | None] = {"database": None}
    num_workers = 0
    try:
        seen = await probe.look(alive_since=now - timedelta(seconds=settings.lease_seconds))
    except TimeoutError as error:
        why_not["database"] = str(error)
    except DATABASE_ERRORS as error:
        why_not["database"] = why_it_fails(error)
    else:
        num_workers = seen.num_workers
        why_not["database"] = seen.why_not_written and f"the last write failed: {seen.why_not_written}"
        why_not["migrations"] = seen.why_not_migrated
    why_not |= {
        check.name: check.why_not
        for check in await run_in_threadpool(check_files, settings, data_are_here=data_are_here)
    }
    errors = [FieldError(field=name, message=message) for name, message in why_not.items() if message]
    if errors:
        detail = "; ".join(f"{error.field}: {error.message}" for error in errors)
        return problems.unavailable(detail, instance=request.url.path, errors=errors)
    return Readiness(status="ready" if num_workers else "degraded", num_workers=num_workers, checked=tuple(why_not))
