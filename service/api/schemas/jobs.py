"""Bodies about jobs and trials: those that are read and written, with an example of each. No SQL, no
web framework."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar

from pydantic import ConfigDict, Field, JsonValue, StringConstraints, model_validator

from service.api import examples
from service.api.request_body import check_storable
from service.api.schemas.common import ReadModel
from service.domain import (
    DEFAULT_PROJECT,
    FailureReason,
    JobRequest,
    JobState,
    Objective,
    Phase,
    TrialRequest,
    TrialState,
)
from service.errors import InvalidInput
from service.evidence.best_values import BestTrial
from service.evidence.pareto_front import FrontPoint
from service.evidence.recommended import PasteableConfig
from service.specification.estimate import Estimate
from service.specification.estimate_lines import estimate_lines
from service.specification.job import Budget, JobSpecification
from service.specification.strict_model import StrictModel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from service.store import models
    from service.use_cases.progress import JobProgress
    from service.use_cases.waiting import Waiting

Item = TypeVar("Item")

MAX_TAGS = 50
TagName = Annotated[str, StringConstraints(min_length=1, max_length=64)]
TagValue = Annotated[str, StringConstraints(max_length=256)]


def _without_defaults(schema: dict[str, Any]) -> None:
    for field in schema["properties"].values():
        field.pop("default", None)


JobName = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
ModelName = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
Tags = Annotated[dict[TagName, TagValue], Field(max_length=MAX_TAGS)]
Priority = Annotated[int, Field(ge=-1000, le=1000)]
MAX_NOTES = 20_000
Notes = Annotated[str, StringConstraints(max_length=MAX_NOTES)]


class JobCreate(JobSpecification):
    """A job to run: the specification, and what a person calls it by. Only `workload` is required."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                examples.JOB_CREATE,
                examples.JOB_CREATE_OWN_SPACE,
                examples.JOB_CREATE_SEARCHED_BATCH,
                examples.JOB_CREATE_TOKENS,
                examples.JOB_CREATE_EXTERNAL,
            ]
        }
    )

    name: JobName | None = None
    """The job's name for people; null: that of the model, or else the workload's."""
    model: ModelName | None = None
    """Your own name of the model, e.g. `my-gpt`, by which its recommendations can be asked for."""
    tags: Tags = Field(default_factory=dict)
    """Anything to find the job by."""
    priority: Priority = 0
    """Higher goes first: in the queue, and where jobs share a cluster."""
    notes: Notes = ""
    """Your own text about the job, such as Markdown; it is shown as it stands."""

    @model_validator(mode="before")
    @classmethod
    def _check_storable(cls, value: Any) -> Any:
        check_storable(value)
        return value

    @property
    def specification(self) -> JobSpecification:
        """The specification alone, without what a person calls it by."""
        return JobSpecification(**{name: getattr(self, name) for name in JobSpecification.model_fields})


class BudgetChange(Budget):
    """The fields of a budget to change; those left out stay as they are."""

    # Budget's own defaults are of new jobs.
    model_config = ConfigDict(json_schema_extra=_without_defaults)

    @property
    def changes(self) -> dict[str, Any]:
        """The values by field, of those given."""
        return self.model_dump(exclude_unset=True)


def _job_change_schema(schema: dict[str, Any]) -> None:
    _without_defaults(schema)
    schema["minProperties"] = 1
    schema["examples"] = [examples.JOB_CHANGE]


class JobChange(StrictModel):
    """Changes of a job; fields left out stay as they are."""

    model_config = ConfigDict(json_schema_extra=_job_change_schema)

    name: JobName = ""
    """The job's name for people."""
    tags: Tags = Field(default_factory=dict)
    """All of them: those left out go."""
    priority: Priority = 0
    """Holds from now on, for the queue and for the next rank group of a cluster that becomes free."""
    notes: Notes = ""
    """Your own text about the job, in place of what was there; empty: none."""
    budget: BudgetChange = Field(default_factory=BudgetChange)
    """Fields of the budget; those left out stay."""

    @model_validator(mode="before")
    @classmethod
    def _check(cls, value: Any) -> Any:
        check_storable(value)
        if value == {}:
            raise InvalidInput("body", f"must change something: {', '.join(cls.model_fields)}")
        return value

    @property
    def changes(self) -> dict[str, Any]:
        """The values given, but for the budget's."""
        return {name: getattr(self, name) for name in self.model_fields_set - {"budget"}}


class TrialCreate(StrictModel):
    """A trial that a user wants tried."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.TRIAL_CREATE]})

    phase: Literal["search", "baseline"] = "search"
    """Whose search space it is of, and whose trials it counts among."""
    optimizer: str | None = None
    """Of which baseline, where the job has several."""
    parameters: dict[str, JsonValue] = Field(default_factory=dict)
    """Values by parameter of that space, as in a job's `pinned`; those left out take their defaults."""
    beyond_bounds: bool = False
    """True if numbers may lie beyond the space's ranges, as far as the optimizer accepts them. The search then learns
    from the trial as if they lay at the edge."""

    @model_validator(mode="before")
    @classmethod
    def _check_storable(cls, value: Any) -> Any:
        check_storable(value)
        return value


class PhaseProgressRead(ReadModel):
    num_finished: int
    """Its trials in a final state."""
    num_trials: int
    """At most so many, until the job has ended: a phase may need fewer."""


class ProgressRead(ReadModel):
    trials: dict[TrialState, int]
    """Trials by state."""
    num_paused: int = 0
    """Those of the queued ones that were measured, and wait to go on: the search paused them, or the run was
    interrupted."""
    phases: dict[Phase, PhaseProgressRead] = Field(default_factory=dict)
    """Those that the job has, in their order: search, baseline, confirmation."""
    num_finished: int
    """Trials in a final state."""
    num_steps: int
    """Steps measured so far, of all trials together."""
    max_steps: int
    """The same at the job's end, if none of the trials that have not ended is pruned."""
    best: BestTrial | None
    """The best trial of the search; null: none completed yet. While the job runs: the completed one with the best final
    value. Once it has ended: the one whose config is recommended."""
    baseline_best: BestTrial | None
    """The same of the baselines: the best of all of them."""
    baseline_optimizer: str | None = None
    """The optimizer of that one."""
    front: list[FrontPoint] = Field(default_factory=list)
    """With several objectives: the completed trials of search and baseline that no other one betters in all of them,
    sorted by the first. `GET /v1/jobs/{job_id}/trials/{number}/config` gives the config of each."""
    seconds_elapsed: float | None
    """Time that the job has been running, without time in the queue or paused."""
    seconds_left: float | None
    """An estimate from the trials finished so far."""
    device_hours: float
    """Training time of all trials so far, times the ranks of each."""
    cost: float | None = None
    """Of those device-hours, in the job's `currency`; null: there was no price when it was submitted."""


class WaitingRead(ReadModel):
    """The reason why nothing of a job is being trained, although it is neither paused nor over."""

    since: datetime
    """When it began to wait."""
    reason: str = Field(alias="for")
    """For a person, e.g. `needs 4 GPUs, 3 free` or `2 jobs are before it`."""

    @classmethod
    def of(cls, waiting: Waiting) -> WaitingRead:
        return cls.model_validate({"since": waiting.since, "for": waiting.reason})


class JobRead(ReadModel):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.JOB]})

    id: str
    """Sorts by the time of submission."""
    name: str
    """For people."""
    project: str = DEFAULT_PROJECT
    """Only callers of this project see the job."""
    owner: str | None = None
    """The name of the token that submitted it; null: nobody had to say who asks."""
    tags: dict[str, str]
    """Texts by name to find it by."""
    notes: str | None = None
    """Your own text about the job."""
    cloned_from: str | None = None
    """The id of the job that it is a clone of, which may be deleted since."""
    archived_at: datetime | None = None
    """When it was archived: lists leave it out unless they are asked for it. Null: it is not."""
    priority: int = 0
    """Higher goes first: in the queue, and where jobs share a cluster."""
    state: JobState
    """Where it stands; the last three are final, unless a user has it go on."""
    waiting: WaitingRead | None = None
    """The reason for which a queued or running job waits, and since when; null: it does not wait."""
    requested: JobRequest | None
    """A request that a running job follows within seconds: `pause`, or `restart` with another budget or trials."""
    failure: str | None
    """Why the job failed, for a person."""
    cut_off: str | None = None
    """What ended it before its trials had, for a person: its budget, or its project's quota of device-hours."""
    workload: str
    """The workload's name."""
    model: str | None = None
    """Your own name of the model."""
    objectives: list[Objective]
    """The first one decides what is recommended; with others, `progress.front` lists what none betters in all."""
    specification: JobSpecification
    """As submitted, with its defaults, and with the budget as it is now."""
    num_trials: int
    """Trials that the job will have at most, those of the confirmation and those that users proposed included."""
    num_steps: int
    """Steps of a full trial; where batch sizes are searched, of the longest."""
    disk_bytes: int | None
    """Bytes of its checkpoints, logs and temporary files when its worker last looked; null before its first run."""
    currency: str | None = None
    """Of its cost."""
    progress: ProgressRead
    """How far it has come."""
    created_at: datetime
    """When it was submitted."""
    started_at: datetime | None
    """When it first ran; null: not yet."""
    finished_at: datetime | None
    """When it ended; null: it has not."""

    @classmethod
    def of(cls, job: models.Job, progress: JobProgress, waiting: Waiting | None) -> JobRead:
        return cls(
            id=job.id,
            name=job.name,
            project=job.project,
            owner=job.owner,
            tags=job.tags,
            notes=job.notes,
            cloned_from=job.cloned_from,
            archived_at=job.archived_at,
            priority=job.priority,
            state=job.state,
            waiting=None if waiting is None else WaitingRead.of(waiting),
            requested=job.requested,
            failure=job.failure,
            cut_off=job.cut_off,
            workload=job.workload,
            model=job.model,
            objectives=list(job.objectives),
            specification=job.specification,
            num_trials=progress.num_trials,
            num_steps=job.num_steps,
            disk_bytes=job.disk_bytes,
            currency=job.currency,
            progress=ProgressRead.model_validate(progress),
            created_at=job.created_at,
            started_at=job.started_at,
            finished_at=job.finished_at,
        )


def _of_list(example: Mapping[str, Any], *, always: str, large: str) -> Callable[[dict[str, Any]], None]:
    """Changes the schema of what is read alone to that of a row of a list, which may lack any field but one."""

    def change(schema: dict[str, Any]) -> None:
        schema["required"] = [always]
        schema["examples"] = [{name: value for name, value in example.items() if name != large}]

    return change


class JobItem(JobRead):
    """A job of a list, with the fields that were asked for: all but `specification`, unless `view` or `fields` say
    otherwise."""

    model_config = ConfigDict(json_schema_extra=_of_list(examples.JOB, always="id", large="specification"))


class JobEstimate(Estimate):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.JOB_ESTIMATE]})

    lines: list[str] = Field(default_factory=list)
    """The same in words, for a person."""

    @classmethod
    def of(cls, estimate: Estimate) -> JobEstimate:
        return cls(**dict(estimate), lines=estimate_lines(estimate))


class TrialRead(ReadModel):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.TRIAL]})

    number: int
    """0, 1, 2, ... within the job."""
    phase: Phase
    """The part of the job that it belongs to."""
    state: TrialState
    """Where it stands; all but the first two are final, unless a user has it tried again."""
    requested: TrialRequest | None
    """`stop`: the trial ends at its next measurement."""
    reason: FailureReason | None
    """Why the trial failed."""
    detail: str | None
    """An explanation for a person."""
    parameters: dict[str, JsonValue]
    """The sampled values by parameter name."""
    config: dict[str, JsonValue]
    """The whole trial config: what `python -m trainers.run` reads."""
    confirms: int | None = None
    """In the confirmation: the number of the trial whose config this one repeats with a new seed."""
    forked_from: int | None = None
    """With the pruner `pbt`: the number of the trial from whose checkpoint this one begins, with hyperparameters of its
    own; null: it begins from nothing."""
    forked_at_step: int | None = None
    """That checkpoint's step. The curve begins there, with what that trial measured; `seconds` go on counting."""
    proposed: bool = False
    """True if a user proposed it."""
    runs: int
    """Times it was started: more than 1 after a loss."""
    step: int
    """Optimizer steps measured so far."""
    num_steps: int
    """Steps of this trial, if it goes to its end."""
    seconds: float
    """Training time up to `step`."""
    spent_seconds: float
    """Training time in all its runs: more than `seconds` if steps were trained again."""
    value: float | None
    """The objective at `step`."""
    metrics: dict[str, float | None]
    """Every metric at `step`; null: it was not finite."""
    fingerprint: str | None = None
    """Digest of the model that it trains: of its parameters' shapes and kinds, its other modules, and the workload with
    the options of the model that the search does not vary. Null until it was measured."""
    data_digest: str | None = None
    """Digest of the data; null: there is no telling."""
    last_lines: list[str] = Field(default_factory=list)
    """Of a failed trial that is read alone: the end of what its ranks printed."""
    created_at: datetime
    """When it was chosen."""
    started_at: datetime | None
    """When it was first trained; null: not yet."""
    finished_at: datetime | None
    """When it ended; null: it has not."""

    @classmethod
    def of(cls, trial: models.Trial, *, last_lines: Sequence[str] = ()) -> TrialRead:
        own = {name: getattr(trial, name) for name in cls.model_fields if name not in ("num_steps", "last_lines")}
        return cls(num_steps=trial.config["num_steps"], last_lines=list(last_lines), **own)


class TrialItem(TrialRead):
    """A trial of a list, with the fields that were asked for: all but `config`, unless `view` or `fields` say
    otherwise."""

    model_config = ConfigDict(json_schema_extra=_of_list(examples.TRIAL, always="number", large="config"))


class TrialConfigRead(PasteableConfig):
    """The config of a trial, to paste, as that of a recommendation."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.TRIAL_CONFIG_TO_PASTE]})

    number: int
    """Of the trial."""
    python: str
    """The same as Python to paste."""

    @classmethod
    def of(cls, number: int, config: PasteableConfig, *, python: str) -> TrialConfigRead:
        return cls(number=number, python=python, **dict(config))


class MeasurementRead(ReadModel):
    step: int
    """Optimizer steps up to it."""
    epoch: float
    """Passes over the training data up to it."""
    seconds: float
    """Training time up to it."""
    metrics: dict[str, float | None]
    """By name; null: it was not finite."""
    recorded_at: datetime
    """When it was stored."""


class MeasurementPage(ReadModel):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.MEASUREMENTS]})

    items: list[MeasurementRead]
    """By step."""
    next_after_step: int | None
    """`after_step` of the next page; null: this is the last one so far."""


class Page(ReadModel, Generic[Item]):
    """A page of a list; `next_page_token` is null on the last one."""

    items: list[Item]
    """In the order of the list."""
    next_page_token: str | None
    """`page_token` of the next page; null: this is the last one."""


class EventRead(ReadModel):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.EVENT]})

    id: int
    """Grows with time; what `Last-Event-ID` takes."""
    job_id: str
    """Of the job that it happened to."""
    kind: str
    """`job.state`, `job.changed` (what PATCH changes, and what its run is asked for or waits for), `job.deleted`,
    `job.recommendation`, `trial.state` or `trial.measured`; more kinds may come."""
    data: dict[str, JsonValue]
    """The details, by its kind."""
    created_at: datetime
    """When it happened."""


class EventPage(ReadModel):
    """Events, the oldest first."""

    items: list[EventRead]
    """The oldest first."""
    next_after: int | None
    """`after` of the next page; null: these are all so far. What comes later has ids above that of the last item."""
