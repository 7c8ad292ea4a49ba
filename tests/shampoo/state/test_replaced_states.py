"""States that others put in place of the optimizer's, as those do who move them to a device and back, or made."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from shampoo import LoraRite, Shampoo
from tests.support.shampoo.members import REPRESENTATIVES, member
from tests.support.shampoo.settings import gradients_like, parameters, train

SHAPES = [(6, 7), (9, 4, 5), (12,)]


def _tensors(optimizer: Shampoo) -> list[Tensor]:
    return [x for held in optimizer.state.values() for x in held.values() if isinstance(x, Tensor)]


def _tensors_replaced(optimizer: Shampoo) -> None:
    """As Lightning does when it moves states, if only some of their tensors are there already."""
    for held in optimizer.state.values():
        for name, x in list(held.items()):
            if isinstance(x, Tensor):
                held[name] = x.clone()


def _states_replaced(optimizer: Shampoo) -> None:
    for param, held in list(optimizer.state.items()):
        optimizer.state[param] = dict(reversed(held.items()))


def _memory_replaced(optimizer: Shampoo) -> None:
    """As those do who keep the tensors and move what is in them."""
    for x in _tensors(optimizer):
        x.data = x.data.clone()


def _counts_replaced(optimizer: Shampoo) -> None:
    """By tensors, as torch's own optimizers have them."""
    for held in optimizer.state.values():
        held["step"] = torch.tensor(float(held["step"]))


def _assert_same(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert a["state"].keys() == b["state"].keys()
    for key, held in a["state"].items():
        assert held.keys() == b["state"][key].keys()
        for name, x in held.items():
            assert torch.equal(torch.as_tensor(x), torch.as_tensor(b["state"][key][name])), name


def _trained(name: str) -> tuple[list[nn.Parameter], Shampoo]:
    params = parameters(SHAPES)
    optimizer = Shampoo(params, **member(name))
    train(optimizer, params, range(6))
    return params, optimizer


@pytest.mark.parametrize("replace", [_tensors_replaced, _states_replaced, _memory_replaced, _counts_replaced])
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_equal_states_in_place_of_the_own_change_nothing(name: str, replace: Callable[[Shampoo], None]) -> None:
    params, optimizer = _trained(name)
    expected, undisturbed = copy.deepcopy((params, optimizer))
    for steps in (range(6, 12), range(12, 15)):
        replace(optimizer)
        train(optimizer, params, steps)
        train(undisturbed, expected, steps)
        assert all(torch.equal(a, b) for a, b in zip(params, expected, strict=True))
        _assert_same(optimizer.state_dict(), undisturbed.state_dict())
    replace(optimizer)
    _assert_same(optimizer.state_dict(), undisturbed.state_dict())


def test_other_values_in_place_of_the_own_are_taken_over_and_what_lies_beside_them_stays() -> None:
    params, optimizer = _trained("shampoo_adam")
    expected, undisturbed = copy.deepcopy((params, optimizer))
    held = optimizer.state[params[0]]
    held["first_moment.0"], held["step"] = torch.zeros_like(held["first_moment.0"]), 3
    optimizer.state[params[0]] = {**held, "of_others": 1}
    undisturbed.state[expected[0]]["first_moment.0"].zero_()
    undisturbed.state[expected[0]]["step"] = 3
    train(optimizer, params, range(6, 8))
    train(undisturbed, expected, range(6, 8))
    assert all(torch.equal(a, b) for a, b in zip(params, expected, strict=True))
    assert optimizer.state[params[0]]["of_others"] == 1
    assert optimizer.state[params[0]]["step"] == 5


def test_other_memory_of_one_tensor_is_taken_over_whatever_others_keep_beside_it() -> None:
    params, optimizer = _trained("shampoo_adam")
    expected, undisturbed = copy.deepcopy((params, optimizer))
    optimizer.state[params[0]]["of_others"] = 1
    moment = optimizer.state[params[0]]["first_moment.0"]
    for steps in (range(6, 8), range(8, 9)):
        moment.data = torch.zeros_like(moment)
        undisturbed.state[expected[0]]["first_moment.0"].zero_()
        train(optimizer, params, steps)
        train(undisturbed, expected, steps)
        assert all(torch.equal(a, b) for a, b in zip(params, expected, strict=True))
    assert optimizer.state[params[0]]["first_moment.0"] is moment
    assert torch.equal(moment, undisturbed.state[expected[0]]["first_moment.0"])


def test_what_nobody_replaced_is_not_written() -> None:
    params, optimizer = _trained("shampoo_adam")
    moment = optimizer.state[params[0]]["first_moment.0"]
    held = {id(x): x._version for x in _tensors(optimizer) if x is not moment}
    optimizer.state[params[0]]["first_moment.0"] = torch.zeros_like(moment)
    assert not optimizer.state_dict()["state"][0]["first_moment.0"].any()
    assert {id(x): x._version for x in _tensors(optimizer) if x is not moment} == held


def test_other_memory_before_the_first_step_is_taken_over() -> None:
    params = parameters(SHAPES)
    optimizer = Shampoo(params, **member("soap"))
    expected, undisturbed = copy.deepcopy((params, optimizer))
    _memory_replaced(optimizer)
    train(optimizer, params, range(2))
    train(undisturbed, expected, range(2))
    _assert_same(optimizer.state_dict(), undisturbed.state_dict())


DEVICE = "cuda"
# As those do who keep the tensors and move what is in them; what lies on the host, too.
MOVES: dict[str, Callable[[Tensor], Tensor]] = {
    "away": lambda x: x.cpu(),
    "away_and_back": lambda x: x.cpu().to(x.device, copy=True),
    "to_the_device": lambda x: x.to(DEVICE, copy=True),
}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("name", ["shampoo_adam", "soap_int8", "kl"])
def test_memory_on_another_device_is_taken_over_and_stays_where_it_was_made(name: str, move: str) -> None:
    params = [nn.Parameter(param.detach().to(DEVICE)) for param in parameters(SHAPES)]
    optimizer = Shampoo(params, **member(name))

    def steps(optimizer: Shampoo, params: list[nn.Parameter], numbers: range) -> None:
        for step in numbers:
            for param, gradient in zip(params, gradients_like(parameters(SHAPES), step=step), strict=True):
                param.grad = gradient.to(DEVICE)
            optimizer.step()

    steps(optimizer, params, range(6))
    expected, undisturbed = copy.deepcopy((params, optimizer))
    places = [(x.device, x.data_ptr()) for x in _tensors(optimizer)]
    for numbers in (range(6, 12), range(12, 15)):
        for x in _tensors(optimizer):
            x.data = MOVES[move](x.data)
        steps(optimizer, params, numbers)
        steps(undisturbed, expected, numbers)
    torch.testing.assert_close(params, expected, rtol=1e-9, atol=1e-12)
    assert [(x.device, x.data_ptr()) for x in _tensors(optimizer)] == places


def test_memory_that_does_not_fit_is_refused_before_anything_moves() -> None:
    params, optimizer = _trained("shampoo_adam")
    before = [param.detach().clone() for param in params]
    moment = optimizer.state[params[0]]["first_moment.0"]
    moment.data = moment.data.half()
    with pytest.raises(ValueError, match=r"'first_moment.0' of parameter 0 is torch.float16 .*, expected torch.fl"):
        train(optimizer, params, range(6, 7))
    assert all(torch.equal(a, b) for a, b in zip(params, before, strict=True))


@pytest.mark.parametrize("count", [torch.tensor(0.5), torch.ones(2), True])
def test_a_count_of_steps_in_place_of_the_own_that_is_none_is_refused(count: object) -> None:
    params, optimizer = _trained("shampoo_adam")
    optimizer.state[params[0]]["step"] = count
    with pytest.raises(ValueError, match="'step' of parameter 0 must be a count"):
        train(optimizer, params, range(6, 7))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "state of parameter 1 must hold what the optimizer's does: it lacks .*'factor0.0'"),
        ({"factor0.0": torch.zeros(1, 2, 2)}, r"'factor0.0' of parameter 1 is torch.float32 \(1, 2, 2\), expected"),
    ],
)
def test_a_state_that_does_not_fit_in_place_of_the_own_is_refused_before_anything_moves(
    change: dict[str, Tensor], message: str
) -> None:
    params, optimizer = _trained("shampoo_adam")
    before = [param.detach().clone() for param in params]
    optimizer.state[params[1]] = {**optimizer.state[params[1]], **change} if change else {}
    with pytest.raises(ValueError, match=message):
        train(optimizer, params, range(6, 7))
    with pytest.raises(ValueError, match=message):
        optimizer.state_dict()
    assert all(torch.equal(a, b) for a, b in zip(params, before, strict=True))


@pytest.mark.parametrize("count", [torch.tensor(-1.0), torch.tensor(0.5), torch.tensor(math.nan), torch.ones(2), True])
def test_a_count_of_steps_that_is_none_is_refused(count: object) -> None:
    _, optimizer = _trained("shampoo_adam")
    saved = optimizer.state_dict()
    saved["state"][0]["step"] = count
    with pytest.raises(ValueError, match="'step' of parameter 0 must be a count"):
        optimizer.load_state_dict(saved)


def test_counts_of_steps_may_be_tensors_as_those_of_other_optimizers_are() -> None:
    params, optimizer = _trained("shampoo_adam")
    saved = optimizer.state_dict()
    for held in saved["state"].values():
        held["step"] = torch.tensor(float(held["step"]))
    resumed = Shampoo(params, **member("shampoo_adam"))
    resumed.load_state_dict(saved)
    assert [held["step"] for held in resumed.state.values()] == [6, 6, 6]
    assert all(type(held["step"]) is int for held in resumed.state.values())
    train(resumed, params, range(6, 7))


def test_a_copy_of_the_optimizer_has_what_others_keep_beside_its_states() -> None:
    params, optimizer = _trained("shampoo_adam")
    optimizer.state[params[0]] |= {"of_others": torch.ones(2), "number_of_others": 1.5}
    twins, twin = copy.deepcopy((params, optimizer))
    held = twin.state[twins[0]]
    assert held["of_others"].tolist() == [1.0, 1.0]
    assert held["number_of_others"] == 1.5
    train(twin, twins, range(6, 7))


def _by_state_dict(optimizer: Optimizer, new: Optimizer) -> Optimizer:
    new.load_state_dict(optimizer.state_dict())
    return new


def _by_copy(optimizer: Optimizer, _new: Optimizer) -> Optimizer:
    return copy.deepcopy(optimizer)


def _adamw(params: list[nn.Parameter]) -> Optimizer:
    return AdamW(params)


def _shampoo(params: list[nn.Parameter]) -> Optimizer:
    return Shampoo(params, **member("shampoo_adam"))


def _rite(params: list[nn.Parameter]) -> Optimizer:
    return LoraRite([{"params": params, "paired": False}])


@pytest.mark.parametrize("carry", [_by_state_dict, _by_copy])
@pytest.mark.parametrize("make", [_adamw, _shampoo, _rite])
def test_what_users_keep_under_keys_that_are_no_parameters_is_kept_as_adamw_keeps_it(
    make: Callable[[list[nn.Parameter]], Optimizer],
    carry: Callable[[Optimizer, Optimizer], Optimizer],
) -> None:
    params = parameters(SHAPES)
    optimizer, new = make(params), make(params)
    optimizer.state["text"], optimizer.state["numbers"] = "of a user", [1, 2]  # type: ignore[index]
    new.state["stale"] = 3  # type: ignore[index]
    train(optimizer, params, range(3))
    others = {key: held for key, held in carry(optimizer, new).state.items() if not isinstance(key, Tensor)}
    assert others == {"text": "of a user", "numbers": [1, 2]}


@pytest.mark.parametrize("make", [_shampoo, _rite])
def test_a_copy_takes_further_groups(make: Callable[[list[nn.Parameter]], Optimizer]) -> None:
    params, added = parameters(SHAPES), parameters([(3, 4)])
    twins, twin = copy.deepcopy((params, make(params)))
    twin.add_param_group({"params": added} if make is _shampoo else {"params": added, "paired": False})
    before = added[0].detach().clone()
    train(twin, [*twins, *added], range(2))
    assert not torch.equal(added[0], before)


def test_what_is_kept_beside_the_states_of_parameters_changes_no_step() -> None:
    params, optimizer = _trained("shampoo_adam")
    expected, undisturbed = copy.deepcopy((params, optimizer))
    optimizer.state["text"] = "of a user"  # type: ignore[index]
    for each, own in ((optimizer, params), (undisturbed, expected)):
        added = parameters([(3, 4)])
        each.add_param_group({"params": added})
        train(each, [*own, *added], range(6, 9))
        assert each.share_of_state == 1.0
    assert all(torch.equal(a, b) for a, b in zip(params, expected, strict=True))
    with pytest.raises(ValueError, match=r"holds 'text', which is of no parameter"):
        optimizer.distributed_state_dict()
    del optimizer.state["text"]  # type: ignore[arg-type]
    _assert_same(optimizer.state_dict(), undisturbed.state_dict())
