"""Inverse roots against matrices whose roots are known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from shampoo.matrix_roots import eigh_inverse_root, inverse_root_of_eigenvalues


def _stack_with_eigenvalues(values: Tensor, num: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    Q, _ = torch.linalg.qr(torch.randn(num, len(values), len(values), generator=generator, dtype=torch.float64))
    return (Q * values) @ Q.mT, Q


@pytest.mark.parametrize("exponent", [1 / 8, 1 / 6, 1 / 4, 1 / 2, 1.0])
def test_root_of_known_eigenvalues(exponent: float) -> None:
    values = torch.logspace(-6, 0, 20, dtype=torch.float64)
    A, Q = _stack_with_eigenvalues(values, num=5)
    root = eigh_inverse_root(A * 0.3, correction=0.3, exponent=exponent, epsilon=1e-9)
    expected = (Q * (values + 1e-9) ** -exponent) @ Q.mT
    torch.testing.assert_close(root, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("n", [1, 2, 10, 100])
def test_root_of_a_multiple_of_the_identity(n: int) -> None:
    root = eigh_inverse_root(16 * torch.eye(n).expand(3, n, n), correction=1.0, exponent=0.25, epsilon=1e-12)
    torch.testing.assert_close(root, torch.eye(n).expand(3, n, n) / 2)


def test_root_of_a_tridiagonal_matrix() -> None:
    # Second differences: eigenvalues 2 − 2 cos(πj/(n + 1)) with sine vectors.
    n = 12
    A = 2 * torch.eye(n, dtype=torch.float64) - torch.diag(torch.ones(n - 1), 1) - torch.diag(torch.ones(n - 1), -1)
    j = torch.arange(1, n + 1, dtype=torch.float64)
    V = torch.sin(torch.pi * j[:, None] * j / (n + 1)) * (2 / (n + 1)) ** 0.5
    expected = (V * (2 - 2 * torch.cos(torch.pi * j / (n + 1))) ** -0.5) @ V.T
    root = eigh_inverse_root(A[None], correction=1.0, exponent=0.5, epsilon=1e-15)
    torch.testing.assert_close(root[0], expected, rtol=1e-10, atol=1e-10)


def test_epsilon_is_relative_to_the_largest_eigenvalue() -> None:
    A = torch.diag(torch.tensor([4.0, 0.0], dtype=torch.float64))[None]
    for scale in (1e-12, 1.0, 1e12):
        root = eigh_inverse_root(A * scale, correction=1.0, exponent=0.5, epsilon=0.01)
        expected = torch.diag(torch.tensor([4.04, 0.04], dtype=torch.float64) * scale) ** 0.5
        torch.testing.assert_close(root[0].diagonal(), 1 / expected.diagonal())


def test_nothing_known_gives_the_identity_beside_other_matrices() -> None:
    A = torch.stack([torch.zeros(3, 3), torch.eye(3) * 16])
    root = eigh_inverse_root(A, correction=1.0, exponent=0.25, epsilon=1e-6)
    torch.testing.assert_close(root, torch.stack([torch.eye(3), torch.eye(3) / 2]))
    diagonal = inverse_root_of_eigenvalues(torch.zeros(2, 3), correction=0.5, exponent=0.5, epsilon=1e-6)
    assert torch.equal(diagonal, torch.ones(2, 3))


@pytest.mark.parametrize("size", [1e-37, 1e37])
def test_matrices_near_the_limits_of_float32_have_their_roots(size: float) -> None:
    A = torch.diag(torch.tensor([1.0, 1e-4])).mul(size)[None]
    root = eigh_inverse_root(A, correction=0.001, exponent=0.25, epsilon=1e-6)
    expected = ((torch.tensor([1.0, 1e-4], dtype=torch.float64) + 1e-6) * size / 0.001) ** -0.25
    torch.testing.assert_close(root[0].diagonal().double(), expected, rtol=1e-5, atol=0)


def test_negative_rounding_of_null_eigenvalues_stays_finite() -> None:
    G = torch.randn(2, 30, 3, generator=torch.Generator().manual_seed(3))
    A = torch.bmm(G, G.mT)
    assert torch.linalg.eigvalsh(A).min() < 0
    root = eigh_inverse_root(A, correction=1.0, exponent=0.25, epsilon=1e-10)
    assert torch.isfinite(root).all()


@pytest.mark.parametrize("correction", [1.0, None])
def test_an_eigenvalue_beyond_float32_has_its_root(correction: float | None) -> None:
    # All entries are below float32's largest number, the eigenvalue n times that size is not.
    A = torch.full((1, 6, 6), 1e38)
    root = eigh_inverse_root(A, correction=correction, exponent=0.25, epsilon=1e-6)
    rest = (1e-6 * (1 if correction is None else 6e38)) ** -0.25
    vector = torch.randn(6, generator=torch.Generator().manual_seed(0))
    vector -= vector.mean()  # of the null space
    torch.testing.assert_close(root[0] @ vector, vector * rest, rtol=1e-4, atol=1e-4 * rest)


@pytest.mark.parametrize("scale", [1e-38, 1.0, 1e37])
def test_without_a_correction_the_unit_is_the_largest_eigenvalue(scale: float) -> None:
    values = torch.tensor([1.0, 1e-2, 1e-4, 0.0], dtype=torch.float64)
    A, Q = _stack_with_eigenvalues(values, num=3)
    expected = (Q * (values + 1e-3) ** -0.25) @ Q.mT
    root = eigh_inverse_root((A * scale).float(), correction=None, exponent=0.25, epsilon=1e-3)
    torch.testing.assert_close(root.double(), expected, rtol=1e-3, atol=1e-3)
    diagonal = inverse_root_of_eigenvalues(values * scale, correction=None, exponent=0.25, epsilon=1e-3)
    torch.testing.assert_close(diagonal, (values + 1e-3) ** -0.25)


def test_only_the_matrix_without_a_decomposition_has_no_root() -> None:
    A, _ = _stack_with_eigenvalues(torch.arange(1, 8, dtype=torch.float64), num=3)
    expected = eigh_inverse_root(A, correction=1.0, exponent=0.25, epsilon=1e-6)
    A[1, 2, 2] = torch.nan
    with pytest.warns(RuntimeWarning, match="its previous root stays in use"):
        root = eigh_inverse_root(A, correction=1.0, exponent=0.25, epsilon=1e-6)
    assert root.isnan().flatten(1).all(1).tolist() == [False, True, False]
    torch.testing.assert_close(root[[0, 2]], expected[[0, 2]])


def test_only_the_lower_triangle_is_read() -> None:
    A, _ = _stack_with_eigenvalues(torch.arange(1, 8, dtype=torch.float64), num=2)
    expected = eigh_inverse_root(A, correction=1.0, exponent=0.25, epsilon=1e-6)
    assert torch.equal(eigh_inverse_root(A.tril(), correction=1.0, exponent=0.25, epsilon=1e-6), expected)


def test_several_threads_give_the_same_roots_and_are_set_back() -> None:
    A, _ = _stack_with_eigenvalues(torch.arange(1, 33, dtype=torch.float64), num=5)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        single = eigh_inverse_root(A, correction=1.0, exponent=0.25, epsilon=1e-6)
        torch.set_num_threads(3)
        shared = eigh_inverse_root(A, correction=1.0, exponent=0.25, epsilon=1e-6)
        assert torch.get_num_threads() == 3
        with pytest.warns(RuntimeWarning, match="no finite eigendecomposition"):
            eigh_inverse_root(A * float("nan"), correction=1.0, exponent=0.25, epsilon=1e-6)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(shared, single, rtol=1e-12, atol=1e-12)
