"""Gradients from vanishing to huge, and of a scale that changes: steps stay finite, and of the length that they had."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from shampoo import Shampoo
from tests.benchmarks.steps.changed_scale import METHODS, recovery
from tests.support.cases import in_one_test
from tests.support.shampoo.deviations import deviation
from tests.support.shampoo.members import KL, crossed, member
from tests.support.shampoo.settings import SHAPES, gradients_like, parameters, settings


# Five squares of gradients of the last scale are what float32 can just sum.
@in_one_test(("name", "scale"), crossed([0.0, 1e-30, 1e-20, 1e17]))
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


def _changes(optimizer: Shampoo, param: torch.nn.Parameter, gradients: list[Tensor]) -> list[Tensor]:
    """By how much each step moves one of the optimizer's parameters, put back to zero before it; the others get the
    same gradients."""
    changes = []
    for gradient in gradients:
        for group in optimizer.param_groups:
            for each in group["params"]:
                each.grad = gradient.to(each.dtype).reshape(each.shape)
        param.data.zero_()
        optimizer.step()
        changes.append(param.detach().clone())
    return changes


@pytest.mark.parametrize(("name", "scale"), crossed([0.0, 1e-30, 1e-25, 1e-22, 1e-20], KL))
def test_kl_of_gradients_that_come_to_life_is_as_if_it_began_there(name: str, scale: float) -> None:
    # Without an average of gradients, which has a bias of its own to correct.
    config = {**member(name), "betas": (0.0, 0.999), "beta3": None}
    (late,), (fresh,) = parameters([(8, 8)], torch.float32), parameters([(8, 8)], torch.float32)
    came_to_life, began = Shampoo([late], **config), Shampoo([fresh], **config)
    generator = torch.Generator().manual_seed(0)
    gradients = [torch.randn(8, 8, generator=generator) for _ in range(12)]
    # Of whole refresh periods, so that what follows is refreshed at the same steps.
    _changes(came_to_life, late, [gradient * scale for gradient in gradients])
    if "momentum.0" in came_to_life.state[late]:
        came_to_life.state[late]["momentum.0"].zero_()
    alive = [gradient * 1e-3 for gradient in gradients]
    for found, expected in zip(_changes(came_to_life, late, alive), _changes(began, fresh, alive), strict=True):
        assert expected.norm() > 0.01
        assert (found - expected).norm() < 1e-5 * expected.norm()
    assert came_to_life.diagnostics().num_failed_refreshes == 0


@pytest.mark.parametrize(("name", "before", "now"), [(name, *at) for name in KL for at in ((1e-10, 1.0), (1.0, 1e6))])
def test_kl_takes_steps_of_the_usual_length_as_soon_as_gradients_rise(name: str, before: float, now: float) -> None:
    if name == "kl_absolute" and before < 1:
        before, now = 1.0, 1e10  # below its ε there is no usual length
    config = {**member(name), "betas": (0.0, 0.8), "lr": 1.0}
    config.pop("momentum", None)
    config.pop("nesterov", None)
    (param,), (undisturbed,) = parameters([(12, 8)], torch.float32), parameters([(12, 8)], torch.float32)
    generator = torch.Generator().manual_seed(0)
    # In the middle of a period, of averages that have forgotten their start; then two more periods of every unit.
    gradients = [torch.randn(12, 8, generator=generator) for _ in range(34)]
    risen = [gradient * (before if step < 22 else now) for step, gradient in enumerate(gradients)]
    found = _changes(Shampoo([param], **config), param, risen)[22:]
    usual = _changes(Shampoo([undisturbed], **config), undisturbed, [now * gradient for gradient in gradients])[22:]
    for step, (one, other) in enumerate(zip(found, usual, strict=True)):
        assert 0.5 * other.norm() < one.norm() < 2 * other.norm(), step


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kl", "kl_int4"])
def test_kl_outlasts_zero_gradients_and_steps_as_before_when_they_end(name: str) -> None:
    # Without bounds an average of zeros would have left the range of float32 by then.
    config = {**member(name), "betas": (0.0, 0.5), "lr": 1.0}
    (param,) = parameters([(12, 8)], torch.float32)
    optimizer = Shampoo([param], **config)
    generator = torch.Generator().manual_seed(0)
    gradients = [torch.randn(12, 8, generator=generator) * (not 20 <= step < 180) for step in range(200)]
    changes = _changes(optimizer, param, gradients)
    assert not torch.stack(changes[20:180]).any()
    usual = torch.stack(changes[10:20]).norm()
    assert 0.5 * usual < torch.stack(changes[190:]).norm() < 2 * usual
    assert optimizer.diagnostics().num_failed_refreshes == 0


@pytest.mark.slow
def test_kl_of_gradients_of_one_direction_keeps_its_factors_together() -> None:
    # They leave out another share of one side than of the other, so that the factors grow apart.
    (param,) = parameters([(32, 2)], torch.float32)
    optimizer = Shampoo([param], preconditioner="kl", betas=(0.0, 0.5), lr=1.0, precondition_frequency=4)
    direction = torch.outer(torch.linspace(1, 2, 32), torch.tensor([1.0, -0.5]))
    changes = _changes(optimizer, param, [direction] * 300)
    torch.testing.assert_close(changes[-1], changes[20], rtol=1e-2, atol=0)
    levels = [optimizer.state[param][f"eigenvalues{side}.0"].mean() for side in (0, 1)]
    assert 1e-13 < levels[0] / levels[1] < 1e13


@pytest.mark.slow
def test_squares_follow_a_rise_the_later_the_longer_they_are_averaged() -> None:
    # An average over all of n steps so far has a quarter of the new squares after a third of n.
    early, late = (recovery(METHODS["AdamW"], factor=1e3, at=at, seed=0, limit=200) for at in (60, 300))
    assert 15 <= early[0] <= 30
    assert 80 <= late[0] <= 120
    assert early[1] < late[1]
    for name in ("soap", "kl"):  # over 20 steps
        assert recovery(METHODS[name], factor=1e3, at=60, seed=0, limit=40)[0] <= 5


@pytest.mark.parametrize("solver", ["eigh", "qr"])
def test_kl_follows_the_reference_through_changes_of_scale(solver: str) -> None:
    config = settings(preconditioner="kl", betas=(0.9, 0.9), solver=solver)
    scales = [1e-9] * 12 + [1.0] * 10 + [1e4] * 8 + [1e-20] * 3 + [1.0] * 5
    shapes = [SHAPES[order] for order in ("order2", "order3")]
    assert deviation(config, shapes, torch.float64, scales=[[scale, scale] for scale in scales]) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, config in KL.items() if "large_dim_method" not in config])
def test_blocks_of_one_bucket_come_to_life_each_at_its_own_step(name: str) -> None:
    # In the middle of a refresh period, too. Two blocks are one parameter's.
    scales = [(3, 1e-20), (0, 1.0), (6, 1e-30), (9, 1e-25)]
    config = {**member(name), "max_preconditioner_dim": 6, "stagger_refresh": False}
    together, apart = parameters([(6, 12), (6, 6), (6, 6)], torch.float32), parameters([(6, 6)] * 4, torch.float32)
    optimizers = [Shampoo(together, **config)], [Shampoo([block], **config) for block in apart]
    generator = torch.Generator().manual_seed(0)
    for step in range(15):
        gradients = [
            torch.randn(6, 6, generator=generator) * (scale if step < begins else 1e-3) for begins, scale in scales
        ]
        together[0].grad = torch.cat(gradients[:2], dim=1)
        for param, gradient in zip(together[1:] + apart, gradients[2:] + gradients, strict=True):
            param.grad = gradient.clone()
        for param in together + apart:
            param.data.zero_()
        for optimizer in optimizers[0] + optimizers[1]:
            optimizer.step()
        found = [*together[0].detach().split(6, dim=1), *(param.detach() for param in together[1:])]
        for block, expected in zip(found, apart, strict=True):
            torch.testing.assert_close(block, expected.detach(), rtol=1e-4, atol=1e-4 * expected.abs().max().item())
    assert optimizers[0][0].diagnostics().num_failed_refreshes == 0


def test_standardized_rows_of_one_value_stay_where_they_are() -> None:
    weight = nn.Parameter(torch.zeros(3, 7))
    # The mean of seven such values is rounded.
    weight.grad = torch.stack([torch.full((7,), 0.1), torch.arange(7.0), 1e3 + torch.arange(7.0)])
    Shampoo([weight], preconditioner="spectral", standardize_rows=True, betas=(0.0, 0.999)).step()
    assert torch.equal(weight[0], torch.zeros(7))
    # One line of values is as any other to them, however far it lies from 0.
    torch.testing.assert_close(weight[1], weight[2])
    assert bool(weight[1].any())


def test_standardized_rows_of_one_element_are_stepped_as_they_are() -> None:
    # Three columns in blocks of at most two are three blocks.
    weight, plain = (nn.Parameter(torch.zeros(4, 3)) for _ in range(2))
    for param, standardize_rows in ((weight, True), (plain, False)):
        param.grad = torch.arange(1.0, 13.0).view(4, 3)
        Shampoo(
            [param],
            preconditioner="spectral",
            betas=(0.0, 0.999),
            max_preconditioner_dim=2,
            standardize_rows=standardize_rows,
        ).step()
    assert torch.equal(weight, plain)
    assert bool(weight.all())
