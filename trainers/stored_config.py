"""The config of a stored trial as its readers have it, whichever version stored it.

`TrialConfig` is strict, as a config that is to be trained must be: it refuses what it does not know and checks all the
rest. A config that was trained is only looked at, often thousands at once: this reads a few fields and checks none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from trainers.config import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConfig:
    """The fields of a stored `TrialConfig` that say what was trained, and for how long."""

    workload: str
    workload_options: Mapping[str, Json]
    optimizer: str
    """Its name."""
    arguments: Mapping[str, Json]
    """The optimizer's keyword arguments."""
    schedule: Mapping[str, Json]
    """The fields of a `ScheduleConfig` that are not null."""
    num_steps: int
    batch_size: int
    seed: int
    accumulation_steps: int
    gradient_clip_norm: float | None
    precision: str
    content: Mapping[str, Any]
    """The whole config as it is stored."""

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """Reads a config that `TrialConfig.to_json` of this version or an earlier one gave; what it lacks because it is
        older takes its default."""
        optimizer = content["optimizer"]
        return cls(
            workload=content["workload"],
            workload_options=content["workload_options"],
            optimizer=optimizer["name"],
            arguments=optimizer["arguments"],
            schedule={name: value for name, value in content["schedule"].items() if value is not None},
            num_steps=content["num_steps"],
            batch_size=content["batch_size"],
            seed=content["seed"],
            accumulation_steps=content.get("accumulation_steps", 1),
            gradient_clip_norm=content.get("gradient_clip_norm"),
            precision=content.get("precision", "float32"),
            content=content,
        )

    def training(self, *names: str) -> dict[str, Json]:
        """The settings beside the optimizer with these names that it has, as they are stored."""
        return {name: self.content[name] for name in names if name in self.content}
