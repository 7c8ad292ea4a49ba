"""Packed eigenvectors, rectified or not, and the inverse roots that come of them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from shampoo.hyperparameters import StateDtype
from shampoo.state.quantization import (
    Structure,
    rectify,
)
from tests.support.shampoo.packed import matrices, through

# Eigenvalues with condition number 1e6, λmax = 1.
SPECTRA = {
    "log-uniform": lambda n: torch.logspace(-6, 0, n, dtype=torch.float64),
    "two levels": lambda n: torch.where(torch.arange(n) < n // 10, 1.0, 1e-6).double(),
    "few small": lambda n: torch.linspace(0, 1, n, dtype=torch.float64) ** 4 * (1 - 1e-6) + 1e-6,
}


def _root(V: Tensor, values: Tensor) -> Tensor:
    V = V.double()
    return (V * values**-0.25) @ V.mT


def _worst_error(actual: Tensor, expected: Tensor) -> float:
    """Largest normalised error of the stack, ‖actual − expected‖_F/‖expected‖_F."""
    return float(((actual.double() - expected).norm(dim=(1, 2)) / expected.norm(dim=(1, 2))).max())


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("size", [64, 333])  # whole blocks of codes, and ragged ones
def test_inverse_root_from_packed_eigenvectors(size: int, spectrum: str) -> None:
    # Haar-distributed eigenvectors, two seeds. Dense ones are the hardest: entries of 4 bits are off by 0.108 in
    # Frobenius norm, whose effect on V f(Λ) Vᵀ is √2 times that, and rectifying takes out the symmetric half of it.
    V = torch.cat([matrices(1, size, "orthogonal", seed) for seed in range(2)])
    # Large eigenvalues first, as refreshes have them: the root is then made of the last Householder vectors, and off by
    # up to twice as much as in the other order.
    values = SPECTRA[spectrum](size).sort(descending=True).values
    expected = _root(V, values)
    A = (V.double() * values) @ V.double().mT
    eigenvalues_of_quantised, vectors = torch.linalg.eigh(through(A, "int4").double())
    from_A = (vectors * (eigenvalues_of_quantised.clamp(min=0) + 1e-6).unsqueeze(-2) ** -0.25) @ vectors.mT
    error_of_A = _worst_error(from_A, expected)
    assert error_of_A > 0.5

    # Measured over sizes, spectra and twice the seeds, worst without and after rectification: .0167 each; .164, .096;
    # .0096, .0056; .0026, .0015.
    limits: list[tuple[StateDtype, Structure, float, float]] = [
        ("int4", "orthogonal", 0.018, 0.018),
        ("int4", "general", 0.17, 0.1),
        ("int8", "general", 0.011, 0.0065),
        ("bfloat16", "general", 0.003, 0.002),
    ]
    for dtype, structure, unrectified, rectified in limits:
        unpacked = through(V, dtype, structure)
        assert _worst_error(_root(unpacked, values), expected) <= unrectified
        assert _worst_error(_root(rectify(unpacked), values), expected) <= rectified
    # The project's requirement of 4-bit state: 0.06, rectified 0.04, ten times better than quantising A.
    error = _worst_error(_root(through(V, "int4", "orthogonal"), values), expected)
    assert error <= min(0.04, error_of_A / 10)


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("size", [64, 333])
def test_stored_inverse_roots(size: int, spectrum: str) -> None:
    V = torch.cat([matrices(1, size, "orthogonal", seed) for seed in range(4)])
    root = _root(V, SPECTRA[spectrum](size))
    diagonal = torch.diag_embed(root.diagonal(dim1=1, dim2=2))
    # Measured, worst: .0055, .089, .0053, .0014.
    limits: list[tuple[StateDtype, Structure, float]] = [
        ("int4", "symmetric", 0.0065),
        ("int4", "general", 0.1),
        ("int8", "general", 0.0065),
        ("bfloat16", "general", 0.002),
    ]
    for dtype, structure, limit in limits:
        assert _worst_error(diagonal + through(root - diagonal, dtype, structure), root) <= limit


@pytest.mark.parametrize("size", [1, 2, 5, 64, 333])
def test_orthogonal_matrices_stay_orthogonal_and_keep_the_signs_of_their_columns(size: int) -> None:
    V = matrices(3, size, "orthogonal")
    unpacked = through(V, "int4", "orthogonal")
    torch.testing.assert_close(unpacked.mT @ unpacked, torch.eye(size).expand(3, -1, -1), rtol=0, atol=2e-5)
    assert (unpacked * V).sum(dim=1).min() > 0.99


def test_signed_permutations_are_stored_exactly() -> None:
    identity = torch.eye(9)
    permutation = identity[torch.randperm(9, generator=torch.Generator().manual_seed(0))]
    signs = torch.tensor([1.0, -1, 1, 1, -1, -1, 1, -1, 1])
    V = torch.stack([identity, -identity, permutation, permutation * signs, identity.flip(0)])
    torch.testing.assert_close(through(V, "int4", "orthogonal"), V, rtol=0, atol=1e-6)


def test_rectification_maps_the_singular_values() -> None:
    U, W = matrices(2, 12, "orthogonal").double()
    values = torch.linspace(0.5, 1.4, 12, dtype=torch.float64)
    expected = 1.5 * values - 0.5 * values**3
    rectified = rectify(((U * values) @ W.mT).unsqueeze(0))
    torch.testing.assert_close(rectified[0], (U * expected) @ W.mT)


def test_rectification_makes_4_bit_eigenvectors_orthogonal() -> None:
    unpacked = through(matrices(3, 100, "orthogonal"), "int4")
    errors = [float((V.mT @ V - torch.eye(100)).norm() / 10) for V in (unpacked[0], rectify(unpacked)[0])]
    assert errors[0] > 0.1
    assert errors[1] < 0.05
