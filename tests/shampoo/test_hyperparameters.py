"""Every argument is checked, alone and beside the others, and the message holds its value."""

from __future__ import annotations

import inspect
import json
import math
import pydoc
from typing import Any, get_args

import pytest
import torch

from shampoo import Shampoo
from shampoo.declarations import Declaration
from shampoo.hyperparameters import DECLARATIONS, DEFAULTS, NAMES, Hyperparameters, Preconditioner
from tests.support.cases import in_one_test
from tests.support.shampoo.generate import HELP, MANUAL, help_module, keyword_arguments, manual_table
from tests.support.shampoo.members import MEMBERS, member
from tests.support.shampoo.settings import parameters, train

SOAP, KL, SPECTRAL, PLAIN = ({"preconditioner": name} for name in ("soap", "kl", "spectral", "none"))

ILLEGAL_VALUES: list[tuple[dict[str, Any], str]] = [
    ({"lr": -0.1}, r"lr must be a finite number >= 0, got -0\.1"),
    ({"lr": math.inf}, "lr must be .* got inf"),
    ({"lr": 10**400}, "lr must be a finite number >= 0, got 10000"),  # no float
    ({"lr": "0.1"}, "lr must be .* got '0.1'"),
    ({"lr": True}, "lr must be .* got True"),
    ({"lr": torch.ones(2)}, r"a tensor lr must be one number on the CPU, got shape \(2,\)"),
    ({"betas": (1.0, 0.9)}, r"betas\[0\] must be in \[0, 1\), got 1.0"),
    ({"betas": (-0.1, 0.9)}, r"betas\[0\] must be in \[0, 1\), got -0.1"),
    ({"betas": (0.9, 1.1)}, r"betas\[1\] must be in \[0, 1\], got 1.1"),
    ({"betas": 0.9}, "betas must be a pair of numbers, got 0.9"),
    ({"betas": (0.9, 0.9, 0.9)}, "betas must be a pair of numbers, got"),
    ({"betas": (0.9, math.nan)}, "betas must be a pair of numbers, got"),
    ({"beta3": 1.0}, r"beta3 must be None or in \[0, 1\), got 1.0"),
    ({"beta3": "0.9"}, "beta3 must be .* got '0.9'"),
    ({**SOAP, "shampoo_beta": 1.5}, r"shampoo_beta must be None or in \[0, 1\], got 1.5"),
    ({"epsilon": 0.0}, "epsilon must be a finite number > 0, got 0.0"),
    ({"epsilon": math.nan}, "epsilon must be a finite number > 0, got nan"),
    ({"epsilon_type": "largest"}, "epsilon_type must be one of .* got 'largest'"),
    ({"epsilon_type": None}, "epsilon_type must be one of .* got None"),
    ({"weight_decay": -1}, "weight_decay must be a finite number >= 0, got -1"),
    ({"weight_decay_type": "corrected"}, "weight_decay_type must be one of .* got 'corrected'"),
    ({"momentum": 1.0}, r"momentum must be in \[0, 1\), got 1.0"),
    ({"momentum": None}, r"momentum must be in \[0, 1\), got None"),
    ({"nesterov": 1, "momentum": 0.9}, "nesterov must be a bool, got 1"),
    ({"preconditioner": "adam"}, "preconditioner must be one of .* got 'adam'"),
    ({"preconditioner": None}, "preconditioner must be one of .* got None"),
    ({"solver": "svd"}, "solver must be one of .* got 'svd'"),
    ({"max_preconditioner_dim": 1}, "max_preconditioner_dim must be an integer >= 2, got 1"),
    ({"max_preconditioner_dim": 256.0}, "max_preconditioner_dim must be an integer >= 2, got 256.0"),
    ({"large_dim_method": "cut"}, "large_dim_method must be one of .* got 'cut'"),
    ({"one_sided": "left"}, "one_sided must be a bool, got 'left'"),
    ({"precondition_frequency": 0}, "precondition_frequency must be None or an integer >= 1, got 0"),
    ({"precondition_frequency": 2.0}, "precondition_frequency must be None or an integer >= 1, got 2.0"),
    ({"start_preconditioning_step": 0}, "start_preconditioning_step must be None or an integer >= 1, got 0"),
    ({"statistics_frequency": 0}, "statistics_frequency must be None or an integer >= 1, got 0"),
    ({"statistics_frequency": True}, "statistics_frequency must be None or an integer >= 1, got True"),
    ({"stagger_refresh": 1}, "stagger_refresh must be a bool, got 1"),
    ({"refresh_tolerance": 1.0}, r"refresh_tolerance must be in \[0, 1\), got 1.0"),
    ({"refresh_tolerance": -0.1}, r"refresh_tolerance must be in \[0, 1\), got -0.1"),
    ({"grafting": "lamb"}, "grafting must be one of .* got 'lamb'"),
    ({"grafting": False}, "grafting must be one of .* got False"),
    ({"grafting_beta2": 1.0}, r"grafting_beta2 must be None or in \[0, 1\), got 1.0"),
    ({"grafting_epsilon": 0}, "grafting_epsilon must be a finite number > 0, got 0"),
    ({"grafting_epsilon": -1e-8}, "grafting_epsilon must be a finite number > 0, got -1e-08"),
    ({"exponent_override": 0}, "exponent_override must be None or a finite number > 0, got 0"),
    ({"exponent_override": math.inf}, "exponent_override must be None or a finite number > 0, got inf"),
    ({"pseudo_inverse": 0}, "pseudo_inverse must be a bool, got 0"),
    ({"use_bias_correction": None}, "use_bias_correction must be a bool, got None"),
    ({**SPECTRAL, "adjust_lr_fn": "muon"}, "adjust_lr_fn must be one of .* got 'muon'"),
    (
        {**SPECTRAL, "standardize_rows": True, "matrix_norm": "rows"},
        "standardize_rows=True has no effect with matrix_norm='rows'",
    ),
    (
        {**SPECTRAL, "product_dtype": "bfloat16", "matrix_norm": "rows"},
        "product_dtype='bfloat16' has no effect with matrix_norm='rows'",
    ),
    ({**SPECTRAL, "rank": 8, "matrix_norm": "rows"}, "rank=8 has no effect with matrix_norm='rows'"),
    ({**SPECTRAL, "rank": 8, "standardize_rows": True}, "standardize_rows=True orthogonalises .* got rank=8"),
    ({**SPECTRAL, "rank": 8, "betas": (0.9, 1.0)}, r"betas\[1\] must be below 1 for rank=8, got 1.0"),
    ({**SPECTRAL, "rest_scale": 0.3}, "rest_scale=0.3 needs a rank, got None"),
    ({"product_dtype": "float16"}, "product_dtype .* 'float16'"),
    ({"state_dtype": "float64"}, "state_dtype must be one of .* got 'float64'"),
    ({"state_dtype": torch.bfloat16}, "state_dtype must be one of .* got torch.bfloat16"),
    ({"low_precision_weights": "random"}, "low_precision_weights must be one of .* got 'random'"),
    ({"max_failed_refreshes": -1}, "max_failed_refreshes must be an integer >= 0, got -1"),
    ({"max_failed_refreshes": 1.5}, "max_failed_refreshes must be an integer >= 0, got 1.5"),
    ({"distributed": "sharded"}, "distributed must be one of .* got 'sharded'"),
    ({"distributed": "local"}, "distributed='local' has no effect: none of 1 parameters is a DTensor"),
    ({"communication_dtype": "int8"}, "communication_dtype must be one of .* got 'int8'"),
    ({"communication_dtype": "float16"}, "communication_dtype='float16' has no effect: none of 1 .* is a DTensor"),
    ({"num_ranks_per_group": 0}, "num_ranks_per_group must be None or an integer >= 1, got 0"),
    ({"num_ranks_per_group": 2}, "num_ranks_per_group=2 needs distributed='lossless', got 'auto'"),
    ({"reduce_gradients": 1}, "reduce_gradients must be a bool, got 1"),
    ({"reduce_gradients": True}, "reduce_gradients=True needs distributed='lossless', got 'auto'"),
]
ILLEGAL_COMBINATIONS: list[tuple[dict[str, Any], str]] = [
    (
        {"distributed": "local", "communication_dtype": "bfloat16"},
        "communication_dtype='bfloat16' has no effect with distributed='local'",
    ),
    (
        {"distributed": "lossless", "reduce_gradients": True, "num_ranks_per_group": 2},
        "num_ranks_per_group=2 has no effect with reduce_gradients=True",
    ),
    ({"beta3": 0.8, "betas": (0.0, 0.9)}, r"beta3 needs betas\[0\] > 0, got beta3=0.8, betas\[0\]=0.0"),
    *(
        ({"preconditioner": name, "betas": betas}, rf"betas\[1\] must be > 0 for {name}, or steps explode: betas=")
        for name, betas in (("kl", (0.9, 0.0)), ("kl", (0.0, 0.0)), ("soap", (0.9, 0.0)), ("shampoo", (0.5, 0.0)))
    ),
    ({"grafting_beta2": 0.0}, r"grafting_beta2 must be > 0 with betas\[0\] > 0, or steps explode: betas="),
    ({**PLAIN, "betas": (0.9, 0.0)}, r"betas\[1\] must be > 0 with betas\[0\] > 0, or steps explode: betas="),
    ({**SPECTRAL, "betas": (0.9, 0.0)}, r"betas\[1\] must be > 0 with betas\[0\] > 0, or steps explode: betas="),
    ({"nesterov": True}, "nesterov needs momentum > 0, got nesterov=True, momentum=0.0"),
    ({"statistics_frequency": 8, "precondition_frequency": 7}, "statistics_frequency=8 .* precondition_frequency=7"),
    (
        {"statistics_frequency": 5, "start_preconditioning_step": 3},
        "statistics_frequency=5 .* start_preconditioning_step=3",
    ),
    *(
        (
            {"state_dtype": dtype, "statistics_frequency": 2},
            f"statistics_frequency=2 has no effect with state_dtype='{dtype}'",
        )
        for dtype in ("bfloat16", "int8", "int4")
    ),
    (
        {"one_sided": True, "large_dim_method": "diagonal"},
        "large_dim_method='diagonal' has no effect with one_sided=True",
    ),
    *(
        ({**kind, "grafting": method}, f"preconditioner='{kind['preconditioner']}' .* got grafting='{method}'")
        for kind in (SOAP, KL, SPECTRAL)
        for method in ("sgd", "adagrad", "rmsprop", "adam")
    ),
    ({**PLAIN, "grafting": "none"}, "preconditioner='none' .* got grafting='none'"),
    *(
        ({"grafting": method, "grafting_beta2": 0.9}, f"grafting_beta2=0.9 has no effect with grafting='{method}'")
        for method in ("none", "sgd", "adagrad")
    ),
    *(
        ({"grafting": method, "betas": (0.9, 1.0)}, rf"grafting='{method}' with betas\[1\]=1 needs grafting_beta2 < 1")
        for method in ("rmsprop", "adam")
    ),
    ({"betas": (0.9, 1)}, r"grafting='adam' with betas\[1\]=1 needs grafting_beta2 < 1, got None"),
    *(
        ({**kind, "betas": (0.9, 1.0)}, rf"betas\[1\] must be below 1 for preconditioner='{kind['preconditioner']}'")
        for kind in (SOAP, KL)
    ),
    *(
        (
            {**kind, "grafting": "sgd", "grafting_epsilon": 1e-6},
            "grafting_epsilon=1e-06 has no effect with grafting='sgd'",
        )
        for kind in ({}, PLAIN)
    ),
    *(
        (
            {**kind, "grafting": method, "betas": (0.0, 0.9), "use_bias_correction": False},
            rf"use_bias_correction=False has no effect with betas=\(0.0, 0.9\), grafting='{method}'",
        )
        for kind in ({}, PLAIN)
        for method in ("sgd", "adagrad", "rmsprop", "adam")
    ),
    (
        {"grafting": "none", "betas": (0.0, 1.0), "use_bias_correction": False},
        r"use_bias_correction=False has no effect with betas=\(0.0, 1.0\), grafting='none'",
    ),
    *(
        ({**kind, "solver": "coupled_newton"}, f"preconditioner='{kind['preconditioner']}' .* solver='coupled_newton'")
        for kind in (SOAP, KL)
    ),
    (
        {"solver": "coupled_newton", "exponent_override": 0.4},
        "solver='coupled_newton' needs exponent_override=1/p .* got 0.4",
    ),
    *(
        ({"solver": "coupled_newton", name: value}, f"{name}={value!r} needs eigenvectors, got solver='coupled_newton'")
        for name, value in (("pseudo_inverse", True), ("refresh_tolerance", 0.3), ("state_dtype", "int4"))
    ),
]

# What each member has no use for, with a value that is not its default.
UNUSED_VALUES: dict[str, Any] = {
    "shampoo_beta": 0.9,
    "epsilon": 1e-5,
    "epsilon_type": "absolute",
    "solver": "eigh",
    "max_preconditioner_dim": 512,
    "large_dim_method": "diagonal",
    "one_sided": True,
    "precondition_frequency": 5,
    "start_preconditioning_step": 5,
    "statistics_frequency": 5,
    "stagger_refresh": False,
    "refresh_tolerance": 0.1,
    "grafting_beta2": 0.9,
    "exponent_override": 0.5,
    "pseudo_inverse": True,
    "adjust_lr_fn": "original",
    "standardize_rows": True,
    "matrix_norm": "rows",
    "rank": 2,
    "rest_scale": 0.2,
    "state_dtype": "int8",
    "max_failed_refreshes": 5,
}
FACTORS = (
    "solver",
    "one_sided",
    "precondition_frequency",
    "start_preconditioning_step",
    "statistics_frequency",
    "stagger_refresh",
    "refresh_tolerance",
    "state_dtype",
    "max_failed_refreshes",
)
ROOTS = ("epsilon", "epsilon_type")
NORMS = ("adjust_lr_fn", "standardize_rows", "matrix_norm", "rank", "rest_scale")
UNUSED: dict[str, tuple[str, ...]] = {
    "shampoo": ("shampoo_beta", *NORMS),
    "soap": (*ROOTS, "grafting_beta2", "exponent_override", "pseudo_inverse", *NORMS),
    "kl": ("shampoo_beta", "grafting_beta2", "exponent_override", "pseudo_inverse", *NORMS),
    "spectral": (*FACTORS, *ROOTS, "shampoo_beta", "grafting_beta2", "exponent_override", "pseudo_inverse"),
    "none": tuple(name for name in UNUSED_VALUES if name != "grafting_beta2"),
}
NO_EFFECT = [
    (
        {"preconditioner": kind, name: UNUSED_VALUES[name]},
        f"{name}={UNUSED_VALUES[name]!r} has no effect with preconditioner='{kind}'",
    )
    for kind, names in UNUSED.items()
    for name in names
]

ILLEGAL = [*ILLEGAL_VALUES, *ILLEGAL_COMBINATIONS, *NO_EFFECT]


@in_one_test(("change", "message"), ILLEGAL)
def test_an_illegal_argument_is_refused_with_its_value(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Shampoo(parameters([(3, 3)]), **change)


@in_one_test(("change", "message"), ILLEGAL)
def test_an_illegal_value_set_later_is_refused_at_the_next_step_and_moves_nothing(
    change: dict[str, Any], message: str
) -> None:
    params = parameters([(3, 3)])
    optimizer = Shampoo(params)
    optimizer.param_groups[0].update(change)
    before = params[0].detach().clone()
    with pytest.raises(ValueError, match=message):
        train(optimizer, params, range(1))
    assert torch.equal(params[0], before)
    assert optimizer.state[params[0]]["step"] == 0


def _illegal_values(declaration: Declaration) -> list[Any]:
    """Values that the declaration of a hyperparameter excludes."""
    found: list[Any] = ["no such word", object(), math.nan, [1, 2, 3]]
    if not declaration.optional:
        found.append(None)
    if declaration.kind == "integer":
        found += [1.5, True, int(declaration.ranges[0].low) - 1]
    if declaration.kind == "float":
        (allowed,) = declaration.ranges
        found += [True, math.inf, allowed.low - 1, *(end for end in (allowed.low, allowed.high) if end not in allowed)]
    if declaration.kind == "pair":
        found += [[first, 0.5] for first in (-1.0, 1.0)] + [[0.5, second] for second in (-1.0, 1.5)]
    return found


@in_one_test("name", NAMES)
def test_a_value_that_its_declaration_excludes_is_refused_whatever_the_hyperparameter(name: str) -> None:
    for value in _illegal_values(DECLARATIONS[name]):
        with pytest.raises(ValueError, match=rf"{name}(\[[01]\])? must be .* got "):
            Shampoo(parameters([(3, 3)]), **{name: value})


@in_one_test("kind", get_args(Preconditioner))
@in_one_test("name", NAMES)
def test_a_value_that_a_member_has_no_use_for_is_refused(name: str, kind: str) -> None:
    declaration = DECLARATIONS[name]
    if declaration.used_by is None or kind in declaration.used_by:
        return
    (value, *_) = [x for x in _legal_values(declaration) if x != declaration.default]
    with pytest.raises(ValueError, match=f"{name}={value!r} has no effect with preconditioner='{kind}'"):
        Shampoo(parameters([(3, 3)]), **{"preconditioner": kind, name: value})


def _legal_values(declaration: Declaration) -> list[Any]:
    if declaration.kind == "integer":
        return [int(declaration.ranges[0].low) + more for more in range(2)]
    by_kind: dict[str, list[Any]] = {"boolean": [False, True], "float": [0.25, 0.5], "choice": [*declaration.choices]}
    return by_kind[declaration.kind]


def test_the_constructor_takes_the_hyperparameters_as_they_are_declared() -> None:
    signature = inspect.signature(Shampoo).parameters
    found = {name: one for name, one in signature.items() if name not in ("params", "unknown")}
    assert {name: one.default for name, one in found.items()} == DEFAULTS
    # torch's schedules take the learning rate as a tensor, too.
    assert {name: one.annotation for name, one in found.items()} == keyword_arguments() | {"lr": "float | Tensor"}


def test_help_says_what_each_argument_means() -> None:
    assert HELP.read_text() == help_module()
    text = pydoc.render_doc(Shampoo)
    assert all(f"{name}: " in text for name in DECLARATIONS)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("eps", "did you mean 'epsilon', the damping of factors"),
        ("use_nesterov", "did you mean 'nesterov'"),
        ("grafting_config", "did you mean 'grafting'"),
        ("update_freq", "did you mean 'precondition_frequency'"),
        ("use_decoupled_weight_decay", "did you mean 'weight_decay_type'"),
        ("fused", "leave it out: it is about how torch's own optimizers are computed"),
        ("maximize", "minimize the negative loss"),
        ("amsgrad", "leave it out: squared gradients are averaged"),
        ("dampening", "leave it out: momentum is not dampened"),
        ("zz", "known: lr, betas"),
    ],
)
def test_an_argument_that_there_is_not_gets_the_nearest_that_there_is(name: str, hint: str) -> None:
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}' = 1.*{hint}"):
        Shampoo(parameters([(3, 3)]), **{name: 1})  # type: ignore[arg-type]  # what a type checker says as well


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("preconditioner", "Shampoo", "shampoo"),
        ("preconditioner", "muon", "spectral"),
        ("preconditioner", "KL-Shampoo", "kl"),
        ("preconditioner", "adamw", "none"),
        ("grafting", "adamw", "adam"),
        ("solver", "newton", "coupled_newton"),
        ("state_dtype", torch.bfloat16, "bfloat16"),
    ],
)
def test_a_word_that_is_no_choice_gets_the_one_that_was_meant(name: str, value: object, meant: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be one of .*, got .*: did you mean '{meant}'"):
        Shampoo(parameters([(3, 3)]), **{name: value})  # type: ignore[arg-type]  # what a type checker says as well


def test_the_manual_has_the_hyperparameters_as_they_are_declared() -> None:
    assert manual_table() + "\n" in MANUAL.read_text()


def test_a_declaration_names_members_of_the_family() -> None:
    named = {member for one in DECLARATIONS.values() for member in one.used_by or ()}
    assert named <= set(get_args(Preconditioner))


def test_defaults_are_legal_and_are_what_param_groups_hold() -> None:
    optimizer = Shampoo(parameters([(3, 3)]))
    group = optimizer.param_groups[0]
    assert {name: group[name] for name in DEFAULTS} == DEFAULTS == {name: optimizer.defaults[name] for name in DEFAULTS}


@in_one_test("name", MEMBERS)
def test_a_config_is_json(name: str) -> None:
    outcomes = []
    for arguments in (member(name), json.loads(json.dumps(member(name)))):
        params = parameters([(6, 7), (5,)])
        optimizer = Shampoo(params, **arguments)
        train(optimizer, params, range(2))
        outcomes.append(params)
    assert all(torch.equal(a, b) for a, b in zip(*outcomes, strict=True))


@pytest.mark.parametrize(
    ("config", "refresh", "statistics", "first"),
    [
        ({}, 50, 1, 1),
        (SOAP, 10, 1, 2),
        (KL, 10, 1, 1),
        ({"statistics_frequency": 5}, 50, 5, 5),
        ({**SOAP, "statistics_frequency": 5, "start_preconditioning_step": 7}, 10, 5, 7),
        ({"state_dtype": "int4"}, 50, 50, 1),
        ({**SOAP, "state_dtype": "int8", "precondition_frequency": 4}, 4, 4, 2),
    ],
)
def test_periods_that_are_not_given_follow_from_the_member(
    config: dict[str, Any], refresh: int, statistics: int, first: int
) -> None:
    h = Hyperparameters(**config)
    assert (h.refresh_period, h.statistics_period, h.first_refresh) == (refresh, statistics, first)
