"""Parameters below float32: which updates rounding to nearest, stochastic rounding and a master copy keep."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shampoo import Shampoo
from shampoo.choices import LowPrecisionWeights
from tests.support.shampoo.members import REPRESENTATIVES, member
from tests.support.shampoo.settings import gradients_like, parameters, train

LOW_PRECISION = [torch.bfloat16, torch.float16]
PLAIN_SGD: dict[str, Any] = {"preconditioner": "none", "grafting": "sgd", "betas": (0.0, 0.999)}
SHAPES = [(13,), (6, 7), (9, 4, 5)]


# --- updates far below the distance of neighbours ---

NUM_STEPS = 100
# Below 1 neighbours are 2^-8 (bfloat16) and 2^-11 (float16) apart; an update is a fortieth or fiftieth of that.
TINY = {torch.bfloat16: 1e-4, torch.float16: 1e-5}
SPACING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


def _after_tiny_updates(weights: LowPrecisionWeights, dtype: torch.dtype) -> tuple[nn.Parameter, Shampoo]:
    param = nn.Parameter(torch.ones(64, 64, dtype=dtype))
    optimizer = Shampoo([param], lr=TINY[dtype], **PLAIN_SGD, low_precision_weights=weights)
    for _ in range(NUM_STEPS):
        param.grad = torch.ones_like(param)
        optimizer.step()
    return param, optimizer


@pytest.mark.parametrize("dtype", LOW_PRECISION)
def test_rounding_to_nearest_loses_tiny_updates(dtype: torch.dtype) -> None:
    param, _ = _after_tiny_updates("nearest", dtype)
    assert torch.equal(param, torch.ones_like(param))


@pytest.mark.parametrize("dtype", LOW_PRECISION)
def test_stochastic_rounding_keeps_tiny_updates_on_average(dtype: torch.dtype) -> None:
    param, _ = _after_tiny_updates("stochastic", dtype)
    moved = 1 - param.double()
    # A step moves an element by a whole spacing with probability p: the moves are binomial.
    p = TINY[dtype] / SPACING[dtype]
    deviation = SPACING[dtype] * (NUM_STEPS * p * (1 - p)) ** 0.5
    assert abs(moved.mean().item() - NUM_STEPS * TINY[dtype]) < 5 * deviation / 64
    assert moved.std().item() == pytest.approx(deviation, rel=0.1)


@pytest.mark.parametrize("dtype", LOW_PRECISION)
def test_a_master_copy_keeps_tiny_updates_as_float32_does(dtype: torch.dtype) -> None:
    param, optimizer = _after_tiny_updates("master", dtype)
    full = nn.Parameter(torch.ones(64, 64))
    plain = Shampoo([full], lr=TINY[dtype], **PLAIN_SGD)
    for _ in range(NUM_STEPS):
        full.grad = torch.ones_like(full)
        plain.step()
    assert torch.equal(optimizer.state[param]["master"], full)
    assert torch.equal(param, full.to(dtype))
    assert (param < 1).all()


# --- every member ---


def _twins(
    name: str, dtype: torch.dtype, **changes: Any
) -> tuple[list[nn.Parameter], list[nn.Parameter], dict[str, Any]]:
    """Parameters of low precision and float32 ones of the same values."""
    low = parameters(SHAPES, dtype)
    return low, [nn.Parameter(param.detach().float()) for param in low], {**member(name), **changes}


def _step_both(
    optimizer: Shampoo, params: list[nn.Parameter], plain: Shampoo, full: list[nn.Parameter], step: int
) -> None:
    for param, twin, gradient in zip(params, full, gradients_like(params, step=step), strict=True):
        param.grad, twin.grad = gradient, gradient.float()
    optimizer.step()
    plain.step()


@pytest.mark.parametrize("dtype", LOW_PRECISION)
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_a_master_copy_trains_as_a_float32_parameter_bit_for_bit(name: str, dtype: torch.dtype) -> None:
    params, full, config = _twins(name, dtype, weight_decay=0.1)
    optimizer, plain = Shampoo(params, **config, low_precision_weights="master"), Shampoo(full, **config)
    for step in range(6):
        _step_both(optimizer, params, plain, full, step)
    for param, twin in zip(params, full, strict=True):
        assert optimizer.state[param]["master"].dtype == torch.float32
        assert torch.equal(optimizer.state[param]["master"], twin)
        assert torch.equal(param, twin.to(dtype))


@pytest.mark.parametrize("dtype", LOW_PRECISION)
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_a_stochastic_step_ends_at_a_neighbour_of_the_float32_step(name: str, dtype: torch.dtype) -> None:
    params, full, config = _twins(name, dtype)
    optimizer, plain = Shampoo(params, **config, low_precision_weights="stochastic"), Shampoo(full, **config)
    _step_both(optimizer, params, plain, full, 1)
    num_up = num_down = 0
    for param, twin in zip(params, full, strict=True):
        nearest = twin.detach().to(dtype).float()
        # The distance of neighbours is at most the nearest's own last digit.
        error = (param.detach().float() - twin.detach()).abs()
        assert (error <= nearest.abs() * torch.finfo(dtype).eps + 1e-7).all()
        num_up += int((param.float() > twin).sum())
        num_down += int((param.float() < twin).sum())
    # 235 elements, each up or down with half a chance on average.
    assert min(num_up, num_down) > 70


# --- what stochastic rounding draws from ---


@pytest.mark.parametrize("dtype", LOW_PRECISION)
def test_stochastic_rounding_draws_from_the_step_and_neither_reads_nor_moves_global_random_numbers(
    dtype: torch.dtype,
) -> None:
    results = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        params = parameters(SHAPES, dtype)
        train(Shampoo(params, **member("soap"), low_precision_weights="stochastic"), params, range(5))
        assert torch.equal(torch.get_rng_state(), before)
        results.append([param.detach().clone() for param in params])
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", LOW_PRECISION)
def test_stochastic_rounding_draws_anew_for_each_step_and_each_parameter(dtype: torch.dtype) -> None:
    params = [nn.Parameter(torch.ones(64, 64, dtype=dtype)) for _ in range(2)]
    optimizer = Shampoo(params, lr=SPACING[dtype] / 2, **PLAIN_SGD, low_precision_weights="stochastic")
    seen: list[Tensor] = []
    for _ in range(2):
        for param in params:
            with torch.no_grad():
                param.fill_(1)
            param.grad = torch.ones_like(param)
        optimizer.step()
        seen += [param.detach() < 1 for param in params]
    for index, one in enumerate(seen):
        assert abs(one.double().mean().item() - 0.5) < 0.04  # five deviations of 4,096 coins
        for other in seen[:index]:
            assert abs((one == other).double().mean().item() - 0.5) < 0.04


def test_stochastic_rounding_to_float16_is_right_at_its_limits() -> None:
    smallest, largest = 2.0**-24, 65504.0
    values = {
        0.25 * smallest: {0.0, smallest},  # below its smallest number
        -0.25 * smallest: {-smallest, 0.0},
        1000.5 * smallest: {1000 * smallest, 1001 * smallest},  # subnormal
        2.0**-14 - 0.5 * smallest: {2.0**-14 - smallest, 2.0**-14},  # between subnormal and normal
        1 - 2.0**-12: {1 - 2.0**-11, 1.0},  # the spacing doubles at 1
        -(1 + 2.0**-11): {-(1 + 2.0**-10), -1.0},
        1.0: {1.0},
        0.0: {0.0},
        largest: {largest},
        70000.0: {largest},  # a finite number stays finite
    }
    for value, neighbours in values.items():
        param = nn.Parameter(torch.zeros(4096, dtype=torch.float16))
        optimizer = Shampoo([param], lr=1.0, **PLAIN_SGD, low_precision_weights="stochastic")
        low, high = min(neighbours), max(neighbours)
        _step_to(param, optimizer, value)
        assert set(param.detach().unique().tolist()) == neighbours, value
        if low < high and abs(value) < largest:
            mean = param.detach().double().mean().item()
            assert abs(mean - value) < 0.04 * (high - low), value


def _step_to(param: nn.Parameter, optimizer: Shampoo, value: float) -> None:
    """A step of plain gradient descent from 0 with a gradient of 1 in every element, or −1."""
    param.grad = torch.full_like(param, -1.0 if value > 0 else 1.0)
    optimizer.param_groups[0]["lr"] = abs(value)
    optimizer.step()


# --- memory layouts, checkpoints, mixed groups ---


@pytest.mark.parametrize("weights", ["nearest", "stochastic", "master"])
@pytest.mark.parametrize("dtype", LOW_PRECISION)
def test_the_layout_of_memory_makes_no_difference(dtype: torch.dtype, weights: str) -> None:
    (plain,) = parameters([(8, 6, 3, 3)], dtype)
    strided = nn.Parameter(plain.detach().to(memory_format=torch.channels_last))
    config = {**member("soap"), "low_precision_weights": weights}
    one, other = Shampoo([plain], **config), Shampoo([strided], **config)
    train(one, [plain], range(5))
    train(other, [strided], range(5))
    assert strided.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(plain, strided)


@pytest.mark.parametrize("dtype", LOW_PRECISION)
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_a_master_copy_survives_a_saved_file_and_overrules_the_weights(name: str, dtype: torch.dtype) -> None:
    config = {**member(name), "low_precision_weights": "master"}
    params, resumed = parameters(SHAPES, dtype), parameters(SHAPES, dtype)
    optimizer, other = Shampoo(params, **config), Shampoo(resumed, **config)
    train(optimizer, params, range(3))
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    # The weights themselves were not loaded: the next step starts from the master.
    for step in range(3, 5):
        for param, twin, gradient in zip(params, resumed, gradients_like(params, step=step), strict=True):
            param.grad, twin.grad = gradient, gradient.clone()
        optimizer.step()
        other.step()
    for param, twin in zip(params, resumed, strict=True):
        assert torch.equal(optimizer.state[param]["master"], other.state[twin]["master"])
        assert torch.equal(param, twin)


@pytest.mark.parametrize("weights", ["stochastic", "master"])
@pytest.mark.parametrize("dtype", LOW_PRECISION)
def test_float32_parameters_of_a_mixed_group_are_stepped_as_ever(
    dtype: torch.dtype, weights: LowPrecisionWeights
) -> None:
    mixed, expected = parameters(SHAPES, dtype), parameters(SHAPES, dtype)
    for params in (mixed, expected):
        params.append(nn.Parameter(torch.ones(6, 7)))
    optimizer = Shampoo(mixed, **member("soap"), low_precision_weights=weights)
    plain = Shampoo(expected, **member("soap"))
    assert "master" not in optimizer.state[mixed[-1]]
    assert [("master" in optimizer.state[param]) for param in mixed[:-1]] == [weights == "master"] * 3
    for step in range(5):
        _, _, _, gradient = gradients_like(mixed, step=step)
        mixed[-1].grad, expected[-1].grad = gradient, gradient.clone()
        for param in mixed[:-1]:
            param.grad = torch.ones_like(param)
        optimizer.step()
        plain.step()
    assert torch.equal(mixed[-1], expected[-1])


@pytest.mark.parametrize("weights", ["stochastic", "master"])
def test_asking_for_it_without_a_parameter_below_float32_is_refused(weights: LowPrecisionWeights) -> None:
    with pytest.raises(ValueError, match=f"low_precision_weights='{weights}' has no effect on parameters of .*float32"):
        Shampoo([nn.Parameter(torch.ones(3, 3))], low_precision_weights=weights)
