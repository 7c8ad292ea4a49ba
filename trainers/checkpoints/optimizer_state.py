"""An optimizer's state out of and back into it, exactly.

`optimizer.state_dict()` is what is saved. torch's own optimizers make their state in the first step, so a new one
cannot say how the state will be laid out (which is sharded, and how); its parameters can.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from shampoo import Shampoo, WeightAveraging
from trainers.checkpoints.nested import LikeParameter


def optimizer_template(optimizer: Optimizer) -> dict[str, Any]:
    """What `Checkpoints.load` needs to know of an optimizer, new or not, to lay its state out for this rank."""
    template = optimizer.state_dict()
    if isinstance(optimizer, WeightAveraging):
        # A list of snapshots grows during training.
        averages = [LikeParameter(parameter) for parameter in _parameters(optimizer)]
        averaging = {**template["averaging"], "params": averages}
        return {**template, "optimizer": optimizer_template(optimizer.optimizer), "averaging": averaging}
    if isinstance(optimizer, Shampoo):  # has all of its state from the start
        return template
    like = {index: LikeParameter(parameter) for index, parameter in enumerate(_parameters(optimizer))}
    return {**template, "state": {**like, **template["state"]}}


def load_optimizer_state(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Puts a saved `state_dict()` into an optimizer of the same parameters, bit for bit.

    torch's own `load_state_dict` rounds floating-point state to the parameter's dtype; here it keeps its own.
    """
    optimizer.load_state_dict(state)
    if isinstance(optimizer, WeightAveraging):
        optimizer, state = optimizer.optimizer, state["optimizer"]
    if isinstance(optimizer, Shampoo):
        return
    for index, parameter in enumerate(_parameters(optimizer)):
        for name, value in state["state"].get(index, {}).items():
            held = optimizer.state[parameter][name]
            if isinstance(value, Tensor) and held.dtype != value.dtype:
                optimizer.state[parameter][name] = value.to(held.device)


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    """In the order of the numbers that a `state_dict()` gives them."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
