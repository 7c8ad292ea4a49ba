"""Products in bfloat16: a step that differs by their rounding, from statistics that do not differ at all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from shampoo import Shampoo
from shampoo.linalg.mode_products import mode_products
from tests.support.shampoo.members import member
from tests.support.shampoo.settings import gradients_like, parameters

SHAPES = [(11, 17), (5, 9, 7), (3, 5, 4, 6)]
# Rounding to 8 bits is off by 2^-9 at most and by 0.29 of that in the mean. In a row stand the matrix, what it is
# applied to and the product, for each of up to four sides and each of two bases.
ROUNDING = 2**-9


def _first_step(name: str, **changes: Any) -> tuple[list[Tensor], list[dict[str, Any]]]:
    params = parameters(SHAPES, torch.float32)
    # Decided by the products alone: no average of squares in a basis, whose quotient is as sensitive as it likes.
    optimizer = Shampoo(params, **{**member(name, betas=(0.0, 0.99)), **changes})
    before = [param.detach().clone() for param in params]
    for param, gradient in zip(params, gradients_like(params, step=0), strict=True):
        param.grad = gradient
    optimizer.step()
    steps = [param.detach() - old for param, old in zip(params, before, strict=True)]
    return steps, [optimizer.state[param] for param in params]


@pytest.mark.parametrize("name", ["shampoo_none", "shampoo_adam", "kl"])
def test_a_step_differs_by_the_rounding_of_its_products(name: str) -> None:
    exact, exact_states = _first_step(name, epsilon=0.1)
    rounded, states = _first_step(name, epsilon=0.1, product_dtype="bfloat16")
    for step, expected in zip(rounded, exact, strict=True):
        error = (step - expected).norm() / expected.norm()
        assert 0.1 * ROUNDING < error < 4 * ROUNDING
    for state, expected_state in zip(states, exact_states, strict=True):
        factors = [key for key in expected_state if key.startswith("factor")]
        assert factors
        for key in factors:
            assert torch.equal(state[key], expected_state[key])


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(3, 6, 5), (2, 4, 3, 5), (2, 3, 4, 2, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounded_products_are_the_products_within_their_rounding(
    shape: tuple[int, ...], transposed: bool, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(0)

    def random(*sides: int) -> Tensor:
        return torch.randn(sides, generator=generator, dtype=dtype)

    X, K = random(*shape), shape[0]
    # A side of each kind: a matrix, a diagonal one, none.
    matrices: list[Tensor | None] = [random(K, d, d) for d in shape[1:]]
    matrices[-1] = random(K, shape[-1])
    if len(shape) > 3:
        matrices[1] = None
    spare = torch.empty_like(X), torch.empty_like(X)
    given = X.clone()
    exact = mode_products(matrices, X, spare, transposed=transposed).clone()
    rounded = mode_products(matrices, X, spare, transposed=transposed, dtype=torch.bfloat16)
    assert any(rounded is x for x in spare)
    assert rounded.dtype == dtype
    assert torch.equal(X, given)
    assert 0.1 * ROUNDING < (rounded - exact).norm() / exact.norm() < 4 * ROUNDING


def test_without_a_matrix_nothing_is_rounded() -> None:
    X = torch.randn(2, 3, 4)
    assert mode_products([None, None], X, (X.clone(), X.clone()), dtype=torch.bfloat16) is X
