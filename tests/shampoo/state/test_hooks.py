"""Hooks around saving and loading, which torch's `Optimizer` calls in methods that ours replaces."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim import Optimizer

from shampoo import Shampoo
from tests.support.shampoo.settings import parameters, settings, train


def test_load_state_dict_hooks_run() -> None:
    optimizer = Shampoo(parameters([(6, 6)]), **settings())
    calls: list[str] = []

    def faster(_: Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        calls.append("before")
        return {**state, "param_groups": [{**group, "lr": 0.5} for group in state["param_groups"]]}

    optimizer.register_load_state_dict_pre_hook(faster)
    optimizer.register_load_state_dict_post_hook(lambda _: calls.append("after"))
    optimizer.load_state_dict(optimizer.state_dict())
    assert calls == ["before", "after"]
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_state_dict_hooks_get_what_is_saved_and_may_replace_all_of_it() -> None:
    params = parameters([(6, 6)])
    optimizer = Shampoo(params, **settings())
    train(optimizer, params, range(2))
    before, portable = optimizer.state_dict()["state"][0], optimizer.distributed_state_dict()
    calls: list[str] = []

    def named(_: Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        calls.append("after")
        state["state"][0]["first_moment.0"].zero_()
        return {"weight": state["state"].pop(0)}

    optimizer.register_state_dict_pre_hook(lambda _: calls.append("before"))
    handle = optimizer.register_state_dict_post_hook(named)
    optimizer.load_distributed_state_dict(portable)
    assert calls == []
    assert optimizer.state_dict().keys() == {"weight"}
    assert calls == ["before", "after"]
    handle.remove()
    # What the hook wrote to was a copy.
    assert torch.equal(optimizer.state_dict()["state"][0]["first_moment.0"], before["first_moment.0"])
    assert before["first_moment.0"].any()
