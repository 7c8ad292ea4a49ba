"""Schedule-Free and primal averaging: the wrapped optimizer moves z, the gradient is taken at y, the average is x.

The recurrences are in the package. Between steps the parameters hold y and the state holds z; x is recovered as
y + (1 − 1/μ_y)(z − y). Parameters below float32 hold a rounded y, so their state holds x as well.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from shampoo.averaging.arguments import AveragingArguments
from shampoo.averaging.batches import Batch, batches, copies, upcast
from shampoo.state.buckets import state_dtype
from shampoo.torch_internals import foreach_add_, foreach_copy_, foreach_lerp, foreach_lerp_, foreach_sub, foreach_sub_


@torch.inference_mode(False)  # tensors made in that mode can never be written to outside of it
def new_state(param: Tensor, arguments: AveragingArguments) -> dict[str, Any]:
    """The state of a parameter that has not been stepped; `z` and `x` have its shape and strides, at least float32.

    Both take the values of the weights at the first step, so weights that are loaded between construction and the first
    step count.
    """
    dtype = state_dtype(param.dtype)
    state: dict[str, Any] = {"num_steps": 0, "z": torch.zeros_like(param, dtype=dtype)}
    if arguments.method == "schedule_free":
        state["weight_sum"] = 0.0
    if dtype != param.dtype:
        state["x"] = torch.zeros_like(param, dtype=dtype)
    return state


def step(
    inner_step: Callable[[], object],
    lrs: Mapping[Tensor, float],
    states: Mapping[Tensor, dict[str, Any]],
    arguments: AveragingArguments,
) -> None:
    """One step of the parameters that `lrs` names, whose gradients have been taken at y.

    If the wrapped optimizer raises, the step does not count: x keeps its value, and the parameters hold y again (bit
    for bit with weight_decay_at="y" if it has moved nothing, to rounding with "z").
    """
    at_z = arguments.weight_decay_at == "z"
    _begin(lrs, states)
    work = batches(lrs, states)
    # With weight decay at y, also the weights before the step, which the state does not hold: see "Memory" in the
    # package.
    befores = [_enter_z(batch, _mu_y(batch, arguments)) if at_z else copies(batch.params) for batch in work]
    try:
        inner_step()
    except BaseException:
        if at_z:
            for batch, before in zip(work, befores, strict=True):
                _leave_z(batch, before, dict.fromkeys(lrs, 0.0), _mu_y(batch, arguments))
        raise
    c = {param: _average_weight(states[param], arguments, lr) for param, lr in lrs.items()}
    for batch, before in zip(work, befores, strict=True):
        (_leave_z if at_z else _leave_y)(batch, before, c, _mu_y(batch, arguments))


def _average_weight(state: dict[str, Any], arguments: AveragingArguments, lr: float) -> float:
    """Counts a step of a parameter; gives c, the share of the new z in x."""
    state["num_steps"] += 1
    if arguments.method == "primal":
        assert arguments.mu_x is not None
        return 1 - arguments.mu_x
    assert arguments.lr_power is not None
    weight: float = lr**arguments.lr_power
    state["weight_sum"] += weight
    # If all learning rates were 0 so far, nothing has moved, and any c is right.
    return weight / state["weight_sum"] if state["weight_sum"] > 0 else 0.0


def _mu_y(batch: Batch, arguments: AveragingArguments) -> float:
    """μ_y as the batch's arithmetic sees it.

    y is computed with μ_y, and x is recovered with 1 − 1/μ_y. If the two values of μ_y differed by a rounding to
    float32, every step would push x towards z or away from it by 6e-8. That is not noise but a drift, which is larger
    than the noise after 1,000 steps.
    """
    assert arguments.mu_y is not None
    if batch.params[0].dtype == torch.float64:
        return arguments.mu_y
    rounded: float = struct.unpack("f", struct.pack("f", arguments.mu_y))[0]
    return rounded


@torch.no_grad()
def _begin(params: Mapping[Tensor, float], states: Mapping[Tensor, dict[str, Any]]) -> None:
    for param in params:
        if states[param]["num_steps"] == 0:
            for name in {"z", "x"} & states[param].keys():
                states[param][name].copy_(param)


@torch.no_grad()
def _enter_z(batch: Batch, mu_y: float) -> list[Tensor]:
    """The parameters become z. The tensor that held z then holds x, unless the state has an x: in that case returns
    copies of the rounded z."""
    z = batch.of_state("z")
    if batch.keeps_x:
        foreach_copy_(batch.params, z)
        return copies(batch.params)
    x = foreach_lerp(batch.params, z, 1 - 1 / mu_y)
    foreach_copy_(batch.params, z)
    foreach_copy_(z, x)
    return []


@torch.no_grad()
def _leave_z(batch: Batch, before: list[Tensor], c: Mapping[Tensor, float], mu_y: float) -> None:
    """The parameters, which hold the new z, become the new y; `c` weighs z in the new x."""
    if batch.keeps_x:
        _leave_low_precision(batch, before, c, mu_y)
        return
    x = batch.of_state("z")
    foreach_lerp_(x, batch.params, [c[owner] for owner in batch.owners])
    y = foreach_lerp(batch.params, x, mu_y)
    foreach_copy_(x, batch.params)
    foreach_copy_(batch.params, y)


@torch.no_grad()
def _leave_y(batch: Batch, before: list[Tensor], c: Mapping[Tensor, float], mu_y: float) -> None:
    """The parameters, which hold y + U, become the new y; `before` holds y and is used up."""
    if batch.keeps_x:
        _leave_low_precision(batch, before, c, mu_y)
        return
    z, params = batch.of_state("z"), batch.params
    foreach_sub_(params, before)  # U
    foreach_lerp_(before, z, 1 - 1 / mu_y)  # x
    foreach_add_(z, params)
    foreach_lerp_(before, z, [c[owner] for owner in batch.owners])
    foreach_copy_(params, z)
    foreach_lerp_(params, before, mu_y)


def _leave_low_precision(batch: Batch, before: list[Tensor], c: Mapping[Tensor, float], mu_y: float) -> None:
    """Adds the change that the wrapped optimizer made to the rounded weights to z, which is not rounded."""
    z, x = batch.of_state("z"), batch.of_state("x")
    foreach_add_(z, foreach_sub(upcast(batch.params, z), upcast(before, z)))
    foreach_lerp_(x, z, [c[owner] for owner in batch.owners])
    foreach_copy_(batch.params, foreach_lerp(z, x, mu_y))


@torch.no_grad()
def write_average(
    params: Sequence[Tensor], states: Mapping[Tensor, dict[str, Any]], arguments: AveragingArguments
) -> None:
    """Overwrites the parameters, which hold y, with x; those that were never stepped stay as they are."""
    for batch in batches([param for param in params if states[param]["num_steps"] > 0], states):
        if batch.keeps_x:
            foreach_copy_(batch.params, batch.of_state("x"))
        else:
            foreach_lerp_(batch.params, batch.of_state("z"), 1 - 1 / _mu_y(batch, arguments))
