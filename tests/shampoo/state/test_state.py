"""Saving, loading, copying: training goes on bit by bit as if nothing had happened, or a clear error says why not."""

from __future__ import annotations

import copy
import pickle
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from shampoo import Shampoo
from shampoo.hyperparameters import Hyperparameters
from tests.support.cases import in_one_test
from tests.support.shampoo.members import MEMBERS, OF_EACH_STATE, OF_EACH_TIMING, REPRESENTATIVES, member
from tests.support.shampoo.settings import DEFAULTS, parameters, settings, train

# The last two have no preconditioner.
SHAPES = [(6, 7), (9, 4, 5), (12,), (), (0, 3)]
LOW_PRECISION_WEIGHTS = ("nearest", "stochastic", "master")
# Every tensor that a state may hold beside the member's own.
ALL_STATE = {"momentum": 0.9, "weight_decay": 0.1}


def _saved_and_loaded(state: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        torch.save(state, Path(folder) / "checkpoint.pt")
        loaded: dict[str, Any] = torch.load(Path(folder) / "checkpoint.pt", weights_only=True)
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


def _copy_trains_on_by_itself(
    other: Shampoo,
    copy_params: list[nn.Parameter],
    copied: dict[str, Any],
    optimizer: Shampoo,
    params: list[nn.Parameter],
    steps: range,
) -> None:
    """The optimizer has taken these steps since its copy, and the copy none: it is as it was, and takes the same."""
    _assert_same(other.state_dict(), copied)
    after = optimizer.state_dict()
    train(other, copy_params, steps)
    assert all(torch.equal(a, b) for a, b in zip(params, copy_params, strict=True))
    _assert_same(other.state_dict(), after)
    _assert_same(optimizer.state_dict(), after)
    other.add_param_group({"params": parameters([(4, 4)]), "lr": 0.5})


def _resumed_is_bit_identical(
    config: dict[str, Any], dtype: torch.dtype, at: int, num_steps: int, *, copied: bool = False
) -> None:
    params = parameters(SHAPES, dtype)
    optimizer = Shampoo(params, **config)
    train(optimizer, params, range(at))
    state = optimizer.state_dict()
    weights = [param.detach().clone() for param in params]
    copy_params, other = copy.deepcopy((params, optimizer)) if copied else ([], None)
    train(optimizer, params, range(at, at + num_steps))
    if other is not None:
        _copy_trains_on_by_itself(other, copy_params, state, optimizer, params, range(at, at + num_steps))

    resumed_params = [torch.nn.Parameter(weight) for weight in weights]
    resumed = Shampoo(resumed_params, **config)
    resumed.load_state_dict(_saved_and_loaded(state))
    _assert_same(resumed.state_dict(), state)
    train(resumed, resumed_params, range(at, at + num_steps))
    assert all(torch.equal(a, b) for a, b in zip(params, resumed_params, strict=True))
    _assert_same(resumed.state_dict(), optimizer.state_dict())


@pytest.mark.parametrize("name", MEMBERS)
def test_training_resumed_or_copied_in_the_middle_of_a_staggered_refresh_is_bit_identical(name: str) -> None:
    # With a period of 4, step 6 has refreshed some units twice and others once.
    config = {**ALL_STATE, **member(name)}
    _resumed_is_bit_identical(config, torch.float32, at=6, num_steps=5, copied=name in OF_EACH_STATE)


@in_one_test("at", [0, 3])
@in_one_test("name", REPRESENTATIVES)
def test_training_resumed_before_the_first_refresh_is_bit_identical(name: str, at: int) -> None:
    _resumed_is_bit_identical(member(name), torch.float32, at=at, num_steps=5)


@pytest.mark.parametrize(
    ("name", "weights"),
    # Weights are kept by code that knows nothing of the member: each meets one way, and one of them all.
    [
        *((name, LOW_PRECISION_WEIGHTS[number % 3]) for number, name in enumerate(REPRESENTATIVES)),
        *(("soap_by_cholesky_qr", weights) for weights in LOW_PRECISION_WEIGHTS),
    ],
)
def test_resumed_training_of_bfloat16_parameters_is_bit_identical(name: str, weights: str) -> None:
    config = {**member(name), "low_precision_weights": weights}
    _resumed_is_bit_identical(config, torch.bfloat16, at=6, num_steps=4)


@in_one_test("name", OF_EACH_TIMING)
def test_a_state_dict_loads_into_an_optimizer_that_has_trained(name: str) -> None:
    params = parameters(SHAPES, torch.float32)
    optimizer = Shampoo(params, **member(name))
    train(optimizer, params, range(2))
    early, weights = optimizer.state_dict(), [param.detach().clone() for param in params]
    train(optimizer, params, range(2, 7))
    expected = optimizer.state_dict()
    with torch.no_grad():
        for param, weight in zip(params, weights, strict=True):
            param.copy_(weight)
    optimizer.load_state_dict(early)
    train(optimizer, params, range(2, 7))
    _assert_same(optimizer.state_dict(), expected)


def test_the_order_of_blocks_in_a_bucket_is_no_part_of_the_format() -> None:
    # Two groups share no bucket, one group does: a parameter's saved state is the same either way. The phases of a
    # staggered refresh are an equal share of a group, so they are left out.
    config = settings(stagger_refresh=False)
    together, apart = parameters([(9, 4), (4, 9), (9, 4)]), parameters([(9, 4), (4, 9), (9, 4)])
    one, two = Shampoo(together, **config), Shampoo([{"params": [p]} for p in apart], **config)
    train(one, together, range(8))
    train(two, apart, range(8))
    for index in range(3):
        # Products of another number of blocks may round otherwise.
        ours, theirs = one.state_dict()["state"][index], two.state_dict()["state"][index]
        assert list(ours) == list(theirs)
        for name, value in ours.items():
            torch.testing.assert_close(torch.as_tensor(value), torch.as_tensor(theirs[name]), rtol=1e-9, atol=1e-12)


@in_one_test("name", OF_EACH_STATE)
def test_a_state_dict_is_a_snapshot_of_its_own_memory(name: str) -> None:
    # Tensors of some size, because pickle has its own price for each.
    params = parameters([(24, 24), (24, 24)], torch.float32)
    optimizer = Shampoo(params, **member(name, max_preconditioner_dim=24))
    train(optimizer, params, range(3))
    state = optimizer.state_dict()
    kept = copy.deepcopy(state)
    tensors = [x for s in state["state"].values() for x in s.values() if isinstance(x, torch.Tensor)]
    assert len({x.untyped_storage().data_ptr() for x in tensors}) == len(tensors)
    assert all(x.untyped_storage().nbytes() == x.nbytes for x in tensors)
    train(optimizer, params, range(3, 6))
    _assert_same(state, kept)
    optimizer.load_state_dict(state)
    train(optimizer, params, range(3, 6))
    _assert_same(state, kept)


@in_one_test("name", REPRESENTATIVES)
def test_a_pickled_optimizer_trains_on(name: str) -> None:
    params = parameters(SHAPES, torch.float32)
    optimizer = Shampoo(params, **member(name))
    train(optimizer, params, range(6))
    copy_params, other = pickle.loads(pickle.dumps((params, optimizer)))
    state = optimizer.state_dict()
    train(optimizer, params, range(6, 11))
    _copy_trains_on_by_itself(other, copy_params, state, optimizer, params, range(6, 11))


@in_one_test("name", REPRESENTATIVES)
def test_a_state_from_before_a_hyperparameter_was_there_has_its_default(name: str) -> None:
    def older(group: dict[str, Any]) -> dict[str, Any]:
        kept = {"lr", "preconditioner", *member(name)}
        return {key: value for key, value in group.items() if key in kept or key not in DEFAULTS}

    params = parameters(SHAPES, torch.float32)
    optimizer = Shampoo(params, **member(name))
    train(optimizer, params, range(6))
    state = optimizer.state_dict()
    copy_params = [nn.Parameter(param.detach().clone()) for param in params]
    resumed = Shampoo(copy_params, **member(name))
    resumed.load_state_dict({**state, "param_groups": [older(group) for group in state["param_groups"]]})
    _assert_same(resumed.state_dict(), state)
    for group in optimizer.param_groups:
        kept = older(group)
        group.clear()
        group.update(kept)
    other_params, pickled = pickle.loads(pickle.dumps((params, optimizer)))
    train(resumed, copy_params, range(6, 11))
    _copy_trains_on_by_itself(pickled, other_params, state, resumed, copy_params, range(6, 11))


def _structure(name: str) -> dict[str, object]:
    return Hyperparameters(**{**DEFAULTS, **member(name)}).structure


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_a_checkpoint_of_another_member_is_refused_by_name_unless_its_state_is_the_same(name: str) -> None:
    params = parameters([(6, 7), (5,)], torch.float32)
    optimizer = Shampoo(params, **member(name))
    train(optimizer, params, range(1))
    before = optimizer.state_dict()
    for other in REPRESENTATIVES:
        saved = Shampoo(parameters([(6, 7), (5,)], torch.float32), **member(other)).state_dict()
        differing = [key for key, value in _structure(name).items() if _structure(other)[key] != value]
        if not differing:
            optimizer.load_state_dict(saved)
            optimizer.load_state_dict(before)
        else:
            with pytest.raises(ValueError, match=re.escape(f"{differing[0]} changed from")):
                optimizer.load_state_dict(saved)
        _assert_same(optimizer.state_dict(), before)


@in_one_test("name", [name for name in REPRESENTATIVES if "max_preconditioner_dim" in member(name)])
def test_a_checkpoint_of_other_blocks_is_refused_with_both_sizes(name: str) -> None:
    # Also where the blocks of these parameters are the same.
    saved = _saved_and_loaded(Shampoo(parameters(SHAPES), **member(name, max_preconditioner_dim=16)).state_dict())
    params = parameters(SHAPES)
    optimizer = Shampoo(params, **member(name))
    train(optimizer, params, range(3))
    before = optimizer.state_dict()
    with pytest.raises(ValueError, match="max_preconditioner_dim changed from 8 to 16: it shapes the optimizer state"):
        optimizer.load_state_dict(saved)
    _assert_same(optimizer.state_dict(), before)


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
    del state["param_groups"][0]["lr"]
    return state


def _illegal_hyperparameter(state: dict[str, Any]) -> dict[str, Any]:
    state["param_groups"][0]["lr"] = -1.0
    return state


def _unknown_hyperparameter(state: dict[str, Any]) -> dict[str, Any]:
    state["param_groups"][0]["precond_freq"] = 3
    return state


def _fewer_parameters(state: dict[str, Any]) -> dict[str, Any]:
    state["param_groups"][0]["params"] = [0]
    return state


def _of_a_checkpoint(state: dict[str, Any]) -> dict[str, Any]:
    return {"model": {}, "optimizer": state}


def _part(state: dict[str, Any]) -> dict[str, Any]:
    state["state"][0] = {"part 1 of 2": state["state"][0]}
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
        (_missing_tensor, r"state of parameter 1 .* lacks \['root1.0'\], and has \[\] beside"),
        (_missing_parameter, "lacks the state of parameter 1"),
        (_missing_hyperparameter, "lacks lr"),
        (_illegal_hyperparameter, "lr .* -1.0"),
        (_unknown_hyperparameter, "'precond_freq' = 3, did you mean 'precondition_frequency'"),
        (_fewer_parameters, r"groups of \[1\] parameters, the optimizer of \[2\]"),
        (_of_a_checkpoint, r"keys 'state' and 'param_groups', got \['model', 'optimizer'\]"),
        (
            _part,
            r"lacks all of parameter 0, it holds \['part 1 of 2'\]; that of distributed_state_dict\(\), ",
        ),
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


def test_a_path_in_place_of_a_state_is_refused_with_the_call_that_reads_it() -> None:
    optimizer = Shampoo(parameters([(6, 6)]))
    with pytest.raises(TypeError, match=r"a dictionary, as torch.load\(FILE\) reads it, got 'trained.pt'"):
        optimizer.load_state_dict("trained.pt")  # type: ignore[arg-type]  # what a type checker says as well


def test_numbers_of_numpy_are_plain_numbers_from_the_group_to_the_file() -> None:
    numbers: dict[str, Any] = {"lr": np.float32(0.25), "precondition_frequency": np.int64(3)}
    numbers |= {"weight_decay": np.float64(0.5), "betas": [np.float64(0.5), np.float64(0.75)]}
    plain: dict[str, Any] = {"lr": 0.25, "precondition_frequency": 3, "weight_decay": 0.5, "betas": (0.5, 0.75)}
    ours, theirs = parameters([(6, 6)]), parameters([(6, 6)])
    optimizer, expected = Shampoo(ours, **numbers), Shampoo(theirs, **plain)
    for one, params in ((optimizer, ours), (expected, theirs)):
        train(one, params, range(4))
        one.param_groups[0]["lr"] = np.float32(0.125)
        train(one, params, range(4, 8))
    assert torch.equal(ours[0], theirs[0])
    scheduler = torch.optim.lr_scheduler.ConstantLR(Shampoo(ours, **numbers))
    _saved_and_loaded({"optimizer": optimizer.state_dict(), "schedule": scheduler.state_dict()})
    with pytest.raises(ValueError, match=r"precondition_frequency must be .* integer >= 1, got 2\.5"):
        Shampoo(ours, **{**numbers, "precondition_frequency": np.float64(2.5)})


@pytest.mark.parametrize("name", ["AdamW", "SGD", "Adagrad", "RMSprop"])
def test_the_state_of_another_optimizer_is_called_what_it_is(name: str) -> None:
    params = parameters([(6, 6)])
    other = getattr(torch.optim, name)(params, lr=0.1)
    train(other, params, range(1))
    with pytest.raises(ValueError, match=rf"the state of torch\.optim\.{name}\b.*, and no state of Shampoo"):
        Shampoo(params).load_state_dict(other.state_dict())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_model_that_is_converted_after_its_optimizer_is_refused_before_anything_moves(dtype: torch.dtype) -> None:
    model = nn.Linear(6, 5)
    optimizer = Shampoo(model.parameters(), **settings())
    train(optimizer, list(model.parameters()), range(1))
    model.to(dtype)
    before = [param.detach().clone() for param in model.parameters()]
    with pytest.raises(RuntimeError, match=f"is {dtype} on cpu now, and was torch.float32 on cpu"):
        train(optimizer, list(model.parameters()), range(1, 2))
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    model.float()
    train(optimizer, list(model.parameters()), range(1, 2))


@pytest.mark.parametrize("shape", [(4, 5), (3, 3), (16,)])
def test_a_parameter_that_is_given_another_shape_is_refused_before_anything_moves(shape: tuple[int, ...]) -> None:
    params = parameters([(5, 5), (4, 4)])
    optimizer = Shampoo(params, **settings())
    train(optimizer, params, range(1))
    params[1].data = torch.ones(shape)
    before = [param.detach().clone() for param in params]
    with pytest.raises(RuntimeError, match=re.escape(f"has the shape {shape} now, and had (4, 4)")):
        train(optimizer, params, range(1, 2))
    assert all(torch.equal(a, b) for a, b in zip(before, params, strict=True))
