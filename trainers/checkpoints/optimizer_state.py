"""An optimizer's state out of and back into it, exactly, on as many ranks as there are.

Shampoo's is its `distributed_state_dict()`: ranks that own blocks of a parameter save and find them, however many ranks
there are. torch's own optimizers make their state in the first step, so a new one cannot say how the state
will be laid out (which is sharded, and how); its parameters can.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from shampoo import LoraRite, Shampoo, WeightAveraging
from shampoo.distributed.portable_state import from_portable
from trainers.checkpoints.errors import CheckpointMismatch
from trainers.checkpoints.nested import LikeParameter

_OWN = (Shampoo, LoraRite)
"""They have all of their state from the start, and say what does not fit."""


def optimizer_state(optimizer: Optimizer) -> dict[str, Any]:
    """The state of an optimizer as a checkpoint holds it."""
    if isinstance(optimizer, WeightAveraging):
        return {**optimizer.state_dict(), "optimizer": optimizer_state(optimizer.optimizer)}
    return optimizer.distributed_state_dict() if isinstance(optimizer, Shampoo) else optimizer.state_dict()


def optimizer_template(optimizer: Optimizer) -> dict[str, Any]:
    """The template by which `Checkpoints.load` lays out the state of an optimizer, new or not, for this rank."""
    template = optimizer_state(optimizer)
    if isinstance(optimizer, WeightAveraging):
        # A list of snapshots grows during training.
        averages = [LikeParameter(parameter) for parameter in _parameters(optimizer)]
        averaging = {**template["averaging"], "params": averages}
        return {**template, "optimizer": optimizer_template(optimizer.optimizer), "averaging": averaging}
    if isinstance(optimizer, _OWN):
        return template
    like = {index: LikeParameter(parameter) for index, parameter in enumerate(_parameters(optimizer))}
    return {**template, "state": {**like, **template["state"]}}


def load_optimizer_state(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Puts an `optimizer_state()` into an optimizer of the same parameters, bit for bit.

    torch's own `load_state_dict` rounds floating-point state to the parameter's dtype; here it keeps its own.

    Raises:
        CheckpointMismatch: that of our own optimizers does not fit: of shards, distributed="local", as many ranks.
    """
    inner = optimizer.optimizer if isinstance(optimizer, WeightAveraging) else optimizer
    if isinstance(inner, _OWN):
        try:
            if not isinstance(inner, Shampoo):
                optimizer.load_state_dict(state)
            elif inner is optimizer:
                inner.load_distributed_state_dict(state)
            else:
                optimizer.load_state_dict({**state, "optimizer": from_portable(state["optimizer"], inner.state_dict())})
        except ValueError as error:
            raise CheckpointMismatch(f"the optimizer's state does not fit: {error}") from error
        return
    optimizer.load_state_dict(state)
    held_by_parameter = state if inner is optimizer else state["optimizer"]
    for index, parameter in enumerate(_parameters(inner)):
        for name, value in held_by_parameter["state"].get(index, {}).items():
            held = inner.state[parameter][name]
            if isinstance(value, Tensor) and held.dtype != value.dtype:
                inner.state[parameter][name] = value.to(held.device)


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    """The parameters in the order of the numbers that a `state_dict()` gives them."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
