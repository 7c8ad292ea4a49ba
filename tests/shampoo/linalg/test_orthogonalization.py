"""Orthogonalisation against `torch.optim.Muon`, and against singular value decompositions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from shampoo.linalg.orthogonalization import orthogonalize

BAND = (0.68, 1.21)
"""Bounds of singular values that were at least 1/600 of the norm: the polynomial's own range, from scalars."""


def _matrices(num: int, m: int, n: int, *, smallest: float = 0.1) -> Tensor:
    """float32 matrices with singular values from 1 down to `smallest`."""
    generator = torch.Generator().manual_seed(0)
    k = min(m, n)
    U, _ = torch.linalg.qr(torch.randn(num, m, k, generator=generator))
    V, _ = torch.linalg.qr(torch.randn(num, n, k, generator=generator))
    matrices: Tensor = (U * torch.logspace(0, torch.log10(torch.tensor(smallest)).item(), k)) @ V.mT
    return matrices


def _muon_direction(grad: Tensor) -> Tensor:
    """The direction of `torch.optim.Muon` with its defaults but for momentum, decay and the learning rate's scale."""
    weight = torch.nn.Parameter(torch.zeros_like(grad))
    weight.grad = grad.clone()
    torch.optim.Muon([weight], lr=1.0, weight_decay=0.0, momentum=0.0, nesterov=False).step()
    m, n = grad.shape
    direction: Tensor = -weight.detach() / max(1, m / n) ** 0.5
    return direction


@pytest.mark.parametrize("shape", [(16, 16), (8, 40), (40, 8), (100, 60)])
def test_equals_muon(shape: tuple[int, int]) -> None:
    X = _matrices(3, *shape)
    expected = torch.stack([_muon_direction(grad) for grad in X])
    half = orthogonalize(X, dtype=torch.bfloat16)
    assert half.dtype == torch.float32
    # The same in bfloat16 but for the norm, which Muon takes of the rounded matrix: 2⁻⁹ in each of five steps, each of
    # which triples the smallest singular values.
    error = torch.linalg.vector_norm(half - expected) / torch.linalg.vector_norm(expected)
    assert error < 0.03
    error = torch.linalg.vector_norm(orthogonalize(X) - expected) / torch.linalg.vector_norm(expected)
    assert error < 0.03


@pytest.mark.parametrize("shape", [(1, 1), (20, 20), (10, 50), (50, 10)])
def test_singular_values_end_in_the_polynomials_range(shape: tuple[int, int]) -> None:
    values = torch.linalg.svdvals(orthogonalize(_matrices(4, *shape, smallest=0.01)))
    low, high = BAND
    assert low < values.min()
    assert values.max() < high


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e20, 1e37])
def test_the_scale_of_the_gradient_is_gone(scale: float) -> None:
    X = _matrices(2, 12, 20)
    torch.testing.assert_close(orthogonalize(X * scale), orthogonalize(X), rtol=1e-4, atol=1e-5)


def test_zero_stays_zero_and_what_is_not_finite_leaves_its_neighbours() -> None:
    X = _matrices(4, 7, 5)
    expected = orthogonalize(X)
    X[1], X[2, 3, 3], X[3, 0, 0] = 0, torch.nan, torch.inf
    found = orthogonalize(X)
    torch.testing.assert_close(found[0], expected[0])
    assert torch.equal(found[1], torch.zeros(7, 5))
    assert found[2].isnan().all()
    assert found[3].isnan().all()


def test_is_a_new_contiguous_tensor_like_its_argument() -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for shape in ((3, 8, 5), (3, 5, 8), (3, 5, 5)):
            X = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
            before = X.clone()
            found = orthogonalize(X)
            assert (found.dtype, found.shape) == (X.dtype, X.shape)
            assert found.is_contiguous()
            assert torch.equal(X, before)
            assert found.data_ptr() != X.data_ptr()


def test_each_matrix_alone_is_the_same() -> None:
    X = _matrices(5, 30, 20)
    alone = torch.cat([orthogonalize(matrix) for matrix in X.split(1)])
    torch.testing.assert_close(orthogonalize(X), alone, rtol=1e-4, atol=1e-5)


def test_a_transpose_has_the_transpose() -> None:
    X = _matrices(2, 30, 20)
    torch.testing.assert_close(orthogonalize(X.mT), orthogonalize(X).mT, rtol=1e-4, atol=1e-5)
