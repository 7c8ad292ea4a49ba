"""One step of spectral with a rank: Adam along the leading eigenvectors of a matrix's shorter side, and the rest
orthogonalised.

    Q' R = β2 Q S + (1 − β2) GᵀG Q                    one step of subspace iteration from the basis Q, d×r
    S ← β2 TᵀS T + (1 − β2) (GQ')ᵀ(GQ'),  T = QᵀQ'
    V ← β2 V + (1 − β2) (GQ')⊙(GQ')
    A = (F̂ Q'/(√(V/(1 − β2ᵗ)) + εg)) Q'ᵀ,  F̂ the average F with its bias corrected
    B = O(F − F Q'Q'ᵀ), scaled to a root mean square of γ = `rest_scale`
    P = A + B, scaled to a root mean square of 1

Q, d×r, are the leading eigenvectors of the average of GᵀG, and S is that average in their coordinates, r×r: Q' needs
nothing else from earlier steps. T transforms S into the new coordinates. GQ' is the gradient in these coordinates, V
its averaged square, and A Adam's step there; B steps along what Q' leaves out.

O is `orthogonalize`. COSMOS: Liu et al., arXiv 2502.17410, algorithm 1. Departures: Q begins with cosines instead of
the eigenvectors of the first gradient, because decomposing all matrices in the first step would make it many times as
long as the others. A direction whose gradient was only rounding keeps its place and has no step; Adam would make full
steps of the rounding. Q belongs to the shorter side. `product_dtype` applies only to O: the rest is a difference, and
the rounding of products with Q would be larger than it.

Legend: K matrices are stacked; G and F are (K, l, d), the shorter side last.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from shampoo.hyperparameters import Hyperparameters
from shampoo.linalg.orthogonalization import largest_entries, orthogonalize
from shampoo.linalg.per_matrix import per_matrix
from shampoo.state.block_state import LeadingSubspace
from shampoo.state.timing import StepScalars
from shampoo.step import grafting

# In roundings of the largest singular value of G: gradients along a direction that are no larger are rounding errors.
_ROUNDINGS = 32


def direction_by_parts(G: Tensor, F: Tensor, leading: LeadingSubspace, h: Hyperparameters, at: StepScalars) -> Tensor:
    """P of root mean square 1, or 0 where F is; a new tensor.

    Args:
        G: the gradient, (K, m, n).
        F: its average without bias correction, (K, m, n); G itself if there is no average.
        leading: updated in place.
    """
    if G.shape[-2] < G.shape[-1]:
        return direction_by_parts(G.mT, F.mT, leading, h, at).mT
    in_basis, has_gradient = _follow(G, leading, beta2=h.betas[1])
    Q, V = leading.basis, leading.second_moment
    Y = in_basis if h.betas[0] == 0 else torch.bmm(F, Q)
    grafting.accumulate(V, in_basis, method="adam", beta=h.betas[1])
    N, root = grafting.direction(
        Y,
        V,
        method="adam",
        epsilon=h.grafting_epsilon,
        correction=at.second_moment_correction,
        out=torch.empty_like(Y),
    )
    N = torch.where(has_gradient, N, 0.0).mul_(root / at.first_moment_correction)
    rest = torch.baddbmm(F, Y, Q.mT, alpha=-1)
    least = _ROUNDINGS * torch.finfo(F.dtype).eps * largest_entries(F)
    rest = torch.where(largest_entries(rest) > least, rest, 0.0)
    B = _scaled(orthogonalize(rest, dtype=h.product_precision), to=h.rest_scale)
    return _scaled(torch.baddbmm(B, N, Q.mT), to=1.0)


def _follow(G: Tensor, leading: LeadingSubspace, *, beta2: float) -> tuple[Tensor, Tensor]:
    """G Q' (K, l, r), and for each column whether there was a gradient (K, 1, r); moves Q to Q' and S with it."""
    Q, S = leading.basis, leading.covariance
    C = torch.baddbmm(torch.bmm(Q, S), G.mT, torch.bmm(G, Q), beta=beta2, alpha=1 - beta2)
    least = (_ROUNDINGS * torch.finfo(G.dtype).eps) ** 2
    largest = largest_entries(C)
    # A little of Q, so that a column without a gradient stays instead of following rounding.
    C = (C / torch.where(largest > 0, largest, 1.0)).add_(Q, alpha=least)
    (following,) = per_matrix(_orthonormal, C)
    T = torch.bmm(Q.mT, following)
    in_basis = torch.bmm(G, following)
    past = torch.bmm(torch.bmm(T.mT, S), T)
    torch.baddbmm(past, in_basis.mT, in_basis, beta=beta2, alpha=1 - beta2, out=S)
    Q.copy_(following)
    squares = S.diagonal(dim1=-2, dim2=-1).unsqueeze(-2)
    return in_basis, squares > least * squares.amax(dim=-1, keepdim=True)


def _orthonormal(C: Tensor) -> tuple[Tensor]:
    return (torch.linalg.qr(C).Q,)


def _scaled(X: Tensor, *, to: float) -> Tensor:
    """X, in place, with this root mean square; 0 stays 0."""
    largest = largest_entries(X)
    X.div_(torch.where(largest > 0, largest, 1.0))  # first, because squares may overflow or underflow
    length = torch.linalg.vector_norm(X, dim=(-2, -1), keepdim=True)
    return X.mul_(torch.where(length > 0, to * math.sqrt(X.shape[-2] * X.shape[-1]) / length, 0.0))
