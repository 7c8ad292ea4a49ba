"""Goals of workloads that ship with their data and train in seconds, as AlgoPerf sets targets: what a tuned AdamW
attains in three quarters of the budget. `python -m tests.benchmarks.training.algoperf_goals` prints the values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainers.config import Json, TargetConfig
from trainers.workloads.registry import describe

NUM_MEASUREMENTS = 20
"""Measurements in the whole budget: times to a goal are known to a twentieth of it."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The value of a metric that a trial of a workload is to reach, and its budget."""

    workload: str
    value: float
    num_steps: int
    """The budget: the trial ends there, and schedules are as long."""
    metric: str = "validation_loss"
    options: Mapping[str, Json] = field(default_factory=dict)
    """Options of the workload."""

    @property
    def target(self) -> TargetConfig:
        return TargetConfig(self.metric, self.value)

    @property
    def batch_size(self) -> int:
        return describe(self.workload).default_batch_size

    @property
    def evaluate_every(self) -> int:
        """Steps between measurements, `NUM_MEASUREMENTS` of them in the budget or, of a shorter one, one each step."""
        return max(1, self.num_steps // NUM_MEASUREMENTS)


GOALS: Mapping[str, Goal] = {
    goal.workload: goal
    for goal in (
        Goal("digits-mlp", 0.0931, 100),
        Goal("digits-autoencoder", 11.0, 200),
        Goal("digits-convnet", 0.105, 100),
    )
}
"""The goal of each workload, by its name."""
