"""The benchmark of moved configs: its means over seeds, their noise, and its configs with one field as re-tuned."""

from __future__ import annotations

import math

import pytest

from service.transfer.rules import TunedConfig
from tests.benchmarks.answers.transfer import PENALTY, loss_ratio, ratio_noise, seed_noise, with_own_fields


def test_losses_are_compared_by_their_geometric_means_over_the_same_seeds() -> None:
    own = [0.1, 0.4]
    assert loss_ratio([0.2, 0.8], own) == pytest.approx(2)
    assert loss_ratio([0.4, 0.1], own) == pytest.approx(1)
    assert seed_noise(own) == pytest.approx(math.exp(math.log(4) / math.sqrt(2)))
    # Seeds that are hard for both are no noise of the ratio.
    assert ratio_noise([0.2, 0.8], own) == pytest.approx(1)
    assert ratio_noise([0.4, 0.1], own) == pytest.approx(4)
    assert math.isnan(ratio_noise([0.2], [0.1]))


def test_a_config_that_diverges_with_a_seed_costs_the_penalty() -> None:
    assert loss_ratio([0.2, math.inf], [0.1, 0.1]) == PENALTY
    assert ratio_noise([0.2, 0.2], [0.1, math.inf]) == seed_noise([0.1, math.inf]) == PENALTY


def test_each_field_that_differs_is_replaced_alone() -> None:
    moved = TunedConfig("shampoo", {"lr": 0.1, "betas": [0.9, 0.99], "epsilon": 1e-8}, {"warmup_fraction": 0.05})
    own = TunedConfig("shampoo", {"lr": 0.2, "betas": [0.9, 0.5], "epsilon": 1e-8}, {"warmup_fraction": 0.1})
    found = with_own_fields(moved, own)
    assert {name: (config.arguments, config.schedule) for name, config in found.items()} == {
        "lr": ({**moved.arguments, "lr": 0.2}, moved.schedule),
        "betas[1]": ({**moved.arguments, "betas": [0.9, 0.5]}, moved.schedule),
        "schedule.warmup_fraction": (moved.arguments, {"warmup_fraction": 0.1}),
    }
