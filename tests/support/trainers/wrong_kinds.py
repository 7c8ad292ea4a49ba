"""Workloads that are sound except for one method, which returns a value of another kind than the checker's rules
require."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.support.trainers.broken_workloads import Sound


class BuildsNoModule(Sound):
    def build_model(self) -> Any:
        return {"layers": 2}


class EvaluatesToAList(Sound):
    def evaluate(self, model: nn.Module, *, rank: int, world_size: int, device: str) -> Any:
        return [0.5]


class EvaluatesNothing(Sound):
    def evaluate(self, model: nn.Module, *, rank: int, world_size: int, device: str) -> Any:
        return {"validation_loss": (0.0, 0.0)}


class CountsAList(Sound):
    def counts(self) -> Any:
        return ["unreadable"]


class FindsNoExamples(Sound):
    """Looks for its data in a wrong place, and trains and evaluates nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.targets = self.inputs[:0], self.targets[:0]

    @property
    def num_train_examples(self) -> int:
        return len(self.inputs)
