"""No hyperparameter is silently ignored: whatever is asked of a member of the family while it trains has an effect.

Every argument of `Shampoo`, changed in `param_groups` under every member (to each of its values under one member of
each kind, to one of them, in turns, under the others), is one of three things. LIVE: the following steps differ.
STATE: it shapes the state, so the next step raises. REFUSED: it has no effect, or no meaning, beside the member's other
arguments, so the next step raises as the constructor does. What raises moves nothing.
"""

from __future__ import annotations

import copy
import functools
import inspect
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shampoo import Shampoo
from shampoo.hyperparameters import Hyperparameters
from shampoo.step.failures import RefreshFailed
from tests.support.cases import in_one_test
from tests.support.shampoo.members import KL, MEMBERS, OF_EACH_TIMING, REPRESENTATIVES, WITH_FACTORS, member
from tests.support.shampoo.settings import parameters, train

LIVE, STATE, REFUSED = "live", "shapes the state", "refused"

# Three blocks, so that refreshes are staggered; vectors step plainly under every member, where some arguments count.
SHAPES = [(10, 5), (5,), (10, 5), (3, 5)]
BEFORE, AFTER = range(4), range(4, 13)  # refreshes are four steps apart

# Values for every argument; those that a member has already are left out.
VALUES: dict[str, tuple[Any, ...]] = {
    "lr": (0.02, 0.0),
    "betas": ("first", "second", "no first", "summed second"),  # see `_changed`
    "beta3": (0.3,),
    "shampoo_beta": (0.7, 1.0),
    "epsilon": (0.3,),
    "epsilon_type": ("absolute", "relative"),
    "weight_decay": (0.3, 0.0),
    "weight_decay_type": ("l2", "independent"),
    "momentum": (0.3, 0.0),
    "nesterov": (True, False),
    "preconditioner": ("shampoo", "soap", "kl", "spectral", "none"),
    "solver": ("eigh", "eigh64", "coupled_newton", "qr", "cholesky_qr"),
    "max_preconditioner_dim": (4, 64),
    "large_dim_method": ("blocking", "diagonal", "one_sided"),
    "one_sided": (True, False),
    "precondition_frequency": (2, 50),
    # Past the first refresh its distance to the refreshes to come is what is left of it.
    "start_preconditioning_step": (11,),
    "statistics_frequency": (3,),
    "stagger_refresh": (True, False),
    "refresh_tolerance": (0.9, 0.0),
    "grafting": ("none", "sgd", "adagrad", "rmsprop", "adam"),
    "grafting_beta2": (0.5,),
    "grafting_epsilon": (0.1,),
    "exponent_override": (0.7,),
    "pseudo_inverse": (True, False),
    "use_bias_correction": (False,),
    "adjust_lr_fn": ("original", "match_rms_adamw"),
    "standardize_rows": (True, False),
    "matrix_norm": ("rows", "spectral"),
    "rank": (2, None),
    "rest_scale": (0.5,),
    "state_dtype": ("float32", "bfloat16", "int8", "int4"),
    "product_dtype": ("bfloat16", "float32"),
    "low_precision_weights": ("stochastic", "master"),
    "max_failed_refreshes": (0,),
    "distributed": ("lossless", "local"),
    "communication_dtype": ("bfloat16", "float16"),
    "num_ranks_per_group": (2, 4),
    "reduce_gradients": (True,),
}

# The first value of each argument under one member of each kind.
KINDS = ("shampoo_adam", "soap", "kl", "spectral", "adam")
EXPECTED: dict[str, tuple[str, str, str, str, str]] = {
    "lr": (LIVE,) * 5,
    "betas": (LIVE,) * 5,
    "beta3": (LIVE,) * 5,
    "shampoo_beta": (REFUSED, LIVE, REFUSED, REFUSED, REFUSED),
    "epsilon": (LIVE, REFUSED, LIVE, REFUSED, REFUSED),
    "epsilon_type": (LIVE, REFUSED, LIVE, REFUSED, REFUSED),
    "weight_decay": (LIVE,) * 5,
    "weight_decay_type": (LIVE,) * 5,
    "momentum": (LIVE,) * 5,
    "nesterov": (LIVE,) * 5,
    "solver": (LIVE, LIVE, LIVE, REFUSED, REFUSED),
    "max_preconditioner_dim": (STATE, STATE, STATE, STATE, REFUSED),
    "large_dim_method": (STATE, STATE, STATE, STATE, REFUSED),
    "one_sided": (STATE, STATE, STATE, REFUSED, REFUSED),
    "precondition_frequency": (LIVE, LIVE, LIVE, REFUSED, REFUSED),
    "start_preconditioning_step": (LIVE, LIVE, REFUSED, REFUSED, REFUSED),
    "statistics_frequency": (LIVE, LIVE, REFUSED, REFUSED, REFUSED),
    "stagger_refresh": (LIVE, LIVE, LIVE, REFUSED, REFUSED),
    "refresh_tolerance": (STATE, LIVE, LIVE, REFUSED, REFUSED),
    "grafting": (STATE, REFUSED, REFUSED, REFUSED, STATE),
    "grafting_beta2": (LIVE, REFUSED, REFUSED, REFUSED, LIVE),
    "grafting_epsilon": (LIVE,) * 5,
    "exponent_override": (LIVE, REFUSED, REFUSED, REFUSED, REFUSED),
    "pseudo_inverse": (LIVE, REFUSED, REFUSED, REFUSED, REFUSED),
    "use_bias_correction": (LIVE,) * 5,
    "adjust_lr_fn": (REFUSED, REFUSED, REFUSED, LIVE, REFUSED),
    "standardize_rows": (REFUSED, REFUSED, REFUSED, LIVE, REFUSED),
    "matrix_norm": (REFUSED, REFUSED, REFUSED, LIVE, REFUSED),
    "rank": (REFUSED, REFUSED, REFUSED, STATE, REFUSED),
    "rest_scale": (REFUSED, REFUSED, REFUSED, LIVE, REFUSED),
    "state_dtype": (STATE, STATE, STATE, REFUSED, REFUSED),
    "product_dtype": (LIVE, LIVE, LIVE, LIVE, REFUSED),
    "low_precision_weights": (STATE,) * 5,
    "max_failed_refreshes": (LIVE, LIVE, LIVE, REFUSED, REFUSED),
    "distributed": (STATE,) * 5,
    # Of plain parameters that every rank steps.
    "communication_dtype": (REFUSED,) * 5,
    "num_ranks_per_group": (REFUSED,) * 5,
    "reduce_gradients": (REFUSED,) * 5,
}
BESIDE = {("rest_scale", "spectral"): "spectral_rank"}
"""The member to ask instead, where an argument has an effect beside another one alone."""
ANOTHER: dict[str, Any] = {
    "solver": "eigh64",
    "large_dim_method": "one_sided",
    "stagger_refresh": False,
    "grafting": "sgd",
    "state_dtype": "int8",
}
"""Values to take instead of those that these members have already."""

# One pair is one argument: where its second half averages nothing, its first half still does.
IDLE = {
    (name, half) for name in ("plain_sgd", "plain_adagrad", "plain_momentum") for half in ("second", "summed second")
}


def _config(name: str) -> dict[str, Any]:
    # What decay and momentum have beside them would have no effect without them.
    return member(name, weight_decay=0.1, momentum=0.5)


def _changed(argument: str, value: Any, present: Any) -> Any:
    if argument != "betas":
        return value
    first, second = present
    return {"first": (0.5, second), "second": (first, 0.7), "no first": (0.0, second), "summed second": (first, 1.0)}[
        value
    ]


@functools.cache
def _resolved(name: str) -> dict[str, Any]:
    """Settings that a member uses where its group says None."""
    h = Hyperparameters.of_group(_trained(name)[1].param_groups[0])
    return {"solver": h.solver_on("cpu"), "grafting": h.grafting_method}


@functools.cache
def _trained(name: str) -> tuple[list[nn.Parameter], Shampoo]:
    """A member in the middle of its training; to be copied. In float32, where any two solvers round differently."""
    params = parameters(SHAPES, torch.float32)
    optimizer = Shampoo(params, **_config(name))
    train(optimizer, params, BEFORE)
    return params, optimizer


def _outcome(params: list[nn.Parameter], optimizer: Shampoo) -> list[Tensor]:
    # With the state: packed in a few bits it may hide for some steps that another solver rounds differently.
    state = [x for param in params for x in optimizer.state[param].values() if isinstance(x, Tensor)]
    return [x.detach().clone() for x in (*params, *state)]


@functools.cache
def _undisturbed(name: str) -> list[list[Tensor]]:
    """The outcome of each of the steps to come."""
    params, optimizer = copy.deepcopy(_trained(name))
    outcomes = []
    for step in AFTER:
        train(optimizer, params, range(step, step + 1))
        outcomes.append(_outcome(params, optimizer))
    return outcomes


def _same(found: list[Tensor], expected: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def _lose_factors(optimizer: Shampoo) -> None:
    """Spoils what refreshes start from, so that each of them fails."""
    for state in optimizer.state.values():
        factors = [x for quantity, x in state.items() if quantity.startswith("factor")]
        # In low precision the eigenvalues stand for it.
        for x in factors or [x for quantity, x in state.items() if quantity.startswith("eigenvalues")]:
            x.fill_(torch.nan)


_SPARE: dict[str, tuple[list[nn.Parameter], Shampoo]] = {}
"""Of members a copy that refused the last change and so is still where `_trained` has left it: a copy is dear."""


def _observed(name: str, argument: str, value: Any) -> str:
    """LIVE, STATE, REFUSED, or in words what else has happened."""
    params, optimizer = _SPARE.pop(name) if name in _SPARE else copy.deepcopy(_trained(name))
    group = optimizer.param_groups[0]
    present, group[argument] = group[argument], value
    if argument == "max_failed_refreshes":
        _lose_factors(optimizer)
    try:
        for step, undisturbed in zip(AFTER, _undisturbed(name), strict=True):
            train(optimizer, params, range(step, step + 1))
            if argument != "max_failed_refreshes" and not _same(_outcome(params, optimizer), undisturbed):
                return LIVE  # mostly in the first of them
    except RefreshFailed as error:
        return LIVE if f"{argument}={value!r}" in str(error) else f"raises another limit: {error}"
    except ValueError as error:
        if not _same(_outcome(params, optimizer), _outcome(*_trained(name))):
            return f"raises, but has moved something: {error}"
        if argument not in str(error):
            return f"raises without a word of it: {error}"
        group[argument] = present
        _SPARE[name] = params, optimizer
        if "changed from" in str(error):
            return STATE
        try:
            Shampoo(parameters(SHAPES, torch.float32), **{**_config(name), argument: value})
        except ValueError as same:
            return REFUSED if str(same) == str(error) else f"the constructor says {same}, the step {error}"
        return f"only the step raises: {error}"
    return "ignored"


def _cases(name: str, argument: str) -> list[tuple[Any, Any]]:
    group = _trained(name)[1].param_groups[0]
    every = [(value, _changed(argument, value, group[argument])) for value in VALUES[argument]]
    already = (group[argument], _resolved(name).get(argument, group[argument]))
    new = [(value, changed) for value, changed in every if changed not in already]
    turn = list(MEMBERS).index(name) % len(new)
    return new if name in REPRESENTATIVES else new[turn : turn + 1]


def test_every_argument_of_the_class_has_values_and_expectations() -> None:
    arguments = set(inspect.signature(Shampoo).parameters) - {"params", "unknown"}
    assert set(VALUES) == arguments
    assert set(EXPECTED) == arguments - {"preconditioner"}  # which is the column


@pytest.mark.filterwarnings("ignore:a Kronecker factor has no finite eigendecomposition:RuntimeWarning")
@pytest.mark.parametrize("name", MEMBERS)
def test_no_argument_is_ignored(name: str) -> None:
    unexpected = {}
    for argument in VALUES:
        for value, changed in _cases(name, argument):
            observed = _observed(name, argument, changed)
            expected = ("ignored",) if (name, value) in IDLE else (LIVE, STATE, REFUSED)
            if observed not in expected:
                unexpected[f"{argument}={changed!r}"] = observed
    assert unexpected == {}


@pytest.mark.filterwarnings("ignore:a Kronecker factor has no finite eigendecomposition:RuntimeWarning")
@pytest.mark.parametrize("argument", EXPECTED)
def test_an_argument_is_live_where_a_member_uses_it(argument: str) -> None:
    observed = []
    for name in (BESIDE.get((argument, kind), kind) for kind in KINDS):
        present = _trained(name)[1].param_groups[0][argument]
        value = _changed(argument, ANOTHER.get(argument, VALUES[argument][0]), present)
        observed.append(_observed(name, argument, value))
    assert tuple(observed) == EXPECTED[argument]


@pytest.mark.filterwarnings("ignore:a Kronecker factor has no finite eigendecomposition:RuntimeWarning")
@in_one_test("name", WITH_FACTORS)
def test_as_many_failures_as_are_allowed_do_not_raise(name: str) -> None:
    # Else `max_failed_refreshes=0` would prove nothing above.
    params, optimizer = copy.deepcopy(_trained(name))
    _lose_factors(optimizer)
    train(optimizer, params, AFTER[:4])  # a period
    assert optimizer.diagnostics().num_failed_refreshes > 0


@in_one_test("name", [name for name in OF_EACH_TIMING if name in WITH_FACTORS and name not in KL])
def test_a_later_start_set_in_time_is_kept(name: str) -> None:
    params, late = parameters(SHAPES), parameters(SHAPES)
    optimizer, postponed = Shampoo(params, **_config(name)), Shampoo(late, **_config(name))
    postponed.param_groups[0]["start_preconditioning_step"] = 8
    expected = parameters(SHAPES)
    started_late = Shampoo(expected, **{**_config(name), "start_preconditioning_step": 8})
    for each, its in ((optimizer, params), (postponed, late), (started_late, expected)):
        train(each, its, range(9))
    assert all(torch.equal(a, b) for a, b in zip(late, expected, strict=True))
    assert not torch.equal(late[0], params[0])
