"""Trials of studies that were made elsewhere: they inform the sampler of a job's search, and are never its evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field, JsonValue

from search_spaces import Scalar, SearchSpace, SpaceError
from service.described_model import StrictModel
from service.domain import Objective
from service.errors import InvalidInput
from service.faults import Faults
from trainers.config import MAX_COUNT, MAX_METRIC

MAX_IMPORTED = 200
"""Most imported trials of a job, by judgement; its specification holds them all."""
LEARNING_SAMPLERS = ("tpe", "gp", "cmaes")
"""Built-in samplers that learn from what they did not ask for; `auto` learns from whole curves."""


class ImportedTrial(StrictModel):
    """A trial of another study."""

    source: str = Field(max_length=200, examples=["study.log: my-study"])
    """The study or file that it comes from, for people."""
    number: int = Field(ge=0, le=MAX_COUNT)
    """The number of the trial there."""
    parameters: dict[str, JsonValue]
    """A value for every parameter of the search space that is active with the others."""
    value: float = Field(ge=-MAX_METRIC, le=MAX_METRIC)
    """The value of the objective there."""


@dataclass(frozen=True, slots=True)
class KnownPoint:
    """An imported trial, as a sampler sees it."""

    parameters: dict[str, Scalar]
    value: float


def known_points(
    imported: Sequence[ImportedTrial], space: SearchSpace, objectives: Sequence[Objective]
) -> tuple[KnownPoint, ...]:
    """The imported trials of a job as points of its search space.

    Raises:
        InvalidInput: one does not fit the space, or the job has several objectives.
    """
    if imported and len(objectives) > 1:
        raise InvalidInput(
            "imported",
            f"gives one value for each trial, and the job has {len(objectives)} objectives: leave it out, or tune for "
            "one of them",
        )
    found: list[KnownPoint] = []
    faults = Faults()
    for index, trial in enumerate(imported):
        with faults.noted():
            found.append(_point(f"imported[{index}].parameters", trial, space))
    faults.tell()
    return tuple(found)


def _point(field: str, trial: ImportedTrial, space: SearchSpace) -> KnownPoint:
    try:
        return KnownPoint(space.check(trial.parameters), trial.value)
    except SpaceError as error:
        names_one = error.field in {parameter.name for parameter in space.parameters}
        raise InvalidInput(f"{field}.{error.field}" if names_one else field, error.message) from error
