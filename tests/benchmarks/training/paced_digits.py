"""The digits at a set pace, with a clock between measurements: how long a rank waited to be told to go on."""

from __future__ import annotations

import time
from collections.abc import Mapping

from torch import Tensor, nn

from trainers.workload.description import WorkloadDescription, WorkloadOption
from trainers.workloads.digits.digits import DigitsMLP

DESCRIPTION = WorkloadDescription(
    name="paced-digits",
    title="Handwritten digits at a set pace",
    implementation="tests.benchmarks.training.paced_digits:PacedDigits",
    metrics={"validation_loss": "minimize", "measured_at": "minimize", "went_on_at": "minimize"},
    default_objective="validation_loss",
    default_num_steps=10,
    default_evaluate_every=1,
    default_batch_size=32,
    options={"seconds_per_step": WorkloadOption(0.01, "how long each step sleeps")},
)


class PacedDigits(DigitsMLP):
    """Tells with each measurement when it was taken, and when training went on after the one before it.

    In seconds of rank 0's clock since the epoch. What lies between is the loop's own bookkeeping, the checkpoint's copy
    and waiting.
    """

    def __init__(self, *, seconds_per_step: float) -> None:
        super().__init__(hidden_sizes=[16], dropout=0.0, label_smoothing=0.0)
        self._seconds_per_step = seconds_per_step
        self._went_on_at: float | None = None

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        if self._went_on_at is None:
            self._went_on_at = time.time()
        time.sleep(self._seconds_per_step)
        return super().batch(indices)

    def evaluate(
        self, model: nn.Module, *, rank: int, world_size: int, device: str
    ) -> Mapping[str, tuple[float, float]]:
        metrics = super().evaluate(model, rank=rank, world_size=world_size, device=device)
        went_on_at, self._went_on_at = self._went_on_at, None
        assert went_on_at is not None
        weight = float(rank == 0)
        return {**metrics, "measured_at": (time.time() * weight, weight), "went_on_at": (went_on_at * weight, weight)}
