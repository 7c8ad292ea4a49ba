"""Bodies about jobs: those that are read and written, with an example of each."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ConfigDict, Field, StringConstraints

from service.api import examples
from service.api.request_body import ChangeModel, RequestModel
from service.api.schemas.common import ReadModel, of_list
from service.api.schemas.in_html import table
from service.described_model import MaxEntries
from service.domain import (
    DEFAULT_PROJECT,
    JobRequest,
    JobState,
    Objective,
    Phase,
    TrialState,
)
from service.evidence.best_values import BestTrial
from service.evidence.pareto_front import FrontPoint
from service.inert import one_line
from service.shown_text import LINE, SEEN
from service.specification.estimate import Estimate
from service.specification.estimate_lines import estimate_lines
from service.specification.job import Budget, JobSpecification

if TYPE_CHECKING:
    from service.store import models
    from service.use_cases.progress import JobProgress
    from service.use_cases.waiting import Waiting

MAX_TAGS = 50
"""Limit of one job, by judgement: far more than tell jobs apart."""


def _without_defaults(schema: dict[str, Any]) -> None:
    for field in schema["properties"].values():
        field.pop("default", None)


TagName = Annotated[str, StringConstraints(min_length=1, max_length=64), LINE, SEEN]
TagValue = Annotated[str, StringConstraints(max_length=256), LINE, SEEN]
JobName = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200), LINE, SEEN]
ModelName = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200), LINE, SEEN]
Tags = Annotated[dict[TagName, TagValue], MaxEntries(MAX_TAGS)]
Priority = Annotated[int, Field(ge=-1000, le=1000)]
MAX_NOTES = 20_000
"""Characters, by judgement: some ten pages."""
Notes = Annotated[str, StringConstraints(max_length=MAX_NOTES), SEEN]


class JobCreate(RequestModel, JobSpecification):
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
    """The job's name for people, one line; null: that of the model, or else the workload's."""
    model: ModelName | None = None
    """Your own name of the model, one line, e.g. `my-gpt`, by which its recommendations can be asked for."""
    tags: Tags = Field(default_factory=dict, examples=[{"team": "vision"}])
    """Labels to find the job by; names and values are one line each."""
    priority: Priority = 0
    """Higher goes first: in the queue, and where jobs share a cluster."""
    notes: Notes = ""
    """Your own text about the job, such as Markdown; it is shown as it stands."""

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


class JobChange(ChangeModel):
    """Changes of a job; fields left out stay as they are."""

    model_config = ConfigDict(json_schema_extra=_job_change_schema)

    name: JobName = ""
    """The job's name for people, one line."""
    tags: Tags = Field(default_factory=dict)
    """All tags, names and values of one line each: those left out are removed."""
    priority: Priority = 0
    """The new priority, for the queue and for the next rank group that becomes free in a shared cluster."""
    notes: Notes = ""
    """Your own text about the job, which replaces the present one; empty: none."""
    budget: BudgetChange = Field(default_factory=BudgetChange)
    """Fields of the budget; those left out stay."""

    @property
    def changes(self) -> dict[str, Any]:
        """The values given, but for the budget's."""
        return {name: getattr(self, name) for name in self.model_fields_set - {"budget"}}


class PhaseProgressRead(ReadModel):
    num_finished: int
    """The number of its trials in a final state."""
    num_trials: int
    """The number of its trials; until the job has ended, the most that it may have: a phase may need fewer."""


class ProgressRead(ReadModel):
    trials: dict[TrialState, int]
    """Trials by state."""
    num_paused: int = 0
    """The queued trials that were measured, and wait to go on: the search paused them, or the run was interrupted."""
    phases: dict[Phase, PhaseProgressRead] = Field(default_factory=dict)
    """The phases that the job has, in their order: search, baseline, confirmation."""
    num_finished: int
    """Trials in a final state."""
    num_steps: int
    """Steps measured so far, of all trials together."""
    max_steps: int
    """The steps at the job's end, if none of the trials that have not ended is pruned."""
    best: BestTrial | None
    """The best trial of the search; null: none completed yet. While the job runs: the completed one with the best final
    value. Once it has ended: the one whose config is recommended."""
    baseline_best: BestTrial | None
    """The best trial of all baselines; null: none completed yet."""
    baseline_optimizer: str | None = None
    """The optimizer of the best baseline."""
    front: list[FrontPoint] = Field(default_factory=list)
    """With several objectives: the completed trials of search and baseline that no other one betters in all of them,
    sorted by the first. `GET /v1/jobs/{job_id}/trials/{number}/config` gives the config of each."""
    seconds_elapsed: float | None
    """Time that the job has been running, without time in the queue or paused."""
    seconds_left: float | None
    """An estimate from the trials so far; null: there is nothing to go by yet, the job does not run, or its worker has
    fallen silent."""
    device_hours: float
    """Training time of all trials so far, times the ranks of each."""
    cost: float | None = None
    """The cost of those device-hours, in the job's `currency`; null: there was no price when it was submitted."""


class WaitingRead(ReadModel):
    """The reason why no trial of a job is in training, although it is neither paused nor over."""

    since: datetime
    """The time at which it began to wait."""
    reason: str = Field(alias="for")
    """The reason for waiting, for a person, e.g. `needs 4 GPUs, 3 free` or `2 jobs are before it`."""

    @classmethod
    def of(cls, waiting: Waiting) -> WaitingRead:
        return cls.model_validate({"since": waiting.since, "for": waiting.reason})


class JobRead(ReadModel):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.JOB]})

    id: str
    """The id of the job; ids sort by the time of submission."""
    name: str
    """The name of the job, for people."""
    project: str = DEFAULT_PROJECT
    """The project of the job; only its callers see the job."""
    owner: str | None = None
    """The name of the token that submitted it; null: the service asked for no token."""
    tags: dict[str, str]
    """Labels to find it by: texts by name."""
    notes: str | None = None
    """Your own text about the job."""
    cloned_from: str | None = None
    """The id of the job that it is a clone of, which may be deleted since."""
    archived_at: datetime | None = None
    """The time at which it was archived: lists leave it out unless they are asked for it. Null: it is not."""
    priority: int = 0
    """Higher goes first: in the queue, and where jobs share a cluster."""
    state: JobState
    """The state of the job; the last three are final, unless a user has it go on."""
    waiting: WaitingRead | None = None
    """The reason why a queued or running job waits, and since when; null: it does not wait."""
    requested: JobRequest | None
    """A request that a running job follows within seconds: `pause`, or `restart` with another budget or trials."""
    failure: str | None
    """The reason why the job failed, for a person."""
    cut_off: str | None = None
    """The reason why it ended before its trials, for a person: its budget, time that was nearly over, or its project's
    quota of device-hours."""
    workload: str
    """The workload's name."""
    model: str | None = None
    """Your own name of the model."""
    objectives: list[Objective]
    """The first one decides what is recommended; with others, `progress.front` lists what none betters in all."""
    specification: JobSpecification
    """The job as submitted, with its defaults, and with the budget as it is now."""
    num_trials: int
    """Trials that the job will have at most, those of the confirmation and those that users proposed included."""
    num_steps: int
    """Steps of a full trial; where batch sizes are searched, of the longest."""
    disk_bytes: int | None
    """Bytes of its checkpoints, logs and temporary files at its worker's last check; null before its first run."""
    currency: str | None = None
    """The currency of its cost."""
    progress: ProgressRead
    """The progress of the job so far."""
    created_at: datetime
    """The time at which it was submitted."""
    started_at: datetime | None
    """The time at which it first ran; null: not yet."""
    finished_at: datetime | None
    """The time at which it ended; null: it has not."""

    def __str__(self) -> str:
        """The state of the job, a line for each thing that is told."""
        return "\n".join(map(one_line, (self.name, *(f"{name}: {value}" for name, value in self._told().items()))))

    def _repr_html_(self) -> str:
        """HTML for notebooks: the state of the job."""
        return table(self.name, self._told())

    def _told(self) -> dict[str, object]:
        best = self.progress.best
        return {
            "Job": self.id,
            "State": self.state if self.failure is None else f"{self.state}: {self.failure}",
            "Workload": self.workload,
            "Trials": f"{self.progress.num_finished} of {self.num_trials}",
            "Best": "none yet"
            if best is None
            else f"{self.objectives[0].metric} {best.value:.4g}, trial {best.number}",
        }

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


class JobSubmitted(JobRead):
    warnings: list[str] = Field(default_factory=list)
    """Faults found while the job was checked that are no reason to refuse it, for a person: its workload's code raises
    an error, or a trial, or the trials that would train at once, do not fit on the machine. A dry run checks more.
    Empty if trials do not train beside the API."""

    def _told(self) -> dict[str, object]:
        return {**super()._told(), **({"Warning": " ".join(self.warnings)} if self.warnings else {})}


class JobItem(JobRead):
    """A job of a list, with the fields that were asked for: all but `specification`, unless `view` or `fields` say
    otherwise."""

    model_config = ConfigDict(json_schema_extra=of_list(examples.JOB, always="id", large="specification"))


class JobEstimate(Estimate):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.JOB_ESTIMATE]})

    lines: list[str] = Field(default_factory=list)
    """The estimate in words, for a person."""

    @classmethod
    def of(cls, estimate: Estimate) -> JobEstimate:
        return cls(**dict(estimate), lines=estimate_lines(estimate))
