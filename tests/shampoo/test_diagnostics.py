"""`optimizer.diagnostics()`: each number against a direct computation, and that asking for them changes nothing."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shampoo import Shampoo
from shampoo.diagnostics import Diagnostics
from shampoo.hyperparameters import DEFAULTS, Hyperparameters
from shampoo.linalg.eigenbases import symmetric_from_lower
from shampoo.state.blocking import regions
from shampoo.state.factors import side_kinds
from tests.support.cases import in_one_test
from tests.support.shampoo.members import MEMBERS, OF_EACH_TIMING, WITH_FACTORS, crossed, member
from tests.support.shampoo.settings import gradients_like, parameters, train

# With blocks of at most 8: plain, one block, two equal blocks, two different ones of order three.
SHAPES = [(13,), (6, 7), (6, 14), (9, 4, 5)]


def _set_gradients(params: list[nn.Parameter], step: int) -> None:
    for param, gradient in zip(params, gradients_like(params, step=step), strict=True):
        param.grad = gradient


def _median(values: list[float]) -> float:
    """The lower one of two."""
    return sorted(values)[(len(values) - 1) // 2]


def _sides(optimizer: Shampoo, params: list[nn.Parameter], quantity: str) -> list[tuple[dict[str, Any], str]]:
    """State and suffix, "side.region", of every side that has this quantity."""
    return [
        (optimizer.state[param], key.removeprefix(quantity))
        for param in params
        for key in optimizer.state[param]
        if key.startswith(quantity)
    ]


# --- condition numbers and residuals ---


def _damped(values: Tensor, config: dict[str, Any], correction: float) -> tuple[float, float]:
    """Largest and smallest eigenvalue (float64, ascending) of what a root is taken of."""
    epsilon = config.get("epsilon", DEFAULTS["epsilon"])
    if config.get("pseudo_inverse"):
        kept = values[values > epsilon * values[-1]]
        return kept[-1].item(), kept[0].item()
    added = epsilon if config.get("epsilon_type") == "absolute" else epsilon * values[-1].item()
    values = values.clamp(min=0) / (correction if config.get("epsilon_type") == "absolute" else 1)
    return values[-1].item() + added, values[0].item() + added


@pytest.mark.parametrize(
    "name",
    [
        "shampoo_adam",
        "shampoo_none",
        "shampoo_by_eigh64",
        "shampoo_absolute",
        "shampoo_pseudo_inverse",
        "shampoo_sums",
        "soap_by_eigh",
        "kl_by_eigh",
    ],
)
def test_condition_numbers_are_those_of_the_factors(name: str) -> None:
    # All are refreshed at every step, so the factors in the state are those that were refreshed from.
    config = {**member(name), "precondition_frequency": 1}
    params = parameters(SHAPES)
    optimizer = Shampoo(params, **config)
    train(optimizer, params, range(3))
    correction = 1 - Hyperparameters(**{**DEFAULTS, **config}).factor_beta ** 3
    conditions = []
    for state, suffix in _sides(optimizer, params, "factor"):
        for A in symmetric_from_lower(state[f"factor{suffix}"]):
            largest, smallest = _damped(torch.linalg.eigvalsh(A), config, correction)
            conditions.append(largest / smallest)
    found = optimizer.diagnostics()
    # Stored in float32; the null space of a factor is known to rounding, 1e-16/ε of what it is damped with.
    assert found.condition_max == pytest.approx(max(conditions), rel=1e-6)
    assert found.condition_median == pytest.approx(_median(conditions), rel=1e-6)
    assert found.residual_max == 0


@pytest.mark.parametrize(
    "name", ["shampoo_by_qr", "shampoo_by_cholesky_qr", "soap_by_qr", "soap_by_cholesky_qr", "kl_by_cholesky_qr"]
)
def test_residuals_are_what_a_followed_basis_leaves_off_the_diagonal(name: str) -> None:
    config = {**member(name), "precondition_frequency": 1}
    params = parameters(SHAPES)
    optimizer = Shampoo(params, **config)
    train(optimizer, params, range(4))
    residuals, conditions = [], []
    for state, suffix in _sides(optimizer, params, "factor"):
        A, Q = symmetric_from_lower(state[f"factor{suffix}"]), state[f"basis{suffix}"]
        B = Q.mT @ A @ Q
        values = B.diagonal(dim1=-2, dim2=-1)
        off_diagonal = (B - torch.diag_embed(values)).flatten(1).norm(dim=1)
        residuals += (off_diagonal / B.flatten(1).norm(dim=1)).tolist()
        epsilon = 1e-6 * values.amax(dim=-1)
        conditions += ((values.amax(dim=-1) + epsilon) / (values.amin(dim=-1).clamp(min=0) + epsilon)).tolist()
    found = optimizer.diagnostics()
    assert max(residuals) > 1e-3  # else there is nothing to measure
    # The share is found as √(1 − x), which doubles the digits that float64 loses near 0.
    assert found.residual_max == pytest.approx(max(residuals), rel=1e-5)
    assert found.condition_max == pytest.approx(max(conditions), rel=1e-5)
    assert found.condition_median == pytest.approx(_median(conditions), rel=1e-5)


def test_the_residual_of_coupled_newton_is_small_and_not_nothing() -> None:
    params = parameters(SHAPES, torch.float32)
    optimizer = Shampoo(params, **member("shampoo_by_coupled_newton"))
    train(optimizer, params, range(5))
    residual = optimizer.diagnostics().residual_max
    assert residual is not None
    assert 0 < residual < 1e-3


# --- lengths of steps ---


def _without_statistics(name: str) -> tuple[dict[str, Any], int]:
    """The member with a step that has neither statistics that count at once nor a refresh, and that step; kl with such
    that hardly count."""
    config = {**member(name), "lr": 0.01}
    if name in WITH_FACTORS:
        config["stagger_refresh"] = False  # after the first step nothing before it
    if config.get("preconditioner") == "kl":
        beta1, _ = config.get("betas", (0.9, 0.999))
        config |= {"betas": (beta1, 1 - 1e-12), "use_bias_correction": False, "epsilon": 0.1}
    return config, 4


# Of kl by products in bfloat16 the statistics' own are not.
@in_one_test("name", [name for name in MEMBERS if name not in ("kl_int8", "kl_int4", "kl_bfloat16_products")])
def test_update_to_weight_is_what_the_next_step_does(name: str) -> None:
    config, step = _without_statistics(name)
    params = parameters(SHAPES)
    optimizer = Shampoo(params, **config)
    train(optimizer, params, range(1, step))
    _set_gradients(params, step)
    found = optimizer.diagnostics()
    before = [param.detach().clone() for param in params]
    optimizer.step()
    ratios = [((p.detach() - w).norm() / w.norm()).item() for p, w in zip(params, before, strict=True)]
    # Differences of weights of size 1 lose eleven digits of sixteen at most.
    assert found.update_to_weight_max == pytest.approx(max(ratios), rel=1e-9)
    assert found.update_to_weight_median == pytest.approx(_median(ratios), rel=1e-9)


@pytest.mark.parametrize("name", ["kl", "kl_int8", "kl_int4", "kl_bfloat16_products"])
def test_update_to_weight_is_near_the_next_step_that_has_statistics(name: str) -> None:
    # kl's eigenvalues change in every step, by a quarter of the new sample in this one.
    params = parameters(SHAPES)
    optimizer = Shampoo(params, **{**member(name), "stagger_refresh": False})
    train(optimizer, params, range(1, 4))
    _set_gradients(params, 4)
    found = optimizer.diagnostics()
    before = [param.detach().clone() for param in params]
    optimizer.step()
    ratios = [((p.detach() - w).norm() / w.norm()).item() for p, w in zip(params, before, strict=True)]
    assert found.update_to_weight_max == pytest.approx(max(ratios), rel=0.5)
    assert found.update_to_weight_median == pytest.approx(_median(ratios), rel=0.5)


@in_one_test("name", MEMBERS)
def test_update_to_weight_of_the_first_step_is_known_before_it(name: str) -> None:
    # Adam's first step has the length of the learning rate in every element; with Nesterov's momentum 1 + μ times that.
    params = parameters(SHAPES)
    optimizer = Shampoo(params, **member(name))
    _set_gradients(params, 1)
    found = optimizer.diagnostics()
    assert found.update_to_weight_median is not None
    assert found.update_to_weight_median > 0
    if MEMBERS[name].get("preconditioner", "shampoo") in ("soap", "none") and "grafting" not in MEMBERS[name]:
        lr = 0.01 * (1 + MEMBERS[name].get("momentum", 0.0))
        sizes = [lr * math.sqrt(p.numel()) / p.norm().item() for p in params]
        assert found.update_to_weight_max == pytest.approx(max(sizes), rel=1e-4)


@pytest.mark.parametrize("grafting", ["sgd", "adagrad", "rmsprop", "adam"])
def test_grafting_ratios_are_the_length_of_the_plain_step_over_the_preconditioned_one(grafting: str) -> None:
    params = parameters([(6, 7), (6, 14)])  # three blocks
    config: dict[str, Any] = {
        "grafting": grafting,
        "betas": (0.0, 0.9),
        "max_preconditioner_dim": 8,
        "precondition_frequency": 50,
    }
    optimizer = Shampoo(params, **config)
    train(optimizer, params, range(1, 4))
    _set_gradients(params, 4)
    expected = []
    for param in params:
        state = optimizer.state[param]
        assert param.grad is not None
        blocks = param.grad.unflatten(1, (-1, 7)).movedim(1, 0)  # (K, 6, 7)
        for row, G in enumerate(blocks):
            N = G
            if grafting != "sgd":
                V = state["second_moment.0"][row]
                V = V + G * G if grafting == "adagrad" else 0.9 * V + 0.1 * G * G
                N = G / ((V / (1 - 0.9**4) if grafting == "adam" else V).sqrt() + 1e-8)
            raw = state["root0.0"][row] @ G @ state["root1.0"][row]
            expected.append((N.norm() / raw.norm()).item())
    found = optimizer.diagnostics()
    assert len(expected) == 3
    assert found.grafting_ratio_max == pytest.approx(max(expected), rel=1e-9)
    assert found.grafting_ratio_median == pytest.approx(_median(expected), rel=1e-9)


@pytest.mark.parametrize("name", ["shampoo_none", "soap", "kl", "spectral", "adam"])
def test_without_grafting_there_is_no_grafting_ratio(name: str) -> None:
    params = parameters(SHAPES)
    optimizer = Shampoo(params, **member(name))
    train(optimizer, params, range(3))
    assert optimizer.diagnostics().grafting_ratio_max is None
    assert "grafting_ratio_max" not in optimizer.diagnostics().as_metrics()


# --- counts ---


@in_one_test("name", OF_EACH_TIMING)
def test_the_share_that_is_preconditioned_is_that_of_elements_in_blocks_with_refreshed_factors(name: str) -> None:
    config = member(name)
    params = parameters(SHAPES)
    optimizer = Shampoo(params, **config)
    h = Hyperparameters(**{**DEFAULTS, **config})
    is_spectral = h.preconditioner == "spectral"
    preconditioned = sum(
        region.num_blocks * math.prod(region.block)
        for shape in SHAPES
        for region in regions(shape, h)
        if side_kinds(region.block, h) or (is_spectral and len(region.block) > 1)
    )
    share = preconditioned / sum(math.prod(shape) for shape in SHAPES)
    assert (share > 0.5) == (h.preconditioner != "none")
    start = 0 if is_spectral else h.first_refresh
    for t in range(1, 5):
        train(optimizer, params, range(t, t + 1))
        assert optimizer.diagnostics().share_preconditioned == pytest.approx(share if t >= start else 0)


@pytest.mark.parametrize("name", ["shampoo_adam", "soap", "kl", "spectral", "adam"])
def test_gradients_that_are_not_finite_are_counted_and_have_no_step(name: str) -> None:
    params, others = parameters(SHAPES), parameters(SHAPES)
    optimizer, undisturbed = Shampoo(params, **member(name)), Shampoo(others, **member(name))
    for o, p in ((optimizer, params), (undisturbed, others)):
        train(o, p, range(1, 4))
        _set_gradients(p, 4)
    # The last one is a number, but the square of the norm is none.
    for index, value in ((1, math.nan), (2, math.inf), (3, 1e200)):
        gradient = params[index].grad
        assert gradient is not None
        gradient.view(-1)[0] = value
        others[index].grad = None
    found, expected = optimizer.diagnostics(), undisturbed.diagnostics()
    assert found == expected
    optimizer.step()
    optimizer.step()
    assert optimizer.diagnostics().num_skipped == 6
    assert optimizer.diagnostics().as_metrics()["num_skipped"] == 6.0


# --- nothing changes ---


def _everything(optimizer: Shampoo, params: list[nn.Parameter]) -> dict[str, Any]:
    return {
        "weights": [param.detach().clone() for param in params],
        "gradients": [None if param.grad is None else param.grad.clone() for param in params],
        "state": [
            {key: x.clone() if isinstance(x, Tensor) else copy.deepcopy(x) for key, x in optimizer.state[param].items()}
            for param in params
        ],
        "groups": [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups],
    }


def _assert_same_bits(one: Any, other: Any) -> None:
    if isinstance(one, Tensor):
        assert torch.equal(one, other)
        assert one.dtype == other.dtype
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key, value in one.items():
            _assert_same_bits(value, other[key])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for first, second in zip(one, other, strict=True):
            _assert_same_bits(first, second)
    else:
        assert one == other


@pytest.mark.parametrize("name", OF_EACH_TIMING)
def test_asking_changes_nothing_at_any_time(name: str) -> None:
    config = member(name, weight_decay=0.1)
    params, others = parameters(SHAPES, torch.bfloat16), parameters(SHAPES, torch.bfloat16)
    config |= {"low_precision_weights": "stochastic"}
    optimizer, never_asked = Shampoo(params, **config), Shampoo(others, **config)
    for step in range(6):
        if step != 3:  # here without gradients
            _set_gradients(params, step)
            _set_gradients(others, step)
        random_numbers = torch.get_rng_state()
        optimizer.diagnostics()
        assert torch.equal(torch.get_rng_state(), random_numbers)
        _assert_same_bits(_everything(optimizer, params), _everything(never_asked, others))
        optimizer.step()
        never_asked.step()
        random_numbers = torch.get_rng_state()
        first = optimizer.diagnostics()
        assert optimizer.diagnostics() == first
        assert torch.equal(torch.get_rng_state(), random_numbers)
        _assert_same_bits(_everything(optimizer, params), _everything(never_asked, others))
        for param in (*params, *others):
            param.grad = None


@in_one_test("name", MEMBERS)
def test_without_steps_or_gradients_what_cannot_be_measured_is_left_out(name: str) -> None:
    optimizer = Shampoo(parameters([*SHAPES, (0, 3), ()]), **member(name))
    found = optimizer.diagnostics()
    share = found.share_preconditioned
    assert found == Diagnostics(0, 0, share, None, None, None, None, None, None, None)
    assert (share > 0) == (MEMBERS[name].get("preconditioner") == "spectral")
    assert set(found.as_metrics()) == {"num_skipped", "num_failed_refreshes", "share_preconditioned"}


@in_one_test(("name", "dtype"), crossed([torch.bfloat16, torch.float32]))
def test_metrics_are_finite_plain_numbers_that_json_takes(name: str, dtype: torch.dtype) -> None:
    params = parameters([*SHAPES, (0, 3), ()], dtype)
    optimizer = Shampoo(params, **member(name))
    train(optimizer, params, range(3))
    metrics = optimizer.diagnostics().as_metrics()
    assert json.loads(json.dumps(metrics, allow_nan=False)) == metrics
    assert all(type(value) is float for value in metrics.values())
    fields = {field.name for field in dataclasses.fields(Diagnostics)}
    assert set(metrics) <= fields
    assert ("condition_max" in metrics) == (name in WITH_FACTORS)
    assert metrics["update_to_weight_max"] > 0


def test_zero_gradients_and_zero_weights_are_left_out() -> None:
    params = [nn.Parameter(torch.zeros(6, 7)), nn.Parameter(torch.ones(6, 7))]
    optimizer = Shampoo(params)
    params[0].grad, params[1].grad = torch.ones(6, 7), torch.zeros(6, 7)
    found = optimizer.diagnostics()
    assert found.update_to_weight_max is None
    assert all(math.isfinite(value) for value in found.as_metrics().values())


def test_groups_are_measured_together_each_by_its_own_member() -> None:
    params = parameters(SHAPES)
    groups: list[dict[str, Any]] = [{"params": params[:2], "preconditioner": "soap"}, {"params": params[2:], "lr": 0.5}]
    optimizer = Shampoo(groups, grafting="adam", max_preconditioner_dim=8)
    train(optimizer, params, range(2))
    together = optimizer.diagnostics()
    alone = []
    for index, group in enumerate(groups):
        others = parameters(SHAPES)
        separate = Shampoo([{**group, "params": others}], grafting="adam", max_preconditioner_dim=8)
        for step in range(2):
            _set_gradients(others, step)
            for number, param in enumerate(others):
                if (number < 2) != (index == 0):
                    param.grad = None
            separate.step()
        alone.append(separate.diagnostics())
    assert together.update_to_weight_max == pytest.approx(max(d.update_to_weight_max or 0 for d in alone), rel=1e-6)
    assert together.condition_max == pytest.approx(max(d.condition_max or 0 for d in alone), rel=1e-3)
    assert together.grafting_ratio_max == pytest.approx(alone[1].grafting_ratio_max, rel=1e-6)
