"""Errors as pages, for people, where programs get a problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from urllib.parse import urlencode

from fastapi import Request
from starlette.responses import Response

from service.api import problems
from service.api.media_types import JSON, weights_of
from service.api.schemas.common import Problem
from service.dashboard.job_list.address import ListAddress
from service.dashboard.job_list.view import ORDERS
from service.dashboard.rendering import page
from service.errors import NotFound

PAGES = ("/jobs/", "/recommendations/", "/compare")
"""The beginnings of the addresses of pages that show things by their ids."""


def wants_page(request: Request) -> bool:
    """True if whoever asks wants a page: by an `Accept` that names HTML, as browsers do, and JSON not before it, of an
    address that is not below `/v1`."""
    path = request.scope["path"]
    weights = weights_of(request.headers.get("accept", ""))
    json_weight = max(weights.get(JSON, 0.0), weights.get(problems.MEDIA_TYPE, 0.0))
    return path != "/v1" and not path.startswith("/v1/") and weights.get("text/html", 0.0) > json_weight


def problem_page(request: Request, problem: Problem, headers: Mapping[str, str]) -> Response | None:
    """A problem as the page that is wanted in its place; None: none is.

    Args:
        headers: of the problem, which the page has, too; after `Retry-After` a page is asked for again.
    """
    if not wants_page(request):
        return None
    path, asked = request.scope["path"], request.query_params.multi_items()
    valid = _not_refused(asked, problem)
    context = {
        "problem": problem,
        "wait": headers.get("Retry-After"),
        "without": None if len(valid) == len(asked) else f"{path}?{urlencode(valid)}".removesuffix("?"),
        "address": ListAddress(valid),
        "has_search": path == "/" and problem.status == HTTPStatus.UNPROCESSABLE_ENTITY,
        "orders": ORDERS,
    }
    response = page(request, "problem.html", context, status_code=problem.status)
    response.headers.update(headers)
    return response


def _not_refused(asked: Sequence[tuple[str, str]], problem: Problem) -> list[tuple[str, str]]:
    """The part of an address that the problem is not about: neither all of `state` nor, of its values, `state[1]`."""
    refused = {error.field for error in problem.errors}
    seen = Counter[str]()
    valid = []
    for name, value in asked:
        if not refused & {name, f"{name}[{seen[name]}]"}:
            valid.append((name, value))
        seen[name] += 1
    return valid


async def unknown_address(request: Request, error: Exception) -> Response:
    """404 of an address that there is not."""
    if not wants_page(request):
        return await problems.http_error(request, error)
    context = {"kind": "page", "name": request.scope["path"]}
    return page(request, "not_found.html", context, status_code=404)


async def unknown_thing(request: Request, error: Exception) -> Response:
    """404 of a thing that there is not, or not for whoever asks: a page where pages are, else a problem."""
    assert isinstance(error, NotFound)
    if not request.scope["path"].startswith(PAGES):
        return await problems.answer_to(request, error)
    context = {"kind": error.kind, "name": error.identifier, "job_id": request.scope["path_params"].get("job_id")}
    return page(request, "not_found.html", context, status_code=404)
