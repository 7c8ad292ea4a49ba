"""Inverse roots against matrices whose roots are known."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from torch import Tensor

from shampoo.linalg.inverse_roots import InverseRoot, RootMethod, inverse_root, root_of_eigenvalues
from tests.support.shampoo.matrices import gradients_statistics, second_differences, with_eigenvalues

METHODS: tuple[RootMethod, ...] = get_args(RootMethod)


def _root(
    exponent: float = 0.25,
    epsilon: float = 1e-6,
    *,
    relative: bool = True,
    pseudo: bool = False,
    correction: float | None = 1.0,
) -> InverseRoot:
    return InverseRoot(exponent, epsilon, relative_epsilon=relative, pseudo_inverse=pseudo, correction=correction)


def _relative_error(found: Tensor, expected: Tensor) -> float:
    """Largest over the stack of ‖found − expected‖_F/‖expected‖_F."""
    error = torch.linalg.vector_norm(found.double() - expected, dim=(-2, -1))
    return float((error / torch.linalg.vector_norm(expected, dim=(-2, -1))).max())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("exponent", [1 / 8, 1 / 6, 1 / 4, 1 / 3, 1 / 2, 1.0])
def test_root_of_known_eigenvalues(method: RootMethod, exponent: float) -> None:
    values = torch.logspace(-6, 0, 20, dtype=torch.float64)
    A, Q = with_eigenvalues(values, num=5)
    result = inverse_root(A * 0.3, _root(exponent, 1e-9, correction=0.3), method)
    expected = (Q * (values + 1e-9) ** -exponent) @ Q.mT
    torch.testing.assert_close(result.root, expected, rtol=1e-8, atol=1e-8)
    assert torch.equal(result.root, result.root.mT)


@pytest.mark.parametrize("exponent", [0.3, 2.0, 1 / 7.5])
def test_exponents_that_are_no_reciprocal_of_an_integer(exponent: float) -> None:
    values = torch.logspace(-3, 0, 20, dtype=torch.float64)
    A, Q = with_eigenvalues(values, num=2)
    expected = (Q * (values + 1e-9) ** -exponent) @ Q.mT
    torch.testing.assert_close(inverse_root(A, _root(exponent, 1e-9), "eigh").root, expected, rtol=1e-8, atol=1e-8)
    with pytest.raises(ValueError, match=f"{exponent}"):
        inverse_root(A, _root(exponent), "coupled_newton")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [1, 2, 10, 100])
def test_root_of_a_multiple_of_the_identity(method: RootMethod, n: int) -> None:
    result = inverse_root(16 * torch.eye(n).expand(3, n, n), _root(epsilon=1e-12), method)
    torch.testing.assert_close(result.root, torch.eye(n).expand(3, n, n) / 2)
    torch.testing.assert_close(result.condition, torch.ones(3))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [12, 300])
def test_root_of_a_tridiagonal_matrix(method: RootMethod, n: int) -> None:
    A, values, V = second_differences(n)
    result = inverse_root(A[None], _root(0.5, 1e-15), method)
    # The condition number is about (2n/π)², so rounding is amplified to 1e-16 · 4e4 at most.
    torch.testing.assert_close(result.root[0], (V * values**-0.5) @ V.T, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("condition", [1e4, 1e6, 1e8])
@pytest.mark.parametrize(("method", "roundings"), [("eigh", 40.0), ("eigh64", 3.0), ("coupled_newton", 8.0)])
@pytest.mark.parametrize("order", [2, 4])
def test_float32_against_float64(method: RootMethod, roundings: float, order: int, condition: float) -> None:
    """The error of an inverse root in float32 by perturbation theory.

    A change of A by δ·λmax changes the smallest eigenvalue relatively by δ·condition, and its root by 1/p of that; no
    root is off by more than its own size, or, damped by ε = 1/condition, by more than a small multiple of it. Rounding
    A to float32 is δ = 6e-8 already; what LAPACK adds in float32 is 10 to 20 times that, coupled Newton 2 to 4 times.
    """
    values = torch.logspace(0, -torch.log10(torch.tensor(condition)).item(), 200, dtype=torch.float64)
    A, Q = with_eigenvalues(values, num=2)
    expected = (Q * (values + 1 / condition) ** (-1 / order)) @ Q.mT
    result = inverse_root(A.float(), _root(1 / order, 1 / condition), method)
    assert result.root.dtype == torch.float32
    assert _relative_error(result.root, expected) < min(0.6, roundings * 6e-8 * condition / order)


@pytest.mark.parametrize(("condition", "tolerance"), [(1e4, 2.5e-5), (1e6, 1.6e-3)])
def test_coupled_newton_is_more_accurate_than_eigh_in_the_same_precision(condition: float, tolerance: float) -> None:
    values = torch.logspace(0, -torch.log10(torch.tensor(condition)).item(), 256, dtype=torch.float64)
    A, Q = with_eigenvalues(values, num=2)
    expected = (Q * (values + 1 / condition) ** -0.25) @ Q.mT
    root = _root(0.25, 1 / condition)
    newton = _relative_error(inverse_root(A.float(), root, "coupled_newton").root, expected)
    assert newton < tolerance
    assert newton < 0.5 * _relative_error(inverse_root(A.float(), root, "eigh").root, expected)


@pytest.mark.parametrize("method", METHODS)
def test_epsilon_is_relative_to_the_largest_eigenvalue(method: RootMethod) -> None:
    A = torch.diag(torch.tensor([4.0, 0.0], dtype=torch.float64))[None]
    for scale in (1e-12, 1.0, 1e12):
        result = inverse_root(A * scale, _root(0.5, 0.01), method)
        expected = (torch.tensor([4.04, 0.04], dtype=torch.float64) * scale) ** -0.5
        torch.testing.assert_close(result.root[0].diagonal(), expected)
        torch.testing.assert_close(result.condition, torch.tensor([101.0]))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("correction", [0.1, 1.0, None])
def test_absolute_epsilon_is_added_to_the_corrected_matrix(method: RootMethod, correction: float | None) -> None:
    values = torch.logspace(-5, 1, 15, dtype=torch.float64)
    A, Q = with_eigenvalues(values, num=2)
    expected = (Q * (values / (correction or 1) + 1e-3) ** -0.25) @ Q.mT
    root = _root(0.25, 1e-3, relative=False, correction=correction)
    torch.testing.assert_close(inverse_root(A, root, method).root, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(root_of_eigenvalues(values, root), (values / (correction or 1) + 1e-3) ** -0.25)


@pytest.mark.parametrize("method", METHODS)
def test_nothing_known_gives_the_identity_beside_other_matrices(method: RootMethod) -> None:
    A = torch.stack([torch.zeros(3, 3), torch.eye(3) * 16])
    result = inverse_root(A, _root(), method)
    torch.testing.assert_close(result.root, torch.stack([torch.eye(3), torch.eye(3) / 2]))
    torch.testing.assert_close(result.condition, torch.ones(2))
    assert result.residual.max() < 1e-5
    assert torch.equal(root_of_eigenvalues(torch.zeros(2, 3), _root(0.5, correction=0.5)), torch.ones(2, 3))


@pytest.mark.parametrize("method", METHODS)
def test_absolute_epsilon_says_the_root_of_zero(method: RootMethod) -> None:
    result = inverse_root(torch.zeros(2, 5, 5), _root(0.25, 1e-4, relative=False, correction=0.5), method)
    torch.testing.assert_close(result.root, 10 * torch.eye(5).expand(2, 5, 5))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [1e-37, 1e-20, 1e20, 1e37])
def test_matrices_near_the_limits_of_float32_have_their_roots(method: RootMethod, size: float) -> None:
    A = torch.diag(torch.tensor([1.0, 1e-4])).mul(size)[None]
    result = inverse_root(A, _root(correction=0.001), method)
    expected = ((torch.tensor([1.0, 1e-4], dtype=torch.float64) + 1e-6) * size / 0.001) ** -0.25
    torch.testing.assert_close(result.root[0].diagonal().double(), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [30, 100])
def test_rank_deficient_statistics_have_the_root_of_epsilon_on_their_null_space(method: RootMethod, n: int) -> None:
    A = gradients_statistics(2, n, rank=3, seed=3)
    assert torch.linalg.eigvalsh(A).min() < 0
    result = inverse_root(A, _root(0.25, 1e-4), method)
    values, Q = torch.linalg.eigh(A.double())
    largest = values[:, -1:]
    expected = (Q * ((values.clamp(min=0) + 1e-4 * largest) ** -0.25).unsqueeze(1)) @ Q.mT
    # Rounding in A, 1e-7 of the largest eigenvalue, is up to 1e-3 of what the null space is damped with.
    assert _relative_error(result.root, expected) < 2e-3
    assert bool((result.condition - 1e4).abs().max() < 100)


@pytest.mark.parametrize("method", METHODS)
def test_epsilon_below_rounding_stays_finite(method: RootMethod) -> None:
    A = gradients_statistics(2, 30, rank=3, seed=3)
    result = inverse_root(A, _root(0.25, 1e-10), method)
    assert torch.isfinite(result.root).all()
    # Where coupled Newton diverges, and an eigendecomposition takes over, its residual says so.
    assert method != "coupled_newton" or not (result.residual < 1e-5).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("correction", [1.0, None])
def test_an_eigenvalue_beyond_float32_has_its_root(method: RootMethod, correction: float | None) -> None:
    # All entries are below float32's largest number, the eigenvalue n times that size is not.
    A = torch.full((1, 6, 6), 1e38)
    result = inverse_root(A, _root(correction=correction), method)
    rest = (1e-6 * (1 if correction is None else 6e38)) ** -0.25
    vector = torch.randn(6, generator=torch.Generator().manual_seed(0))
    vector -= vector.mean()  # of the null space, which float32 damps with 1e-6 ± 1e-7
    rtol = 0.05 if method == "coupled_newton" else 1e-4
    torch.testing.assert_close(result.root[0] @ vector, vector * rest, rtol=rtol, atol=rtol * rest)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", [1e-38, 1.0, 1e37])
def test_without_a_correction_the_unit_is_the_largest_eigenvalue(method: RootMethod, scale: float) -> None:
    values = torch.tensor([1.0, 1e-2, 1e-4, 0.0], dtype=torch.float64)
    A, Q = with_eigenvalues(values, num=3)
    expected = (Q * (values + 1e-3) ** -0.25) @ Q.mT
    root = _root(0.25, 1e-3, correction=None)
    result = inverse_root((A * scale).float(), root, method)
    torch.testing.assert_close(result.root.double(), expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(root_of_eigenvalues(values * scale, root), (values + 1e-3) ** -0.25)


@pytest.mark.parametrize("method", ["eigh", "eigh64"])
@pytest.mark.parametrize("relative", [True, False])
def test_pseudo_inverse_of_exponent_one_is_pinv(method: RootMethod, relative: bool) -> None:
    values = torch.cat([torch.logspace(-2, 1, 10, dtype=torch.float64), torch.full((6,), 1e-8, dtype=torch.float64)])
    A, _ = with_eigenvalues(values, num=3)
    root = _root(1.0, 1e-5, relative=relative, pseudo=True)
    result = inverse_root(A, root, method)
    expected = torch.linalg.pinv(A, hermitian=True, rtol=1e-5) if relative else torch.linalg.pinv(A, atol=1e-5)
    torch.testing.assert_close(result.root, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(result.condition, torch.full((3,), 1e3))


def test_pseudo_inverse_leaves_an_eigenvalue_at_the_threshold_null_and_the_others_undamped() -> None:
    root = _root(0.5, 0.25, pseudo=True, correction=4.0)
    roots = root_of_eigenvalues(torch.tensor([16.0, 4.0, 4.01, 0.0, -1.0]), root)
    torch.testing.assert_close(roots, torch.tensor([0.5, 0.0, (4.01 / 4) ** -0.5, 0.0, 0.0]))
    absolute = _root(0.5, 1.0, relative=False, pseudo=True, correction=4.0)
    assert torch.equal(root_of_eigenvalues(torch.tensor([16.0, 4.0]), absolute), torch.tensor([0.5, 0.0]))
    assert torch.equal(root_of_eigenvalues(torch.zeros(3), root), torch.ones(3))
    with pytest.raises(ValueError, match="pseudo-inverse"):
        inverse_root(torch.eye(3)[None], root, "coupled_newton")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_only_the_matrix_without_a_decomposition_has_no_root(method: RootMethod, bad: float) -> None:
    A, _ = with_eigenvalues(torch.arange(1, 8, dtype=torch.float64), num=3)
    A = A.float()
    expected = inverse_root(A, _root(), method)
    A[1, 2, 2] = bad
    with pytest.warns(RuntimeWarning, match="no finite eigendecomposition"):
        result = inverse_root(A, _root(), method)
    assert result.root.isfinite().flatten(1).all(1).tolist() == [True, False, True]
    assert result.condition.isfinite().tolist() == [True, False, True]
    torch.testing.assert_close(result.root[[0, 2]], expected.root[[0, 2]])


@pytest.mark.parametrize("values", [[1.0, float("nan")], [1.0, float("inf")]])
def test_a_diagonal_that_is_not_finite_has_no_root(values: list[float]) -> None:
    for pseudo in (False, True):
        roots = root_of_eigenvalues(torch.tensor([values, [1.0, 1.0]]), _root(pseudo=pseudo))
        assert not roots[0].isfinite().all()
        assert roots[1].isfinite().all()


@pytest.mark.parametrize("method", METHODS)
def test_only_the_lower_triangle_is_read(method: RootMethod) -> None:
    A, _ = with_eigenvalues(torch.arange(1, 8, dtype=torch.float64), num=2)
    upper = torch.full_like(A, torch.nan).triu(1)
    expected = inverse_root(A, _root(), method)
    assert torch.equal(inverse_root(A.tril() + upper, _root(), method).root, expected.root)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [40, 200])
def test_each_matrix_alone_has_the_same_root(method: RootMethod, n: int) -> None:
    # Of different condition, so that coupled Newton ends at different times.
    A = torch.cat([gradients_statistics(2, n, rank, seed=rank) for rank in (3, n // 2, 4 * n)])
    together = inverse_root(A, _root(epsilon=1e-4), method).root
    alone = torch.cat([inverse_root(matrix, _root(epsilon=1e-4), method).root for matrix in A.split(1)])
    # Products of one and of several matrices may add in another order: 1e-7, amplified by the condition number.
    torch.testing.assert_close(together, alone, rtol=1e-3, atol=1e-4 * float(together.abs().max()))


@pytest.mark.parametrize("method", METHODS)
def test_the_number_of_threads_changes_nothing(method: RootMethod) -> None:
    A, _ = with_eigenvalues(torch.arange(1, 33, dtype=torch.float64), num=5)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        single = inverse_root(A, _root(), method)
        torch.set_num_threads(3)
        shared = inverse_root(A, _root(), method)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(shared.root, single.root, rtol=1e-12, atol=1e-12)


def test_condition_of_coupled_newton_is_an_estimate_from_below() -> None:
    for seed, n in enumerate((20, 200)):
        A = gradients_statistics(3, n, 2 * n, seed=seed)
        exact = inverse_root(A, _root(epsilon=1e-5), "eigh64").condition
        estimate = inverse_root(A, _root(epsilon=1e-5), "coupled_newton").condition
        assert ((estimate / exact > 0.8) & (estimate / exact < 1.001)).all()
