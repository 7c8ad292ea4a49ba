"""The protocol of trackers: a run for each trial, its measurements, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from trainers.config import Json

TrackerName: TypeAlias = Literal["tensorboard", "mlflow", "wandb"]
RunEnd: TypeAlias = Literal["completed", "failed", "stopped", "open"]
"""`open`: it has not ended, and may go on in another process."""


@dataclass(frozen=True, slots=True)
class TrackedTrial:
    """A trial as trackers know it."""

    job: str
    """Its job's id: letters, digits and underscores."""
    job_name: str
    """As a person called it; any text."""
    number: int
    parameters: Mapping[str, Json]
    """The parameters that tell it from other trials: values by name."""
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def run_name(self) -> str:
        """Sorts as the trials do, and is safe as the name of a file."""
        return f"trial-{self.number:05d}"


class TrackedRun(Protocol):
    """A run of a tracker. Errors are its package's."""

    def log(self, step: int, metrics: Mapping[str, float], *, unix_seconds: float) -> None:
        """Takes in the metrics after a step, finite ones alone."""

    def end(self, how: RunEnd, *, unix_seconds: float) -> None:
        """Closes the run; nothing is logged any more."""
