"""A workload to start from: a small network on data that ships with scikit-learn. Replace model and data by yours."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import torch
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn
from torch.nn import functional

NUM_VALIDATION_EXAMPLES = 119
"""About a fifth; 450 are left to train on."""


@functools.cache  # once in each process; objects of the class are made anew for each trial, and after each pause of it
def read_data() -> tuple[Tensor, Tensor]:
    """Inputs and labels of all examples. Trials share them: nobody writes to them."""
    features, labels = load_breast_cancer(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))  # all trials split alike
    inputs = torch.from_numpy(features).float()[order]
    train = inputs[NUM_VALIDATION_EXAMPLES:]
    return (inputs - train.mean(dim=0)) / train.std(dim=0), torch.from_numpy(labels)[order]


class WorkloadTemplate:
    """Every method is the same on all ranks; `trainers.workload.protocol.Workload` says what each must do."""

    title = "Breast tumours (569 cases from scikit-learn), two-layer network"
    metrics: ClassVar = {"validation_loss": "minimize", "validation_accuracy": "maximize"}  # what `evaluate` gives
    default_objective = "validation_loss"
    default_num_steps = 100
    default_evaluate_every = 10
    default_batch_size = 48

    # A job sets options as `"workload": {"name": "module:Class", "options": {"width": 64}}`, and its search space can
    # vary them as `workload.width`. A parameter without default must be given. Options about the data make it no other
    # model if `option_roles` names them: `option_roles: ClassVar = {"path": "path", "num_workers": "reading"}`.
    def __init__(self, *, width: Annotated[int, "units of the hidden layer"] = 32) -> None:
        self.width = width
        inputs, targets = read_data()
        train = slice(NUM_VALIDATION_EXAMPLES, None)
        self._train = inputs[train], targets[train]
        self._validation = inputs[:NUM_VALIDATION_EXAMPLES], targets[:NUM_VALIDATION_EXAMPLES]

    def build_model(self) -> nn.Module:
        """A new model on the CPU; its initial values come from torch's global generator, which the loop seeds."""
        return nn.Sequential(nn.Linear(30, self.width), nn.ReLU(), nn.Linear(self.width, 2))

    @property
    def num_train_examples(self) -> int:
        return len(self._train[1])

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """The training examples of these numbers, (b,) int64, as tensors on the CPU; the loop draws and shares them."""
        inputs, targets = self._train
        return inputs[indices], targets[indices]

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The mean over the batch; to augment it, do so here, `if model.training`, with torch's own random numbers."""
        inputs, targets = batch
        return functional.cross_entropy(model(inputs), targets)

    def evaluate(
        self, model: nn.Module, *, rank: int, world_size: int, device: str
    ) -> Mapping[str, tuple[float, float]]:
        """{metric: (sum, weight)} over this rank's share of the validation examples; the loop adds up the ranks."""
        inputs, targets = (part[rank::world_size].to(device) for part in self._validation)
        logits = model(inputs)
        loss_sum = functional.cross_entropy(logits, targets, reduction="sum").item()
        num_correct = (logits.argmax(dim=1) == targets).sum().item()
        return {
            "validation_loss": (loss_sum, float(len(targets))),
            "validation_accuracy": (float(num_correct), float(len(targets))),
        }
