"""The protocol of trackers: a run for each trial, its measurements, how it ended, and the names that they all take."""

from __future__ import annotations

import re
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
    """The name that a person gave to the job; any text."""
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


MAX_LENGTH = 200
"""Characters. MLflow takes 250, and file systems 255 bytes; the rest is for what tells equal names apart."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_\-. ]")


class SafeNames:
    """Gives each name one of letters, digits, `_-.` and spaces, that no other name of the same run has."""

    def __init__(self) -> None:
        self._safe: dict[str, str] = {}
        self._taken: set[str] = set()

    def of(self, name: str) -> str:
        """The safe name; the same one each time."""
        if name not in self._safe:
            plain = _UNSAFE.sub("_", name).strip(". ")[:MAX_LENGTH] or "_"
            safe, count = plain, 1
            while safe in self._taken:
                count += 1
                safe = f"{plain}-{count}"
            self._taken.add(safe)
            self._safe[name] = safe
        return self._safe[name]
