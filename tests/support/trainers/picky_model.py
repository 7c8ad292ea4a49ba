"""Workloads that cannot be built, or not without data in the model's tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from tests.support.trainers.broken_workloads import NUM_FEATURES, Sound


class Picky(Sound):
    """Sound, if its model's width is even."""

    def __init__(self, *, width: int = 4, scale: float = 1.0) -> None:
        super().__init__(scale=scale)
        self.width = width

    def build_model(self) -> nn.Module:
        if self.width % 2:
            raise ValueError(f"the width must be even, got {self.width}")
        return nn.Sequential(nn.Linear(NUM_FEATURES, self.width), nn.Tanh(), nn.Linear(self.width, 1))


class FindsNoData(Sound):
    """Reads a file that does not exist, at a fixed path."""

    def __init__(self) -> None:
        super().__init__()
        Path("/nowhere/data.csv").read_bytes()


class NamesNoActivation(Sound):
    def build_model(self) -> nn.Module:
        activation = {"relu": nn.ReLU, "tanh": nn.Tanh}["gelu"]
        return nn.Sequential(nn.Linear(NUM_FEATURES, 1), activation())


class ForgetsItsModel(Sound):
    def build_model(self) -> Any:
        super().build_model()


class LooksAtItsWeights(Sound):
    """Can be built, but not without data."""

    def build_model(self) -> nn.Module:
        model = super().build_model()
        if not any(float(parameter.sum()) for parameter in model.parameters()):
            raise KeyError("nothing to learn from")
        return model
