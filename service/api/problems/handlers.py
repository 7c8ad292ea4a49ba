"""The handlers of every error that is raised while a request is answered."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match

from service.api.problems.documents import (
    busy,
    malformed,
    not_done_yet,
    problem_response,
    too_large,
    too_slow,
    unavailable,
)
from service.api.problems.invalid_requests import invalid_request
from service.api.problems.situations import response_to
from service.clock import Clock
from service.errors import CheckpointsOutOfReach, NotDoneYet, ServiceBusy, ServiceError, WorkloadNotDescribed
from service.monitoring.database_version import DatabaseVersion
from service.monitoring.request_ids import HEADER, request_id_of
from service.store.session import DATABASE_ERRORS, is_busy, is_unavailable
from service.store.writes import is_damaged, is_unexplained, why_it_fails

METHODS = ("DELETE", "GET", "PATCH", "POST")
"""Methods of all routes, beside HEAD, which is answered as GET is."""

logger = logging.getLogger(__name__)


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


def install(app: FastAPI) -> None:
    """Registers the handlers of every error on `app`."""
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(ServiceError, _service_error)
    app.add_exception_handler(ServiceBusy, _busy)
    for out_of_reach in (WorkloadNotDescribed, CheckpointsOutOfReach):
        app.add_exception_handler(out_of_reach, _out_of_reach)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(ClientDisconnect, _gone)
    for database_error in DATABASE_ERRORS:
        app.add_exception_handler(database_error, _database_error)
    app.add_exception_handler(Exception, _unexpected)


async def answer_to(request: Request, error: Exception) -> Response:
    """The problem of an error that was raised before any route."""
    if isinstance(error, ServiceBusy):
        return await _busy(request, error)
    return await (_service_error if isinstance(error, ServiceError) else _database_error)(request, error)


async def _invalid_request(request: Request, error: Exception) -> Response:
    """Answers what is raised on the way, too: the request of a handler further out waits for a body that is read."""
    try:
        return await invalid_request(request, error)
    except (ServiceError, *DATABASE_ERRORS) as fault:
        return await answer_to(request, fault)


async def _service_error(request: Request, error: Exception) -> Response:
    response = await response_to(request, error) if isinstance(error, ServiceError) else None
    return await _unexpected(request, error) if response is None else response


async def http_error(request: Request, error: Exception) -> Response:
    """The problem of an `HTTPException`, which FastAPI and Starlette raise, too."""
    assert isinstance(error, HTTPException)
    instance = request.url.path
    if error.status_code == HTTPStatus.BAD_REQUEST and error.__cause__ is not None:
        # FastAPI could not decode the body, for another reason than its JSON grammar.
        if isinstance(error.__cause__, UnicodeDecodeError):
            return malformed(
                f"is not UTF-8: {error.__cause__.reason} at byte {error.__cause__.start}", instance=instance
            )
        if isinstance(error.__cause__, RecursionError):
            return malformed("is nested too deeply", instance=instance)
        if isinstance(error.__cause__, ValueError):
            return malformed("holds a number with too many digits", instance=instance)
    if isinstance(error, BodyTooLarge):
        return too_large(error.max_bytes, instance=instance)
    if isinstance(error, BodyTooSlow):
        return too_slow(error.max_seconds, instance=instance)
    phrase = HTTPStatus(error.status_code).phrase
    detail = str(error.detail)
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = f"no route {instance!r}; /docs lists them"
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = ", ".join(_methods_at(request))
        detail = f"{request.method} is not allowed on {instance!r}, but {allowed}"
        return problem_response(error.status_code, None, phrase, detail, instance=instance, headers={"Allow": allowed})
    return problem_response(error.status_code, None, phrase, detail, instance=instance, headers=error.headers)


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
    if isinstance(error, NotDoneYet):
        return not_done_yet(str(error), instance=request.url.path)
    detail = str(error) if isinstance(error, ServiceBusy) else "others keep the database busy"
    return busy(detail, instance=request.url.path)


async def _gone(request: Request, error: Exception) -> Response:  # noqa: ARG001 # it says no more
    """An answer for what counts answers: whoever ended the connection within a body reads none."""
    return malformed("ends before it is whole", instance=request.url.path)


async def _out_of_reach(request: Request, error: Exception) -> Response:
    logger.warning("%s %s: %s", request.method, request.url.path, error)
    return unavailable(str(error), instance=request.url.path)


async def _database_error(request: Request, error: Exception) -> Response:
    if is_busy(error):
        return await _busy(request, error)
    if not (is_unavailable(error) or is_damaged(error)):
        return await _unexpected(request, error)
    # SQLite says of a column that is not there no more than that something is wrong.
    if is_unexplained(error) and (refusal := await _of_another_version(request, error)) is not None:
        return refusal
    why = why_it_fails(error)
    logger.error("%s: %s", why, error)
    return unavailable(why, instance=request.url.path)


async def _of_another_version(request: Request, error: Exception) -> Response | None:
    """The answer where an error is that the database is of another version; None: it is not."""
    state = request.app.state
    why_not = await cast("DatabaseVersion", state.database_version).why_not_any_more(cast("Clock", state.clock)())
    if why_not is None:
        return None
    logger.error("%s %s failed, as %s: %s", request.method, request.url.path, why_not, error)
    return unavailable(why_not, instance=request.url.path)


async def _unexpected(request: Request, error: Exception) -> Response:
    if (refusal := await _of_another_version(request, error)) is not None:
        return refusal
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
