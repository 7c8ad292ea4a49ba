"""Problem documents (RFC 9457): a response with one, and those of situations that no error of a use case stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from service.api import examples
from service.api.schemas.common import NOT_DONE_YET, TYPE_PREFIX, FieldError, Problem

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 5
"""Time after which to ask again a service that is busy or away, by judgement."""
RETRY_AFTER = {"Retry-After": {"description": "Seconds after which to ask again.", "schema": {"type": "integer"}}}
"""The header of answers that ask for the same request later, as it is described."""
LATER = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
"""The statuses of problems that have it."""
MAX_ERRORS = 20
"""Faults of one request that are told, at most, by judgement: the first ones explain the rest."""
MAX_CHARACTERS = 2000
"""Characters of a text in a problem, at most: what was sent may be in it."""
NOT_VALID = "The request is not valid"


class ProblemResponse(JSONResponse):
    """A problem as a document, or as the page that the application's `state.problem_page` makes of it."""

    def __init__(self, problem: Problem, *, headers: Mapping[str, str]) -> None:
        content = problem.model_dump(mode="json", exclude_none=True)
        if not problem.errors:
            del content["errors"]
        super().__init__(content, problem.status, headers, MEDIA_TYPE)
        self._problem, self._own_headers = problem, headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        page = scope["app"].state.problem_page(Request(scope), self._problem, self._own_headers)
        if page is None:
            await super().__call__(scope, receive, send)
        else:
            await page(scope, receive, send)


def problem_response(
    status: int,
    slug: str | None,
    title: str,
    detail: str,
    *,
    instance: str,
    errors: Sequence[FieldError] = (),
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """A problem as a response."""
    document = problem(status, slug, title, detail, instance=instance, errors=errors)
    return ProblemResponse(document, headers=headers or {})


def problem(
    status: int, slug: str | None, title: str, detail: str, *, instance: str, errors: Sequence[FieldError]
) -> Problem:
    """A problem, with long texts cut. `slug` None: the status says it all (`about:blank`)."""
    return Problem(
        type=f"{TYPE_PREFIX}{slug}" if slug else "about:blank",
        title=title,
        status=status,
        detail=_cut(detail),
        instance=_cut(instance),
        errors=[
            error.model_copy(
                update={
                    "field": _cut(error.field),
                    "message": _cut(error.message),
                    "pointer": error.pointer if len(error.pointer or "") <= MAX_CHARACTERS else None,
                }
            )
            for error in errors
        ],
    )


def _cut(text: str) -> str:
    """The beginning and the end of a long text."""
    half = MAX_CHARACTERS // 2
    return text if len(text) <= MAX_CHARACTERS else f"{text[:half]} ... {text[-half:]}"


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of an endpoint that answers with these problems."""
    example = {"example": {**examples.PROBLEM}}
    responses: dict[int | str, dict[str, Any]] = {}
    for status in statuses:
        phrase = HTTPStatus(status).phrase
        shown = {"example": {**example["example"], "status": status}} if status == 422 else {}
        responses[status] = {
            "model": Problem,
            "description": phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}, **shown}},
            **({"headers": RETRY_AFTER} if status in LATER else {}),
        }
    return responses


def invalid(
    errors: Sequence[FieldError],
    *,
    instance: str,
    status: HTTPStatus = HTTPStatus.UNPROCESSABLE_ENTITY,
    slug: str = "invalid-input",
    title: str = NOT_VALID,
) -> JSONResponse:
    """The problem document for a request with faults in these fields, of which it names the first few."""
    detail = ", ".join(f"{error.field}: {error.message}" for error in errors[:3])
    if len(errors) > 3:
        detail += f", and {len(errors) - 3} more"
    return problem_response(status, slug, title, detail, instance=instance, errors=errors[:MAX_ERRORS])


def malformed(message: str, *, instance: str) -> JSONResponse:
    """The body cannot be read at all."""
    return invalid([FieldError(field="body", message=message)], instance=instance)


def busy(detail: str, *, instance: str) -> JSONResponse:
    """503: others have all that there is."""
    return _later("busy", "The service is busy", detail, instance=instance)


def not_done_yet(detail: str, *, instance: str) -> JSONResponse:
    """503: the service goes on with what the request needs, and has it for who asks again."""
    return _later(NOT_DONE_YET, "The service is still at it", detail, instance=instance, after_seconds=1)


def unavailable(detail: str, *, instance: str, errors: Sequence[FieldError] = ()) -> JSONResponse:
    """503: what the service needs is out of reach."""
    return _later("unavailable", "The service cannot answer now", detail, instance=instance, errors=errors)


def _later(
    slug: str,
    title: str,
    detail: str,
    *,
    instance: str,
    errors: Sequence[FieldError] = (),
    after_seconds: int = RETRY_AFTER_SECONDS,
) -> JSONResponse:
    """503: the same request may do later."""
    return problem_response(
        HTTPStatus.SERVICE_UNAVAILABLE,
        slug,
        title,
        detail,
        instance=instance,
        errors=errors,
        headers={"Retry-After": str(after_seconds)},
    )


def too_slow(max_seconds: float, *, instance: str) -> JSONResponse:
    """408: the request's body took longer than allowed."""
    message = f"must come within {max_seconds:g} s"
    return problem_response(
        HTTPStatus.REQUEST_TIMEOUT,
        "body-too-slow",
        "The request took too long to come",
        f"body: {message}",
        instance=instance,
        errors=[FieldError(field="body", message=message)],
        headers={"Connection": "close"},  # the rest of the body stays unread
    )


def headers_too_slow(max_seconds: float) -> JSONResponse:
    """408: the request's headers took longer than allowed, and may lack its address."""
    return problem_response(
        HTTPStatus.REQUEST_TIMEOUT,
        "headers-too-slow",
        "The request took too long to come",
        f"the headers must come within {max_seconds:g} s",
        instance="/",
    )


def malformed_http() -> JSONResponse:
    """400: what came is not HTTP, so that no address can be told."""
    return problem_response(
        HTTPStatus.BAD_REQUEST, None, HTTPStatus.BAD_REQUEST.phrase, "the request is not HTTP", instance="/"
    )


def too_large(max_bytes: int, *, instance: str) -> JSONResponse:
    """413: the request's body is larger than allowed.

    The connection stays: what is still sent is read and left aside for as long as a body may take. Closed at once, it
    would be reset under a client that sends, and many clients then tell of that, not of the answer.
    """
    message = f"must not be larger than {max_bytes} bytes"
    return problem_response(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "body-too-large",
        "The request is too large",
        f"body: {message}",
        instance=instance,
        errors=[FieldError(field="body", message=message)],
    )
