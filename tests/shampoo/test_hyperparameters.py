"""Every argument is checked, and the message holds its value."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
import torch

from shampoo import Shampoo
from tests.shampoo.settings import DEFAULTS, SHAPES, parameters, settings, train

ILLEGAL: list[tuple[dict[str, Any], str]] = [
    ({"lr": -0.1}, "lr must be a finite number >= 0, got -0.1"),
    ({"lr": math.inf}, "lr .* inf"),
    ({"lr": "0.1"}, "lr .* '0.1'"),
    ({"lr": True}, "lr .* True"),
    ({"lr": torch.tensor(0.1)}, "lr .* tensor"),
    ({"betas": (1.0, 0.9)}, r"betas\[0\] must be in \[0, 1\), got 1.0"),
    ({"betas": (0.9, 1.1)}, r"betas\[1\] must be in \[0, 1\], got 1.1"),
    ({"betas": 0.9}, "betas must be a pair of numbers, got 0.9"),
    ({"betas": (0.9, 0.9, 0.9)}, "betas must be a pair"),
    ({"beta3": 1.0}, "beta3 .* 1.0"),
    ({"beta3": 0.8, "betas": (0.0, 0.9)}, r"beta3=0.8, betas\[0\]=0.0"),
    ({"epsilon": 0.0}, "epsilon must be > 0, got 0.0"),
    ({"epsilon": math.nan}, "epsilon .* nan"),
    ({"weight_decay": -1}, "weight_decay .* -1"),
    ({"weight_decay_type": "corrected"}, "weight_decay_type .* 'corrected'"),
    ({"momentum": 1.0}, "momentum .* 1.0"),
    ({"nesterov": True}, "nesterov=True, momentum=0.0"),
    ({"nesterov": 1, "momentum": 0.9}, "nesterov must be a bool, got 1"),
    ({"max_preconditioner_dim": 1}, "max_preconditioner_dim .* 1"),
    ({"max_preconditioner_dim": 256.0}, "max_preconditioner_dim .* 256.0"),
    ({"precondition_frequency": 0}, "precondition_frequency .* 0"),
    ({"start_preconditioning_step": 0}, "start_preconditioning_step .* 0"),
    ({"statistics_frequency": 0}, "statistics_frequency .* 0"),
    ({"statistics_frequency": 8}, "statistics_frequency=8 .* precondition_frequency=7"),
    ({"statistics_frequency": 5, "start_preconditioning_step": 3}, "start_preconditioning_step=3"),
    ({"grafting": "lamb"}, "grafting .* 'lamb'"),
    ({"grafting": None}, "grafting .* None"),
    ({"grafting": "sgd", "grafting_beta2": 0.9}, "grafting_beta2=0.9 has no effect with grafting='sgd'"),
    ({"grafting": "none", "grafting_epsilon": 1e-6}, "grafting_epsilon=1e-06 has no effect with grafting='none'"),
    ({"grafting_beta2": 1.0}, "grafting_beta2 .* 1.0"),
    ({"betas": (0.9, 1.0)}, r"grafting='adam' with betas\[1\]=1 needs grafting_beta2"),
    ({"grafting_epsilon": 0}, "grafting_epsilon must be > 0, got 0"),
    ({"exponent_override": 0}, "exponent_override .* 0"),
    ({"use_bias_correction": None}, "use_bias_correction .* None"),
]


@pytest.mark.parametrize(("change", "message"), ILLEGAL, ids=[str(change) for change, _ in ILLEGAL])
def test_an_illegal_argument_is_refused_with_its_value(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Shampoo(parameters([(3, 3)]), **settings(**change))


@pytest.mark.parametrize(("change", "message"), ILLEGAL, ids=[str(change) for change, _ in ILLEGAL])
def test_an_illegal_value_set_later_is_refused_at_the_next_step(change: dict[str, Any], message: str) -> None:
    params = parameters([(3, 3)])
    optimizer = Shampoo(params, **settings())
    optimizer.param_groups[0].update(change)
    before = params[0].detach().clone()
    with pytest.raises(ValueError, match=message):
        train(optimizer, params, range(1))
    assert torch.equal(params[0], before)


def test_an_unknown_argument_of_a_group_is_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("unknown hyperparameter 'weigth_decay' = 0.1")):
        Shampoo([{"params": parameters([(3, 3)]), "weigth_decay": 0.1}], lr=0.1)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ([torch.zeros(3, dtype=torch.complex64)], "parameter 0 must be real and floating-point, got torch.complex64"),
        ([torch.zeros(2), torch.zeros(3, dtype=torch.int64)], "parameter 1 .* torch.int64"),
    ],
)
def test_parameters_that_are_not_real_are_refused(params: list[torch.Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Shampoo(params)


def test_a_parameter_given_twice_is_refused() -> None:
    (param,) = parameters([(3, 3)])
    with pytest.raises(ValueError, match="twice"):
        Shampoo([param, param])


def test_a_config_is_json() -> None:
    config = settings(beta3=0.81, momentum=0.5, nesterov=True, exponent_override=0.5)
    outcomes = []
    for arguments in (config, json.loads(json.dumps(config))):
        params = parameters(list(SHAPES.values()))
        train(Shampoo(params, **arguments), params, range(10))
        outcomes.append(params)
    assert all(torch.equal(a, b) for a, b in zip(*outcomes, strict=True))


def test_defaults_are_legal_and_are_what_param_groups_hold() -> None:
    optimizer = Shampoo(parameters([(3, 3)]))
    group = optimizer.param_groups[0]
    assert {name: group[name] for name in DEFAULTS} == DEFAULTS == {name: optimizer.defaults[name] for name in DEFAULTS}


LIVE: dict[str, dict[str, Any]] = {
    "lr": {"lr": 0.02},
    "betas[0]": {"betas": (0.5, 0.999)},
    "betas[1]": {"betas": (0.9, 0.5)},
    "beta3": {"beta3": 0.5},
    "epsilon": {"epsilon": 1e-2},
    "weight_decay": {"weight_decay": 0.3},
    "weight_decay_type": {"weight_decay_type": "l2"},
    "momentum": {"momentum": 0.5},
    "nesterov": {"nesterov": True},
    "precondition_frequency": {"precondition_frequency": 2},
    "start_preconditioning_step": {"start_preconditioning_step": 50},
    "statistics_frequency": {"statistics_frequency": 3},
    "grafting_beta2": {"grafting_beta2": 0.5},
    "grafting_epsilon": {"grafting_epsilon": 1e-1},
    "exponent_override": {"exponent_override": 0.5},
    "use_bias_correction": {"use_bias_correction": False},
}
SHAPES_THE_STATE: dict[str, dict[str, Any]] = {
    "max_preconditioner_dim": {"max_preconditioner_dim": 4},
    "grafting": {"grafting": "rmsprop"},
    "betas[0] > 0": {"betas": (0.0, 0.999)},
    "momentum > 0": {"momentum": 0.0},
}


def test_every_hyperparameter_is_either_live_or_raises() -> None:
    names = {name.partition("[")[0].partition(" ")[0] for name in (*LIVE, *SHAPES_THE_STATE)}
    assert names == set(DEFAULTS)


@pytest.mark.parametrize("name", LIVE)
def test_a_change_takes_effect(name: str) -> None:
    outcomes = []
    for change in ({}, LIVE[name]):
        params = parameters([(6, 7)])
        optimizer = Shampoo(params, **settings(momentum=0.9, weight_decay=0.1, precondition_frequency=4))
        train(optimizer, params, range(5))
        optimizer.param_groups[0].update(change)
        train(optimizer, params, range(5, 10))
        outcomes.append(params[0].detach())
    assert not torch.allclose(outcomes[0], outcomes[1], rtol=1e-6)


@pytest.mark.parametrize("name", SHAPES_THE_STATE)
def test_a_change_of_what_shapes_the_state_raises(name: str) -> None:
    params = parameters([(6, 7)])
    optimizer = Shampoo(params, **settings(momentum=0.9))
    optimizer.param_groups[0].update(SHAPES_THE_STATE[name])
    with pytest.raises(ValueError, match=re.escape(f"{name} changed from")):
        train(optimizer, params, range(1))
