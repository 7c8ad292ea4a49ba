"""Eigenbases against matrices whose eigenvectors are known, and against each other."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from shampoo.linalg import eigenbases
from shampoo.linalg.eigenbases import (
    RefinementMethod,
    eigenbasis,
    off_diagonal_share,
    refined_eigenbasis,
    symmetric_from_lower,
)
from tests.support.shampoo.matrices import gradients_statistics, second_differences, with_eigenvalues

Way = tuple[RefinementMethod, bool]
"""A method, and whether it gives the change of the basis, too."""

WAYS: tuple[Way, ...] = (("qr", False), ("qr", True), ("cholesky_qr", False), ("cholesky_qr", True))


def _one_step(A: Tensor, Q: Tensor, way: Way) -> tuple[Tensor, Tensor]:
    """Eigenvalues and basis after one step."""
    found = refined_eigenbasis(A, Q, way[0], with_change=way[1])
    return found.values, found.basis


def _orthogonality_error(Q: Tensor) -> float:
    return float((Q.mT @ Q - torch.eye(Q.shape[-1], dtype=Q.dtype)).abs().max())


def _angle_to(Q: Tensor, V: Tensor) -> float:
    """The largest distance of a column of Q from the same column of V, up to sign."""
    signs = torch.where((Q * V).sum(dim=-2, keepdim=True) < 0, -1.0, 1.0)
    return float(torch.linalg.vector_norm(Q * signs - V, dim=-2).max())


def _drifted(n: int, num: int = 2) -> tuple[Tensor, Tensor]:
    """Statistics of gradients with a decaying spectrum, and the eigenbasis that they had ten steps before."""
    generator = torch.Generator().manual_seed(0)
    scales = torch.logspace(0, -2, n)
    A = torch.zeros(num, n, n)
    Q = A
    for step in range(40):
        G = scales[:, None] * torch.randn(num, n, n, generator=generator)
        A = 0.95 * A + 0.05 * torch.bmm(G, G.mT) / n
        if step == 29:
            _, Q = eigenbasis(A)
    return A, Q


@pytest.mark.parametrize("double", [False, True])
def test_basis_of_a_tridiagonal_matrix(double: bool) -> None:
    A, values, V = second_differences(20)
    found, Q = eigenbasis(A.float().expand(3, 20, 20), double=double)
    assert found.dtype == Q.dtype == torch.float32
    torch.testing.assert_close(found, values.float().expand(3, 20), rtol=1e-5, atol=1e-6)
    # An eigenvector moves by rounding, 1e-7 · λmax, over the gap to its neighbours, which is 0.05 at the least.
    assert _angle_to(Q.double(), V) < 1e-4
    assert _orthogonality_error(Q) < 5e-6


def test_double_is_more_exact() -> None:
    values = torch.logspace(0, -6, 100, dtype=torch.float64)
    A, _ = with_eigenvalues(values, num=2)
    single, _ = eigenbasis(A.float())
    double, _ = eigenbasis(A.float(), double=True)
    # Both are off by A's rounding, 6e-8 · λmax at most, LAPACK's own in float32 is more.
    assert (double - values).abs().max() < 6e-8
    assert (single - values).abs().max() > (double - values).abs().max()


@pytest.mark.parametrize("n", [1, 2, 50])
def test_basis_of_zero_is_orthonormal(n: int) -> None:
    values, Q = eigenbasis(torch.zeros(2, n, n))
    assert torch.equal(values, torch.zeros(2, n))
    assert _orthogonality_error(Q) < 1e-6


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_matrix_without_a_basis_leaves_its_neighbours_as_they_are(bad: float) -> None:
    A = gradients_statistics(3, 30, rank=60)
    values, Q = eigenbasis(A)
    refined_values, refined = _one_step(A, Q, ("cholesky_qr", False))
    A[1, 4, 2] = bad
    with pytest.warns(RuntimeWarning, match="no finite eigendecomposition"):
        found_values, found = eigenbasis(A)
    assert found[1].isnan().all()
    assert found_values[1].isnan().all()
    assert torch.equal(found[[0, 2]], Q[[0, 2]])
    assert torch.equal(found_values[[0, 2]], values[[0, 2]])
    for way in WAYS:
        with pytest.warns(RuntimeWarning, match="no finite eigendecomposition"):
            again_values, again = _one_step(A, Q, way)
        assert not again[1].isfinite().all()
        assert not again_values[1].isfinite().all()
        torch.testing.assert_close(again[[0, 2]], refined[[0, 2]], rtol=0, atol=1e-5)
        torch.testing.assert_close(again_values[[0, 2]], refined_values[[0, 2]], rtol=1e-5, atol=1e-5)
    assert off_diagonal_share(A, Q).isfinite().tolist() == [True, False, True]


@pytest.mark.parametrize("way", WAYS)
def test_one_step_is_the_triangular_decomposition_of_the_sorted_product(way: Way) -> None:
    A, _ = with_eigenvalues(torch.logspace(0, -3, 30, dtype=torch.float64), num=3)
    _, Q = with_eigenvalues(torch.arange(30, dtype=torch.float64), num=3, seed=7)
    values, refined = _one_step(A, Q, way)
    estimates = (Q * (A @ Q)).sum(dim=-2)
    order = estimates.argsort(dim=-1, descending=True)[:, None].expand(3, 30, 30)
    expected, R = torch.linalg.qr((A @ Q).gather(-1, order))
    expected = expected * R.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    torch.testing.assert_close(refined, expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(values, (expected * (A @ expected)).sum(dim=-2), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n", [5, 64, 300])
def test_cholesky_qr_gives_the_basis_of_qr(n: int) -> None:
    A, Q = _drifted(n)
    values_qr, by_qr = _one_step(A, Q, ("qr", False))
    values, by_cholesky = _one_step(A, Q, ("cholesky_qr", False))
    # A column is known to rounding over its length before it was normalised against the longer ones.
    assert _angle_to(by_cholesky, by_qr) < 1e-3
    torch.testing.assert_close(values, values_qr, rtol=1e-4, atol=1e-6 * float(values.max()))
    assert _orthogonality_error(by_cholesky) < 2e-6
    shares = off_diagonal_share(A, by_qr), off_diagonal_share(A, by_cholesky)
    torch.testing.assert_close(*shares, rtol=1e-3, atol=1e-6)


def _cholesky_qr_of_low_rank(monkeypatch: pytest.MonkeyPatch, n: int, rank: int, decades: int) -> Tensor:
    """One step from the unit vectors. On a CUDA device there is no second method for what Cholesky QR fails on."""

    def refuse(Y: Tensor) -> Tensor:
        raise AssertionError(f"Cholesky QR failed for {len(Y)} matrices")

    monkeypatch.setattr(eigenbases, "_orthonormal", refuse)
    generator = torch.Generator().manual_seed(0)
    G = torch.randn(1, n, rank, generator=generator) * torch.logspace(0, -decades, rank)
    _, refined = _one_step(G @ G.mT, torch.eye(n).expand(1, n, n), ("cholesky_qr", False))
    return refined


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "rank", "decades"), [*itertools.product([80, 512], [1, 8, 256], [0, 6]), (1024, 8, 6), (1024, 256, 0)]
)
def test_cholesky_qr_does_without_the_host_whatever_the_rank(
    monkeypatch: pytest.MonkeyPatch, n: int, rank: int, decades: int
) -> None:
    assert _orthogonality_error(_cholesky_qr_of_low_rank(monkeypatch, n, rank, decades)) < 1e-5


@pytest.mark.parametrize(("n", "rank", "decades"), [(80, 8, 6), (512, 1, 0), (512, 256, 6)])
def test_cholesky_qr_does_without_the_host_whatever_the_order_of_sums(
    monkeypatch: pytest.MonkeyPatch, n: int, rank: int, decades: int
) -> None:
    """Errors of up to 30 roundings, more than the root of n, stand for the libraries of other machines."""
    generator = torch.Generator().manual_seed(0)

    def added_in_another_order(Y: Tensor) -> Tensor:
        lengths = torch.linalg.vector_norm(Y, dim=-2)
        signs = torch.rand(n, n, generator=generator).mul_(2).sub_(1)
        errors = 30 * torch.finfo(Y.dtype).eps * (signs.tril() + signs.tril(-1).mT)
        noise: Tensor = errors * lengths.unsqueeze(-1) * lengths.unsqueeze(-2)
        return noise + torch.bmm(Y.mT, Y)

    monkeypatch.setattr(eigenbases, "_gram", added_in_another_order)
    _cholesky_qr_of_low_rank(monkeypatch, n, rank, decades)


@pytest.mark.parametrize("way", WAYS)
def test_one_step_brings_a_drifted_basis_nearer(way: Way) -> None:
    A, Q = _drifted(100)
    _, refined = _one_step(A, Q, way)
    assert (off_diagonal_share(A, refined) < 0.7 * off_diagonal_share(A, Q)).all()


@pytest.mark.parametrize("way", WAYS)
def test_repeated_steps_converge_to_the_eigenbasis(way: Way) -> None:
    values = 0.5 ** torch.arange(12, dtype=torch.float64)
    A, V = with_eigenvalues(values, num=3)
    Q = torch.eye(12, dtype=torch.float64).expand(3, 12, 12)
    found = values
    for _ in range(60):
        found, Q = _one_step(A, Q, way)
    # The ratio of neighbouring eigenvalues is ½ a step, so 60 steps are below float64's rounding: 1e-16 · λmax/λmin.
    assert _angle_to(Q, V) < 1e-11
    torch.testing.assert_close(found, values.expand(3, 12), rtol=1e-11, atol=0)
    assert off_diagonal_share(A, Q).max() < 1e-14


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rank", [1, 7, 40])
@pytest.mark.parametrize("start", ["identity", "eigenbasis"])
def test_null_directions_stay_finite_and_orthonormal(way: Way, rank: int, start: str) -> None:
    A = gradients_statistics(3, 80, rank)
    _, Q = eigenbasis(A)
    if start == "identity":
        Q = torch.eye(80).expand(3, 80, 80)
    values, refined = _one_step(A, Q, way)
    assert _orthogonality_error(refined) < 4e-6
    assert (values[:, rank:].abs() < 1e-5 * values[:, :1]).all() or start == "identity"
    if start == "eigenbasis":
        # Nothing says where they should go, so they stay.
        assert _angle_to(refined[..., rank:], Q[..., rank:]) < 0.05


@pytest.mark.parametrize("way", WAYS)
def test_a_basis_of_zero_stays(way: Way) -> None:
    _, Q = with_eigenvalues(torch.arange(9, dtype=torch.float64), num=2)
    values, refined = _one_step(torch.zeros(2, 9, 9), Q.float(), way)
    torch.testing.assert_close(refined, Q.float())
    assert torch.equal(values, torch.zeros(2, 9))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scale", [1e-37, 1e-20, 1e20, 1e35])
def test_scale_changes_neither_the_basis_nor_how_far_off_it_is(way: Way, scale: float) -> None:
    A, Q = _drifted(20)
    values, refined = _one_step(A, Q, way)
    scaled_values, scaled = _one_step(A * scale, Q, way)
    torch.testing.assert_close(scaled, refined, rtol=0, atol=1e-4)
    torch.testing.assert_close(scaled_values / scale, values, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(off_diagonal_share(A * scale, Q), off_diagonal_share(A, Q), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e35])
def test_a_step_says_how_far_off_it_is_and_how_the_basis_turned(way: Way, scale: float) -> None:
    A, Q = _drifted(300)
    found = refined_eigenbasis(A * scale, Q, way[0], with_change=way[1])
    torch.testing.assert_close(found.share, off_diagonal_share(A * scale, found.basis), rtol=1e-3, atol=1e-6)
    values = (found.basis.double() * (A.double() @ found.basis.double())).sum(dim=-2)
    # An eigenvalue is known to some roundings of its own size, whatever the largest one is.
    torch.testing.assert_close(found.values.double() / scale, values, rtol=1e-5, atol=0)
    if way[1]:
        assert found.change is not None
        torch.testing.assert_close(found.change, Q.mT @ found.basis, rtol=0, atol=1e-6)
    else:
        assert found.change is None


@pytest.mark.parametrize("with_change", [False, True])
def test_the_change_of_the_basis_takes_no_more_products_than_the_eigenvalues_alone(with_change: bool) -> None:
    A, Q = _drifted(20, num=1)
    with FlopCounterMode(display=False) as counter:
        refined_eigenbasis(A, Q, "qr", with_change=with_change)
    assert counter.get_total_flops() == 2 * (2 * 20**3)


def test_size_one() -> None:
    A = torch.tensor([[[3.0]], [[0.0]]])
    for values, Q in (eigenbasis(A), _one_step(A, torch.ones(2, 1, 1), ("cholesky_qr", False))):
        torch.testing.assert_close(values, torch.tensor([[3.0], [0.0]]))
        torch.testing.assert_close(Q.abs(), torch.ones(2, 1, 1))
    assert torch.equal(off_diagonal_share(A, torch.ones(2, 1, 1)), torch.zeros(2))


def test_off_diagonal_share_of_known_matrices() -> None:
    A = torch.tensor([[[1.0, 2.0], [2.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]])
    torch.testing.assert_close(
        off_diagonal_share(A, torch.eye(2).expand(2, 2, 2)), torch.tensor([(8 / 10) ** 0.5, 0.0])
    )
    statistics = gradients_statistics(4, 60, rank=100)
    _, Q = eigenbasis(statistics)
    assert off_diagonal_share(statistics, Q).max() < 3e-6


def test_only_the_lower_triangle_is_read() -> None:
    A, Q = _drifted(15)
    lower = A.tril() + torch.full_like(A, torch.nan).triu(1)
    A = symmetric_from_lower(A)
    assert torch.equal(symmetric_from_lower(lower), A)
    assert torch.equal(A, A.mT)
    for expected, found in (
        (eigenbasis(A), eigenbasis(lower)),
        *((_one_step(A, Q, way), _one_step(lower, Q, way)) for way in WAYS),
    ):
        assert torch.equal(found[0], expected[0])
        assert torch.equal(found[1], expected[1])
    assert torch.equal(off_diagonal_share(lower, Q), off_diagonal_share(A, Q))


@pytest.mark.parametrize("way", WAYS)
def test_each_matrix_alone_has_the_same_basis(way: Way) -> None:
    A, Q = _drifted(50, num=5)
    together = _one_step(A, Q, way)[1]
    alone = torch.cat([_one_step(a, q, way)[1] for a, q in zip(A.split(1), Q.split(1), strict=True)])
    # Products of one and of several matrices may add in another order.
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-4)


@pytest.mark.parametrize("n", [1, 2, 256, 257, 300, 512])
def test_the_lower_triangle_stands_for_the_whole(n: int) -> None:
    A = torch.randn(2, n, n, generator=torch.Generator().manual_seed(n))
    for given in (A, A.mT, A.repeat_interleave(2, dim=0)[::2]):
        found = symmetric_from_lower(given)
        assert found.is_contiguous()
        assert torch.equal(found.tril(), given.tril())
        assert torch.equal(found, found.mT)
