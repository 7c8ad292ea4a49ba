"""Keys of a user's own in parameter groups, in a checkpoint that is loaded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch.optim import Optimizer

from shampoo import LoraRite, Shampoo, WeightAveraging
from tests.support.shampoo.settings import parameters, settings


def shampoo() -> Optimizer:
    return Shampoo(parameters([(6, 6)]), **settings())


def lora_rite() -> Optimizer:
    return LoraRite(parameters([(6, 2), (2, 6)]))


def averaged() -> Optimizer:
    return WeightAveraging(shampoo(), "ema", decay=0.9)


@pytest.mark.parametrize("make", [shampoo, lora_rite, averaged])
def test_values_of_own_keys_are_not_shared_with_the_checkpoint(make: Callable[[], Optimizer]) -> None:
    optimizer, other = make(), make()
    for group in optimizer.param_groups:
        group["zz_mine"] = {"seen": [1]}
    saved = optimizer.state_dict()
    for loaded in (other, optimizer):  # a checkpoint of its own, too
        loaded.load_state_dict(saved)
        kept = loaded.param_groups[0]["zz_mine"]
        assert kept == {"seen": [1]}
        kept["seen"].append(2)
    assert [group["zz_mine"] for group in other.param_groups] == [{"seen": [1, 2]}] + [
        {"seen": [1]} for _ in other.param_groups[1:]
    ]
    third = make()
    third.load_state_dict(saved)
    assert third.param_groups[0]["zz_mine"] == {"seen": [1]}
