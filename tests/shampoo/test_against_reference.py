"""The optimizer follows the textbook implementation in `reference.py` over 50 steps.

Tolerances are relative to the norm of each tensor of weights.
float64: 1e-9. Both sides round at 1e-16; the root of a null eigenvalue, ε λmax, carries a relative error of about
1e-16/ε, here 1e-12, and 50 steps through the weights-dependent gradient add up.
float32: 2e-5, with a refresh period that has full-rank statistics or ε >= 1e-5; where neither holds, the null space of
the first factor is rounding noise that A^(−1/4) amplifies, and no float32 implementation is near the textbook.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from shampoo import Shampoo
from tests.shampoo.reference import ReferenceShampoo
from tests.shampoo.settings import SHAPES, gradients_like, parameters, settings

GRAFTINGS = ("none", "sgd", "adagrad", "rmsprop", "adam")

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "decoupled_decay": {"weight_decay": 0.1},
    "l2_decay": {"weight_decay": 0.1, "weight_decay_type": "l2"},
    "independent_decay": {"weight_decay": 0.01, "weight_decay_type": "independent"},
    "momentum_and_decay": {"momentum": 0.9, "weight_decay": 0.1},
    "nesterov_without_first_moment": {"betas": (0.0, 0.99), "momentum": 0.9, "nesterov": True},
    "nadam": {"beta3": 0.81},
    "nadam_nesterov": {"beta3": 0.81, "momentum": 0.5, "nesterov": True, "weight_decay": 0.05},
    "summed_statistics": {"betas": (0.9, 1.0)},
    "refresh_every_step": {"precondition_frequency": 1, "epsilon": 1e-4},
    "late_start": {"start_preconditioning_step": 23, "precondition_frequency": 4},
    "early_start": {"start_preconditioning_step": 2, "precondition_frequency": 9, "epsilon": 1e-4},
    "rare_statistics": {"statistics_frequency": 3, "start_preconditioning_step": 10},
    "exponent": {"exponent_override": 0.5, "epsilon": 1e-4},
    "no_bias_correction": {"use_bias_correction": False},
    "whole_tensors": {"max_preconditioner_dim": 64},
    "tiny_blocks": {"max_preconditioner_dim": 3},
}


def _deviation(config: dict[str, Any], shapes: list[tuple[int, ...]], dtype: torch.dtype, num_steps: int = 50) -> float:
    """Largest relative difference of any tensor of weights from the reference's after any step."""
    params = parameters(shapes, dtype)
    reference = ReferenceShampoo(params, config)
    optimizer = Shampoo(params, **config)
    worst = 0.0
    for step in range(num_steps):
        gradients = gradients_like(params, step=step)
        for param, gradient in zip(params, gradients, strict=True):
            param.grad = gradient
        optimizer.step()
        reference.step(list(gradients))
        for param, expected in zip(params, reference.weights, strict=True):
            worst = max(worst, ((param.detach().double() - expected).norm() / expected.norm()).item())
    return worst


def _config(grafting: str, variant: str) -> dict[str, Any]:
    config = settings(grafting=grafting, **VARIANTS[variant])
    if config["betas"][1] == 1.0 and grafting in ("rmsprop", "adam"):
        config["grafting_beta2"] = 0.99
    return config


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("grafting", GRAFTINGS)
def test_every_order_follows_the_reference_in_float64(grafting: str, variant: str) -> None:
    # All orders in one optimizer, so that buckets of several parameters are stepped together.
    assert _deviation(_config(grafting, variant), list(SHAPES.values()), torch.float64) < 1e-9


@pytest.mark.parametrize("order", SHAPES)
@pytest.mark.parametrize("grafting", GRAFTINGS)
def test_each_order_alone_follows_the_reference_in_float64(grafting: str, order: str) -> None:
    assert _deviation(settings(grafting=grafting), [SHAPES[order]], torch.float64) < 1e-9


@pytest.mark.parametrize("order", SHAPES)
@pytest.mark.parametrize("grafting", GRAFTINGS)
@pytest.mark.parametrize(
    "condition",
    [{"precondition_frequency": 20, "epsilon": 1e-6}, {"precondition_frequency": 5, "epsilon": 1e-5}],
    ids=["full_rank", "damped"],
)
def test_each_order_follows_the_reference_in_float32(grafting: str, order: str, condition: dict[str, Any]) -> None:
    assert _deviation(settings(grafting=grafting, **condition), [SHAPES[order]], torch.float32) < 2e-5


def test_a_convolution_follows_the_reference() -> None:
    config = settings(max_preconditioner_dim=16, momentum=0.9)
    assert _deviation(config, [(20, 6, 3, 3), (6,), (4, 20)], torch.float64) < 1e-9


def test_a_bucket_larger_than_one_chunk_follows_the_reference() -> None:
    # 1,250 blocks of 32×32 in float64 are 10 MB: three chunks, whose borders lie inside the first parameter.
    config = settings(max_preconditioner_dim=32, precondition_frequency=2, epsilon=1e-4)
    assert _deviation(config, [(800, 1600), (64, 32)], torch.float64, num_steps=3) < 1e-9
