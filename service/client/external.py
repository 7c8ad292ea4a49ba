"""The client's side of trials that others train: a loop of one's own gets configs, and reports what it measures.

with Client() as client:
    for trial in external_trials(client, job):
        with trial:
            model, optimizer = build(trial.config)
            for step in range(trial.begins_at_step + 1, trial.num_steps + 1):
                loss = train_step(model, optimizer)
                if step % 100 == 0 and not trial.report(step, {"validation_loss": validate(model)}):
                    break
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from service.api.schemas.external import DecisionRead, SuggestionRead
from service.client.client import Client
from service.client.errors import ApiError, ServiceUnreachable
from service.specification.external.messages import ExternalDecision, SuggestedTrial

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 2.0
"""Between two questions that had no answer."""


class ExternalTrial:
    """A trial that this process has to train."""

    def __init__(self, client: Client, job_id: str, suggested: SuggestedTrial, *, give_up_seconds: float) -> None:
        self._client = client
        self._job_id = job_id
        self._give_up_seconds = give_up_seconds
        self.suggested = suggested
        self.decision = ExternalDecision.CONTINUE
        """As the service said last."""
        self._has_ended = False
        self.why: str | None = None
        """Why it is paused or stopped, for a person."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Ends a trial that has not ended: an error fails it, and else it is released, as after Ctrl-C."""
        if self._has_ended:
            return
        if isinstance(error, Exception):
            self.fail("error", f"{type(error).__name__}: {error}")
        else:
            self.release(None if error is None else type(error).__name__)

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
        """Of the whole trial."""
        return int(self.config["num_steps"])

    def report(
        self, step: int, metrics: Mapping[str, float], *, epoch: float = 0.0, seconds: float | None = None
    ) -> bool:
        """Reports what was measured after a step; True if the trial goes on.

        Through an outage of the service it tries again; what was taken in counts once.

        Args:
            metrics: by name, the job's objective among them; what is not finite is told as such.
            epoch: passes over the training data so far.
            seconds: training time so far; None: as long as the trial has been with its clients.

        Raises:
            ApiError: the service refused it; the problem names the field.
            ServiceUnreachable: it was away for too long.
        """
        values = {name: float(value) if math.isfinite(value) else None for name, value in metrics.items()}
        measured = {"step": step, "metrics": values, "epoch": epoch, "seconds": seconds}
        return self._tell("reports", {"measurements": [measured]})

    def keep(self) -> bool:
        """Says that this process is still there, before a stretch without measurements; True if the trial goes on.

        Raises:
            ApiError, ServiceUnreachable: as `report`.
        """
        return self._tell("reports", {})

    def should_stop(self) -> bool:
        """True if the trial does not go on; asks the service, and tells it nothing.

        Raises:
            ApiError, ServiceUnreachable: as `report`.
        """
        path = f"/v1/jobs/{self._job_id}/trials/{self.number}/decision"
        self._take(self._client.read(DecisionRead, "GET", path, params={"lease": self.suggested.lease}))
        return self._has_ended

    def complete(self) -> None:
        """Says that it was trained to its last step, whose measurement was reported.

        Raises:
            ApiError: 409: that measurement is missing.
            ServiceUnreachable: as `report`.
        """
        self._tell("end", {"outcome": "completed"})

    def fail(self, reason: str, detail: str | None = None) -> None:
        """Ends a trial that failed: `diverged`, `out_of_memory`, `infeasible`, `error` or `lost`.

        Raises:
            ApiError, ServiceUnreachable: as `report`.
        """
        self._tell("end", {"outcome": "failed", "reason": reason, "detail": None if detail is None else detail[:2000]})

    def release(self, detail: str | None = None) -> None:
        """Gives the trial back, e.g. at the time limit of a SLURM job: another client may go on with it.

        Raises:
            ApiError, ServiceUnreachable: as `report`.
        """
        self._tell("end", {"outcome": "released", "detail": detail})

    def _tell(self, what: str, body: Mapping[str, Any]) -> bool:
        path = f"/v1/jobs/{self._job_id}/trials/{self.number}/{what}"
        sent = {"lease": self.suggested.lease, **body}
        key, deadline = secrets.token_hex(16), time.monotonic() + self._give_up_seconds
        while True:
            try:
                answer = self._client.read(DecisionRead, "POST", path, body=sent, headers={"Idempotency-Key": key})
            except (ServiceUnreachable, ApiError) as error:
                _raise_unless_later(error, deadline)
                time.sleep(PAUSE_SECONDS)
                continue
            self._take(answer)
            self._has_ended |= what == "end"
            return not self._has_ended

    def _take(self, answer: DecisionRead) -> None:
        self.decision, self.why = answer.decision, answer.why
        self._has_ended |= answer.decision is not ExternalDecision.CONTINUE


def suggest(
    client: Client, job_id: str, *, name: str | None = None, give_up_seconds: float = 600.0
) -> ExternalTrial | None:
    """The trial that the job's search wants tried next; None: there will be none any more.

    It waits for as long as the search waits for others, or the job is paused or in the queue.

    Args:
        name: who asks, for people; None: this machine and process, or the task of a SLURM array.
        give_up_seconds: without the service for so long, its error is raised; for this and for the trial's reports.

    Raises:
        ApiError: 404; 409: the job hands out no trials.
        ServiceUnreachable: the service was away for too long.
    """
    key, wish = secrets.token_hex(16), {"client": name or own_name()}
    deadline = time.monotonic() + give_up_seconds
    while True:
        try:
            path = f"/v1/jobs/{job_id}/suggestions"
            answer = client.read(SuggestionRead, "POST", path, body=wish, headers={"Idempotency-Key": key})
        except (ServiceUnreachable, ApiError) as error:
            _raise_unless_later(error, deadline)
            time.sleep(PAUSE_SECONDS)
            continue
        deadline = time.monotonic() + give_up_seconds
        if answer.status == "done":
            return None
        if answer.trial is not None:
            return ExternalTrial(client, job_id, answer.trial, give_up_seconds=give_up_seconds)
        time.sleep(PAUSE_SECONDS)


def external_trials(
    client: Client, job_id: str, *, name: str | None = None, give_up_seconds: float = 600.0
) -> Iterator[ExternalTrial]:
    """Trials to train, one after the other, until there are none any more; as `suggest`."""
    while (trial := suggest(client, job_id, name=name, give_up_seconds=give_up_seconds)) is not None:
        yield trial


def own_name() -> str:
    """Who this process is, for people: `node17/4711_3` in a SLURM array, else machine and process."""
    host, job, task = socket.gethostname(), os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    own = os.environ.get("SLURM_JOB_ID") if job is None else f"{job}_{task}"
    return f"{host}/{own or os.getpid()}"


def _raise_unless_later(error: ServiceUnreachable | ApiError, deadline: float) -> None:
    """Raises what trying again does not mend, or not in time."""
    is_busy = isinstance(error, ApiError) and error.status in (
        httpx.codes.TOO_MANY_REQUESTS,
        httpx.codes.SERVICE_UNAVAILABLE,
    )
    if (isinstance(error, ApiError) and not is_busy) or time.monotonic() > deadline:
        raise error
    logger.warning("the service is away or busy: %s", error)
