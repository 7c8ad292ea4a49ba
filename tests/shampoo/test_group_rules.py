"""Parameter groups: each with its own hyperparameters and its own member of the family, checked all or nothing."""

from __future__ import annotations

import copy
import operator
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from shampoo import LoraRite, Shampoo
from shampoo.hyperparameters import DEFAULTS
from tests.support.shampoo.members import MEMBERS, REPRESENTATIVES, member
from tests.support.shampoo.settings import gradients_like, parameters, train

SHAPES = [(6, 7), (5,)]


@pytest.mark.slow
def test_groups_of_all_members_train_as_each_would_alone() -> None:
    # The first one is the optimizer's own, the others override what they do not share with it.
    together = {name: parameters(SHAPES) for name in MEMBERS}
    optimizer = Shampoo(
        [{"params": its, **DEFAULTS, **member(name)} for name, its in together.items()], **member("shampoo_adam")
    )
    alone = {name: parameters(SHAPES) for name in MEMBERS}
    optimizers = {name: Shampoo(its, **member(name)) for name, its in alone.items()}
    for step in range(6):  # a refresh of everything, and one of every unit by its turn
        for name in MEMBERS:
            train(optimizers[name], alone[name], range(step, step + 1))
            for param, gradient in zip(together[name], gradients_like(together[name], step=step), strict=True):
                param.grad = gradient
        optimizer.step()
    for name in MEMBERS:
        assert all(torch.equal(a, b) for a, b in zip(together[name], alone[name], strict=True)), name


@pytest.mark.parametrize("kind", ["shampoo", "soap", "kl", "spectral", "none"])
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_a_group_of_another_member_inherits_what_that_member_uses(name: str, kind: str) -> None:
    config = member(name, weight_decay=0.1)
    optimizer = Shampoo(parameters(SHAPES), **config)
    own, inherited = {"lr", "weight_decay", "momentum", "nesterov", "betas"}, parameters(SHAPES)
    optimizer.add_param_group({"params": inherited, "preconditioner": kind})
    group = optimizer.param_groups[1]
    assert group["preconditioner"] == kind
    assert {key: group[key] for key in own} == {key: optimizer.defaults[key] for key in own}
    train(optimizer, [*optimizer.param_groups[0]["params"], *inherited], range(3))
    # What a group says itself is never dropped, even where its member has no use for it.
    if kind != "soap":
        with pytest.raises(ValueError, match=r"shampoo_beta=0\.5 has no effect"):
            optimizer.add_param_group({"params": parameters([(2, 2)]), "preconditioner": kind, "shampoo_beta": 0.5})


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ({"lr": -1}, "lr must be .* got -1"),
        ({"weigth_decay": 0.1}, re.escape("unknown hyperparameter 'weigth_decay' = 0.1, did you mean 'weight_decay'?")),
        ({"zz": 0.1}, re.escape("unknown hyperparameter 'zz' = 0.1 (known: lr, betas, ")),
        ({"params": [torch.zeros(2), torch.zeros(3, dtype=torch.int64)]}, "parameter 1 must be real .* torch.int64"),
        ({"params": [torch.zeros(3, dtype=torch.complex64)]}, "parameter 0 must be real .* got torch.complex64"),
        ({"params": [nn.Parameter(torch.zeros(1)).expand(3)]}, r"parameter 0 share memory .* strides \(0,\)"),
        ({"params": [torch.eye(3).to_sparse()]}, r"parameter 0 must be dense, got torch\.sparse_coo"),
        ({"params": [nn.LazyLinear(3).weight]}, "parameter 0 has no shape yet, got UninitializedParameter"),
        ({"params": [nn.Parameter(torch.ones(3, 3).to(torch.float8_e4m3fn))]}, "16 bits or more .* got torch.float8"),
        ({"low_precision_weights": "master"}, "low_precision_weights='master' has no effect on parameters of"),
    ],
)
def test_a_group_that_is_refused_leaves_nothing_behind(group: dict[str, Any], message: str) -> None:
    params = parameters(SHAPES)
    optimizer, undisturbed = Shampoo(params, **member("soap")), Shampoo(parameters(SHAPES), **member("soap"))
    with pytest.raises(ValueError, match=message):
        optimizer.add_param_group({"params": parameters([(4, 4)]), **group})
    assert optimizer.param_groups[0].keys() == undisturbed.param_groups[0].keys()
    assert len(optimizer.param_groups) == 1
    assert len(optimizer.state) == len(optimizer.state_dict()["state"]) == len(SHAPES)
    train(optimizer, params, range(2))
    train(undisturbed, undisturbed.param_groups[0]["params"], range(2))
    assert all(torch.equal(a, b) for a, b in zip(params, undisturbed.param_groups[0]["params"], strict=True))


@pytest.mark.parametrize("use", [Shampoo.step, Shampoo.diagnostics])
def test_a_gradient_that_the_state_is_too_coarse_for_is_refused_by_name(use: Callable[[Shampoo], object]) -> None:
    params = [nn.Parameter(torch.ones(4, 4)) for _ in range(3)]
    optimizer = Shampoo([{"params": [("body", params[0])]}, {"params": [("tail", params[1]), ("head", params[2])]}])
    for param in params:
        param.grad_dtype = None  # whatever is assigned
        param.grad = torch.ones(4, 4, dtype=torch.float64 if param is params[2] else torch.bfloat16)
    with pytest.raises(RuntimeError, match=r"gradient of parameter 1 of group 1 \('head'\), of torch.float32.*float64"):
        use(optimizer)
    assert all(bool((param == 1).all()) for param in params)
    assert params[2].grad is not None
    params[2].grad = params[2].grad.float()
    optimizer.step()
    assert all(bool((param < 1).all()) for param in params)


def _views(*views: Tensor) -> list[Tensor]:
    return [nn.Parameter(view) for view in views]


_WHOLE = torch.arange(60.0).view(6, 10)


@pytest.mark.parametrize(
    "params",
    [
        _views(_WHOLE, _WHOLE),
        _views(_WHOLE, _WHOLE[2:4]),
        _views(_WHOLE[:3], _WHOLE[3:], _WHOLE[2:4, 9]),
        _views(_WHOLE[:, :4], _WHOLE[:, 3:]),
        _views(_WHOLE[:, ::2], _WHOLE.T[4:6]),
        _views(_WHOLE, _WHOLE.view(torch.float16)[5, 19:]),
    ],
)
def test_parameters_that_share_memory_are_refused_by_name(params: list[Tensor]) -> None:
    named = [(f"part{index}", param) for index, param in enumerate(params)]
    with pytest.raises(ValueError, match=r"group \d \('part\d'\) of shape .* and parameter .*'part\d'.* share memory"):
        Shampoo([{"params": named[:1]}, {"params": named[1:]}])
    optimizer = Shampoo(parameters(SHAPES))
    with pytest.raises(ValueError, match=r"parameter \d of group 1 of .* and parameter \d of group 1 .* share memory"):
        optimizer.add_param_group({"params": params})
    optimizer.add_param_group({"params": params[:1]})
    with pytest.raises(ValueError, match=r"parameter \d of group [12] of shape .* share memory"):
        optimizer.add_param_group({"params": params[1:]})
    assert len(optimizer.param_groups) == 2


@pytest.mark.parametrize(
    "params",
    [
        _views(_WHOLE[:3], _WHOLE[3:]),
        _views(_WHOLE[:, 4:], _WHOLE[:, :4]),
        _views(_WHOLE[::2, ::2], _WHOLE[1::2], _WHOLE[::2, 1::2]),
        _views(_WHOLE[:, :5], _WHOLE.view(torch.float16)[:, 10:], _WHOLE[:0], torch.zeros(0)),
        [_WHOLE.clone().requires_grad_(), *_views(_WHOLE), _WHOLE[1:]],
        _views(torch.ones(6, 10, device="meta"), torch.ones(6, 10, device="meta")),
    ],
)
def test_parts_of_one_tensor_without_an_element_in_common_are_parameters(params: list[Tensor]) -> None:
    optimizer = Shampoo([{"params": params[:1]}, {"params": params[1:]}])
    assert len(optimizer.state) == len(params)


def test_a_group_without_parameters_says_what_it_lacks() -> None:
    with pytest.raises(ValueError, match=r"a parameter group must have the key 'params', got \['lr'\]"):
        Shampoo([{"lr": 0.1}])


def test_parameters_that_are_not_trained_may_be_of_any_precision() -> None:
    (trained,) = parameters([(3, 3)])
    optimizer = Shampoo([trained, torch.ones(3, 3).to(torch.float8_e4m3fn)], lr=0.1)
    before = trained.detach().clone()
    train(optimizer, [trained], range(2))
    assert not torch.equal(trained, before)


def test_a_parameter_belongs_to_one_group_once() -> None:
    (param,) = parameters([(3, 3)])
    with pytest.raises(ValueError, match="appears twice in one group of 2 parameters"):
        Shampoo([param, param])
    optimizer = Shampoo([param])
    with pytest.raises(ValueError, match="more than one"):
        optimizer.add_param_group({"params": [param]})
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize("kind", [Shampoo, LoraRite])
@pytest.mark.parametrize("unordered", [set, frozenset])
def test_a_set_has_no_order_that_states_could_be_saved_in(kind: Any, unordered: Callable[[list[Any]], Any]) -> None:
    params = parameters([(3, 4), (2, 3)])
    with pytest.raises(TypeError, match="an order that is the same in every run, got a set of 2"):
        kind([{"params": unordered(params)}])
    with pytest.raises(TypeError, match="an order that is the same in every run, got a set of 2"):
        kind(unordered(params))
    ordered = kind([{"params": dict.fromkeys(params).keys()}])
    assert [id(param) for param in ordered.param_groups[0]["params"]] == [id(param) for param in params]


@pytest.mark.parametrize("kind", [Shampoo, LoraRite])
def test_keys_that_wrappers_keep_in_groups_are_no_settings(kind: Any) -> None:
    given = {"lr_scale": 0.5, "rho": 0.05, "adaptive": False}  # timm's and SAM's, before the optimizer is built
    (param,) = parameters([(4, 4)])
    optimizer = kind([{"params": [param], **given, **({"paired": False} if kind is LoraRite else {})}])
    optimizer.param_groups[0]["counter"] = 0  # Lookahead's, later
    train(optimizer, [param], range(1))
    saved = optimizer.state_dict()
    assert {**given, "counter": 0}.items() <= saved["param_groups"][0].items()
    optimizer.load_state_dict(saved)


class Window(NamedTuple):
    """Anything that a user may keep beside hyperparameters."""

    first: int
    last: int


def test_what_a_user_keeps_in_a_group_is_saved_as_it_is() -> None:
    (param,) = parameters([(4, 4)])
    optimizer = Shampoo([param])
    anchor = torch.ones(3)
    optimizer.param_groups[0].update(anchor=anchor, window=Window(1, 2))
    train(optimizer, [param], range(1))
    saved = optimizer.state_dict()["param_groups"][0]
    assert saved["anchor"] is anchor
    assert type(saved["window"]) is Window
    assert saved["window"] == Window(1, 2)
    optimizer.load_state_dict(optimizer.state_dict())


@pytest.mark.parametrize("kind", [Shampoo, LoraRite])
def test_what_is_built_or_stepped_in_inference_mode_trains_outside_of_it(kind: Any) -> None:
    params, others = parameters([(4, 4), (4, 4)]), parameters([(4, 4), (4, 4)])
    for group in (params, others):
        group[1].requires_grad_(False)
    with torch.inference_mode():
        optimizer = kind(params)
    other = kind(others)
    for one in (params[1], others[1]):  # thawed by the next step
        one.requires_grad_(True)
    train(other, others, range(3))
    for step in range(3):
        for param, gradient in zip(params, gradients_like(params, step=step), strict=True):
            param.grad = gradient
        with torch.inference_mode(step == 0):
            optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(params, others, strict=True))


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_an_illegal_hyperparameter_of_any_group_moves_no_group(name: str) -> None:
    first, second = params = parameters([(4, 4), (4, 4)])
    config = member(name, weight_decay=0.1, weight_decay_type="independent")
    optimizer = Shampoo([{"params": [first]}, {"params": [second]}], **config)
    before = [param.detach().clone() for param in params]
    group = optimizer.param_groups[1]
    for key, value in (("lr", -1.0), ("peak_lr", 0.0), ("low_precision_weights", "master"), ("betas", (1.0, 0.9))):
        legal = group[key]
        group[key] = value
        with pytest.raises(ValueError, match=key):
            train(optimizer, params, range(1))
        group[key] = legal
    group["precond_freq"] = 3
    with pytest.raises(ValueError, match="'precond_freq' = 3, did you mean 'precondition_frequency'"):
        train(optimizer, params, range(1))
    del group["precond_freq"]
    group["learning_rate"] = 0.1
    with pytest.raises(ValueError, match=r"'learning_rate' = 0\.1, did you mean 'lr'"):
        train(optimizer, params, range(1))
    del group["learning_rate"]
    assert all(torch.equal(a, b) for a, b in zip(params, before, strict=True))
    assert [optimizer.state[param]["step"] for param in params] == [0, 0]
    train(optimizer, params, range(1))
    assert not any(torch.equal(a, b) for a, b in zip(params, before, strict=True))


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_parameters_that_take_the_place_of_others_before_the_first_step_are_trained(name: str) -> None:
    theirs = parameters(SHAPES)
    expected = Shampoo(theirs, **member(name))
    train(expected, theirs, range(3))
    for load in (False, True):
        ours = parameters(SHAPES)
        optimizer = Shampoo(parameters([(3, 4), (9, 9)]), **member(name))
        optimizer.param_groups[0]["params"] = ours  # as Accelerate does with FSDP2
        assert len(optimizer.state_dict()["state"]) == len(SHAPES)
        assert len(copy.deepcopy(optimizer).state) == len(SHAPES)
        if load:
            before = parameters(SHAPES)
            other = Shampoo(before, **member(name))
            train(other, before, range(1))
            optimizer.load_state_dict(other.state_dict())
            for param, trained in zip(ours, before, strict=True):
                param.data.copy_(trained)
        train(optimizer, ours, range(1 if load else 0, 3))
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
        assert set(optimizer.state) == set(ours)


REFUSED_LATER: dict[str, Callable[[Shampoo, Tensor], object]] = {
    "another in its place": lambda optimizer, other: operator.setitem(optimizer.param_groups[0]["params"], 1, other),
    "one removed": lambda optimizer, _: optimizer.param_groups[0]["params"].pop(),
    "a group removed": lambda optimizer, _: optimizer.param_groups.pop(),
    "groups in another order": lambda optimizer, _: optimizer.param_groups.reverse(),
    "one moved to another group": lambda optimizer, _: optimizer.param_groups[1]["params"].insert(
        0, optimizer.param_groups[0]["params"].pop()
    ),
    "without the state of one": lambda optimizer, _: optimizer.state.popitem(),
}


@pytest.mark.parametrize("case", REFUSED_LATER)
def test_groups_that_are_not_what_they_were_are_refused_after_a_step_and_nothing_moves(case: str) -> None:
    params, more, (other,) = parameters(SHAPES), parameters(SHAPES), parameters(SHAPES[1:2])
    # Two groups alike but for the learning rate, which a parameter would take from a place in the list.
    groups: list[dict[str, Any]] = [{"params": params}, {"params": more, "lr": 0.1}]
    optimizer = Shampoo(groups)
    train(optimizer, [*params, *more], range(2))
    REFUSED_LATER[case](optimizer, other)
    before = [param.detach().clone() for param in (*params, *more, other)]
    with pytest.raises(RuntimeError, match=r"built with, .* up to 2 of one parameter: add .* add_param_group"):
        train(optimizer, [*params, *more, other], range(2, 3))
    assert all(torch.equal(a, b) for a, b in zip(before, (*params, *more, other), strict=True))


def test_a_parameter_that_is_removed_before_the_first_step_stays() -> None:
    params = parameters(SHAPES)
    optimizer = Shampoo(params)
    removed = optimizer.param_groups[0]["params"].pop()
    before = removed.detach().clone()
    train(optimizer, params, range(2))
    assert torch.equal(removed, before)
    assert set(optimizer.state) == set(params[:-1])


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_an_optimizer_whose_state_is_emptied_begins_anew(name: str) -> None:
    params = parameters(SHAPES)
    optimizer = Shampoo(params, **member(name))
    train(optimizer, params, range(3))
    theirs = [nn.Parameter(param.detach().clone()) for param in params]
    fresh = Shampoo(theirs, **member(name))
    optimizer.state.clear()
    train(optimizer, params, range(3, 6))
    train(fresh, theirs, range(3, 6))
    assert all(torch.equal(a, b) for a, b in zip(params, theirs, strict=True))
    assert len(optimizer.state_dict()["state"]) == len(SHAPES)
