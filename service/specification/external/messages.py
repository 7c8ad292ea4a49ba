"""The messages between the clients that train a job's trials and the job's run, which answers them."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, JsonValue, model_validator

from service.described_model import MaxEntries, StrictModel
from service.domain import Phase
from service.shown_text import SEEN
from service.specification.external.trials import MAX_METRICS, MetricName
from trainers.config import MAX_COUNT, Measurement

MAX_MEASUREMENTS = 1000
"""Limit of one report."""
MAX_DETAIL_LENGTH = 2000
"""Characters of the reason for which a trial failed: enough for the message of an error. The whole trace of one that a
job's run trains is in its log."""


class RequestKind(StrEnum):
    """The requests that a job's run answers."""

    SUGGEST = "suggest"
    REPORT = "report"
    END = "end"


class ExternalDecision(StrEnum):
    """The fate of a trial, as its client is told."""

    CONTINUE = "continue"
    PAUSE = "pause"
    """Save a checkpoint and end: the trial may come back from a later suggestion, to go on from there."""
    STOP = "stop"
    """End: the trial is over, or is no longer this client's."""


class Suggest(StrictModel):
    """A client's request for a trial."""

    client: Annotated[str, SEEN] | None = Field(default=None, max_length=200, examples=["node17/4711_3"])
    """The name of the client that asks, for people: a host, or the task of a SLURM array."""


class ExternalMeasurement(StrictModel):
    """The metrics of a trial after a step."""

    step: int = Field(ge=1, le=MAX_COUNT)
    """Steps trained so far, of the config's `num_steps`."""
    metrics: Annotated[dict[MetricName, float | None], Field(min_length=1), MaxEntries(MAX_METRICS)]
    """The metrics by name, the objectives among them; null: not finite. A trial with an objective that is not fails as
    `diverged`, in that very step."""
    epoch: float = Field(default=0.0, ge=0)
    """Passes over the training data so far."""
    seconds: float | None = Field(default=None, ge=0)
    """Training time so far, that of earlier clients of the trial included: no more than has passed since the trial was
    first handed out, and a minute for clocks that differ. Null: as long as the trial has been with its clients."""

    def to_measurement(self, *, seconds: float) -> Measurement:
        """The measurement as runs record it; `seconds`: where the client gives none."""
        metrics = {name: math.nan if value is None else value for name, value in self.metrics.items()}
        return Measurement(self.step, self.epoch, seconds if self.seconds is None else self.seconds, metrics)


LeaseName = Annotated[str, Field(min_length=1, max_length=40, examples=["lease_01KAJ5M0T3XQ8Z7V6R5N4M3K2J"])]


class Report(StrictModel):
    """The measurements of a trial since its client's last report; empty: the client is still there."""

    lease: LeaseName
    """The lease that the suggestion gave: it says that the trial is still this client's."""
    measurements: list[ExternalMeasurement] = Field(default_factory=list, max_length=MAX_MEASUREMENTS, fail_fast=True)
    """The measurements in the order of their steps."""

    @model_validator(mode="after")
    def _check_order(self) -> Report:
        steps = [measurement.step for measurement in self.measurements]
        if steps != sorted(set(steps)):
            raise ValueError(f"measurements must be in the order of their steps, each once, got the steps {steps[:20]}")
        return self


class End(Report):
    """The end of a trial's stay with a client."""

    outcome: Literal["completed", "failed", "released"] = "completed"
    """`completed`: it was trained to its last step, which has been measured; `failed`: see `reason`; `released`: the
    client must end, as at the time limit of its SLURM job, and another one may go on with the trial."""
    reason: Literal["diverged", "out_of_memory", "infeasible", "error", "lost"] | None = None
    """The reason of a failure. The search learns from `diverged`, `out_of_memory` and `infeasible` where not to go;
    `error` in three trials alike ends the job; `lost` has another client go on with it."""
    detail: str | None = Field(default=None, max_length=MAX_DETAIL_LENGTH)
    """An explanation for a person."""

    @model_validator(mode="after")
    def _check_reason(self) -> End:
        if (self.outcome == "failed") != (self.reason is not None):
            raise ValueError(f"reason must be given with outcome 'failed', and only then, got {self.reason}")
        return self


class SuggestedTrial(StrictModel):
    """A trial to train, which is this client's until its lease ends."""

    number: int
    """The number of the trial within the job."""
    lease: str
    """The lease, to be sent with every report."""
    lease_seconds: float
    """The lease ends so long after the last report."""
    phase: Annotated[Phase, Field(strict=False)]
    """The part of the job that it belongs to."""
    parameters: dict[str, JsonValue]
    """Values by parameter of its search space."""
    config: dict[str, JsonValue]
    """All of it: optimizer with its arguments, schedule, workload options, `num_steps`, `batch_size`, `seed`, ..."""
    begins_at_step: int
    """The last step that was measured: continue from a checkpoint of the trial up to there, or else start again. 0: it
    is new."""
    pauses_at_step: int | None
    """The step at which the search is likely to pause it, for a checkpoint; null: none."""


class RunAnswer(StrictModel):
    """A run's answer to a request."""

    decision: Annotated[ExternalDecision, Field(strict=False)] = ExternalDecision.CONTINUE
    trial: SuggestedTrial | None = None
    """The answer to a suggestion."""
    recorded_up_to_step: int | None = None
    """The last measurement that was taken; null: none was."""
    why: str | None = None
    """The reason why the trial is paused or stopped, for a person."""
    conflict: bool = False
    """True if the request contradicts the state of its trial, as `why` says."""
