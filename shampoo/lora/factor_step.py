"""The step of stacked factors: unmagnified gradients, moments in transported coordinates, and the way back.

The product of a pair is W = Y Xᵀ, with X (n, r) and Y (m, r): of an adapter X = Aᵀ and Y = B. Both factors are stepped
alike, each with the other one as it was before the step. For X, with G its gradient:

    Y = U R                                 U (m, r) orthonormal, R (r, r)
    Ḡ = G R⁻¹ = (dL/dW)ᵀ U                  the unmagnified gradient; clipped together with those of all pairs
    P = UᵀU'                                U' the basis of the step before: its coordinates in those of now
    V ← β2 P V Pᵀ + (1 − β2) ḠᵀḠ/n          ρ ← β2 (ρ + maxᵢ |λᵢ(V) − λᵢ(P V Pᵀ)|)
    S = Ḡ ((V + ρI)^½ + εI)⁻¹               V and ρ divided by the sum of their weights
    M ← β1 M Pᵀ + (1 − β1) S
    X ← (1 − lr·λ) X − lr·M R⁻ᵀ             M divided by the sum of its weights

ρ is the escaped mass: what V lost because the old basis is not within the new one. Source: LoRA-RITE (Yen et al.,
arXiv:2410.20625), Algorithm 1, with averages instead of its sums, and with the mean over rows, as in the authors' code.
If (X, Y) is replaced by (X T, Y T⁻ᵀ), U and all states are rotated by an orthogonal matrix, and W takes the same path.

Departures, which change the path of W only by rounding:

- U and R⁻¹ come from the eigendecomposition YᵀY = Q D Qᵀ in float64, as U = Y Q D^-½, R⁻¹ = Q D^-½: one product and one
  decomposition of r×r for all pairs of a shape, while QR decompositions would be one call for each.
- A direction in which Y is 0, as all are at B = 0, has no basis vector: its columns of U and R⁻¹ are 0, so it neither
  steps nor enters a moment. While all of Y is 0, the averages of X have not begun.
- Eigenvalues of V below the rounding of its largest one are taken to be as large as this rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor

NULL_SHARE = 2.0**-23
"""A singular value below this share of the largest, times r, is null: the rounding of float32, and about that of
eigenvalues of YᵀY in float64."""


def unmagnify(other: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
    """The gradients of factors in the orthonormal coordinates of the other ones.

    Args:
        other: Y (K, m, r), in the precision of the state.
        gradient: G (K, n, r), likewise.

    Returns:
        U (K, m, r); R⁻¹ (K, r, r); Ḡ (K, n, r); the squared norm of Ḡ (K,); (K,) bool, False where a gradient or the
        other factor is not finite, with zeros in all else; and (K,) bool, True where the other factor is not 0, too.
    """
    norms = torch.stack([torch.linalg.vector_norm(given, dim=(1, 2)) for given in (other, gradient)])
    is_finite = norms.isfinite().all(dim=0)
    other, gradient = (given.where(is_finite[:, None, None], 0.0) for given in (other, gradient))
    wide = other.double()
    squares, turned = torch.linalg.eigh(wide.mT @ wide)  # ascending
    scales = squares.clamp(min=0).sqrt()
    is_there = scales > other.shape[-1] * NULL_SHARE * scales[:, -1:]
    inverse = turned * torch.where(is_there, 1 / scales, 0.0)[:, None, :]
    unmagnified = gradient @ inverse.to(gradient.dtype)
    squared_norm = torch.linalg.vector_norm(unmagnified, dim=(1, 2)).square()
    return (
        (wide @ inverse).to(other.dtype),
        inverse.to(other.dtype),
        unmagnified,
        squared_norm,
        is_finite,
        is_finite & is_there[:, -1],
    )


def precondition(
    unmagnified: Tensor,
    basis: Tensor,
    inverse: Tensor,
    old_basis: Tensor,
    momentum: Tensor,
    second_moment: Tensor,
    escaped_mass: Tensor,
    weights: Tensor,
    *,
    betas: tuple[float, float],
    eps: float,
) -> tuple[Tensor, ...]:
    """The moments after a step, and the direction along which the factors move.

    Args:
        unmagnified: Ḡ (K, n, r), clipped.
        basis: U (K, m, r) of now.
        inverse: R⁻¹ (K, r, r) of now.
        old_basis: U' (K, m, r), in whose coordinates the moments are.
        momentum: M (K, n, r).
        second_moment: V (K, r, r).
        escaped_mass: ρ (K,).
        weights: (K, 2), the sums of the weights in M, and in V and ρ.
        betas: (β1, β2).
        eps: ε.

    Returns:
        M, V, ρ and their weights; and M R⁻ᵀ (K, n, r), divided by the sum of M's weights.
    """
    dtype, (beta1, beta2) = unmagnified.dtype, betas
    transport = basis.mT.double() @ old_basis.double()
    old = second_moment.double()
    moved = _symmetric(transport @ old @ transport.mT)
    lost = (torch.linalg.eigvalsh(old) - torch.linalg.eigvalsh(moved)).abs().amax(dim=-1)
    escaped = beta2 * (escaped_mass.double() + lost)
    gram = (unmagnified.mT @ unmagnified).double() / unmagnified.shape[1]
    second = _symmetric(beta2 * moved + (1 - beta2) * gram)
    summed = torch.stack([weights[:, i].double() * beta + (1 - beta) for i, beta in enumerate(betas)], dim=1)
    root = _inverse_root(second / summed[:, 1, None, None], escaped / summed[:, 1], eps, torch.finfo(dtype).eps)
    averaged = beta1 * (momentum @ transport.mT.to(dtype)) + (1 - beta1) * (unmagnified @ root.to(dtype))
    direction = (averaged / summed[:, 0, None, None].to(dtype)) @ inverse.mT
    return averaged, second.to(dtype), escaped.to(dtype), summed.to(dtype), direction


def _inverse_root(second: Tensor, escaped: Tensor, eps: float, rounding: float) -> Tensor:
    """((V + ρI)^½ + εI)⁻¹ (K, r, r) of V (K, r, r) and ρ (K,)."""
    eigenvalues, vectors = torch.linalg.eigh(second)
    least = eigenvalues[:, -1:].clamp(min=0) * (second.shape[-1] * rounding)
    roots = (eigenvalues.maximum(least) + escaped[:, None]).sqrt() + eps
    return torch.matmul(vectors / roots[:, None, :], vectors.mT)


def _symmetric(stack: Tensor) -> Tensor:
    return (stack + stack.mT) / 2


def clip_factor(squared_norms: list[Tensor], limit: float) -> Tensor:
    """The factor by which unmagnified gradients of these squared norms have at most the norm `limit` together."""
    total = torch.cat([norms.double() for norms in squared_norms]).sum().sqrt()
    return (limit / total).clamp(max=1.0)
