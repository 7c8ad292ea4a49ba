"""The tiny GPT on the standard library's source, evaluated on a quarter of the held-out sequences.

In runs as short as a learning curve's table needs, evaluating all of them would take longer than training.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import nn

from trainers.workloads.language.stdlib_gpt import StdlibGPT


class BriefGPT(StdlibGPT):
    """The tiny GPT; every fourth validation sequence counts."""

    title = "Source of Python's own standard library, tiny byte-level GPT, evaluated on fewer sequences"
    metrics: ClassVar = {"validation_loss": "minimize", "validation_accuracy": "maximize"}
    default_objective = "validation_loss"
    default_num_steps = 100
    default_evaluate_every = 5
    default_batch_size = 8

    def __init__(self) -> None:
        super().__init__(size="tiny")

    def evaluate(
        self, model: nn.Module, *, rank: int, world_size: int, device: str
    ) -> Mapping[str, tuple[float, float]]:
        return super().evaluate(model, rank=rank, world_size=4 * world_size, device=device)
