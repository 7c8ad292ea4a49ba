"""The digits with a rank that dies, or hangs, at a chosen moment."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import torch.distributed as dist
from torch import Tensor, nn

from trainers.workloads.digits.digits import DigitsMLP

MORTAL_RANK = 1


class MortalDigits(DigitsMLP):
    """A small network on the digits. Once `end_file` exists, rank 1 kills or stops itself when its `moment` comes.

    The moments: `step` (in a loss, before the backward pass), `collective` (in the evaluation, while the other rank
    waits for its share), `checkpoint` (while a checkpoint is being written). The signal is SIGKILL, or SIGSTOP for a
    rank that hangs.
    """

    title: ClassVar[str] = "Digits with a mortal rank"
    metrics: ClassVar[Mapping[str, str]] = {
        "train_loss": "minimize",
        "validation_loss": "minimize",
        "validation_accuracy": "maximize",
    }
    default_objective: ClassVar[str] = "validation_loss"
    default_num_steps: ClassVar[int] = 60
    default_evaluate_every: ClassVar[int] = 10
    default_batch_size: ClassVar[int] = 32

    def __init__(self, *, moment: str, end_file: str, checkpoints: str = "", signal_name: str = "SIGKILL") -> None:
        super().__init__(hidden_sizes=[16], dropout=0.1, label_smoothing=0.0)
        self._moment = moment
        self._end_file = Path(end_file)
        self._checkpoints = Path(checkpoints)
        self._signal = signal.Signals[signal_name]
        if moment == "checkpoint" and self._is_mortal:
            threading.Thread(target=self._watch_checkpoints, daemon=True).start()

    @property
    def _is_mortal(self) -> bool:
        return dist.is_initialized() and dist.get_rank() == MORTAL_RANK

    def loss(self, model: nn.Module, batch: object) -> Tensor:
        time.sleep(0.005)
        self._end_at("step")
        return super().loss(model, batch)

    def evaluate(
        self, model: nn.Module, *, rank: int, world_size: int, device: str
    ) -> Mapping[str, tuple[float, float]]:
        if self._is_mortal and self._end_file.exists():
            time.sleep(0.5)  # the other rank has begun to wait
        self._end_at("collective")
        return super().evaluate(model, rank=rank, world_size=world_size, device=device)

    def _end_at(self, moment: str) -> None:
        if moment == self._moment and self._is_mortal and self._end_file.exists():
            os.kill(os.getpid(), self._signal)

    def _watch_checkpoints(self) -> None:
        """Ends the process as soon as a checkpoint that is being written appears."""
        while True:
            if self._end_file.exists() and any(self._checkpoints.glob(".partial-*")):
                os.kill(os.getpid(), self._signal)
            time.sleep(0.0002)
