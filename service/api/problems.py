"""Errors as `application/problem+json` (RFC 9457): which situation gives which status, and which field is at fault."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from functools import reduce
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from search_spaces.nearest import did_you_mean
from service.api import examples
from service.api.request_body import field_as_sent, field_of, fields_at, join_field, small, spot_of
from service.api.schemas.common import FieldError, Problem
from service.errors import (
    BudgetSpent,
    CheckpointsOutOfReach,
    CodeForbidden,
    Conflict,
    ForkNotRetriable,
    IdempotencyKeyReused,
    InvalidInput,
    JobAlreadyFinished,
    JobNotFinished,
    NotFound,
    PreconditionFailed,
    QuotaExceeded,
    ScopeMissing,
    ServiceBusy,
    ServiceError,
    TrialAlreadyFinished,
    TrialNotComplete,
    TrialNotRetriable,
    TrialsTrainedHere,
    UnknownName,
    WorkloadNotDescribed,
)
from service.faults import all_of
from service.monitoring.request_ids import HEADER, request_id_of
from service.store.session import DATABASE_ERRORS, is_busy, is_unavailable

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:shampoo-tuner:problem:"
RETRY_AFTER_SECONDS = 5
MAX_ERRORS = 20
MAX_ERRORS_LOOKED_AT = 200
"""A value that is none of several kinds has an error for each of them."""
MAX_CHARACTERS = 2000
"""Of a text in a problem: what was sent may be in it."""
METHODS = ("DELETE", "GET", "PATCH", "POST")
"""Of all routes, beside HEAD, which is answered as GET is."""
UNKNOWN_FIELD = ("extra_forbidden", "unexpected_keyword_argument")
"""The names that pydantic gives to a field that is none, of a model and of a dataclass."""
ONE_OF_SOME = ("literal_error", "enum")
"""The names that it gives to a value which is none of those there are."""
NOT_VALID = "The request is not valid"
_QUOTED = re.compile("'([^']*)'")

logger = logging.getLogger(__name__)

# The first class that matches counts.
_SITUATIONS: tuple[tuple[type[ServiceError], HTTPStatus, str, str], ...] = (
    (CodeForbidden, HTTPStatus.FORBIDDEN, "code-forbidden", "The request may not name code"),
    (InvalidInput, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-input", NOT_VALID),
    (NotFound, HTTPStatus.NOT_FOUND, "not-found", "There is no such thing"),
    (UnknownName, HTTPStatus.NOT_FOUND, "unknown-name", "There is nothing of that name"),
    (ScopeMissing, HTTPStatus.FORBIDDEN, "scope-missing", "The token does not allow it"),
    (QuotaExceeded, HTTPStatus.FORBIDDEN, "quota-exceeded", "The project's quota is used up"),
    (JobNotFinished, HTTPStatus.CONFLICT, "job-not-finished", "The job has not ended"),
    (JobAlreadyFinished, HTTPStatus.CONFLICT, "job-already-finished", "The job has already finished"),
    (BudgetSpent, HTTPStatus.CONFLICT, "budget-spent", "The job's budget is spent"),
    (TrialAlreadyFinished, HTTPStatus.CONFLICT, "trial-already-finished", "The trial has already ended"),
    (ForkNotRetriable, HTTPStatus.CONFLICT, "fork-not-retriable", "The trial cannot be tried again"),
    (TrialNotRetriable, HTTPStatus.CONFLICT, "trial-not-retriable", "The trial cannot be tried again"),
    (TrialsTrainedHere, HTTPStatus.CONFLICT, "trials-trained-here", "The service trains the job's trials itself"),
    (TrialNotComplete, HTTPStatus.CONFLICT, "trial-not-complete", "The trial is not complete"),
    (Conflict, HTTPStatus.CONFLICT, "conflict", "The request contradicts the present state"),
    (PreconditionFailed, HTTPStatus.PRECONDITION_FAILED, "changed-meanwhile", "It has been changed meanwhile"),
    (
        IdempotencyKeyReused,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "idempotency-key-reused",
        "The Idempotency-Key was used for another request",
    ),
)


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
    """A problem as a response. `slug` None: the status says it all (`about:blank`)."""
    problem = _problem(status, slug, title, detail, instance=instance, errors=errors)
    content = problem.model_dump(mode="json", exclude_none=True)
    if not errors:
        del content["errors"]
    return JSONResponse(content, status, headers, MEDIA_TYPE)


def problem_of(error: ServiceError, *, instance: str) -> Problem | None:
    """The problem that answers an error of a use case; None: it has none of its own, as where the service is busy."""
    for kind, status, slug, title in _SITUATIONS:
        if isinstance(error, kind):
            return _problem(status, slug, title, str(error), instance=instance, errors=_errors_of(error))
    return None


def _problem(
    status: int, slug: str | None, title: str, detail: str, *, instance: str, errors: Sequence[FieldError]
) -> Problem:
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
        }
    return responses


def install(app: FastAPI) -> None:
    """Registers the handlers of every error on `app`."""
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(ServiceError, _service_error)
    app.add_exception_handler(ServiceBusy, _busy)
    for out_of_reach in (WorkloadNotDescribed, CheckpointsOutOfReach):
        app.add_exception_handler(out_of_reach, _out_of_reach)
    app.add_exception_handler(HTTPException, http_error)
    for database_error in DATABASE_ERRORS:
        app.add_exception_handler(database_error, _database_error)
    app.add_exception_handler(Exception, _unexpected)


async def answer_to(request: Request, error: Exception) -> Response:
    """The problem of an error that was raised before any route."""
    if isinstance(error, ServiceBusy):
        return await _busy(request, error)
    return await (_service_error if isinstance(error, ServiceError) else _database_error)(request, error)


async def _service_error(request: Request, error: Exception) -> Response:
    for kind, status, slug, title in _SITUATIONS:
        if isinstance(error, kind):
            if isinstance(error, InvalidInput):
                return _invalid(request, _invalid_fields(error, await _body_of(request)), status, slug, title)
            errors = _errors_of(error)
            return problem_response(status, slug, title, str(error), instance=request.url.path, errors=errors)
    return await _unexpected(request, error)


async def _body_of(request: Request) -> object:
    """The decoded body; None: it is no JSON, or a stream that was consumed already."""
    try:
        return json.loads(await request.body())
    except (ValueError, RecursionError, RuntimeError):
        return None


def _errors_of(error: Exception) -> list[FieldError]:
    if isinstance(error, IdempotencyKeyReused):
        return [FieldError(field="Idempotency-Key", message="was used with another request body", value=error.key)]
    if isinstance(error, PreconditionFailed):
        return [FieldError(field="If-Match", message="is of an earlier state", value=error.tag)]
    if isinstance(error, QuotaExceeded):
        message = f"project {error.project!r} has used {error.used:g} of {error.limit:g}"
        return [FieldError(field=error.quota, message=message, value=error.limit)]
    if isinstance(error, UnknownName):
        return [FieldError(field=error.field, message=error.message, value=error.name)]
    if isinstance(error, InvalidInput):
        return _invalid_fields(error, None)
    return []


def _invalid_fields(error: InvalidInput, body: object) -> list[FieldError]:
    """Each field that an error names; `body` None: of no body."""
    found = []
    for one in all_of(error):
        field = field_as_sent(one.field, body)
        spot = None if body is None else spot_of(body, field)
        found.append(
            FieldError(
                field=field,
                pointer=None if spot is None else spot.pointer,
                message=one.message,
                value=None if spot is None else spot.value,
            )
        )
    return found


async def _invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = error.errors()[:MAX_ERRORS_LOOKED_AT]
    if found and found[0]["type"] == "json_invalid":
        return _malformed(request, _position(str(error.body), found[0]["loc"][-1], found[0]["ctx"]["error"]))
    if any(one["loc"] == ("body",) and isinstance(one.get("input"), bytes) for one in found):
        return problem_response(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "unsupported-media-type",
            "The body is not JSON",
            f"Content-Type must be application/json, got {request.headers.get('content-type', 'none')!r}",
            instance=request.url.path,
            errors=[FieldError(field="Content-Type", message="must be application/json")],
        )
    messages: dict[str, list[str]] = {}
    choices: dict[str, list[str]] = {}
    values: dict[str, Any] = {}
    of_body = set[str]()
    for one in found:
        if _is_of_another_kind(one, found):
            continue
        source, *path = one["loc"]
        field = field_of(path, error.body) if source == "body" else reduce(join_field, path, "")
        field = field or str(source)
        if source == "body":
            of_body.add(field)
        given = messages.setdefault(field, [])
        message = _unknown_field(request, path) if one["type"] in UNKNOWN_FIELD else _message(one)
        if message not in given:
            given.append(message)
        if one["type"] in ONE_OF_SOME:
            choices.setdefault(field, []).extend(_QUOTED.findall(one["ctx"]["expected"]))
        values[field] = None if one["type"] == "missing" else small(one.get("input"))
    errors = [
        FieldError(
            field=field,
            message="; ".join(given) + did_you_mean(values[field], choices.get(field, ())),
            value=values[field],
            pointer=spot_of(error.body, field).pointer if field in of_body else None,
        )
        for field, given in messages.items()
    ]
    return _invalid(request, errors)


def _is_of_another_kind(error: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> bool:
    """True if what is told is that an object is none of a few words, where an object may stand, too: its own faults are
    told."""
    parent = error["loc"][:-1]
    others = (one for one in found if one is not error)
    is_object = error["type"] in ONE_OF_SOME and isinstance(error.get("input"), Mapping)
    return is_object and any(one["loc"][: len(parent)] == parent for one in others)


def _message(error: Mapping[str, Any]) -> str:
    """The error of a field, in the words of the project's own checks."""
    match error["type"]:
        case "missing":
            return "is required"
        case "model_type" | "model_attributes_type" | "dict_type":
            return "must be an object"
        case "too_short" | "string_too_short" if isinstance(error.get("input"), str):
            return "must not be empty" if error["ctx"]["min_length"] == 1 else error["msg"]
        case "too_long" | "string_too_long" if isinstance(error.get("input"), str):
            return f"must have at most {error['ctx']['max_length']} characters"
    return re.sub(r"^(Input|String|Value) should ", "must ", error["msg"])


def _unknown_field(request: Request, path: Sequence[str | int]) -> str:
    """The error of a field that is none, with the name that was probably meant, or else those that there are."""
    body = request.scope["route"].body_field
    *parents, name = path
    known = [] if body is None else fields_at(body.field_info.annotation, parents)
    hint = did_you_mean(name, known) or (f" (known: {', '.join(known)})" if known else "")
    return f"there is no such field{hint}"


def _malformed(request: Request, message: str) -> Response:
    return _invalid(request, [FieldError(field="body", message=message)])


def _invalid(
    request: Request,
    errors: Sequence[FieldError],
    status: HTTPStatus = HTTPStatus.UNPROCESSABLE_ENTITY,
    slug: str = "invalid-input",
    title: str = NOT_VALID,
) -> Response:
    detail = ", ".join(f"{error.field}: {error.message}" for error in errors[:3])
    if len(errors) > 3:
        detail += f", and {len(errors) - 3} more"
    return problem_response(status, slug, title, detail, instance=request.url.path, errors=errors[:MAX_ERRORS])


def _position(document: str, position: int, message: str) -> str:
    """The place where malformed JSON goes wrong, for a person."""
    before = document[:position]
    line, column = before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1
    return f"is not JSON (line {line}, column {column}): {message}"


async def http_error(request: Request, error: Exception) -> Response:
    """The problem of an `HTTPException`, which FastAPI and Starlette raise, too."""
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.BAD_REQUEST and error.__cause__ is not None:
        # FastAPI could not decode the body, for another reason than its JSON grammar.
        if isinstance(error.__cause__, UnicodeDecodeError):
            return _malformed(request, f"is not UTF-8: {error.__cause__.reason} at byte {error.__cause__.start}")
        if isinstance(error.__cause__, RecursionError):
            return _malformed(request, "is nested too deeply")
        if isinstance(error.__cause__, ValueError):
            return _malformed(request, "holds a number with too many digits")
    if isinstance(error, BodyTooLarge):
        return too_large(error.max_bytes, instance=request.url.path)
    if isinstance(error, BodyTooSlow):
        return too_slow(error.max_seconds, instance=request.url.path)
    phrase = HTTPStatus(error.status_code).phrase
    detail = str(error.detail)
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = f"no route {request.url.path!r}; /docs lists them"
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = ", ".join(_methods_at(request))
        detail = f"{request.method} is not allowed on {request.url.path!r}, but {allowed}"
        return problem_response(
            error.status_code, None, phrase, detail, instance=request.url.path, headers={"Allow": allowed}
        )
    return problem_response(error.status_code, None, phrase, detail, instance=request.url.path, headers=error.headers)


def _methods_at(request: Request) -> list[str]:
    """The methods of all routes at a request's path, of which Starlette tells only those of the first."""
    found = {
        method
        for method in METHODS
        for route in request.app.routes
        if route.matches({**request.scope, "method": method})[0] is Match.FULL
    }
    # Within what is mounted, which serves files, no route matches.
    return sorted(found | {"HEAD"}) if "GET" in found else sorted(found) or ["GET", "HEAD"]


async def _busy(request: Request, error: Exception) -> Response:
    logger.warning("%s %s: %s", request.method, request.url.path, error)
    detail = str(error) if isinstance(error, ServiceBusy) else "others keep the database busy"
    return busy(detail, instance=request.url.path)


async def _out_of_reach(request: Request, error: Exception) -> Response:
    logger.warning("%s %s: %s", request.method, request.url.path, error)
    return unavailable(str(error), instance=request.url.path)


async def _database_error(request: Request, error: Exception) -> Response:
    if is_busy(error):
        return await _busy(request, error)
    if not is_unavailable(error):
        return await _unexpected(request, error)
    logger.error("the database is unavailable: %s", error)
    return unavailable("the database is unavailable", instance=request.url.path)


def busy(detail: str, *, instance: str) -> JSONResponse:
    """503: others have all that there is."""
    return _later("busy", "The service is busy", detail, instance=instance)


def unavailable(detail: str, *, instance: str, errors: Sequence[FieldError] = ()) -> JSONResponse:
    """503: what the service needs is out of reach."""
    return _later("unavailable", "The service cannot answer now", detail, instance=instance, errors=errors)


def _later(slug: str, title: str, detail: str, *, instance: str, errors: Sequence[FieldError] = ()) -> JSONResponse:
    """503: the same request may do later."""
    return problem_response(
        HTTPStatus.SERVICE_UNAVAILABLE,
        slug,
        title,
        detail,
        instance=instance,
        errors=errors,
        headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
    )


class BodyTooLarge(HTTPException):
    """The body turned out larger than allowed while it was read."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        self.max_bytes = max_bytes


class BodyTooSlow(HTTPException):
    """The body did not come in time."""

    def __init__(self, max_seconds: float) -> None:
        super().__init__(HTTPStatus.REQUEST_TIMEOUT)
        self.max_seconds = max_seconds


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


def malformed_http() -> JSONResponse:
    """400: what came is not HTTP, so that no address can be told."""
    return problem_response(
        HTTPStatus.BAD_REQUEST, None, HTTPStatus.BAD_REQUEST.phrase, "the request is not HTTP", instance="/"
    )


def too_large(max_bytes: int, *, instance: str) -> JSONResponse:
    """413: the request's body is larger than allowed."""
    message = f"must not be larger than {max_bytes} bytes"
    return problem_response(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "body-too-large",
        "The request is too large",
        f"body: {message}",
        instance=instance,
        errors=[FieldError(field="body", message=message)],
        headers={"Connection": "close"},  # the rest of the body stays unread
    )


async def _unexpected(request: Request, error: Exception) -> Response:
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem_response(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "internal-error",
        "The service failed",
        "an unexpected error; the service's log has the details",
        instance=request.url.path,
        # Starlette sends this answer itself, past the middleware that names all others.
        headers={HEADER: request_id_of(request.scope)},
    )
