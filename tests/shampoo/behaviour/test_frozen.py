"""Frozen parameters hold no state; it comes into being when they are thawed, and stays when they are frozen again."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Sequence

import pytest
import torch
from torch import nn

from shampoo import Shampoo
from shampoo.averaging import WeightAveraging
from shampoo.cost import estimate
from shampoo.hyperparameters import LowPrecisionWeights
from tests.support.shampoo.averaging_methods import METHODS
from tests.support.shampoo.members import REPRESENTATIVES, WITH_FACTORS, member
from tests.support.shampoo.settings import gradients_like, parameters

SHAPES = [(6, 7), (9, 5), (5,), (7, 6)]
FROZEN = (0, 2)


def _half_frozen() -> list[nn.Parameter]:
    params = parameters(SHAPES)
    for index in FROZEN:
        params[index].requires_grad_(False)
    return params


def _train(optimizer: torch.optim.Optimizer, params: list[nn.Parameter], steps: range) -> None:
    """As backward does it: a frozen parameter gets no gradient."""
    for step in steps:
        for param, gradient in zip(params, gradients_like(params, step=step), strict=True):
            param.grad = gradient if param.requires_grad else None
        optimizer.step()


def _state_bytes(optimizer: Shampoo) -> int:
    tensors = [x for of_param in optimizer.state_dict()["state"].values() for x in of_param.values()]
    return sum(x.nbytes for x in tensors if isinstance(x, torch.Tensor))


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_a_frozen_parameter_has_no_state_and_the_others_train_as_without_it(name: str) -> None:
    params = _half_frozen()
    alone = [parameters(SHAPES)[index] for index in range(len(SHAPES)) if index not in FROZEN]
    optimizer, without = Shampoo(params, **member(name)), Shampoo(alone, **member(name))
    for step in range(9):
        gradients = gradients_like(params, step=step)
        for param, gradient in zip(params, gradients, strict=True):
            param.grad = gradient if param.requires_grad else None
        for param, its in zip(alone, [params[1], params[3]], strict=True):
            param.grad = None if its.grad is None else its.grad.clone()
        optimizer.step()
        without.step()
    assert torch.equal(params[1], alone[0])
    assert torch.equal(params[3], alone[1])
    assert [bool(optimizer.state[param]) for param in params] == [False, True, False, True]
    assert list(optimizer.state_dict()["state"]) == [1, 3]
    shapes = [shape for index, shape in enumerate(SHAPES) if index not in FROZEN]
    assert _state_bytes(optimizer) == estimate(shapes, dtype=torch.float64, **member(name)).state_bytes
    assert optimizer.diagnostics() == without.diagnostics()


def test_a_thawed_parameter_that_shares_memory_with_a_trained_one_is_refused_before_anything_moves() -> None:
    whole, other = parameters([(6, 7), (5, 4)])
    part = nn.Parameter(whole.detach()[2:4], requires_grad=False)
    optimizer = Shampoo([{"params": [("whole", whole), ("other", other)]}, {"params": [("part", part)]}])
    _train(optimizer, [whole, other, part], range(2))
    part.requires_grad_(True)
    before = [param.detach().clone() for param in (whole, other)]
    with pytest.raises(ValueError, match=r"group 0 \('whole'\) .* group 1 \('part'\) .* share memory"):
        _train(optimizer, [whole, other, part], range(2, 3))
    assert all(torch.equal(param, value) for param, value in zip((whole, other), before, strict=True))
    assert not optimizer.state[part]
    whole.requires_grad_(False)  # one of them may be stepped
    _train(optimizer, [whole, other, part], range(2, 3))
    assert optimizer.state[part]["step"] == 1


@pytest.mark.parametrize("rounding", ["stochastic", "master"])
def test_a_parameter_is_thawed_that_its_groups_rounding_has_no_effect_on(
    rounding: LowPrecisionWeights,
) -> None:
    weight, bias = parameters([(4, 3)], torch.bfloat16) + parameters([(4,)], torch.float32)
    bias.requires_grad_(False)
    optimizer = Shampoo([weight, bias], low_precision_weights=rounding)
    _train(optimizer, [weight, bias], range(2))
    bias.requires_grad_(True)
    _train(optimizer, [weight, bias], range(2, 4))
    assert [optimizer.state[param]["step"] for param in (weight, bias)] == [4, 2]


def test_a_thawed_parameter_that_cannot_be_trained_is_named_by_its_position_in_its_group() -> None:
    weight = parameters([(4, 3)], torch.float32)[0]
    tiny = nn.Parameter(torch.ones(3, 3).to(torch.float8_e4m3fn), requires_grad=False)
    optimizer = Shampoo([weight, tiny])
    _train(optimizer, [weight], range(2))
    tiny.requires_grad_(True)
    with pytest.raises(ValueError, match="parameter 1 must have 16 bits or more to be trained"):
        _train(optimizer, [weight], range(2, 3))


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_a_thawed_parameter_trains_as_in_a_group_that_is_added_then(name: str) -> None:
    # Refreshes are spread over all of a group, and so over fewer factors in two groups.
    config = {**member(name), "stagger_refresh": False} if name in WITH_FACTORS else member(name)
    params, others = _half_frozen(), _half_frozen()
    optimizer = Shampoo(params, **config)
    expected = Shampoo([param for param in others if param.requires_grad], **config)
    for each, its in ((optimizer, params), (expected, others)):
        _train(each, its, range(3))
        for index in FROZEN:
            its[index].requires_grad_(True)
    expected.add_param_group({"params": [others[index] for index in FROZEN]})
    for each, its in ((optimizer, params), (expected, others)):
        _train(each, its, range(3, 12))
    assert all(torch.equal(a, b) for a, b in zip(params, others, strict=True))
    assert [optimizer.state[param]["step"] for param in params] == [9, 12, 9, 12]


def test_a_parameter_that_is_frozen_later_keeps_its_state_and_goes_on_with_it() -> None:
    params = parameters(SHAPES)
    optimizer = Shampoo(params, **member("soap"))
    _train(optimizer, params, range(3))
    before, weights = optimizer.state_dict(), params[0].detach().clone()
    params[0].requires_grad_(False)
    _train(optimizer, params, range(3, 6))
    assert torch.equal(params[0], weights)
    after = optimizer.state_dict()
    assert all(
        torch.equal(torch.as_tensor(x), torch.as_tensor(after["state"][0][key]))
        for key, x in before["state"][0].items()
    )
    # And a checkpoint of it is loaded into an optimizer that has never known it otherwise than frozen.
    resumed_params = [nn.Parameter(param.detach().clone(), requires_grad=param.requires_grad) for param in params]
    resumed = Shampoo(resumed_params, **member("soap"))
    resumed.load_state_dict(after)
    for each, its in ((optimizer, params), (resumed, resumed_params)):
        its[0].requires_grad_(True)
        _train(each, its, range(6, 9))
    assert optimizer.state[params[0]]["step"] == resumed.state[resumed_params[0]]["step"] == 6
    for found, expected in zip(resumed_params, params, strict=True):
        torch.testing.assert_close(found, expected, rtol=0.05, atol=0.01)  # the refreshes are at other steps


@pytest.mark.parametrize("frozen", [(0, 1), (0, 3), (2, 4), (0, 1, 2, 3, 4)])
def test_a_checkpoint_is_loaded_where_several_parameters_are_frozen(frozen: Sequence[int]) -> None:
    """As at the start of a run that thaws them later: others of their shape, and of others, are told apart."""
    params = parameters([(6, 7), (6, 7), (), (5,), ()])
    optimizer = Shampoo(params, **member("shampoo_adam", stagger_refresh=False))
    _train(optimizer, params, range(3))
    resumed_params = copy.deepcopy(params)
    for index in frozen:
        resumed_params[index].requires_grad_(False)
    resumed = Shampoo(resumed_params, **member("shampoo_adam", stagger_refresh=False))
    resumed.load_state_dict(optimizer.state_dict())
    for param in resumed_params:
        param.requires_grad_(True)
    for each, its in ((optimizer, params), (resumed, resumed_params)):
        _train(each, its, range(3, 12))
    # Thawed ones are the last rows of their bucket, and a processor may round the last elements of a tensor otherwise.
    for param, resumed_param in zip(params, resumed_params, strict=True):
        torch.testing.assert_close(resumed_param, param, rtol=0, atol=1e-14)


def test_of_two_frozen_parameters_of_one_value_only_that_of_the_checkpoint_gets_a_state() -> None:
    def frozen_pair() -> list[nn.Parameter]:
        return [nn.Parameter(torch.tensor(1.5), requires_grad=False) for _ in range(2)]

    trained = frozen_pair()
    trained[1].requires_grad_(True)
    optimizer = Shampoo(trained, **member("shampoo_adam"))
    trained[1].grad = torch.tensor(0.5)
    optimizer.step()
    resumed = Shampoo(frozen_pair(), **member("shampoo_adam"))
    resumed.load_state_dict(optimizer.state_dict())
    assert list(resumed.state_dict()["state"]) == [1]


@pytest.mark.parametrize("name", ["shampoo_adam", "soap", "kl"])
@pytest.mark.parametrize("when", ["frozen", "thawed"])
def test_a_checkpoint_and_a_copy_go_on_alike(name: str, when: str) -> None:
    config = {**member(name), "precondition_frequency": 4}  # so that phases differ
    params = _half_frozen()
    optimizer = Shampoo(params, **config)
    _train(optimizer, params, range(3))
    if when == "thawed":
        for index in FROZEN:
            params[index].requires_grad_(True)
        _train(optimizer, params, range(3, 6))
    resumed_params = copy.deepcopy(params)
    resumed = Shampoo(resumed_params, **config)
    resumed.load_state_dict(optimizer.state_dict())
    pickled = pickle.loads(pickle.dumps(optimizer))
    pickled_params = pickled.param_groups[0]["params"]
    for each, its in ((optimizer, params), (resumed, resumed_params), (pickled, pickled_params)):
        for index in FROZEN:
            its[index].requires_grad_(True)
        _train(each, its, range(6, 12))
    for copied in (resumed_params, pickled_params):
        assert all(torch.equal(a, b) for a, b in zip(params, copied, strict=True))


def test_a_checkpoint_without_the_state_of_a_parameter_that_is_trained_here_is_refused() -> None:
    frozen, thawed = _half_frozen(), parameters(SHAPES)
    optimizer = Shampoo(thawed, **member("soap"))
    message = "lacks the state of parameter 0; if it was frozen there, load before it requires a gradient"
    with pytest.raises(ValueError, match=re.escape(message)):
        optimizer.load_state_dict(Shampoo(frozen, **member("soap")).state_dict())


def test_a_checkpoint_that_is_refused_leaves_frozen_parameters_without_a_state() -> None:
    trained = parameters(SHAPES)
    saving = Shampoo(trained, **member("soap"))
    _train(saving, trained, range(2))
    saved = saving.state_dict()
    saved["state"][1]["step"] = -1
    params = _half_frozen()
    optimizer = Shampoo(params, **member("soap"))
    with pytest.raises(ValueError, match="'step' of parameter 1 must be a count"):
        optimizer.load_state_dict(saved)
    assert [bool(optimizer.state[param]) for param in params] == [False, True, False, True]


def test_a_gradient_that_is_set_by_hand_moves_a_parameter_that_requires_none() -> None:
    # As in torch's own optimizers.
    (param,) = parameters([(6, 7)])
    param.requires_grad_(False)
    optimizer = Shampoo([param], **member("shampoo_adam"))
    before = param.clone()
    param.grad = torch.ones_like(param)
    optimizer.step()
    assert not torch.equal(param, before)


def test_masters_of_thawed_parameters_begin_at_their_weights() -> None:
    params = [param.detach().bfloat16().requires_grad_(index == 1) for index, param in enumerate(parameters(SHAPES))]
    optimizer = Shampoo(params, **member("shampoo_adam"), low_precision_weights="master")
    for param in params:
        param.requires_grad_(True).grad = torch.zeros_like(param)
    optimizer.step()
    for param in params:
        assert torch.equal(optimizer.state[param]["master"], param.float())


@pytest.mark.parametrize("method", METHODS)
def test_averages_follow_a_thawed_parameter(method: str) -> None:
    params = _half_frozen()
    optimizer = WeightAveraging(Shampoo(params, **member("shampoo_adam")), **METHODS[method])
    at_first = params[0].detach().clone()
    _train(optimizer, params, range(3))
    with optimizer.averaged_weights():
        assert torch.equal(params[0], at_first)
    params[0].requires_grad_(True)
    _train(optimizer, params, range(3, 20))
    with optimizer.averaged_weights():
        assert not torch.equal(params[0], at_first)
    assert optimizer.state[params[0]]["step"] == 17
