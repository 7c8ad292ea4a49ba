"""Nearest orthogonal matrices of stacked matrices, by a polynomial that needs only matrix products.

    X_0 = X/‖X‖_F;   X ← a X + (b X Xᵀ + c (X Xᵀ)²) X             every singular value σ ← aσ + bσ³ + cσ⁵

drives X = U Σ Vᵀ towards U Vᵀ. The coefficients (a, b, c) are Muon's (Jordan et al., 2024), the same in every step
and chosen for a steep slope at 0: singular values do not converge, but after five steps those that were at least
‖X‖_F/600 are in [0.68, 1.21].

Legend: K matrices are stacked, (K, m, n).
"""

from __future__ import annotations

import torch
from torch import Tensor

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_NUM_STEPS = 5
"""Muon's, too; the bounds above are for so many."""


def orthogonalize(X: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    """The matrices with orthonormal rows or columns nearest to X (K, m, n), approximately; a new tensor like X.

    Zero stays zero, and what is not finite is NaN. Unlike `torch.optim.Muon` no length counts as too small.

    Args:
        dtype: of the products, bfloat16 for speed on a CUDA device (which `torch.optim.Muon` always takes); None is
            X's own.
    """
    # Divided by the largest entry first, because squares may be beyond the dtype's range.
    Y = X / _or_one(largest_entries(X))
    norm = _or_one(torch.linalg.vector_norm(Y, dim=(-2, -1), keepdim=True))
    Y = torch.div(Y, norm, out=Y if dtype in (None, X.dtype) else torch.empty_like(Y, dtype=dtype))
    is_tall = X.shape[-2] > X.shape[-1]
    a, b, c = _COEFFICIENTS
    for _ in range(_NUM_STEPS):
        # The Gram matrix of the shorter side: (Y Yᵀ) Y = Y (Yᵀ Y).
        A = torch.bmm(Y.mT, Y) if is_tall else torch.bmm(Y, Y.mT)
        A = torch.baddbmm(A, A, A, beta=b, alpha=c)
        Y = torch.baddbmm(Y, Y, A, beta=a) if is_tall else torch.baddbmm(Y, A, Y, beta=a)
    return Y.to(X.dtype)


def largest_entries(X: Tensor) -> Tensor:
    """The absolute value of the largest entry of each matrix, (K, 1, 1)."""
    # The infinity norm, and a separate tensor of absolute values, take longer.
    largest, least = (of(X, dim=(-2, -1), keepdim=True) for of in (torch.amax, torch.amin))
    return torch.maximum(largest, least.neg_())


def _or_one(x: Tensor) -> Tensor:
    return torch.where(x == 0, 1, x)
