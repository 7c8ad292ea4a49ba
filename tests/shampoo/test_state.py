"""Saving, loading, copying: training goes on bit by bit as if nothing had happened, or a clear error says why not."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

from shampoo import Shampoo
from tests.shampoo.settings import SHAPES, parameters, settings, train

ALL_STATE = {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1, "precondition_frequency": 4}
CONFIGS = {
    "adam": settings(**ALL_STATE),
    "sgd": settings(**ALL_STATE, grafting="sgd", betas=(0.0, 0.9)),
    "none": settings(**ALL_STATE, grafting="none"),
}


def _saved_and_loaded(state: dict[str, Any]) -> dict[str, Any]:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    loaded: dict[str, Any] = torch.load(buffer, weights_only=True)
    return loaded


def _assert_same(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            _assert_same(a[key], b[key])
    else:
        assert a == b


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("grafting", CONFIGS)
@pytest.mark.parametrize("at", [0, 3, 10])
def test_resumed_training_is_bit_identical(grafting: str, at: int, dtype: torch.dtype) -> None:
    shapes = [*SHAPES.values(), (), (0, 3), (1,)]
    params = parameters(shapes, dtype)
    optimizer = Shampoo(params, **CONFIGS[grafting])
    train(optimizer, params, range(at))
    state = optimizer.state_dict()
    weights = [param.detach().clone() for param in params]
    train(optimizer, params, range(at, at + 10))

    resumed_params = [torch.nn.Parameter(weight) for weight in weights]
    resumed = Shampoo(resumed_params, **CONFIGS[grafting])
    resumed.load_state_dict(_saved_and_loaded(state))
    _assert_same(resumed.state_dict(), state)
    train(resumed, resumed_params, range(at, at + 10))
    assert all(torch.equal(a, b) for a, b in zip(params, resumed_params, strict=True))
    _assert_same(resumed.state_dict(), optimizer.state_dict())


def test_the_order_of_blocks_in_a_bucket_is_no_part_of_the_format() -> None:
    # Two groups share no bucket, one group does: a parameter's saved state is the same either way.
    together, apart = parameters([(9, 4), (4, 9), (9, 4)]), parameters([(9, 4), (4, 9), (9, 4)])
    one, two = Shampoo(together, **settings()), Shampoo([{"params": [p]} for p in apart], **settings())
    train(one, together, range(8))
    train(two, apart, range(8))
    for index in range(3):
        _assert_same(one.state_dict()["state"][index], two.state_dict()["state"][index])


def test_a_state_dict_is_a_snapshot_of_its_own_memory() -> None:
    params = parameters([(6, 6), (6, 6)])
    optimizer = Shampoo(params, **settings())
    train(optimizer, params, range(3))
    state = optimizer.state_dict()
    kept = copy.deepcopy(state)
    assert len(pickle.dumps(state)) < 3 * sum(
        x.nbytes for s in state["state"].values() for x in s.values() if isinstance(x, torch.Tensor)
    )
    train(optimizer, params, range(3, 6))
    _assert_same(state, kept)
    optimizer.load_state_dict(state)
    train(optimizer, params, range(3, 6))
    _assert_same(state, kept)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "pickle"])
def test_a_copy_trains_on_by_itself(duplicate: Callable[[Any], Any]) -> None:
    params = parameters(list(SHAPES.values()))
    optimizer = Shampoo(params, **CONFIGS["adam"])
    train(optimizer, params, range(6))
    other_params, other = duplicate((params, optimizer))
    before = optimizer.state_dict()
    train(other, other_params, range(6, 12))
    _assert_same(optimizer.state_dict(), before)
    train(optimizer, params, range(6, 12))
    assert all(torch.equal(a, b) for a, b in zip(params, other_params, strict=True))
    other.add_param_group({"params": parameters([(4, 4)]), "lr": 0.5})


def _other_block(state: dict[str, Any]) -> dict[str, Any]:
    state["param_groups"][0]["max_preconditioner_dim"] = 16
    return state


def _other_shape(state: dict[str, Any]) -> dict[str, Any]:
    state["state"][0]["factor0.0"] = torch.zeros(1, 5, 5, dtype=torch.float64)
    return state


def _other_dtype(state: dict[str, Any]) -> dict[str, Any]:
    state["state"][0]["factor0.0"] = state["state"][0]["factor0.0"].float()
    return state


def _missing_tensor(state: dict[str, Any]) -> dict[str, Any]:
    del state["state"][1]["root1.0"]
    return state


def _missing_parameter(state: dict[str, Any]) -> dict[str, Any]:
    del state["state"][1]
    return state


def _missing_hyperparameter(state: dict[str, Any]) -> dict[str, Any]:
    del state["param_groups"][0]["epsilon"]
    return state


def _illegal_hyperparameter(state: dict[str, Any]) -> dict[str, Any]:
    state["param_groups"][0]["lr"] = -1.0
    return state


def _fewer_parameters(state: dict[str, Any]) -> dict[str, Any]:
    state["param_groups"][0]["params"] = [0]
    return state


def _broken_count(state: dict[str, Any]) -> dict[str, Any]:
    state["state"][1]["step"] = -1
    return state


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_other_block, "max_preconditioner_dim changed from 8 to 16"),
        (_other_shape, r"'factor0.0' of parameter 0 is torch.float64 \(1, 5, 5\), expected torch.float64 \(1, 6, 6\)"),
        (_other_dtype, "is torch.float32 .* expected torch.float64"),
        (_missing_tensor, "state of parameter 1 holds"),
        (_missing_parameter, "lacks the state of parameter 1"),
        (_missing_hyperparameter, "lacks epsilon"),
        (_illegal_hyperparameter, "lr .* -1.0"),
        (_fewer_parameters, r"groups of \[1\] parameters, the optimizer of \[2\]"),
        (_broken_count, "'step' of parameter 1 must be a count, got -1"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_and_changes_nothing(
    spoil: Callable[[dict[str, Any]], dict[str, Any]], message: str
) -> None:
    params = parameters([(6, 6), (5, 5)])
    optimizer = Shampoo(params, **settings())
    train(optimizer, params, range(8))
    before = optimizer.state_dict()
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(spoil(copy.deepcopy(before)))
    _assert_same(optimizer.state_dict(), before)


def test_load_state_dict_hooks_run() -> None:
    optimizer = Shampoo(parameters([(6, 6)]), **settings())
    calls: list[str] = []

    def faster(_: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        calls.append("before")
        return {**state, "param_groups": [{**group, "lr": 0.5} for group in state["param_groups"]]}

    optimizer.register_load_state_dict_pre_hook(faster)
    optimizer.register_load_state_dict_post_hook(lambda _: calls.append("after"))
    optimizer.load_state_dict(optimizer.state_dict())
    assert calls == ["before", "after"]
    assert optimizer.param_groups[0]["lr"] == 0.5
