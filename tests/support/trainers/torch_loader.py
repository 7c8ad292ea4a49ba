"""Sound workloads whose batches come from the loaders in the manual of the trainers."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from tests.support.readmes import blocks
from tests.support.trainers.broken_workloads import WithoutBatches

_OF_A_SET, _OF_A_STREAM = ({"__name__": __name__} for _ in range(2))
_LOADERS = [block for block in blocks("trainers/README.md", "python") if "DataLoader" in block]
for _block, _names in zip(_LOADERS, (_OF_A_SET, _OF_A_STREAM), strict=True):
    exec(_block, _names)


class ReadsByALoader(WithoutBatches):
    train_batches: Any = _OF_A_SET["train_batches"]

    def __init__(self) -> None:
        super().__init__()
        self.train_set = TensorDataset(self.inputs, self.targets)


class ReadsAStream(WithoutBatches):
    """Learns to ignore 16 features, of examples without number."""

    num_train_examples = 10**9
    train_batches: Any = _OF_A_STREAM["train_batches"]

    def build_model(self) -> nn.Module:
        return nn.Linear(16, 1)

    def loss(self, model: nn.Module, batch: Any) -> Any:
        return model(batch).square().mean()

    def evaluate(self, model: nn.Module, *, rank: int, world_size: int, device: str) -> Any:
        inputs: Tensor = self.inputs.repeat(1, 4)[rank::world_size, :16]
        zeros = inputs.new_zeros(len(inputs), 1)
        return {"validation_loss": (functional.mse_loss(model(inputs), zeros, reduction="sum").item(), len(inputs))}
