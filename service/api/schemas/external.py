"""Bodies about trials that others train, with an example of each."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from service.api import examples
from service.api.request_body import RequestModel
from service.api.schemas.common import ReadModel
from service.domain import JobState
from service.specification.external.messages import End, ExternalDecision, Report, RunAnswer, Suggest, SuggestedTrial


class SuggestionCreate(RequestModel, Suggest):
    """A client's request for a trial."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.SUGGESTION_CREATE]})


class ReportCreate(RequestModel, Report):
    """The measurements of a trial since its client's last report; empty: the client is still there."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.REPORT_CREATE]})


class EndCreate(RequestModel, End):
    """The end of a trial's stay with a client."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.END_CREATE]})


class SuggestionRead(ReadModel):
    """A trial for a client, or why there is none."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.SUGGESTION]})

    status: Literal["trial", "waiting", "done"]
    """`waiting`: there is none yet, because the job is not running, or the search waits for others to report; ask again
    with the same `Idempotency-Key`. `done`: there will be no more."""
    trial: SuggestedTrial | None = None
    """The trial to train, with the status `trial`; else null."""
    job_state: JobState
    """The present state of the job; in a final one no more trials are handed out."""
    key: str
    """The request's `Idempotency-Key`, or a new one if it had none."""


class DecisionRead(ReadModel):
    """The answer to a trial that asks whether it goes on."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.DECISION]})

    decision: ExternalDecision
    """`continue`; `pause`: save a checkpoint and end, the trial may come back from a later suggestion; `stop`: end."""
    status: Literal["answered", "kept"] = "answered"
    """`kept`: the report is stored, and the job's run processes it later; continue, and ask again."""
    recorded_up_to_step: int | None = None
    """The last measurement of the report that counts; those after a pause do not. Null: none, or not known yet."""
    why: str | None = Field(default=None)
    """The reason why it is paused or stopped, for a person."""

    @staticmethod
    def of(answer: RunAnswer | None) -> DecisionRead:
        """None: the run has not answered."""
        if answer is None:
            return DecisionRead(decision=ExternalDecision.CONTINUE, status="kept")
        return DecisionRead(decision=answer.decision, recorded_up_to_step=answer.recorded_up_to_step, why=answer.why)
