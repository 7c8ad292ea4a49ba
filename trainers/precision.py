"""Mixed precision: forward passes in 16 bits, and the scale that keeps float16's small gradients from vanishing."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from trainers.config import Precision

DTYPES: dict[Precision, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


class MixedPrecision:
    """The forward and backward passes and the optimizer's step at one precision (arXiv 1710.03740).

    With float16 the loss is scaled by a power of two before the backward pass. A step whose gradients overflow is left
    out on all ranks, and the scale halved; it doubles after 2,000 steps without.
    """

    def __init__(self, precision: Precision, *, device: str, scaler: torch.amp.GradScaler) -> None:
        """`scaler` scales losses if it is enabled."""
        self._device_type = torch.device(device).type
        self._dtype = DTYPES[precision]
        self.scaler = scaler
        self._scale = scaler.get_scale()
        self._num_skipped_steps = 0

    def autocast(self) -> AbstractContextManager[Any]:
        """The context of the forward pass and the loss. Sharded models gather parameters in this precision."""
        if self._dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self._device_type, dtype=self._dtype)

    def backward(self, loss: Tensor) -> None:
        """The backward pass of the scaled loss."""
        self.scaler.scale(loss).backward()

    def unscale(self, optimizer: Optimizer) -> None:
        """Gives the gradients their true size; once per step, after the last backward pass."""
        if self.scaler.is_enabled():
            self.scaler.unscale_(optimizer)

    def step(self, optimizer: Optimizer) -> None:
        """The optimizer's step, unless a gradient overflowed."""
        if not self.scaler.is_enabled():
            optimizer.step()
            return
        self._note_scale()  # here, where the scaler itself is about to wait for the gradients
        self.scaler.step(optimizer)
        self.scaler.update()

    @property
    def num_skipped_steps(self) -> int:
        """Steps left out so far. Waits for the device."""
        self._note_scale()
        return self._num_skipped_steps

    def state_dict(self) -> dict[str, Any]:
        return {"scaler": self.scaler.state_dict(), "num_skipped_steps": self.num_skipped_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.scaler.load_state_dict(state["scaler"])
        self._scale = self.scaler.get_scale()
        self._num_skipped_steps = state["num_skipped_steps"]

    def metrics(self) -> dict[str, float]:
        """The scale, and the number of steps left out, with float16; else nothing."""
        if not self.scaler.is_enabled():
            return {}
        return {"num_skipped_steps": float(self.num_skipped_steps), "loss_scale": self._scale}

    def _note_scale(self) -> None:
        """Counts the step before as left out if it halved the scale."""
        if self.scaler.is_enabled():
            scale = self.scaler.get_scale()
            self._num_skipped_steps += int(scale < self._scale)
            self._scale = scale
