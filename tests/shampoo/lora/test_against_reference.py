"""`LoraRite` in float64 takes the steps of its specification."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from shampoo import LoraRite
from tests.support.shampoo.adapters import Pair, Regression, flat, pairs
from tests.support.shampoo.reference.lora import LoraRiteReference

SETTINGS: dict[str, Any] = {
    "lr": 0.02,
    "betas": (0.9, 0.99),
    "eps": 1e-8,
    "weight_decay": 0.1,
    "clip_unmagnified_grad": 0.5,
}
SHAPES = ((7, 9, 3), (7, 9, 3), (5, 9, 3), (4, 4, 2), (9, 7, 3))
"""Of one shape, of shapes that differ on one side alone, square, and swapped."""


def largest_deviation(
    given: list[Pair], settings: dict[str, Any], *, num_steps: int = 30, device: str = "cpu"
) -> float:
    """Relative to the norm of the factor, over all steps, which are taken on the device."""
    trained = [torch.nn.Parameter(factor.detach().to(device)) for factor in flat(given)]
    optimizer, regression = LoraRite(trained, **settings), Regression(given)
    with torch.no_grad():
        reference, worst = LoraRiteReference(given, settings), 0.0
    for _ in range(num_steps):
        gradients = torch.autograd.grad(regression.loss(given), flat(given))
        with torch.no_grad():
            reference.step(list(zip(gradients[::2], gradients[1::2], strict=True)))
            for param, gradient in zip(trained, gradients, strict=True):
                param.grad = gradient.to(device)
            optimizer.step()
            for ours, factor, expected in zip(trained, flat(given), flat(reference.pairs), strict=True):
                factor.copy_(ours)
                worst = max(worst, float((factor - expected).norm() / expected.norm()))
    return worst


@pytest.mark.parametrize("zero", [True, False])
@pytest.mark.parametrize(
    "changed",
    [{}, {"clip_unmagnified_grad": None}, {"betas": (0.0, 0.9)}, {"betas": (0.9, 0.0)}, {"eps": 0.1}],
    ids=lambda changed: ", ".join(changed) or "as they are",
)
@pytest.mark.slow
def test_steps_are_the_references(changed: dict[str, Any], zero: bool) -> None:
    # Rounding alone: about a hundred operations on numbers of one size.
    assert largest_deviation(pairs(*SHAPES, zero=zero), {**SETTINGS, **changed}) < 1e-10


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("zero", [True, False])
def test_steps_on_the_device_are_the_references(zero: bool) -> None:
    assert largest_deviation(pairs(*SHAPES, zero=zero), SETTINGS, device="cuda") < 1e-10


@pytest.mark.parametrize("shape", [(2, 6, 3), (6, 2, 3)])
def test_a_rank_above_a_side_leaves_a_direction_out(shape: tuple[int, int, int]) -> None:
    # Null eigenvalues of V are rounding, which the root enlarges to its square root: 1e-8 of the step. Ten steps: where
    # a side is short, training itself enlarges rounding, by up to a million within thirty.
    assert largest_deviation(pairs(shape), {**SETTINGS, "eps": 1e-6}, num_steps=10) < 1e-7


def test_the_escaped_mass_damps_a_direction_that_was_left() -> None:
    # B's column space turns wholly between two steps, so that all of A's second moment has escaped.
    (A, B) = pairs((4, 6, 2), zero=False)[0]
    first, second = torch.eye(4, 2, dtype=torch.float64), torch.eye(4, dtype=torch.float64)[:, 2:]
    settings = {**SETTINGS, "lr": 0.0}
    optimizer, regression = LoraRite([A, B], **settings), Regression([(A, B)])
    masses = []
    for basis in (first, second):
        with torch.no_grad():
            B.copy_(basis)
        optimizer.zero_grad()
        regression.loss([(A, B)]).backward()
        before = optimizer.state[A]["second_moment"].clone()
        optimizer.step()
        masses.append((optimizer.state[A]["escaped_mass"].item(), torch.linalg.eigvalsh(before).max().item()))
    assert masses[0] == (0.0, 0.0)
    assert masses[1][0] == pytest.approx(0.99 * masses[1][1], rel=1e-12)
