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

import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self, SupportsIndex

from service.api.schemas.external import DecisionRead
from service.client.calls import Call
from service.client.client import Client
from service.client.errors import ApiError, ServiceUnreachable
from service.client.training.suggested import GIVE_UP_SECONDS, PAUSE_SECONDS, Patience, Suggested, suggestion
from service.specification.external.messages import SuggestedTrial


class ExternalTrial(Suggested):
    """A trial that this process has to train."""

    def __init__(self, client: Client, job_id: str, suggested: SuggestedTrial, *, give_up_seconds: float) -> None:
        super().__init__(job_id, suggested)
        self._client = client
        self._give_up_seconds = give_up_seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Ends a trial that has not ended: an error fails it, and else it is released, as after Ctrl-C, or when the
        service was asked (`should_stop`) and only then said that it does not go on."""
        if self._is_left:
            return
        if isinstance(error, Exception) and not self._has_ended:
            self.fail("error", f"{type(error).__name__}: {error}")
        else:
            self.release(None if error is None else type(error).__name__)

    def report(
        self, step: SupportsIndex, metrics: Mapping[str, float], *, epoch: float = 0.0, seconds: float | None = None
    ) -> bool:
        """Reports what was measured after a step; True if the trial goes on.

        Through an outage of the service it tries again; what was taken in counts once. After the last step it waits
        until the service has decided, as long as it would through an outage: there is nothing else to do for the trial.

        Args:
            step: an integer of any kind.
            metrics: by name, the job's objective among them; what is not finite is told as such.
            epoch: passes over the training data so far.
            seconds: training time so far; None: as long as the trial has been with its clients.

        Raises:
            ApiError: the service refused it; the problem names the field.
            ServiceUnreachable: it was away for too long.
        """
        report = self._measured(step, metrics, epoch=epoch, seconds=seconds)
        if self._is_last(step):
            return self._take(self._decided(report), is_end=True)
        return self._take(self._tell(report))

    def keep(self) -> bool:
        """Says that this process is still there, before a stretch without measurements; True if the trial goes on.

        Raises:
            ApiError, ServiceUnreachable: as `report`.
        """
        return self._take(self._tell(self._kept()))

    def should_stop(self) -> bool:
        """True if the trial does not go on; asks the service, and tells it nothing: the end of `with` gives it back.

        Raises:
            ApiError, ServiceUnreachable: as `report`.
        """
        return not self._hear(self._client.call(self._asked()))

    def complete(self) -> None:
        """Says that it was trained to its last step, whose measurement was reported.

        Raises:
            ApiError: 409: that measurement is missing.
            ServiceUnreachable: as `report`.
        """
        self._take(self._tell(self._ended("completed")), is_end=True)

    def fail(self, reason: str, detail: str | None = None) -> None:
        """Ends a trial that failed: `diverged`, `out_of_memory`, `infeasible`, `error` or `lost`.

        Raises:
            ApiError, ServiceUnreachable: as `report`.
        """
        self._take(self._tell(self._ended("failed", reason=reason, detail=detail)), is_end=True)

    def release(self, detail: str | None = None) -> None:
        """Gives the trial back, e.g. at the time limit of a SLURM job: another client may go on with it.

        Raises:
            ApiError, ServiceUnreachable: as `report`.
        """
        self._take(self._tell(self._ended("released", detail=detail)), is_end=True)

    def _decided(self, report: Call[DecisionRead]) -> DecisionRead:
        """The decision on a report, which is sent again while it is stored only; not decided after so long, it stays
        stored, and the job's run takes it in some time."""
        deadline = time.monotonic() + self._give_up_seconds
        while True:
            answer = self._tell(report)
            if answer.status == "answered" or time.monotonic() > deadline:
                return answer
            time.sleep(PAUSE_SECONDS)

    def _tell(self, call: Call[DecisionRead]) -> DecisionRead:
        patience = Patience(self._give_up_seconds)
        while True:
            try:
                return self._client.call(call)
            except (ServiceUnreachable, ApiError) as error:
                patience.bear(error)
                time.sleep(PAUSE_SECONDS)


def suggest(
    client: Client, job_id: str, *, name: str | None = None, give_up_seconds: float = GIVE_UP_SECONDS
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
    question, patience = suggestion(job_id, name), Patience(give_up_seconds)
    while True:
        try:
            answer = client.call(question)
        except (ServiceUnreachable, ApiError) as error:
            patience.bear(error)
        else:
            patience.begin_anew()
            if answer.status == "done":
                return None
            if answer.trial is not None:
                return ExternalTrial(client, job_id, answer.trial, give_up_seconds=give_up_seconds)
        time.sleep(PAUSE_SECONDS)


def external_trials(
    client: Client, job_id: str, *, name: str | None = None, give_up_seconds: float = GIVE_UP_SECONDS
) -> Iterator[ExternalTrial]:
    """Trials to train, one after the other, until there are none any more; as `suggest`."""
    while (trial := suggest(client, job_id, name=name, give_up_seconds=give_up_seconds)) is not None:
        yield trial
