"""Settings under which the optimizer is another known method, and the properties grafting promises."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from shampoo import Shampoo
from tests.shampoo.settings import SHAPES, gradients_like, parameters, settings, train

NEVER = 10**6

TORCH_METHODS: dict[str, tuple[dict[str, Any], type[torch.optim.Optimizer], dict[str, Any]]] = {
    "adamw": ({"weight_decay": 0.1}, torch.optim.AdamW, {"weight_decay": 0.1, "betas": (0.9, 0.999)}),
    "adam_l2": (
        {"weight_decay": 0.1, "weight_decay_type": "l2", "betas": (0.8, 0.95)},
        torch.optim.Adam,
        {"weight_decay": 0.1, "betas": (0.8, 0.95)},
    ),
    "sgd_nesterov": (
        {
            "grafting": "sgd",
            "betas": (0.0, 0.999),
            "momentum": 0.9,
            "nesterov": True,
            "weight_decay": 0.01,
            "weight_decay_type": "l2",
        },
        torch.optim.SGD,
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    ),
    "sgd_momentum": (
        {"grafting": "sgd", "betas": (0.0, 0.999), "momentum": 0.9},
        torch.optim.SGD,
        {"momentum": 0.9},
    ),
    "rmsprop": (
        {"grafting": "rmsprop", "betas": (0.0, 0.999), "grafting_beta2": 0.99},
        torch.optim.RMSprop,
        {"alpha": 0.99},
    ),
    "adagrad": (
        {"grafting": "adagrad", "betas": (0.0, 0.999), "grafting_epsilon": 1e-10},
        torch.optim.Adagrad,
        {"eps": 1e-10},
    ),
    "ungrafted_is_sgd": ({"grafting": "none", "betas": (0.0, 0.999)}, torch.optim.SGD, {}),
}


@pytest.mark.parametrize("method", TORCH_METHODS)
def test_before_preconditioning_starts_it_is_the_grafted_method(method: str) -> None:
    ours, peer, theirs = TORCH_METHODS[method]
    params, expected = parameters(list(SHAPES.values())), parameters(list(SHAPES.values()))
    train(Shampoo(params, **settings(start_preconditioning_step=NEVER, **ours)), params, range(30))
    train(peer(expected, lr=0.01, **theirs), expected, range(30))  # type: ignore[call-arg]
    for param, other in zip(params, expected, strict=True):
        torch.testing.assert_close(param, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("grafting", ["sgd", "adagrad", "rmsprop", "adam"])
def test_the_grafted_method_gives_every_block_its_step_length(grafting: str) -> None:
    # The first preconditioned step against the step the grafted method takes from the same state, block by block.
    shapes = [(16, 24)]
    config = settings(grafting=grafting, betas=(0.9, 0.99), precondition_frequency=10)
    lengths = []
    for start in (10, NEVER):
        params = parameters(shapes)
        optimizer = Shampoo(params, **{**config, "start_preconditioning_step": start})
        train(optimizer, params, range(9))
        before = params[0].detach().clone()
        train(optimizer, params, range(9, 10))
        moved = (params[0].detach() - before).reshape(2, 8, 3, 8)
        lengths.append(torch.linalg.vector_norm(moved, dim=(1, 3)))
    torch.testing.assert_close(lengths[0], lengths[1], rtol=1e-10, atol=0)


@pytest.mark.parametrize("grafting", ["sgd", "adagrad", "rmsprop", "adam"])
def test_a_vector_always_takes_the_grafted_step(grafting: str) -> None:
    outcomes = []
    for start in (1, NEVER):
        params = parameters([(13,), (1, 7), (5, 1, 1), ()])
        config = settings(grafting=grafting, precondition_frequency=1, start_preconditioning_step=start)
        train(Shampoo(params, **config), params, range(10))
        outcomes.append(params)
    assert all(torch.equal(a, b) for a, b in zip(*outcomes, strict=True))


def test_without_memory_the_step_is_the_orthogonalised_gradient() -> None:
    # β1 = β2 = 0, ε → 0: (G Gᵀ)^(−1/4) G (Gᵀ G)^(−1/4) = U Vᵀ for G = U S Vᵀ.
    config = settings(
        lr=1.0,
        betas=(0.0, 0.0),
        epsilon=1e-14,
        grafting="none",
        precondition_frequency=1,
        max_preconditioner_dim=64,
    )
    params = parameters([(12, 12)])
    before = params[0].detach().clone()
    optimizer = Shampoo(params, **config)
    (params[0].grad,) = gradients_like(params, step=0)
    U, _, Vh = torch.linalg.svd(params[0].grad)
    optimizer.step()
    torch.testing.assert_close(before - params[0].detach(), U @ Vh, rtol=0, atol=1e-6)


def test_raw_shampoo_does_not_depend_on_the_gradients_scale() -> None:
    outcomes = []
    for scale in (1.0, 1e-6, 1e6):
        params = parameters(list(SHAPES.values()))
        optimizer = Shampoo(params, **settings(grafting="none", precondition_frequency=1))
        start = [param.detach().clone() for param in params]
        for step in range(5):
            for param, gradient in zip(
                params, gradients_like(parameters(list(SHAPES.values())), step=step), strict=True
            ):
                param.grad = gradient * scale
            optimizer.step()
        outcomes.append([param.detach() - at for param, at in zip(params, start, strict=True)])
    for other in outcomes[1:]:
        for moved, expected in zip(other, outcomes[0], strict=True):
            torch.testing.assert_close(moved, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_decoupled_decay_never_enters_momentum(momentum: float) -> None:
    (param,) = params = parameters([(6, 6)])
    start = param.detach().clone()
    optimizer = Shampoo(params, **settings(lr=0.1, weight_decay=1.0, momentum=momentum))
    for _ in range(5):
        param.grad = torch.zeros_like(param)
        optimizer.step()
    torch.testing.assert_close(param.detach(), start * 0.9**5)


def test_independent_decay_follows_the_schedule_but_not_the_peak() -> None:
    outcomes = []
    for lr in (0.1, 0.01):
        (param,) = params = parameters([(6, 6)])
        # The group's own learning rate counts, not the constructor's.
        groups = [{"params": params, "lr": lr}]
        optimizer = Shampoo(groups, **settings(lr=7.0, weight_decay=0.2, weight_decay_type="independent"))
        for factor in (1.0, 0.5):
            optimizer.param_groups[0]["lr"] = lr * factor
            param.grad = torch.zeros_like(param)
            optimizer.step()
        outcomes.append(param.detach() / parameters([(6, 6)])[0].detach())
    torch.testing.assert_close(outcomes[0], torch.full((6, 6), 0.8 * 0.9, dtype=torch.float64))
    torch.testing.assert_close(outcomes[0], outcomes[1])
