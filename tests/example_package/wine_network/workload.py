"""Wines by their grower, one of three: 178 chemical analyses that ship with scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import torch
from sklearn.datasets import load_wine
from torch import Tensor, nn
from torch.nn import functional

NUM_VALIDATION_EXAMPLES = 58


class WineNetwork:
    """A small network with batch normalisation; biases and normalisation are trained without weight decay."""

    title = "Wines (178 analyses from scikit-learn), network with batch normalisation"
    metrics: ClassVar = {"validation_loss": "minimize", "validation_accuracy": "maximize"}
    default_objective = "validation_loss"
    default_num_steps = 60
    default_evaluate_every = 20
    default_batch_size = 24

    def __init__(
        self,
        *,
        hidden_sizes: Annotated[Sequence[int], "units of each hidden layer"] = (32, 16),
        label_smoothing: Annotated[float, "of the training loss, in [0, 1)"] = 0.0,
    ) -> None:
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing must be in [0, 1), got {label_smoothing!r}")
        self.hidden_sizes = hidden_sizes
        self.label_smoothing = label_smoothing
        analyses, growers = load_wine(return_X_y=True)
        order = torch.randperm(len(growers), generator=torch.Generator().manual_seed(0))
        inputs = torch.from_numpy(analyses).float()[order]
        targets = torch.from_numpy(growers).long()[order]
        validation, train = slice(NUM_VALIDATION_EXAMPLES), slice(NUM_VALIDATION_EXAMPLES, None)
        inputs = (inputs - inputs[train].mean(dim=0)) / inputs[train].std(dim=0)
        self._train = inputs[train], targets[train]
        self._validation = inputs[validation], targets[validation]

    def build_model(self) -> nn.Module:
        """Analyses (b, 13) to logits (b, 3)."""
        layers: list[nn.Module] = []
        num_inputs = self._train[0].shape[1]
        for size in self.hidden_sizes:
            layers += [nn.Linear(num_inputs, size), nn.BatchNorm1d(size), nn.ReLU()]
            num_inputs = size
        return nn.Sequential(*layers, nn.Linear(num_inputs, 3))

    def parameter_groups(self, model: nn.Module) -> Sequence[Mapping[str, Any]]:
        """The matrices, and the rest without weight decay."""
        parameters = list(model.parameters())
        return [
            {"params": [parameter for parameter in parameters if parameter.ndim > 1]},
            {"params": [parameter for parameter in parameters if parameter.ndim <= 1], "weight_decay": 0.0},
        ]

    @property
    def num_train_examples(self) -> int:
        return len(self._train[1])

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Analyses (b, 13) float32, growers (b,) int64."""
        inputs, targets = self._train
        return inputs[indices], targets[indices]

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Mean cross-entropy."""
        inputs, targets = batch
        return functional.cross_entropy(model(inputs), targets, label_smoothing=self.label_smoothing)

    def evaluate(
        self, model: nn.Module, *, rank: int, world_size: int, device: str
    ) -> Mapping[str, tuple[float, float]]:
        """On every `world_size`-th held-out wine."""
        inputs, targets = (part[rank::world_size].to(device) for part in self._validation)
        logits = model(inputs)
        loss_sum = functional.cross_entropy(logits, targets, reduction="sum").item()
        num_correct = float((logits.argmax(dim=1) == targets).sum())
        return {"validation_loss": (loss_sum, len(targets)), "validation_accuracy": (num_correct, len(targets))}
