"""Errors as `application/problem+json` (RFC 9457): which situation gives which status, and which field is at fault.
Never the check that finds one."""

from __future__ import annotations

from service.api.problems.documents import (
    MEDIA_TYPE,
    RETRY_AFTER,
    busy,
    documented,
    headers_too_slow,
    malformed_http,
    problem_response,
    too_large,
    unavailable,
)
from service.api.problems.handlers import BodyTooLarge, BodyTooSlow, answer_to, http_error, install
from service.api.problems.invalid_requests import InvalidClone
from service.api.problems.situations import problem_of

__all__ = [
    "MEDIA_TYPE",
    "RETRY_AFTER",
    "BodyTooLarge",
    "BodyTooSlow",
    "InvalidClone",
    "answer_to",
    "busy",
    "documented",
    "headers_too_slow",
    "http_error",
    "install",
    "malformed_http",
    "problem_of",
    "problem_response",
    "too_large",
    "unavailable",
]
