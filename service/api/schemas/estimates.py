"""Bodies about a job that is only asked about."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from service.api import examples
from service.api.schemas.common import ReadModel
from service.domain import Phase
from service.specification.job import EarlierWinner


class MeasuredRead(ReadModel):
    """The measurements of an earlier job's completed trials: same workload and options, ranks and kind of steps."""

    job_id: str
    num_trials: int
    step_seconds: float
    """Median over trials."""
    optimizer_state_bytes: float | None
    """Of the rank that needed most, the largest over trials."""
    peak_memory_bytes: float | None
    """Of the rank that needed most, the largest over trials."""


class SpaceMemoryRead(ReadModel):
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


class MemoryRead(ReadModel):
    """The memory of each rank that the trials of a job need, and its limit."""

    limit_bytes: int | None
    """`resources.memory_per_worker`, or for GPU ranks the memory of the GPU where the API runs; null: unknown."""
    spaces: dict[Phase, SpaceMemoryRead]
    problem: str | None
    """Why nothing could be predicted."""


class JobEstimate(ReadModel):
    """The most that a job would cost."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.JOB_ESTIMATE]})

    num_trials: dict[Phase, int]
    """Trials by phase."""
    num_steps: int
    """Steps of a full trial."""
    max_steps: int
    """Steps of all trials, if none were pruned."""
    measured: MeasuredRead | None
    """Null: no earlier job like this one has completed a trial."""
    max_device_hours: float | None
    """Those of `max_steps` at the measured speed, or the budget's `device_hours` if they are less; null: unknown."""
    winners: dict[Phase, list[EarlierWinner]] = Field(default_factory=dict)
    """The configs that each phase whose `pinned` has `winners` would begin with; empty: no earlier job has one."""
    memory: MemoryRead | None = None
    """Predicted from the shapes of the model."""
