"""Roots and bases that cannot be found: the previous ones stay in use, and it is counted, reported, raised in time."""

from __future__ import annotations

import copy
import functools
import math
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shampoo import Shampoo
from shampoo.hyperparameters import Hyperparameters
from shampoo.step.failures import RefreshFailed
from tests.support.shampoo.members import WITH_FACTORS, member
from tests.support.shampoo.settings import DEFAULTS, parameters, train

# The second parameter has two equal blocks; blocks are 6×6.
SHAPES = [(6, 6), (6, 12), (6,)]


def _config(name: str, **changes: object) -> dict[str, Any]:
    return {**member(name, max_preconditioner_dim=6), **changes}


@functools.cache
def _after_nine_steps(name: str) -> tuple[list[nn.Parameter], Shampoo]:
    params = parameters(SHAPES)
    optimizer = Shampoo(params, **_config(name))
    train(optimizer, params, range(9))
    return params, optimizer


def _trained(name: str, **changes: object) -> tuple[list[nn.Parameter], Shampoo]:
    """Nine steps, two refresh periods and one; with these changes from there on."""
    params, optimizer = copy.deepcopy(_after_nine_steps(name))
    optimizer.param_groups[0].update(changes)
    return params, optimizer


def _spoilable(name: str) -> str | None:
    """The statistics of side 1 that a refresh starts from, if the step itself does not read them."""
    h = Hyperparameters(**{**DEFAULTS, **_config(name)})
    if not h.low_precision_state:
        return "factor1.0"
    return None if h.preconditioner == "kl" else "eigenvalues1.0"


SPOILABLE = [
    name
    for name, config in WITH_FACTORS.items()
    if _spoilable(name) and not ("one_sided" in config or "large_dim_method" in config)
]


def _spoil(optimizer: Shampoo, param: nn.Parameter, name: str) -> None:
    quantity = _spoilable(name)
    assert quantity is not None
    optimizer.state[param][quantity][1] = math.nan  # the second of its two blocks


@pytest.mark.filterwarnings("ignore:a Kronecker factor has no finite eigendecomposition:RuntimeWarning")
@pytest.mark.parametrize("name", SPOILABLE)
def test_a_factor_that_is_lost_keeps_its_last_root_is_counted_and_disturbs_no_other(name: str) -> None:
    params, optimizer = _trained(name)
    expected, undisturbed = _trained(name)
    _spoil(optimizer, params[1], name)
    state = optimizer.state[params[1]]
    derived = [key for key in state if key.startswith(("root1", "basis1"))]
    assert derived
    before = {key: state[key].clone() for key in derived}
    train(optimizer, params, range(9, 14))
    train(undisturbed, expected, range(9, 14))
    for key, previous in before.items():
        if Hyperparameters(**{**DEFAULTS, **_config(name)}).state_dtype == "float32":
            assert torch.equal(state[key][1], previous[1]), key
    assert state["num_failed1.0"].tolist()[0] == 0
    assert state["num_failed1.0"].tolist()[1] >= 1
    assert int(optimizer.state[params[0]]["num_failed1.0"].sum()) == 0
    assert all(param.isfinite().all() for param in params)
    # Gradients depend on the weights, so a neighbour that is the same after five steps has been left alone in each.
    assert torch.equal(params[0], expected[0])
    assert torch.equal(params[1][:, :6], expected[1][:, :6])
    assert torch.equal(params[2], expected[2])
    assert optimizer.diagnostics().num_failed_refreshes == int(state["num_failed1.0"].sum())


@pytest.mark.filterwarnings("ignore:a Kronecker factor has no finite eigendecomposition:RuntimeWarning")
@pytest.mark.parametrize("name", SPOILABLE)
def test_failing_in_every_refresh_raises_after_as_many_as_are_allowed(name: str) -> None:
    params, optimizer = _trained(name, max_failed_refreshes=2)
    _spoil(optimizer, params[1], name)
    message = r"factor 1 of a block \(6, 6\) of a parameter .* failed 3 times in a row, .* max_failed_refreshes=2"
    with pytest.raises(RefreshFailed, match=message) as raised:
        train(optimizer, params, range(9, 30))
    assert "\n" not in str(raised.value)
    assert optimizer.state[params[1]]["num_failed_in_a_row1.0"].tolist() == [0, 3]
    assert all(param.isfinite().all() for param in params)


@pytest.mark.filterwarnings("ignore:a Kronecker factor has no finite eigendecomposition:RuntimeWarning")
def test_a_limit_of_zero_raises_at_the_first_failure_and_more_is_taken_at_once() -> None:
    params, optimizer = _trained("soap", max_failed_refreshes=10)
    _spoil(optimizer, params[1], "soap")
    train(optimizer, params, range(9, 20))
    optimizer.param_groups[0]["max_failed_refreshes"] = 0
    with pytest.raises(RefreshFailed, match="max_failed_refreshes=0"):
        train(optimizer, params, range(20, 25))


@pytest.mark.parametrize(
    "name", ["shampoo_adam", "shampoo_by_coupled_newton", "soap", "soap_by_eigh", "kl_by_cholesky_qr"]
)
def test_a_failure_is_reported_in_one_line_that_does_not_repeat(name: str) -> None:
    params, optimizer = _trained(name, max_failed_refreshes=100)
    _spoil(optimizer, params[1], name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")  # as Python does where nothing is configured
        train(optimizer, params, range(9, 25))
    assert [str(warning.message).count("\n") for warning in caught] == [0]
    assert issubclass(caught[0].category, RuntimeWarning)
    assert "stays in use" in str(caught[0].message)


@pytest.mark.filterwarnings("ignore:a Kronecker factor has no finite eigendecomposition:RuntimeWarning")
@pytest.mark.parametrize("name", ["shampoo_adam", "soap", "kl"])
def test_a_factor_that_recovers_is_refreshed_again_and_counts_from_zero(name: str) -> None:
    params, optimizer = _trained(name)
    state = optimizer.state[params[1]]
    kept = state["factor1.0"].clone()
    _spoil(optimizer, params[1], name)
    train(optimizer, params, range(9, 14))
    assert state["num_failed_in_a_row1.0"].tolist()[1] > 0
    num_failed = state["num_failed1.0"].clone()
    state["factor1.0"].copy_(kept)
    train(optimizer, params, range(14, 19))
    assert state["num_failed_in_a_row1.0"].tolist() == [0, 0]
    assert torch.equal(state["num_failed1.0"], num_failed)


@pytest.mark.parametrize("name", WITH_FACTORS)
def test_ill_conditioned_factors_do_not_fail(name: str) -> None:
    # Gradients of rank one and of very different scales, and none at all.
    params = parameters([(8, 8), (8, 3)], torch.float32)
    optimizer = Shampoo(params, **member(name))
    generator = torch.Generator().manual_seed(0)
    for step in range(12):
        for param in params:
            left, right = (torch.randn(d, generator=generator) for d in param.shape)
            scale = [1.0, 1e-8, 1e6, 0.0][step % 4]
            param.grad = scale * torch.outer(left, right)
        optimizer.step()
    assert optimizer.diagnostics().num_failed_refreshes == 0
    assert all(param.isfinite().all() for param in params)
    values = [x for state in optimizer.state.values() for x in state.values() if isinstance(x, Tensor)]
    assert all(x.isfinite().all() for x in values)
