"""Bodies about the trials of a job, their curves, their checkpoints and what their ranks print: those that are read and
written, with an example of each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict, Field, JsonValue

from service.api import examples
from service.api.request_body import ChangeModel, RequestModel
from service.api.schemas.common import ReadModel, of_list
from service.api.schemas.jobs import Notes
from service.domain import CancelCause, FailureReason, OutputStream, Phase, TrialRequest, TrialState
from service.evidence.recommended import PasteableConfig

if TYPE_CHECKING:
    from service.store import models


class TrialCreate(RequestModel):
    """A trial that a user wants tried."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.TRIAL_CREATE]})

    phase: Literal["search", "baseline"] = "search"
    """The part of the job whose search space it is of and whose trials it counts among."""
    optimizer: str | None = None
    """The optimizer of the baseline that is meant, where the job has several."""
    parameters: dict[str, JsonValue] = Field(default_factory=dict)
    """Values by parameter of that space, as in a job's `pinned`; those left out take their defaults."""
    beyond_bounds: bool = False
    """True if numbers may lie beyond the space's ranges, as far as the optimizer accepts them. The search then learns
    from the trial as if they lay at the edge."""


def _trial_change_schema(schema: dict[str, Any]) -> None:
    del schema["properties"]["note"]["default"]
    schema["minProperties"] = 1
    schema["examples"] = [examples.TRIAL_CHANGE]


class TrialChange(ChangeModel):
    """Changes of a trial."""

    model_config = ConfigDict(json_schema_extra=_trial_change_schema)

    note: Notes = ""
    """Your own text about the trial, which replaces the present one; empty: none."""


class TrialRead(ReadModel):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.TRIAL]})

    number: int
    """0, 1, 2, ... within the job."""
    phase: Phase
    """The part of the job that it belongs to."""
    state: TrialState
    """The state of the trial; all but the first two are final, unless a user has it tried again."""
    requested: TrialRequest | None
    """`stop`: the trial ends at its next measurement."""
    reason: FailureReason | None
    """The reason why the trial failed."""
    cancel_cause: CancelCause | None = None
    """The cause for which it was cancelled."""
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
    """The step of the checkpoint that it was forked from. The curve begins there, with what that
    trial measured; `seconds` go on counting."""
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
    """Digest of the data; null: it cannot be identified."""
    note: str | None = None
    """Your own text about the trial."""
    last_lines: list[str] = Field(default_factory=list)
    """The last lines that the ranks of a failed trial printed; not in lists."""
    created_at: datetime
    """The time at which it was chosen."""
    started_at: datetime | None
    """The time at which it was first trained; null: not yet."""
    finished_at: datetime | None
    """The time at which it ended; null: it has not."""

    @classmethod
    def of(cls, trial: models.Trial, *, last_lines: Sequence[str] = ()) -> TrialRead:
        own = {name: getattr(trial, name) for name in cls.model_fields if name not in ("num_steps", "last_lines")}
        return cls(num_steps=trial.stored_config.num_steps, last_lines=list(last_lines), **own)


class TrialItem(TrialRead):
    """A trial of a list, with the fields that were asked for: all but `config`, unless `view` or `fields` say
    otherwise."""

    model_config = ConfigDict(json_schema_extra=of_list(examples.TRIAL, always="number", large="config"))


class TrialConfigRead(PasteableConfig):
    """The config of a trial, to paste, as that of a recommendation."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.TRIAL_CONFIG_TO_PASTE]})

    number: int
    """The number of the trial."""
    python: str
    """The config as Python to paste."""

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
    """The metrics by name; null: the value was not finite."""
    recorded_at: datetime
    """The time at which it was stored."""


class MeasurementPage(ReadModel):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.MEASUREMENTS]})

    items: list[MeasurementRead]
    """The measurements, sorted by step."""
    next_after_step: int | None
    """`after_step` of the next page; null: this is the last one so far."""


class CheckpointFileRead(ReadModel):
    name: str
    """The name of the file within the checkpoint."""
    num_bytes: int
    """The size of the file."""
    sha256: str | None
    """The digest of the file that the manifest gives; null: it is the manifest itself, or there is none."""


class CheckpointRead(ReadModel):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.CHECKPOINT]})

    name: str
    """The name of the checkpoint within the trial."""
    step: int
    """The step of the training that it holds."""
    written_at: datetime
    """The time at which it was complete."""
    num_bytes: int
    """The size of all its files."""
    world_size: int | None
    """Ranks that wrote it, each a file; null: the manifest is missing or damaged."""
    is_whole: bool
    """True if all files that belong to it exist; their checksums are not verified."""
    files: list[CheckpointFileRead]
    """The files that it is made of."""


class CheckpointList(ReadModel):
    """The checkpoints of a trial, the newest first."""

    items: list[CheckpointRead]
    """The newest first."""


class OutputRead(ReadModel):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.OUTPUT]})

    id: int
    """Grows with time; what `after` and `Last-Event-ID` take."""
    rank: int
    """The rank that printed it."""
    stream: OutputStream
    """The stream that it printed to."""
    recorded_at: datetime
    """The time at which the lines were read, within seconds after they were printed."""
    omitted_bytes: int
    """Printed by this rank right before them, and not kept: there was too much of it."""
    lines: list[str]
    """The lines, without escape sequences of terminals; control characters as `\\x07`."""


class OutputPage(ReadModel):
    """Lines that ranks printed, the oldest first."""

    items: list[OutputRead]
    """The lines in the order in which they were printed."""
    ranks: list[int]
    """The ranks of the trial that have printed anything."""
    next_after: int | None
    """`after` of the next page; null: this is all so far. What comes later has ids above that of the last item."""
