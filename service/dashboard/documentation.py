"""The page of the HTTP API, which Swagger UI draws from the files that come with a package."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from fastapi import APIRouter, Depends, Request, Response

from service.api.preparation import job_expected
from service.dashboard.rendering import page

SWAGGER_PATH = "/vendor/swagger-ui"

router = APIRouter()


@router.get("/docs", include_in_schema=False, dependencies=[Depends(job_expected)])
def documentation_page(request: Request) -> Response:
    """Every request with examples, to be read and sent."""
    return page(request, "documentation.html", {"swagger_path": SWAGGER_PATH})


def swagger_directory() -> Path:
    """The files of Swagger UI: FastAPI's own page loads them from a CDN. Raises: RuntimeError: they are not there."""
    spec = importlib.util.find_spec("fastapi_offline")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("fastapi-offline is not installed; /docs is made of the files it ships")
    return Path(spec.submodule_search_locations[0]) / "static"
