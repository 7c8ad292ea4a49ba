"""Spectral with a rank: what it follows, and where it makes no step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shampoo import Shampoo
from shampoo.cost import estimate
from tests.support.cases import in_one_test

SHAPES = [(24, 10), (10, 24), (16, 16), (10, 4, 6)]


def _optimizer(weight: nn.Parameter, *, rank: int, beta1: float = 0.9, lr: float = 0.1) -> Shampoo:
    return Shampoo([weight], lr=lr, preconditioner="spectral", rank=rank, betas=(beta1, 0.95))


def _as_tall(X: Tensor) -> Tensor:
    """The matrix that a parameter is, its shorter side last."""
    X = X.reshape(len(X), -1)
    return X if len(X) >= X.shape[1] else X.T


@in_one_test("shape", SHAPES)
def test_the_basis_comes_to_span_the_leading_eigenvectors(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = nn.Parameter(torch.zeros(shape, dtype=torch.float64))
    optimizer = _optimizer(weight, rank=3)
    d = _as_tall(weight).shape[1]
    Q = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64)).Q
    scales = torch.cat([torch.tensor([8.0, 4.0, 2.0]), torch.full((d - 3,), 0.5)]).double()
    for _ in range(100):
        noise = torch.randn(weight.numel() // d, d, generator=generator, dtype=torch.float64)
        gradient = noise * scales @ Q.T
        is_tall = len(weight) >= weight.numel() // len(weight)
        weight.grad = (gradient if is_tall else gradient.T).reshape(shape)
        optimizer.step()
    basis = optimizer.state[weight]["leading_basis.0"][0]
    torch.testing.assert_close(basis.T @ basis, torch.eye(3, dtype=torch.float64))
    # Each leading vector lies in the span but for what the average's noise turns.
    found = (basis.T @ Q[:, :3]).square().sum(dim=0)
    assert found.min() > 0.95


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@in_one_test("shape", [(24, 10), (10, 24)])
@in_one_test("beta1", [0.0, 0.9])
def test_a_gradient_of_rank_one_is_stepped_along_and_nothing_else(
    beta1: float, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    # Of the other directions in the basis there is rounding alone, of which Adam would make whole steps.
    generator = torch.Generator().manual_seed(0)
    left, right = torch.randn(24, generator=generator), torch.randn(10, generator=generator)
    left, right = left.to(dtype), right.to(dtype)
    gradient = torch.outer(left, right) if shape == (24, 10) else torch.outer(right, left)
    weight = nn.Parameter(torch.zeros(shape, dtype=dtype))
    optimizer = _optimizer(weight, rank=4, beta1=beta1)
    for _ in range(5):
        weight.grad = gradient
        optimizer.step()
    moved = _as_tall(weight.detach())
    along = right / right.norm()
    beside = moved - torch.outer(moved @ along, along)
    assert moved.norm() > 0.1
    assert beside.norm() < 1e-3 * moved.norm()


def test_steps_have_one_length_whatever_the_gradients() -> None:
    for scale in (1e-25, 1e-12, 1.0, 1e12):
        weight = nn.Parameter(torch.zeros(24, 10))
        optimizer = _optimizer(weight, rank=4, lr=1.0)
        weight.grad = scale * torch.randn(24, 10, generator=torch.Generator().manual_seed(0))
        optimizer.step()
        assert weight.detach().square().mean().sqrt().item() == pytest.approx(0.2, rel=1e-5)


def test_without_a_gradient_nothing_moves() -> None:
    weight = nn.Parameter(torch.ones(24, 10))
    optimizer = _optimizer(weight, rank=4)
    before = optimizer.state[weight]["leading_basis.0"].abs().clone()
    weight.grad = torch.zeros_like(weight)
    optimizer.step()
    assert torch.equal(weight, torch.ones(24, 10))
    torch.testing.assert_close(optimizer.state[weight]["leading_basis.0"].abs(), before)


@in_one_test(("side", "over_muon"), [(4096, 1.03), (1024, 1.13)])
def test_its_state_is_hardly_larger_than_that_without_a_rank(side: int, over_muon: float) -> None:
    whole: dict[str, Any] = {"preconditioner": "spectral", "max_preconditioner_dim": side}
    with_rank = estimate([(4096, 4096)], rank=64, **whole).state_bytes
    assert with_rank / estimate([(4096, 4096)], **whole).state_bytes == pytest.approx(over_muon, abs=0.005)
