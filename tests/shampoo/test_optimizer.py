"""Living with the optimizer: what it leaves alone, unusual parameters and gradients, groups, schedules, training."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from shampoo import Shampoo
from tests.shampoo.reference import ReferenceShampoo
from tests.shampoo.settings import SHAPES, gradients_like, parameters, settings, train


@pytest.mark.parametrize(
    "config",
    [
        settings(weight_decay=0.1, weight_decay_type="l2"),
        settings(grafting="sgd", betas=(0.0, 0.9)),
        settings(grafting="sgd", betas=(0.0, 0.9), momentum=0.9, nesterov=True, use_bias_correction=False),
        settings(grafting="none", beta3=0.5),
    ],
)
def test_gradients_are_never_written(config: dict[str, Any]) -> None:
    params = parameters(list(SHAPES.values()))
    optimizer = Shampoo(params, **config)
    for step in range(10):
        gradients = gradients_like(params, step=step)
        for param, gradient in zip(params, gradients, strict=True):
            param.grad = gradient.clone()
        optimizer.step()
        for param, gradient in zip(params, gradients, strict=True):
            assert param.grad is not None
            assert torch.equal(param.grad, gradient)


def test_no_process_global_state_is_touched() -> None:
    def observed() -> tuple[Any, ...]:
        return (
            torch.get_rng_state().tolist(),
            torch.get_num_threads(),
            torch.get_default_dtype(),
            torch.get_float32_matmul_precision(),
            torch.is_grad_enabled(),
            repr(torch.tensor([1 / 3])),
        )

    before = observed()
    params = parameters(list(SHAPES.values()))
    train(Shampoo(params, **settings(precondition_frequency=1)), params, range(3))
    assert observed() == before


@hypothesis.settings(deadline=None)  # a busy machine may take any time for an example
@given(
    shapes=st.lists(
        st.lists(st.sampled_from([0, 1, 2, 3, 5, 7, 11, 40]), max_size=4)
        .map(tuple)
        .filter(lambda shape: math.prod(shape) <= 3000),
        max_size=4,
    ),
    max_dim=st.integers(2, 16),
    grafting=st.sampled_from(["none", "sgd", "adam"]),
)
def test_any_shapes_follow_the_reference(shapes: list[tuple[int, ...]], max_dim: int, grafting: str) -> None:
    config = settings(grafting=grafting, max_preconditioner_dim=max_dim, precondition_frequency=2, momentum=0.5)
    params = parameters([*shapes, (3, 4)])
    reference = ReferenceShampoo([param for param in params if param.numel() > 0], config)
    optimizer = Shampoo(params, **config)
    for step in range(4):
        gradients = gradients_like(params, step=step)
        for param, gradient in zip(params, gradients, strict=True):
            param.grad = gradient
        optimizer.step()
        reference.step([gradient for gradient in gradients if gradient.numel() > 0])
    for param, expected in zip([p for p in params if p.numel() > 0], reference.weights, strict=True):
        torch.testing.assert_close(param.detach(), expected, rtol=1e-8, atol=1e-8)


def test_a_parameter_without_a_gradient_is_left_alone_and_counts_its_own_steps() -> None:
    config = settings(momentum=0.9, weight_decay=0.1, precondition_frequency=3)
    params = parameters([(6, 6)] * 4 + [(6,)])
    reference = ReferenceShampoo(params, config)
    optimizer = Shampoo(params, **config)
    for step in range(12):
        gradients: list[torch.Tensor | None] = list(gradients_like(params, step=step))
        for index, first in {1: 5, 2: 99, 4: 2}.items():
            if step < first:
                gradients[index] = None
        for param, gradient in zip(params, gradients, strict=True):
            param.grad = gradient
        optimizer.step()
        reference.step(gradients)
    for param, expected in zip(params, reference.weights, strict=True):
        torch.testing.assert_close(param.detach(), expected, rtol=1e-10, atol=1e-10)
    assert [optimizer.state[param]["step"] for param in params] == [12, 7, 0, 12, 10]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_is_not_finite_skips_its_parameter_and_is_counted(value: float) -> None:
    params = parameters([(6, 6), (6, 6), (6,)])
    reference = ReferenceShampoo(params, settings(weight_decay=0.1))
    optimizer = Shampoo(params, **settings(weight_decay=0.1))
    for step in range(10):
        gradients: list[torch.Tensor | None] = list(gradients_like(params, step=step))
        for param, gradient in zip(params, gradients, strict=True):
            param.grad = gradient
        if step in (2, 7):
            assert params[1].grad is not None
            params[1].grad[3, 3] = value
            gradients[1] = None
        optimizer.step()
        reference.step(gradients)
    for param, expected in zip(params, reference.weights, strict=True):
        torch.testing.assert_close(param.detach(), expected, rtol=1e-10, atol=1e-10)
    assert [optimizer.state[param]["num_skipped"] for param in params] == [0, 2, 0]


def test_a_gradient_whose_square_overflows_is_skipped() -> None:
    params = parameters([(6, 6)], torch.float32)
    optimizer = Shampoo(params, **settings(precondition_frequency=1))
    params[0].grad = torch.full((6, 6), 1e30)
    optimizer.step()
    assert optimizer.state[params[0]]["num_skipped"] == 1
    train(optimizer, params, range(3))
    assert params[0].isfinite().all()


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-20, 1e18])
@pytest.mark.parametrize("grafting", ["none", "sgd", "adam"])
def test_extreme_gradients_leave_finite_weights(grafting: str, scale: float) -> None:
    params = parameters([(6, 6), (5,)], torch.float32)
    optimizer = Shampoo(params, **settings(grafting=grafting, precondition_frequency=1, lr=1e-20))
    for step in range(5):
        for param, gradient in zip(params, gradients_like(params, step=step), strict=True):
            param.grad = gradient * scale
        optimizer.step()
    assert all(param.isfinite().all() for param in params)
    assert all(x.isfinite().all() for s in optimizer.state.values() for x in s.values() if isinstance(x, torch.Tensor))


@pytest.mark.parametrize("before", [1e-20, 1.0, 1e15])
@pytest.mark.parametrize("now", [1e-10, 1.0])
@pytest.mark.parametrize("exponent", [None, 0.5, 1.0])
def test_a_change_of_the_gradients_scale_between_refreshes_keeps_the_step_length(
    exponent: float | None, now: float, before: float
) -> None:
    # Roots of gradients of one scale are applied to gradients of another, and may neither overflow nor vanish.
    params = parameters([(6, 6)], torch.float32)
    optimizer = Shampoo(
        params, **settings(grafting="sgd", betas=(0.0, 0.9), lr=1.0, exponent_override=exponent, weight_decay=0.0)
    )
    for step in range(7):
        params[0].grad = gradients_like(params, step=step)[0] * before
        params[0].data.zero_()
        optimizer.step()
    params[0].data.zero_()
    params[0].grad = gradients_like(params, step=7)[0] * now
    optimizer.step()
    torch.testing.assert_close(params[0].norm(), params[0].grad.norm(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("scale", [1e-20, 1e-23, 1e-30])
@pytest.mark.parametrize("grafting", ["sgd", "adam"])
def test_a_step_too_small_to_measure_is_not_blown_up(grafting: str, scale: float) -> None:
    # Gradients of a saturated network, whose squares vanish in float32.
    params = parameters([(6, 6)], torch.float32)
    optimizer = Shampoo(params, **settings(grafting=grafting, lr=1.0))
    before = params[0].detach().clone()
    for step in range(20):
        params[0].grad = gradients_like(params, step=step)[0] * scale
        optimizer.step()
    torch.testing.assert_close(params[0], before, rtol=0, atol=1e-8)


@pytest.mark.parametrize("grafting", ["none", "adam"])
def test_a_root_that_cannot_be_found_leaves_the_previous_one_and_is_counted(grafting: str) -> None:
    shapes = [(6, 6), (6, 12), (6,)]
    params, expected = parameters(shapes), parameters(shapes)
    config = settings(grafting=grafting, max_preconditioner_dim=6)
    optimizer, undisturbed = Shampoo(params, **config), Shampoo(expected, **config)
    train(optimizer, params, range(10))
    train(undisturbed, expected, range(10))
    state = optimizer.state[params[1]]
    previous = state["root1.0"].clone()
    state["factor1.0"][1] = math.nan  # of the second of the two blocks
    with pytest.warns(RuntimeWarning, match="no finite eigendecomposition"):
        train(optimizer, params, range(10, 15))
    train(undisturbed, expected, range(10, 15))
    assert torch.equal(state["root1.0"][1], previous[1])
    assert not torch.equal(state["root1.0"][0], previous[0])
    assert state["num_failed_roots.0"].tolist() == [0, 1]
    assert optimizer.state[params[0]]["num_failed_roots.0"].tolist() == [0]
    assert all(param.isfinite().all() for param in params)
    torch.testing.assert_close(params[0], expected[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(params[1][:, :6], expected[1][:, :6], rtol=1e-12, atol=1e-12)


def test_an_illegal_hyperparameter_of_any_group_moves_no_group() -> None:
    first, second = params = parameters([(4, 4), (4, 4)])
    config = settings(weight_decay=0.1, weight_decay_type="independent")
    optimizer = Shampoo([{"params": [first]}, {"params": [second]}], **config)
    before = [param.detach().clone() for param in params]
    for name, value in (("lr", -1.0), ("peak_lr", 0.0)):
        legal = optimizer.param_groups[1][name]
        optimizer.param_groups[1][name] = value
        with pytest.raises(ValueError, match=name):
            train(optimizer, params, range(1))
        optimizer.param_groups[1][name] = legal
    assert all(torch.equal(a, b) for a, b in zip(params, before, strict=True))
    assert [optimizer.state[param]["step"] for param in params] == [0, 0]


def test_memory_formats_make_no_difference() -> None:
    plain = parameters([(8, 6, 3, 3), (9, 5)])
    strided = parameters([(8, 6, 3, 3), (9, 5)])
    strided[0] = nn.Parameter(strided[0].detach().to(memory_format=torch.channels_last))
    strided[1] = nn.Parameter(strided[1].detach().t().contiguous().t())
    assert not any(param.is_contiguous() for param in strided)
    config = settings(weight_decay=0.1, weight_decay_type="l2")
    train(Shampoo(plain, **config), plain, range(10))
    train(Shampoo(strided, **config), strided, range(10))
    assert all(torch.equal(a, b) for a, b in zip(plain, strided, strict=True))
    # A contiguous parameter may have such a gradient, and one may be an expanded scalar.
    mixed = parameters([(8, 6, 3, 3)])
    optimizer = Shampoo(mixed, **settings())
    mixed[0].grad = gradients_like(mixed, step=0)[0].to(memory_format=torch.channels_last)
    optimizer.step()
    mixed[0].grad = torch.ones((), dtype=torch.float64).expand(8, 6, 3, 3)
    optimizer.step()
    assert mixed[0].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_parameters_keep_their_statistics_in_float32(dtype: torch.dtype) -> None:
    params = parameters([(8, 8)], dtype)
    optimizer = Shampoo(params, **settings(betas=(0.9, 0.9), precondition_frequency=10**6))
    expected = torch.zeros(8, 8, dtype=torch.float64)
    for step in range(20):
        (params[0].grad,) = gradients_like(params, step=step)
        G = params[0].grad.double()
        expected = 0.9 * expected + 0.1 * G @ G.T
        optimizer.step()
    factor = optimizer.state[params[0]]["factor0.0"][0]
    assert factor.dtype == torch.float32
    assert ((factor.double() - expected).norm() / expected.norm()).item() < 1e-6


def test_sparse_gradients_are_refused() -> None:
    params = parameters([(4, 4)])
    params[0].grad = torch.eye(4, dtype=torch.float64).to_sparse()
    with pytest.raises(RuntimeError, match="dense gradients"):
        Shampoo(params, **settings()).step()


def test_groups_have_their_own_hyperparameters() -> None:
    first, second, third = parameters([(6, 7), (6, 7), (6, 7)])
    configs = [settings(), settings(lr=0.1, grafting="sgd", max_preconditioner_dim=4), settings(weight_decay=0.5)]
    optimizer = Shampoo(
        [{"params": [first]}, {"params": [second], "lr": 0.1, "grafting": "sgd", "max_preconditioner_dim": 4}],
        **settings(),
    )
    optimizer.add_param_group({"params": [third], "weight_decay": 0.5})
    references = [ReferenceShampoo([p], c) for p, c in zip((first, second, third), configs, strict=True)]
    for step in range(10):
        gradients = gradients_like([first, second, third], step=step)
        for param, gradient, reference in zip((first, second, third), gradients, references, strict=True):
            param.grad = gradient
            reference.step([gradient])
        optimizer.step()
    for param, reference in zip((first, second, third), references, strict=True):
        torch.testing.assert_close(param.detach(), reference.weights[0], rtol=1e-10, atol=1e-10)


def test_named_parameters_are_accepted() -> None:
    model = nn.Linear(3, 2)
    optimizer = Shampoo(model.named_parameters())
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]
    optimizer.load_state_dict(optimizer.state_dict())


def test_a_group_that_is_refused_leaves_nothing_behind() -> None:
    optimizer = Shampoo(parameters([(3, 3)]), **settings())
    with pytest.raises(ValueError, match="lr"):
        optimizer.add_param_group({"params": parameters([(4, 4)]), "lr": -1})
    with pytest.raises(ValueError, match="more than one"):
        optimizer.add_param_group({"params": optimizer.param_groups[0]["params"]})
    assert len(optimizer.param_groups) == 1
    assert len(optimizer.state_dict()["state"]) == 1
    params = optimizer.param_groups[0]["params"]
    train(optimizer, params, range(2))


@pytest.mark.parametrize(
    "make",
    [
        lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 1 / (step + 1)),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=10),
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=10),
    ],
    ids=["lambda", "cosine", "one_cycle"],
)
def test_learning_rate_schedules_take_effect(make: Any) -> None:
    params, constant = parameters([(6, 6)]), parameters([(6, 6)])
    optimizer, plain = Shampoo(params, **settings()), Shampoo(constant, **settings())
    schedule = make(optimizer)
    for step in range(5):
        train(optimizer, params, range(step, step + 1))
        schedule.step()
        train(plain, constant, range(step, step + 1))
    assert not torch.allclose(params[0], constant[0])


def test_a_closure_is_evaluated_with_gradients() -> None:
    (param,) = params = parameters([(4, 4)])
    optimizer = Shampoo(params, **settings())

    def closure() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = param.square().sum()
        loss.backward()
        return loss.item()

    losses = [optimizer.step(closure) for _ in range(50)]
    assert losses[-1] < 0.5 * losses[0]


def _final_loss(optimizer_of: Any, steps: int) -> float:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 4))
    inputs = torch.randn(512, 16) * torch.logspace(-1.5, 0.5, 16)
    targets = torch.tanh(inputs @ torch.randn(16, 4))
    optimizer = optimizer_of(model.parameters())
    loss = torch.tensor(math.inf)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
    return loss.item()


def test_it_trains_an_ill_conditioned_network_further_than_adam_each_at_its_best_learning_rate() -> None:
    steps = 150
    adam = min(_final_loss(lambda p, lr=lr: torch.optim.AdamW(p, lr=lr), steps) for lr in (3e-3, 1e-2, 3e-2))
    ours = min(
        _final_loss(lambda p, lr=lr: Shampoo(p, lr=lr, precondition_frequency=5), steps) for lr in (3e-3, 1e-2, 3e-2)
    )
    assert ours < adam


def test_importing_it_loads_torch_and_the_standard_library_only() -> None:
    program = (
        "import sys, torch; before = set(sys.modules); import shampoo; "
        "new = {m.partition('.')[0] for m in set(sys.modules) - before}; "
        "print(sorted(new - set(sys.stdlib_module_names)))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "['shampoo']"
