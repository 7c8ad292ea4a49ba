"""Formats of a factor in 4 bits an entry, as `shampoo/METHODS.md` compares them."""

from __future__ import annotations

import pytest
import torch

from tests.benchmarks.steps.stored_factors import FORMATS, errors, inverse_root
from tests.support.shampoo.matrices import with_eigenvalues


@pytest.mark.parametrize("condition", [1e2, 1e4])
def test_our_eigenvectors_lose_a_third_of_what_cholesky_factors_lose(condition: float) -> None:
    found = errors(32, condition, num_updates=20, seed=0)
    assert 0 < 3 * found["eigenvectors"] < min(found["cholesky"], found["feedback"], found["entries"])


@pytest.mark.parametrize("name", FORMATS)
def test_a_diagonal_factor_survives_every_format(name: str) -> None:
    # Its eigenvectors are a permutation, and nothing of its Cholesky factor lies beside the diagonal.
    A = torch.diag(torch.logspace(0, -4, 9, dtype=torch.float64))
    torch.testing.assert_close(FORMATS[name]()(A), A, rtol=1e-2, atol=2e-6)


@pytest.mark.slow
def test_feedback_averages_what_storing_loses_of_a_factor_that_rests() -> None:
    (A,), _ = with_eigenvalues(torch.logspace(0, -2, 16, dtype=torch.float64), 1)
    feedback, plain = FORMATS["feedback"](), FORMATS["cholesky"]()
    read = [feedback(A) for _ in range(400)]
    mean = torch.stack(read[200:]).mean(dim=0)
    assert (mean - A).norm() < 0.8 * (plain(A) - A).norm()


def test_the_inverse_root_is_damped_by_a_share_of_the_largest_eigenvalue() -> None:
    values = torch.tensor([1.0, 1e-3, 0.0], dtype=torch.float64)
    expected = (values + 1e-6) ** -0.25
    torch.testing.assert_close(inverse_root(torch.diag(values)), torch.diag(expected), rtol=1e-12, atol=1e-12)
