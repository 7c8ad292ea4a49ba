"""Attempts at a request: when it is sent again, and which error it ends with. Decisions alone, for both clients."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import httpx
from pydantic import ValidationError

from service.api.schemas.common import NOT_DONE_YET, TYPE_PREFIX, Problem
from service.client.calls import Call
from service.client.errors import AnotherProgram, ApiError, ServiceBusy, ServiceUnreachable
from service.errors import ServiceError

FIRST_PAUSE_SECONDS = 0.25
"""Doubled with each attempt, by judgement."""
LONGEST_PAUSE_SECONDS = 5.0
"""Longest pause, up to which it is doubled: by judgement, about as long as a busy service asks to wait."""


class Attempts:
    """The attempts at one request.

    A connection that could not be made is tried again for every request, as nothing was sent; 429 too, as nothing was
    done. A connection that broke, a time-out and 503 are for those alone that may be repeated. While the service says
    that it is still at it, as with a workload that takes long to import, it is asked again without an end: it bounds
    that itself.
    """

    def __init__(
        self,
        call: Call[Any],
        base_url: str,
        *,
        give_up_seconds: float,
        timeout_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._call = call
        self._base_url = base_url
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._give_up_seconds = give_up_seconds
        self._deadline = clock() + give_up_seconds
        self._pause = FIRST_PAUSE_SECONDS

    def after_error(self, error: httpx.TransportError) -> float:
        """Seconds to wait before it is sent again.

        Raises:
            ServiceUnreachable: it is not sent again.
        """
        was_not_sent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
        pause = (
            self._next_pause() if (was_not_sent and self._call.repeatable is not False) or self._may_repeat else None
        )
        if pause is None:
            raise failure(error, self._base_url, timeout_seconds=self._timeout_seconds) from error
        return pause

    def after_answer(self, response: httpx.Response) -> float | None:
        """Seconds to wait before it is sent again; None: it succeeded.

        Raises:
            ApiError, ServiceUnreachable: it is not sent again.
        """
        if response.is_success:
            return None
        told, error = _retry_after(response), refusal(response, self._base_url)
        if told is not None and isinstance(error, ApiError) and error.problem.type == f"{TYPE_PREFIX}{NOT_DONE_YET}":
            self._deadline = self._clock() + told + self._give_up_seconds
            return told
        is_limited = response.status_code == httpx.codes.TOO_MANY_REQUESTS
        is_away = response.status_code == httpx.codes.SERVICE_UNAVAILABLE and self._may_repeat
        if (is_limited or is_away) and told is not None:
            pause = self._next_pause(at_least=told)
            if pause is not None:
                return pause
        raise error

    @property
    def _may_repeat(self) -> bool:
        return self._call.may_be_repeated

    def _next_pause(self, *, at_least: float = 0.0) -> float | None:
        """None: it would be too late. Each of many waiting clients waits for a time of its own."""
        pause = at_least + self._pause * random.uniform(0.5, 1.0)
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        return None if self._clock() + pause > self._deadline else pause


def read_answer(call: Call[Any], response: httpx.Response, base_url: str) -> Any:
    """Reads the content of a successful answer.

    Raises:
        AnotherProgram: it is not one of the service.
    """
    try:
        return call.read(response.content)
    except ValidationError as error:
        raise AnotherProgram(base_url, error.errors()[0]["msg"]) from error


def failure(error: httpx.TransportError, base_url: str, *, timeout_seconds: float) -> ServiceUnreachable:
    """The error for a request without an answer."""
    if isinstance(error, httpx.ReadTimeout):
        return ServiceBusy(base_url, timeout_seconds)
    return ServiceUnreachable(base_url, error)


def refusal(response: httpx.Response, base_url: str) -> ServiceError:
    """The error for an answer that is no success, whose body was read."""
    try:
        return ApiError(Problem.model_validate_json(response.content))
    except ValidationError:
        return AnotherProgram(base_url, f"status {response.status_code} without a problem document")


def _retry_after(response: httpx.Response) -> float | None:
    """The seconds of `Retry-After`; None: it has none."""
    told = response.headers.get("Retry-After", "")
    return float(told) if told.isascii() and told.isdigit() else None
