"""The most that a job would cost, told before it is submitted: plain values, answered as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict, Field
from pydantic.dataclasses import dataclass

from service.domain import Phase
from service.specification.job import EarlierWinner

_DESCRIBED = ConfigDict(use_attribute_docstrings=True)


@dataclass(frozen=True, slots=True, config=_DESCRIBED)
class EarlierMeasurements:
    """The measurements of an earlier job's completed trials: same workload and options, ranks and kind of steps."""

    job_id: str
    num_trials: int
    step_seconds: float
    """Median over trials, at their last measurement."""
    optimizer_state_bytes: float | None
    """Of the rank that needed most, the largest over trials."""
    peak_memory_bytes: float | None
    """Of the rank that needed most, the largest over trials."""


@dataclass(frozen=True, slots=True, config=_DESCRIBED)
class SpaceMemory:
    """The memory of each rank that the trials of a search space need, at least: weights, gradients, optimizer and
    averages. Activations and the process itself come on top."""

    default_bytes: int
    """With every parameter at its default."""
    largest_bytes: int
    """Over the points looked at."""
    share_infeasible: float | None
    """Of the points, those that need more than `limit_bytes`: such trials fail as `infeasible` without being launched.
    Null: the limit is unknown, so all are launched."""
    num_points: int


@dataclass(frozen=True, slots=True, config=_DESCRIBED)
class MemoryEstimate:
    """The memory of each rank that the trials of a job need, and its limit. Predicted from the shapes of the model."""

    limit_bytes: int | None
    """`resources.memory_per_worker`, or for GPU ranks the memory of the GPU where the API runs; null: unknown."""
    spaces: Mapping[Phase, SpaceMemory] = Field(default_factory=dict)
    problem: str | None = None
    """Why nothing could be predicted."""


class Estimate(BaseModel):
    """The most that a job would cost."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    num_trials: Mapping[Phase, int]
    """Trials by phase."""
    num_steps: int
    """Steps of a full trial."""
    max_steps: int
    """Steps of all trials, if none were pruned."""
    confirmation_share: float = 0.0
    """Share of the trials, and of `max_steps`, that go into the confirmation. Its trials are trained to their ends, so
    where others are pruned its share of the steps is larger."""
    measured: EarlierMeasurements | None
    """Null: no earlier job like this one has completed a trial."""
    max_device_hours: float | None
    """Those of `max_steps` at the measured speed, or the budget's `device_hours` if they are less; null: unknown."""
    winners: Mapping[Phase, Sequence[EarlierWinner]] = Field(default_factory=dict)
    """The configs that each phase whose `pinned` has `winners` would begin with; empty: no earlier job has one."""
    memory: MemoryEstimate | None = None
    """Null: it was not asked for."""
