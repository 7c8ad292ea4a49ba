"""Bodies about many jobs at once, and about a job that another one is made from."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, JsonValue, RootModel, StringConstraints, model_validator

from service.api import examples
from service.api.request_body import RequestModel, check_storable
from service.api.schemas.common import Problem, ReadModel
from service.domain import JobState

MAX_JOBS_AT_ONCE = 100
"""Most jobs in one request, by judgement: all of them are changed in it, job by job."""


class JobIds(RequestModel):
    """The jobs to act on."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.JOB_IDS]})

    job_ids: list[Annotated[str, StringConstraints(min_length=1, max_length=40)]] = Field(
        min_length=1, max_length=MAX_JOBS_AT_ONCE
    )
    """The ids of the jobs. A repeated id counts once."""


class JobOutcome(ReadModel):
    """The outcome for one job."""

    job_id: str
    """The id that was given."""
    state: JobState | None = None
    """The job's state now; null: it was refused."""
    problem: Problem | None = None
    """The reason why it was refused, as the request for this job alone would be; null: it was not."""


class JobOutcomes(ReadModel):
    """The outcome for each job, in the order in which they were given."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.JOB_OUTCOMES]})

    items: list[JobOutcome]
    """One of each job."""


class JobPatch(RootModel[dict[str, JsonValue]]):
    """The fields of a submission that differ in the clone, as a merge patch: objects are merged, other values replace
    those of the job. Null resets a field to its default, or is the value where null has a meaning of its own."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.JOB_PATCH]})

    @model_validator(mode="before")
    @classmethod
    def _check_storable(cls, value: Any) -> Any:
        check_storable(value)
        return value
