"""The digits, with a metric that is the time: the same clock on both sides of a comparison."""

from __future__ import annotations

import time
from collections.abc import Mapping

from torch import nn

from trainers.workload.description import WorkloadDescription
from trainers.workloads.digits.digits import DigitsMLP

DESCRIPTION = WorkloadDescription(
    name="timed-digits",
    title="Handwritten digits; measures when it is evaluated",
    implementation="tests.benchmarks.training.timed_digits:TimedDigits",
    metrics={"validation_loss": "minimize", "evaluated_at": "minimize"},
    default_objective="validation_loss",
    default_num_steps=5,
    default_evaluate_every=1,
    default_batch_size=128,
)


class TimedDigits(DigitsMLP):
    """The digits; `evaluated_at` is the ranks' mean clock, in seconds since the epoch."""

    def __init__(self) -> None:
        super().__init__(hidden_sizes=[128, 64], dropout=0.0, label_smoothing=0.0)

    def evaluate(
        self, model: nn.Module, *, rank: int, world_size: int, device: str
    ) -> Mapping[str, tuple[float, float]]:
        metrics = super().evaluate(model, rank=rank, world_size=world_size, device=device)
        return {**metrics, "evaluated_at": (time.time(), 1.0)}
