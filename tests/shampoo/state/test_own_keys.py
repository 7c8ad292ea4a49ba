"""Keys of a user's own in parameter groups and in the state, in a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


@pytest.mark.parametrize("make", [shampoo, lora_rite, averaged])
@pytest.mark.parametrize("key", [0, False, 0.0])
def test_a_key_under_which_the_state_of_a_parameter_is_saved_is_refused(
    make: Callable[[], Optimizer], key: Any
) -> None:
    optimizer, other = make(), make()
    state: dict[Any, Any] = optimizer.state
    state[key] = {"mine": 3}
    with pytest.raises(ValueError, match=rf"optimizer\.state has the keys \[{key}\] beside those of parameters"):
        optimizer.state_dict()
    state["mine"] = state.pop(key)
    state[2] = {"mine": 4}  # the position of none
    other.load_state_dict(optimizer.state_dict())
    loaded: dict[Any, Any] = other.state
    assert (loaded["mine"], loaded[2]) == ({"mine": 3}, {"mine": 4})
