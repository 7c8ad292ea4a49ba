"""A sound workload on a torch data set, whose batches come from the loader in the manual of the trainers."""

from __future__ import annotations

from typing import Any

from torch.utils.data import TensorDataset

from tests.support.readmes import blocks
from tests.support.trainers.broken_workloads import WithoutBatches

_MANUAL: dict[str, Any] = {}
exec(next(block for block in blocks("trainers/README.md", "python") if "DataLoader" in block), _MANUAL)


class ReadsByALoader(WithoutBatches):
    train_batches = _MANUAL["train_batches"]

    def __init__(self) -> None:
        super().__init__()
        self.train_set = TensorDataset(self.inputs, self.targets)
