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
    description: str


class WorkloadRead(ReadModel):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.WORKLOAD]})

    name: str
    title: str
    metrics: dict[str, Direction]
    default_objective: str
    default_num_steps: int
    default_evaluate_every: int
    default_batch_size: int
    options: dict[str, WorkloadOptionRead]

    @classmethod
    def of(cls, description: WorkloadDescription) -> WorkloadRead:
        return cls.model_validate(description)


class WorkloadList(ReadModel):
    items: list[WorkloadRead]


class SearchSpaceRead(ReadModel):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.SEARCH_SPACE]})

    name: str
    optimizer: str
    space: dict[str, JsonValue]
    """A value for a job's `search_space`: edit it and submit it."""

    @classmethod
    def of(cls, name: str, space: SearchSpace) -> SearchSpaceRead:
        return cls(name=name, optimizer=space.optimizer, space=space.to_json())


class SearchSpaceList(ReadModel):
    items: list[SearchSpaceRead]
