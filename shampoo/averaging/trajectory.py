"""EMA and LAWA: averages of the trained weights that do not change training. The recurrences are in the package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from shampoo.averaging.arguments import AveragingArguments
from shampoo.averaging.batches import batches, copies, upcast
from shampoo.state.buckets import state_dtype
from shampoo.torch_internals import foreach_lerp_


@torch.inference_mode(False)  # tensors made in that mode can never be written to outside of it
def new_state(param: Tensor, arguments: AveragingArguments) -> dict[str, Any]:
    """The state of a parameter that has not been looked at.

    `average` has the parameter's shape and strides and at least float32. `snapshots`, the oldest first, keep the
    parameter's dtype, in which they are exact; they are replaced, never written.
    """
    if arguments.method == "lawa":
        return {"snapshots": []}
    return {"num_updates": 0, "average": torch.zeros_like(param, dtype=state_dtype(param.dtype))}


def ema_weight(arguments: AveragingArguments, n: int) -> float:
    """c_n, the share of the current weights in the average after its n-th update, n = 1, 2, ..."""
    d = arguments.decay
    assert d is not None
    if n == 1:
        return 1.0
    if arguments.warm_up == "bias_correction":
        return (1 - d) / (1 - d**n)
    return 1 - (min(d, (1 + n) / (10 + n)) if arguments.warm_up == "ramp" else d)


@torch.no_grad()
def update(params: Sequence[Tensor], states: Mapping[Tensor, dict[str, Any]], arguments: AveragingArguments) -> None:
    """Takes the current weights into the average."""
    if arguments.method == "lawa":
        assert arguments.num_snapshots is not None
        for param, snapshot in zip(params, copies(list(params)), strict=True):
            states[param]["snapshots"] = [*states[param]["snapshots"], snapshot][-arguments.num_snapshots :]
        return
    weights: dict[Tensor, float] = {}
    for param in params:
        states[param]["num_updates"] += 1
        weights[param] = ema_weight(arguments, states[param]["num_updates"])
    for batch in batches(params, states):
        averages = batch.of_state("average")
        foreach_lerp_(averages, upcast(batch.params, averages), [weights[owner] for owner in batch.owners])


@torch.no_grad()
def write_average(params: Sequence[Tensor], states: Mapping[Tensor, dict[str, Any]]) -> None:
    """Overwrites the parameters with their averages; those that have none yet stay as they are."""
    for param in params:
        state = states[param]
        if state.get("snapshots"):
            param.copy_(_mean(state["snapshots"]))
        elif state.get("num_updates"):
            param.copy_(state["average"])


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    first, *others = tensors
    mean = first.to(state_dtype(first.dtype), copy=True)
    # m_j = m_{j−1} + (w_j − m_{j−1})/j: the mean of equal weights is exact, while a sum divided by k is not.
    for j, tensor in enumerate(others, start=2):
        mean.lerp_(tensor.to(mean.dtype), 1 / j)
    return mean
