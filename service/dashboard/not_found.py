"""Answers where there is nothing: a page for people, a problem for programs."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from service.api import problems
from service.api.media_types import JSON, weights_of
from service.dashboard.rendering import page
from service.errors import NotFound

PAGES = ("/jobs/", "/recommendations/", "/compare")
"""The beginnings of the addresses of pages that show things by their ids."""


async def unknown_address(request: Request, error: Exception) -> Response:
    """404 of an address that there is not: a page for people, and a problem for programs and below `/v1`."""
    path = request.scope["path"]
    if path == "/v1" or path.startswith("/v1/") or not prefers_html(request.headers.get("accept", "")):
        return await problems.http_error(request, error)
    context = {"kind": "page", "name": path}
    return page(request, "not_found.html", context, status_code=404)


async def unknown_thing(request: Request, error: Exception) -> Response:
    """404 of a thing that there is not, or not for whoever asks: a page where pages are, else a problem."""
    assert isinstance(error, NotFound)
    if not request.scope["path"].startswith(PAGES):
        return await problems.answer_to(request, error)
    context = {"kind": error.kind, "name": error.identifier, "job_id": request.scope["path_params"].get("job_id")}
    return page(request, "not_found.html", context, status_code=404)


def prefers_html(accept: str) -> bool:
    """True if an `Accept` names HTML, as browsers do, and JSON not before it."""
    weights = weights_of(accept)
    json_weight = max(weights.get(JSON, 0.0), weights.get(problems.MEDIA_TYPE, 0.0))
    return weights.get("text/html", 0.0) > json_weight
