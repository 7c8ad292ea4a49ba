"""The loss of a workload's own code, checked before it is trained on: torch would name neither it nor what is wrong."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from trainers.workload.protocol import Workload


def training_loss(workload: Workload, model: Any, batch: Any) -> Tensor:
    """The workload's loss of a batch: one number, with a gradient.

    Args:
        model: what its `loss` calls for the outputs, which may be more than a module.

    Raises:
        ValueError: it is not that.
    """
    loss: object = workload.loss(model, batch)
    name = f"{type(workload).__name__}.loss must give one number as a tensor with a gradient"
    if not isinstance(loss, Tensor):
        raise ValueError(f"{name}, got a {type(loss).__name__}: give the tensor, without .item()")
    if loss.numel() != 1:
        raise ValueError(f"{name}, got the shape {tuple(loss.shape)}: take the mean over the batch")
    if not loss.requires_grad:
        raise ValueError(f"{name}, got one without: compute it from the model, without no_grad or detach")
    return loss
