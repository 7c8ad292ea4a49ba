"""A trial that a client trains, as both clients have it: what it was told, and the requests about it."""

from __future__ import annotations

import logging
import math
import operator
import os
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any, SupportsIndex

import httpx

from service.api.schemas.external import DecisionRead, SuggestionRead
from service.client.calls import IDEMPOTENCY_KEY, Call, reading
from service.client.errors import ApiError, ServiceUnreachable
from service.specification.external.messages import MAX_DETAIL_LENGTH, ExternalDecision, SuggestedTrial
from trainers.stored_config import StoredConfig

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 2.0
"""Time between two questions that had no answer."""
GIVE_UP_SECONDS = 600.0
"""Time without an answer after which to give up, by judgement: a service that is replaced by a newer one is back
before."""


class Suggested:
    """A trial that this process has to train."""

    def __init__(self, job_id: str, suggested: SuggestedTrial) -> None:
        self.suggested = suggested
        self.decision = ExternalDecision.CONTINUE
        """As the service said last, or when the trial ended. `CONTINUE` at its end: the service has stored what was
        told, and not decided yet."""
        self.why: str | None = None
        """The reason why it is paused or stopped, for a person."""
        self._path = f"/v1/jobs/{job_id}/trials/{suggested.number}"
        self._has_ended = False
        self._is_left = False
        self._lock = threading.Lock()  # a thread may keep the trial while another one reports

    @property
    def number(self) -> int:
        """Within the job."""
        return self.suggested.number

    @property
    def config(self) -> dict[str, Any]:
        """All of it: optimizer with its arguments, schedule, workload options, `num_steps`, `seed`, ..."""
        return self.suggested.config

    @property
    def parameters(self) -> dict[str, Any]:
        """Values by parameter of the search space."""
        return self.suggested.parameters

    @property
    def begins_at_step(self) -> int:
        """Go on from a checkpoint up to this step if there is one, and else from the beginning. 0: it is new."""
        return self.suggested.begins_at_step

    @property
    def num_steps(self) -> int:
        """The steps of the whole trial."""
        return StoredConfig.of(self.config).num_steps

    @property
    def has_ended(self) -> bool:
        """True if it does not go on here."""
        return self._has_ended

    def _measured(
        self, step: SupportsIndex, metrics: Mapping[str, float], *, epoch: float, seconds: float | None
    ) -> Call[DecisionRead]:
        values = {name: float(value) if math.isfinite(value) else None for name, value in metrics.items()}
        measured = {
            "step": operator.index(step),
            "metrics": values,
            "epoch": float(epoch),
            "seconds": None if seconds is None else float(seconds),
        }
        return self._telling("reports", {"measurements": [measured]})

    def _kept(self) -> Call[DecisionRead]:
        return self._telling("reports", {})

    def _ended(self, outcome: str, *, reason: str | None = None, detail: str | None = None) -> Call[DecisionRead]:
        body = {"outcome": outcome, "detail": None if detail is None else detail[:MAX_DETAIL_LENGTH]}
        return self._telling("end", body if reason is None else {**body, "reason": reason})

    def _asked(self) -> Call[DecisionRead]:
        return Call(reading(DecisionRead), "GET", f"{self._path}/decision", params={"lease": self.suggested.lease})

    def _telling(self, what: str, body: Mapping[str, Any]) -> Call[DecisionRead]:
        sent = {"lease": self.suggested.lease, **body}
        return Call(reading(DecisionRead), "POST", f"{self._path}/{what}", body=sent, headers=_own_key())

    def _take(self, answer: DecisionRead, *, is_end: bool = False) -> bool:
        """Notes what the service decided on what it was told; True if the trial goes on.

        Args:
            is_end: whether it was told all that there is to tell, whatever it decides.
        """
        is_end = is_end or answer.decision is not ExternalDecision.CONTINUE
        with self._lock:
            self._is_left |= is_end
            self._note(answer, is_end=is_end)
        return not self._has_ended

    def _hear(self, answer: DecisionRead) -> bool:
        """Notes what the service decided and was only asked for: it counts the trial as this client's until it is told
        that the client has left."""
        with self._lock:
            self._note(answer, is_end=answer.decision is not ExternalDecision.CONTINUE)
        return not self._has_ended

    def _note(self, answer: DecisionRead, *, is_end: bool) -> None:
        if not self._has_ended:  # what another thread is told afterwards says only that it has
            self.decision, self.why = answer.decision, answer.why
            self._has_ended = is_end

    def _is_last(self, step: SupportsIndex) -> bool:
        """True if nothing is left to tell of the trial after a report of this step."""
        return operator.index(step) >= self.num_steps


def suggestion(job_id: str, name: str | None) -> Call[SuggestionRead]:
    """The question for the next trial, which may be asked again and again: it hands out one."""
    path = f"/v1/jobs/{job_id}/suggestions"
    return Call(reading(SuggestionRead), "POST", path, body={"client": name or own_name()}, headers=_own_key())


def own_name() -> str:
    """The name of this process, for people: `node17/4711_3` in a SLURM array, else machine and process."""
    host, job, task = socket.gethostname(), os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    own = os.environ.get("SLURM_JOB_ID") if job is None else f"{job}_{task}"
    return f"{host}/{own or os.getpid()}"


class Patience:
    """The time for which a question is asked again while the service is away or busy."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._told = ""

    def begin_anew(self) -> None:
        """Notes that the service has answered."""
        self._deadline = time.monotonic() + self._seconds
        self._told = ""

    def bear(self, error: ServiceUnreachable | ApiError) -> None:
        """Raises what asking again does not mend, or not in time."""
        is_busy = isinstance(error, ApiError) and error.status in (
            httpx.codes.TOO_MANY_REQUESTS,
            httpx.codes.SERVICE_UNAVAILABLE,
        )
        if (isinstance(error, ApiError) and not is_busy) or time.monotonic() > self._deadline:
            raise error
        if str(error) != self._told:  # once for each reason, not with each question
            logger.warning("the service is away or busy, asking again: %s", error)
            self._told = str(error)


def _own_key() -> dict[str, str]:
    return {IDEMPOTENCY_KEY: secrets.token_hex(16)}
