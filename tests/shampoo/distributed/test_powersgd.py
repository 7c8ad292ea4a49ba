"""Gradients that PowerSGD compresses (arXiv 1905.13727, torch's DDP hook): of rank 4, they leave factors singular."""

from __future__ import annotations

import math
from statistics import mean
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shampoo import Shampoo
from tests.support.shampoo import low_rank
from tests.support.shampoo.reference.shampoo import ReferenceShampoo
from tests.support.shampoo.settings import settings
from tests.support.trainers.ranks import WarmRanks

pytestmark = pytest.mark.processes

# With the default ε kl ends a quarter higher with compression than without: see `shampoo.hyperparameters`.
KL_EPSILON = 1e-2
MEMBERS: dict[str, dict[str, Any]] = {
    "shampoo": {"solver": "eigh", "precondition_frequency": 10},
    # With the default period of 50 a pseudo-inverse ended 3% higher, in a deeper network.
    "shampoo_pseudo_inverse": {"solver": "eigh", "precondition_frequency": 10, "pseudo_inverse": True},
    "soap": {"preconditioner": "soap"},
    "kl": {"preconditioner": "kl", "epsilon": KL_EPSILON},
}


@pytest.mark.parametrize(
    ("name", "num_steps", "limit"),
    [
        # After so few steps kl ends 1.2% higher, and with a tenth of that ε 5.6%; after 400 steps 0.8 and 2.0%.
        ("kl", 150, 1.02),
        # After a quarter of the steps soap's loss still falls, with compression 3.3% later; with a damping that is too
        # small for what it steps, a loss is then a third higher. The other two are 0.4 and 0.2% above.
        ("soap", 100, 1.05),
        ("shampoo", 100, 1.01),
        ("shampoo_pseudo_inverse", 100, 1.01),
    ],
)
def test_the_loss_ends_as_low_with_a_quarter_of_the_elements(
    ranks: dict[int, WarmRanks], name: str, num_steps: int, limit: float
) -> None:
    """The mean over networks of the loss on validation images, at the end; after 400 steps each is 0.3 to 0.8% up."""
    config = {"lr": 0.03, **MEMBERS[name]}
    exact = low_rank.train(config, None, num_steps)
    found, found_too = ranks[2].run(low_rank.train, config, low_rank.RANK, num_steps)
    assert torch.equal(found.weights, found_too.weights)
    for outcome in (exact, found):
        assert outcome.are_finite
        assert outcome.num_failed_refreshes == 0
    assert max(exact.gradient_ranks) > low_rank.RANK
    _assert_low_rank(found)
    _assert_elements_sent(found, num_steps)
    # Chance says 2.30, and what is hidden keeps it from falling to 0.
    assert 0.9 < mean(exact.losses) < 1.2
    assert mean(found.losses) <= limit * mean(exact.losses)


def _assert_low_rank(outcome: low_rank.Outcome) -> None:
    assert max(outcome.gradient_ranks) <= low_rank.RANK
    sizes = [size for parameter in _matrices() for size in parameter.shape]
    for num_gradients, found in outcome.factor_ranks.items():
        assert len(found) == len(sizes)
        assert max(found) <= low_rank.RANK * num_gradients
    # The roots of the first refresh are those of such factors.
    assert max(outcome.factor_ranks[1]) == low_rank.RANK
    assert min(sizes) > low_rank.RANK


def _assert_elements_sent(outcome: low_rank.Outcome, num_steps: int) -> None:
    of_matrices = sum(low_rank.RANK * sum(matrix.shape) for matrix in _matrices())
    of_biases = sum(parameter.numel() for parameter in low_rank.Networks().parameters() if parameter.ndim == 1)
    whole = sum(parameter.numel() for parameter in low_rank.Networks().parameters())
    assert outcome.num_sent == num_steps * (of_matrices + of_biases)
    assert outcome.num_whole == num_steps * whole
    assert outcome.num_sent < outcome.num_whole / 4


def _matrices() -> list[nn.Parameter]:
    return [parameter for parameter in low_rank.Networks().parameters() if parameter.ndim == 2]


SHAPE = (24, 20)
NUM_STEPS_BEFORE = 30
NUM_STEPS_AFTER = 15
SURPRISED: dict[str, dict[str, Any]] = {
    "shampoo_adam": {},
    "shampoo_sgd": {"grafting": "sgd"},
    "shampoo_none": {"grafting": "none"},
    "shampoo_pseudo_inverse": {"pseudo_inverse": True},
    "shampoo_pseudo_inverse_none": {"pseudo_inverse": True, "grafting": "none"},
    "shampoo_by_coupled_newton": {"solver": "coupled_newton"},
    "shampoo_by_qr": {"solver": "qr"},
    "shampoo_by_cholesky_qr": {"solver": "cholesky_qr"},
    "soap": {"preconditioner": "soap"},
    "soap_by_qr": {"preconditioner": "soap", "solver": "qr"},
    "soap_by_cholesky_qr": {"preconditioner": "soap", "solver": "cholesky_qr"},
    "kl": {"preconditioner": "kl", "epsilon": KL_EPSILON},
    "kl_by_qr": {"preconditioner": "kl", "epsilon": KL_EPSILON, "solver": "qr"},
    "kl_by_cholesky_qr": {"preconditioner": "kl", "epsilon": KL_EPSILON, "solver": "cholesky_qr"},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SURPRISED)
def test_a_sudden_gradient_in_the_null_space_makes_a_bounded_step(name: str, dtype: torch.dtype) -> None:
    """The same gradient of rank 4 at every step, then another one that is orthogonal to all that the factors know."""
    config = settings(
        **{"max_preconditioner_dim": 1024, "precondition_frequency": 10, **SURPRISED[name]},
        lr=1.0,
        epsilon_type="relative",
    )
    usual, surprise = _gradients()
    lengths, of_reference = _step_lengths(config, usual, surprise, dtype)
    assert all(map(math.isfinite, lengths))
    assert max(lengths) <= _bound(config, usual, surprise, lengths[NUM_STEPS_BEFORE - 1])
    # Which basis the null space has is anyone's choice, and Adam's step in it is as long as that basis makes it.
    if config["preconditioner"] == "shampoo":
        tolerance = 1e-2 if dtype == torch.float32 and config["grafting"] == "none" else 1e-5
        assert lengths == pytest.approx(of_reference, rel=tolerance, abs=1e-5)
    else:
        assert max(lengths) == pytest.approx(max(of_reference), rel=0.3)


def _bound(config: dict[str, Any], usual: Tensor, surprise: Tensor, before: float) -> float:
    """Bound on the length of a step; `before` is that of the last one without surprise."""
    num_elements = math.sqrt(usual.numel())
    beta1, beta2 = config["betas"]
    match config["preconditioner"], config["grafting"], config["pseudo_inverse"]:
        case "shampoo", "sgd", _:
            return 1.001 * float(usual.norm())
        case "shampoo", None, _:
            return 1.001 * num_elements  # Adam's: elements of 1 before, and of less afterwards
        case "shampoo", "none", False:
            # The null space's own root on both sides, until they are refreshed: that is what ε allows.
            averaged = (1 - beta1 ** config["precondition_frequency"]) * float(surprise.norm())
            largest = float(torch.linalg.matrix_norm(usual, 2)) ** 2
            return float(averaged * (config["epsilon"] * largest) ** -0.5)
        case "soap", _, _:
            return float(num_elements * (1 - beta1) / math.sqrt(1 - beta2))  # Adam's, all coordinates surprised at once
        case _:
            return 4 * before  # 3.7 where a refresh of both sides is what the surprise meets first


def _gradients() -> tuple[Tensor, Tensor]:
    """Two of rank 4 and the same singular values, whose rows and whose columns are orthogonal to each other's."""
    generator = torch.Generator().manual_seed(1)
    left, right = (torch.linalg.qr(torch.randn(size, 8, generator=generator, dtype=torch.float64)).Q for size in SHAPE)
    values = torch.tensor([4.0, 3.0, 2.0, 1.0], dtype=torch.float64)
    return (left[:, :4] * values) @ right[:, :4].T, (left[:, 4:] * values) @ right[:, 4:].T


def _step_lengths(
    config: dict[str, Any], usual: Tensor, surprise: Tensor, dtype: torch.dtype
) -> tuple[list[float], list[float]]:
    """‖P‖ of each step, and those of the float64 reference."""
    param = nn.Parameter(torch.zeros(SHAPE, dtype=dtype))
    optimizer, reference = Shampoo([param], **config), ReferenceShampoo([torch.zeros(SHAPE)], config)
    ours, of_reference = [], []
    for step in range(NUM_STEPS_BEFORE + NUM_STEPS_AFTER):
        G = usual if step < NUM_STEPS_BEFORE else surprise
        old, old_of_reference = param.detach().clone(), reference.weights[0]
        param.grad = G.to(dtype)
        optimizer.step()
        reference.step([G])
        ours.append((param.detach() - old).norm().item())
        of_reference.append((reference.weights[0] - old_of_reference).norm().item())
    return ours, of_reference
