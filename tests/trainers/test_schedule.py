from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from trainers.config import Decay, ScheduleConfig
from trainers.schedule import factor, set_learning_rates


def test_warm_up_is_a_line_and_the_decay_starts_at_1() -> None:
    config = ScheduleConfig(warmup_fraction=0.3, decay="linear")
    factors = [factor(step, config=config, num_steps=10) for step in range(11)]
    expected = [1 / 4, 2 / 4, 3 / 4, 1, 6 / 7, 5 / 7, 4 / 7, 3 / 7, 2 / 7, 1 / 7, 0]
    assert factors == pytest.approx(expected, abs=1e-15)


def test_cosine_is_half_way_in_the_middle_and_0_after_the_last_step() -> None:
    config = ScheduleConfig(warmup_fraction=0.0, decay="cosine")
    assert factor(0, config=config, num_steps=100) == 1
    assert factor(25, config=config, num_steps=100) == pytest.approx((1 + math.cos(math.pi / 4)) / 2)
    assert factor(50, config=config, num_steps=100) == pytest.approx(0.5)
    assert factor(100, config=config, num_steps=100) == pytest.approx(0, abs=1e-15)


def test_constant_stays_at_1_after_the_warm_up() -> None:
    config = ScheduleConfig(warmup_fraction=0.1, decay="constant")
    assert {factor(step, config=config, num_steps=50) for step in range(5, 50)} == {1.0}


@pytest.mark.parametrize("decay", ["cosine", "linear", "constant", "wsd"])
@pytest.mark.parametrize("warmup_fraction", [0.0, 0.05, 0.5, 0.999])
@pytest.mark.parametrize("num_steps", [1, 2, 3, 10, 97])
def test_no_step_is_spent_at_0_and_none_above_1(decay: Decay, warmup_fraction: float, num_steps: int) -> None:
    config = ScheduleConfig(warmup_fraction=warmup_fraction, decay=decay)
    factors = [factor(step, config=config, num_steps=num_steps) for step in range(num_steps)]
    assert all(0 < value <= 1 for value in factors)
    assert max(factors) == 1


def test_wsd_stays_at_1_and_falls_in_its_last_part() -> None:
    config = ScheduleConfig(warmup_fraction=0.1, decay="wsd", decay_fraction=0.25)
    factors = [factor(step, config=config, num_steps=20) for step in range(20)]
    assert factors == pytest.approx([1 / 3, 2 / 3] + [1.0] * 14 + [0.8, 0.6, 0.4, 0.2])
    whole = ScheduleConfig(warmup_fraction=0.5, decay="wsd", decay_fraction=1.0)
    assert [factor(step, config=whole, num_steps=4) for step in range(2, 4)] == [1.0, 0.5]


@pytest.mark.parametrize("decay", ["cosine", "linear", "constant", "wsd"])
def test_a_horizon_is_the_length_of_the_schedule_whatever_the_trials(decay: Decay) -> None:
    config = ScheduleConfig(warmup_fraction=0.2, decay=decay)
    longer = dataclasses.replace(config, horizon=1.5)
    for step in range(20):
        assert factor(step, config=longer, num_steps=20) == factor(step, config=config, num_steps=30)
    shorter = dataclasses.replace(config, horizon=0.5)
    after = {factor(step, config=shorter, num_steps=20) for step in range(10, 20)}
    assert after == {1.0 if decay == "constant" else 0.0}


def test_each_group_gets_its_own_learning_rate_in_every_step() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    groups: list[dict[str, Any]] = [{"params": [parameters[0]]}, {"params": [parameters[1]], "lr": 3.0}]
    optimizer = torch.optim.SGD(groups, lr=2.0)
    config = ScheduleConfig(warmup_fraction=0.4, decay="cosine")
    for step in range(5):
        set_learning_rates(optimizer, config, step=step, num_steps=5)
        expected = factor(step, config=config, num_steps=5)
        assert [group["lr"] for group in optimizer.param_groups] == [2.0 * expected, 3.0 * expected]
