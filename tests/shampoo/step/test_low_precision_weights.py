"""bfloat16 parameters: the state is as exact as for float32 ones, and the weights are what their option promises.

The reference gets the same bfloat16 gradients and steps in float64. Under "nearest" and "stochastic" each of its steps
begins at the weights that the optimizer has rounded, so that what is compared is one step with all the state before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from shampoo import Shampoo
from tests.support.shampoo.reference.shampoo import ReferenceShampoo
from tests.support.shampoo.settings import SHAPES, gradients_like, parameters, settings

# Where float32 is within 2e-5 of the reference: see `test_against_reference.FLOAT32`.
WELL_CONDITIONED: dict[str, dict[str, Any]] = {
    "shampoo": {"epsilon": 1e-4},
    "soap": {"preconditioner": "soap", "start_preconditioning_step": 2},
    "kl": {"preconditioner": "kl", "solver": "eigh64", "epsilon": 1e-2},
    "spectral": {"preconditioner": "spectral"},
    "none": {"preconditioner": "none"},
}
every_member = pytest.mark.parametrize("member", WELL_CONDITIONED)


def _steps_from_rounded_weights(
    config: dict[str, Any], num_steps: int
) -> Iterator[list[tuple[Tensor, Tensor, Tensor]]]:
    """After each step of every parameter: its weights before, those the reference steps to from there, its own."""
    params = parameters(list(SHAPES.values()), torch.bfloat16)
    reference, optimizer = ReferenceShampoo(params, config), Shampoo(params, **config)
    for step in range(num_steps):
        gradients = gradients_like(params, step=step)
        before = [param.detach().double() for param in params]
        for param, gradient, expected, weight in zip(params, gradients, reference.parameters, before, strict=True):
            param.grad = gradient
            expected.W = weight.clone()
        optimizer.step()
        reference.step(list(gradients))
        yield [
            (weight, expected, param.detach().double())
            for weight, expected, param in zip(before, reference.weights, params, strict=True)
        ]


def _spacing(weights: Tensor) -> Tensor:
    """The distance of bfloat16 numbers, which have 8 significant bits, around these normal ones."""
    return 2.0 ** (weights.abs().clamp(min=1e-30).log2().floor() - 7)


@pytest.mark.slow
@every_member
def test_a_master_copy_follows_the_reference_and_the_parameter_is_its_rounding(member: str) -> None:
    config = settings(low_precision_weights="master", weight_decay=0.1, **WELL_CONDITIONED[member])
    params = parameters(list(SHAPES.values()), torch.bfloat16)
    start = [param.detach().double() for param in params]
    reference, optimizer = ReferenceShampoo(params, config), Shampoo(params, **config)
    for step in range(30):
        gradients = gradients_like(params, step=step)
        for param, gradient in zip(params, gradients, strict=True):
            param.grad = gradient
        optimizer.step()
        reference.step(list(gradients))
        for param, expected, at in zip(params, reference.weights, start, strict=True):
            master = optimizer.state[param]["master"]
            assert master.dtype == torch.float32
            # That of float32 parameters, and five iterations whose slope at zero is 3.4 each.
            tolerance = 1e-4 if member == "spectral" else 2e-5
            assert (master.double() - expected).norm() < tolerance * (expected - at).norm()
            assert torch.equal(param.detach(), master.bfloat16())


@every_member
def test_weights_rounded_to_nearest_are_half_a_spacing_from_the_reference(member: str) -> None:
    config = settings(**WELL_CONDITIONED[member])
    for outcomes in _steps_from_rounded_weights(config, 20):
        for _, expected, weight in outcomes:
            # And what float32 has not right of the step, at most 1e-2 long: less than a percent of most spacings.
            error = (weight - expected).abs()
            assert (error <= 0.5 * _spacing(expected) + 1e-6).all()


@pytest.mark.slow
@every_member
def test_weights_rounded_stochastically_are_neighbours_of_the_reference_and_right_in_the_mean(member: str) -> None:
    config = settings(low_precision_weights="stochastic", weight_decay=0.1, **WELL_CONDITIONED[member])
    shares, variance = [], 0.0
    for outcomes in _steps_from_rounded_weights(config, 40):
        for _, expected, weight in outcomes:
            spacing = _spacing(expected)
            error = (weight - expected) / spacing
            assert (error.abs() <= 1 + 1e-6 / spacing).all()
            shares.append(error.flatten())
            # Of a number that is rounded up with probability p.
            p = (expected / spacing).remainder(1)
            variance += float((p * (1 - p)).sum())
    errors = torch.cat(shares)
    # Some 30,000 draws: the mean to five standard deviations, without drift towards the weights before.
    assert abs(float(errors.sum())) < 5 * math.sqrt(variance)
    assert float(errors.square().sum()) == pytest.approx(variance, rel=0.1)


def test_rounding_to_nearest_loses_small_steps_and_the_other_options_do_not() -> None:
    # 200 steps of 1e-4 from 1, whose neighbour below is 2⁻⁸ away.
    moved = {}
    for option in ("nearest", "stochastic", "master"):
        param = torch.nn.Parameter(torch.ones(64, 64, dtype=torch.bfloat16))
        config = settings(preconditioner="none", grafting="sgd", betas=(0.0, 0.999), low_precision_weights=option)
        optimizer = Shampoo([param], **{**config, "lr": 1e-4})
        for _ in range(200):
            param.grad = torch.ones_like(param)
            optimizer.step()
        moved[option] = float((1 - param.detach().double()).mean())
    assert moved["nearest"] == 0
    # The rounding of 0.98 to bfloat16.
    assert moved["master"] == pytest.approx(0.02, abs=2**-9)
    # 4,096 weights, each a sum of 200 draws of variance below 1e-4 · 2⁻⁸: five standard deviations.
    assert moved["stochastic"] == pytest.approx(0.02, abs=5 * math.sqrt(200 * 1e-4 * 2**-8 / 4096))
