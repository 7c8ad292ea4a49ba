"""Saving, loading, copying and growing a `WeightAveraging`: it goes on bit by bit, or a clear error says why not."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from shampoo.averaging import WeightAveraging
from tests.support.shampoo.averaging_methods import (
    INNER,
    METHODS,
    SHAPES,
    assert_equal,
    assert_same,
    averaged,
    values,
)
from tests.support.shampoo.settings import pairwise, parameters, train

DUPLICATES = pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "pickle"]
)


RESUMED = pairwise(
    {
        "method": {name: {"method": name} for name in METHODS},
        "inner": {name: {"inner": name} for name in INNER},
        "at": {str(step): {"at": step} for step in (0, 5)},
        "dtype": {str(dtype): {"dtype": dtype} for dtype in (torch.float32, torch.bfloat16)},
    }
)


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in RESUMED])
def test_resumed_training_is_bit_identical(case: dict[str, Any]) -> None:
    method, inner, at = case["method"], case["inner"], case["at"]
    params = parameters(SHAPES, case["dtype"])
    optimizer = WeightAveraging(INNER[inner](params), **METHODS[method])
    train(optimizer, params, range(at))
    buffer = io.BytesIO()
    torch.save(optimizer.state_dict(), buffer)
    resumed_params = [torch.nn.Parameter(w) for w in values(params)]
    kept = optimizer.state_dict()
    train(optimizer, params, range(at, at + 7))

    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=True)
    assert_same(loaded["averaging"], kept["averaging"])  # a snapshot: training on has not changed it
    resumed = WeightAveraging(INNER[inner](resumed_params), METHODS[method]["method"])
    resumed.load_state_dict(loaded)
    assert resumed.arguments == optimizer.arguments
    train(resumed, resumed_params, range(at, at + 7))
    assert_equal(resumed_params, params)
    assert_equal(averaged(resumed, resumed_params), averaged(optimizer, params))


@DUPLICATES
@pytest.mark.parametrize("method", METHODS)
def test_a_copy_trains_on_by_itself(method: str, duplicate: Callable[[Any], Any]) -> None:
    params = parameters(SHAPES)
    optimizer = WeightAveraging(INNER["adamw"](params), **METHODS[method])
    train(optimizer, params, range(5))
    other_params, other = duplicate((params, optimizer))
    before = averaged(optimizer, params)
    train(other, other_params, range(5, 10))
    assert_equal(averaged(optimizer, params), before)
    train(optimizer, params, range(5, 10))
    assert_equal(other_params, params)
    assert_equal(averaged(other, other_params), averaged(optimizer, params))
    with pytest.raises(RuntimeError, match="step the WeightAveraging"):
        other.optimizer.step()


def test_a_copy_made_while_the_average_shows_can_go_back() -> None:
    params = parameters([(3, 3)])
    optimizer = WeightAveraging(INNER["sgd"](params))
    train(optimizer, params, range(5))
    before = values(params)
    optimizer.eval()
    other_params, other = copy.deepcopy((params, optimizer))
    optimizer.train()
    assert other.shows_average
    other.train()
    assert_equal(other_params, before)


@pytest.mark.parametrize("add_to", ["averaging", "wrapped"])
@pytest.mark.parametrize("method", METHODS)
def test_groups_may_be_added_at_any_time(method: str, add_to: str) -> None:
    first, second = parameters([(3, 4), (6,)])
    optimizer = WeightAveraging(torch.optim.AdamW([first], lr=0.1), **METHODS[method])
    train(optimizer, [first], range(4))
    (optimizer if add_to == "averaging" else optimizer.optimizer).add_param_group({"params": [second], "lr": 0.5})
    before = second.detach().clone()
    train(optimizer, [first, second], range(4, 10))
    average = averaged(optimizer, [first, second])
    assert not torch.equal(average[1], second)
    assert not torch.equal(average[1], before)
    saved = optimizer.state_dict()
    other = WeightAveraging(torch.optim.AdamW([{"params": [first]}, {"params": [second]}]), **METHODS[method])
    other.load_state_dict(saved)
    assert_equal(averaged(other, [first, second]), average)


@pytest.mark.parametrize(
    ("method", "num_buffers"),
    [("ema", 1), ("schedule_free", 1), ("schedule_free at z", 1), ("primal", 1), ("primal at y", 1), ("lawa", 3)],
)
def test_memory_is_one_buffer_or_the_snapshots(method: str, num_buffers: int) -> None:
    params = parameters(SHAPES, torch.float32)
    optimizer = WeightAveraging(INNER["sgd"](params), **METHODS[method])
    train(optimizer, params, range(10))
    tensors = [
        tensor
        for state in optimizer.state_dict()["averaging"]["params"]
        for value in state.values()
        for tensor in (value if isinstance(value, list) else [value])
        if isinstance(tensor, Tensor)
    ]
    assert sum(tensor.nbytes for tensor in tensors) == num_buffers * sum(param.nbytes for param in params)


def test_hooks_run() -> None:
    params = parameters([(3,)])
    optimizer = WeightAveraging(INNER["sgd"](params))
    calls: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before step"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after step"))
    optimizer.register_state_dict_pre_hook(lambda _: calls.append("before saving"))
    optimizer.register_state_dict_post_hook(lambda _, state: {**state, "note": 1})
    optimizer.register_load_state_dict_pre_hook(lambda _, state: calls.append(f"note {state['note']}"))
    optimizer.register_load_state_dict_post_hook(lambda _: calls.append("loaded"))
    train(optimizer, params, range(1))
    optimizer.load_state_dict(optimizer.state_dict())
    assert calls == ["before step", "after step", "before saving", "note 1", "loaded"]


def _without_averaging(state: dict[str, Any]) -> dict[str, Any]:
    return {"optimizer": state["optimizer"]}


def _with_method(state: dict[str, Any]) -> dict[str, Any]:
    state["averaging"]["arguments"] = {"method": "lawa"}
    return state


def _with_fewer_parameters(state: dict[str, Any]) -> dict[str, Any]:
    state["averaging"]["params"].pop()
    return state


def _with_other_shape(state: dict[str, Any]) -> dict[str, Any]:
    state["averaging"]["params"][0]["average"] = torch.zeros(2, dtype=torch.float64)
    return state


def _without_count(state: dict[str, Any]) -> dict[str, Any]:
    del state["averaging"]["params"][0]["num_updates"]
    return state


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_without_averaging, r"lacks \['averaging'\]"),
        (_with_method, "method='lawa', this averaging 'ema'"),
        (_with_fewer_parameters, "averages 1 parameters, this optimizer has 2"),
        (_with_other_shape, r"'average' of parameter 0 is torch.float64 \(2,\), expected torch.float64 \(3,\)"),
        (_without_count, "average of parameter 0 holds"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_and_changes_nothing(
    spoil: Callable[[dict[str, Any]], dict[str, Any]], message: str
) -> None:
    params = parameters([(3,), (2, 2)])
    optimizer = WeightAveraging(INNER["sgd"](params))
    train(optimizer, params, range(3))
    before = optimizer.state_dict()
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(spoil(copy.deepcopy(before)))
    assert_same(optimizer.state_dict(), before)


def test_averaging_can_start_from_the_checkpoint_of_a_bare_optimizer() -> None:
    params = parameters([(3,)])
    bare = INNER["adamw"](params)
    train(bare, params, range(3))
    resumed = [torch.nn.Parameter(w) for w in values(params)]
    optimizer = WeightAveraging(INNER["adamw"](resumed), "ema")
    optimizer.optimizer.load_state_dict(copy.deepcopy(bare.state_dict()))
    train(optimizer, resumed, range(3, 6))
    train(bare, params, range(3, 6))
    assert_equal(resumed, params)
