"""Checks of the gradients that steps read: that they can be read, and that there are any at all."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from shampoo.group_rules import is_trained, parameter_name
from shampoo.state.buckets import state_dtype

NUM_TOLD_WITHOUT = 3
"""The number of first steps without any gradient after which a warning comes: a training may intentionally begin
without."""


def require_gradients(groups: Sequence[Mapping[str, Any]]) -> None:
    """Checks that the gradients can be read.

    Raises:
        RuntimeError: one is sparse, or of a higher precision than the state of its parameter.
    """
    for number, group in enumerate(groups):
        for index, param in enumerate(group["params"]):
            gradient = param.grad
            if gradient is None:
                continue
            if gradient.layout != torch.strided:
                raise RuntimeError(
                    f"Shampoo needs dense gradients, got {gradient.layout} for {parameter_name(group, index, number)} "
                    f"of shape {tuple(param.shape)}"
                )
            if gradient.dtype != param.dtype and gradient.dtype.itemsize > state_dtype(param.dtype).itemsize:
                raise RuntimeError(
                    f"the gradient of {parameter_name(group, index, number)}, of {param.dtype} and shape "
                    f"{tuple(param.shape)}, is {gradient.dtype}: convert it, or the model before the optimizer is built"
                )


class Gradients:
    """The gradients of an optimizer's steps: checks them, and warns if there are never any."""

    def __init__(self) -> None:
        self._num_without: int | None = 0
        """Steps so far in which no parameter had a gradient; None: one has had one."""

    def require(self, groups: Sequence[Mapping[str, Any]]) -> None:
        """Checks the gradients of a step, and warns once if the first steps had none at all: then the optimizer has
        other parameters than the model that is trained.

        Raises:
            RuntimeError: as `require_gradients`.
        """
        require_gradients(groups)
        if self._num_without is None:
            return
        params = [param for group in groups for param in group["params"]]
        if not any(is_trained(param) for param in params):
            return
        if any(param.grad is not None for param in params):
            self._num_without = None
            return
        self._num_without += 1
        if self._num_without == NUM_TOLD_WITHOUT:
            warnings.warn(
                f"none of the optimizer's parameters had a gradient in any of {self._num_without} steps, so nothing is "
                "trained: does the model still have these parameters? fully_shard puts others in their place, as do "
                "some conversions: build the optimizer after them",
                RuntimeWarning,
                stacklevel=1,
            )
