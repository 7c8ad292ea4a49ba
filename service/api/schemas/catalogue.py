"""Bodies about the workloads and search spaces there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ConfigDict, JsonValue

from service.api import examples
from service.api.schemas.common import ReadModel
from service.domain import Direction
from trainers.workload.description import WorkloadDescription

if TYPE_CHECKING:
    from search_spaces import SearchSpace


class WorkloadOptionRead(ReadModel):
    default: JsonValue
    """The value that trials have if a job does not give the option."""
    description: str
    """A description for people."""
    required: bool = False
    """True if a job must give it."""
    choices: tuple[str, ...] = ()
    """The texts that it takes; empty: it takes others, too, or no texts."""
    maximum: int | None = None
    """The largest number that it takes; null: it has no bound of its own."""


class WorkloadRead(ReadModel):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.WORKLOAD]})

    name: str
    """The name that a job gives."""
    title: str
    """The name of the workload for people."""
    metrics: dict[str, Direction]
    """The metrics that it measures, and the direction in which each is better."""
    default_objective: str
    """The objective if a job names none."""
    default_num_steps: int
    """The number of steps of a trial if a job gives none."""
    default_evaluate_every: int
    """Steps between two measurements."""
    default_batch_size: int
    """Examples in a step, of all ranks together."""
    options: dict[str, WorkloadOptionRead]
    """Arguments that a job may give it, by name."""

    @classmethod
    def of(cls, description: WorkloadDescription) -> WorkloadRead:
        return cls.model_validate(description)


class WorkloadList(ReadModel):
    items: list[WorkloadRead]
    """The built-in workloads and those of installed packages."""


class SearchSpaceRead(ReadModel):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.SEARCH_SPACE]})

    name: str
    """The name of the preset."""
    optimizer: str
    """The optimizer whose hyperparameters it has."""
    space: dict[str, JsonValue]
    """A value for a job's `search_space`: edit it and submit it."""

    @classmethod
    def of(cls, name: str, space: SearchSpace) -> SearchSpaceRead:
        return cls(name=name, optimizer=space.optimizer, space=space.to_json())


class SearchSpaceList(ReadModel):
    items: list[SearchSpaceRead]
    """The presets, sorted by name."""
