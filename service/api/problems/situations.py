"""The errors of use cases as answers: the status of each, and what it says of fields."""

from __future__ import annotations

import json
from http import HTTPStatus

from fastapi import Request
from fastapi.responses import JSONResponse

from service.api.problems.documents import NOT_VALID, invalid, problem, problem_response
from service.api.request_body import field_as_sent, spot_of
from service.api.schemas.common import FieldError, Problem
from service.errors import (
    BudgetSpent,
    CodeForbidden,
    Conflict,
    ForkNotRetriable,
    IdempotencyKeyReused,
    InvalidInput,
    JobAlreadyFinished,
    JobNotFinished,
    JobNotFound,
    NotFound,
    PreconditionFailed,
    QuotaExceeded,
    ScopeMissing,
    ServiceError,
    TrialAlreadyFinished,
    TrialNotComplete,
    TrialNotFound,
    TrialNotRetriable,
    TrialsTrainedHere,
    UnknownName,
    UnknownParameter,
)
from service.faults import all_of

# The first class that matches counts.
_SITUATIONS: tuple[tuple[type[ServiceError], HTTPStatus, str, str], ...] = (
    (CodeForbidden, HTTPStatus.FORBIDDEN, "code-forbidden", "The request may not name code"),
    (InvalidInput, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-input", NOT_VALID),
    (JobNotFound, HTTPStatus.NOT_FOUND, "job-not-found", "There is no such job"),
    (TrialNotFound, HTTPStatus.NOT_FOUND, "trial-not-found", "The job has no such trial"),
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


def problem_of(error: ServiceError, *, instance: str) -> Problem | None:
    """The problem that answers an error of a use case; None: it has none of its own, as where the service is busy."""
    situation = _situation_of(error)
    if situation is None:
        return None
    status, slug, title = situation
    return problem(status, slug, title, str(error), instance=instance, errors=_errors_of(error))


async def response_to(request: Request, error: ServiceError) -> JSONResponse | None:
    """The problem as a response, with the values that the request's body has in the fields at fault."""
    situation = _situation_of(error)
    if situation is None:
        return None
    status, slug, title = situation
    instance = request.url.path
    if isinstance(error, InvalidInput):
        errors = invalid_fields(error, await _body_of(request))
        return invalid(errors, instance=instance, status=status, slug=slug, title=title)
    return problem_response(status, slug, title, str(error), instance=instance, errors=_errors_of(error))


def _situation_of(error: ServiceError) -> tuple[HTTPStatus, str, str] | None:
    """Status, slug and title."""
    for kind, status, slug, title in _SITUATIONS:
        if isinstance(error, kind):
            return status, slug, title
    return None


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
        message = f"project {error.project!r} has used {error.used:g} of {error.limit:g}; {error.way_out}"
        return [FieldError(field=error.quota, message=message, value=error.limit)]
    if isinstance(error, UnknownName):
        return [FieldError(field=error.field, message=error.message, value=error.name)]
    if isinstance(error, InvalidInput):
        return invalid_fields(error, None)
    return []


def invalid_fields(error: InvalidInput, body: object) -> list[FieldError]:
    """The errors of all fields that an error names; `body` None: of no body."""
    found = []
    for one in all_of(error):
        field = field_as_sent(one.field, body)
        is_in_body = body is not None and not isinstance(one, UnknownParameter)
        spot = spot_of(body, field) if is_in_body else None
        found.append(
            FieldError(
                field=field,
                pointer=None if spot is None else spot.pointer,
                message=one.message,
                value=None if spot is None else spot.value,
            )
        )
    return found
