"""A problem as a page, for people, where programs get a document."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Request
from starlette.responses import Response

from service.api.schemas.common import Problem
from service.dashboard.not_found import prefers_html
from service.dashboard.rendering import page


def problem_page(request: Request, problem: Problem, headers: Mapping[str, str]) -> Response | None:
    """The answer to whoever asks for a page, as a browser does; None: to a program, or below `/v1`.

    Args:
        headers: of the document, which the page has, too; after `Retry-After` it is asked for again.
    """
    path = request.scope["path"]
    if path == "/v1" or path.startswith("/v1/") or not prefers_html(request.headers.get("accept", "")):
        return None
    wait = headers.get("Retry-After") if request.method == "GET" else None
    query = request.scope["query_string"].decode("latin-1")
    context = {"problem": problem, "wait": wait, "address": f"{path}?{query}" if query else path}
    response = page(request, "problem.html", context, status_code=problem.status)
    response.headers.update(headers)
    return response
