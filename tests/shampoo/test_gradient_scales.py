"""Gradients from vanishing to huge, and of a scale that changes: steps stay finite, and of the length that they had."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from shampoo import Shampoo
from tests.shampoo.members import MEMBERS, member
from tests.shampoo.settings import gradients_like, parameters, settings


# Five squares of gradients of the last scale are what float32 can just sum.
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-20, 1e17])
@pytest.mark.parametrize("name", MEMBERS)
def test_extreme_gradients_leave_finite_weights_and_state(name: str, scale: float) -> None:
    params = parameters([(6, 6), (5,)], torch.float32)
    optimizer = Shampoo(params, **{**member(name, precondition_frequency=2), "lr": 1e-20})
    for step in range(5):
        for param, gradient in zip(params, gradients_like(params, step=step), strict=True):
            param.grad = gradient * scale
        optimizer.step()
    assert all(param.isfinite().all() for param in params)
    for state in optimizer.state.values():
        for quantity, value in state.items():
            assert not isinstance(value, Tensor) or value.isfinite().all(), quantity


@pytest.mark.parametrize("before", [1e-20, 1.0, 1e15])
@pytest.mark.parametrize("now", [1e-10, 1.0])
@pytest.mark.parametrize("exponent", [None, 0.5, 1.0])
def test_a_change_of_the_gradients_scale_between_refreshes_keeps_the_grafted_step_length(
    exponent: float | None, now: float, before: float
) -> None:
    # Roots of gradients of one scale are applied to gradients of another, and may neither overflow nor vanish.
    params = parameters([(6, 6)], torch.float32)
    optimizer = Shampoo(
        params, **settings(grafting="sgd", betas=(0.0, 0.9), lr=1.0, exponent_override=exponent, stagger_refresh=False)
    )
    for step in range(7):
        params[0].grad = gradients_like(params, step=step)[0] * before
        params[0].data.zero_()
        optimizer.step()
    params[0].data.zero_()
    params[0].grad = gradients_like(params, step=7)[0] * now
    optimizer.step()
    torch.testing.assert_close(params[0].norm(), params[0].grad.norm(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("scale", [1e-20, 1e-23, 1e-30])
@pytest.mark.parametrize("grafting", ["sgd", "adam"])
def test_a_step_too_small_to_measure_is_not_blown_up(grafting: str, scale: float) -> None:
    # Gradients of a saturated network, whose squares vanish in float32.
    params = parameters([(6, 6)], torch.float32)
    optimizer = Shampoo(params, **settings(grafting=grafting, lr=1.0))
    before = params[0].detach().clone()
    for step in range(20):
        params[0].grad = gradients_like(params, step=step)[0] * scale
        optimizer.step()
    torch.testing.assert_close(params[0], before, rtol=0, atol=1e-8)
