"""Kronecker-factored preconditioning of stacked blocks.

For a block G of order k (a tensor of shape d_1 × ... × d_k) with mode-i unfolding G_(i) of shape d_i × rest:

    statistics   A_i ← β A_i + w G_(i) G_(i)ᵀ                                      every `statistics_frequency` steps
    refresh      P_i = (Â_i + ε λmax(Â_i) I)^(−e),  Â_i = A_i/c,  e = 1/(2k)       every `precondition_frequency` steps
                 c the bias correction; with grafting λmax(A_i), which P's length then makes up for
    apply        P = F ×_1 P_1 ... ×_k P_k                                         every step

Gupta, Koren and Singer, "Shampoo", arXiv 1802.09568, algorithms 1 and 2; averages, bias correction c and amortised
roots as in Shi et al., arXiv 2309.06497. Departures: ε is relative to the largest eigenvalue (see `matrix_roots`) and
order 1 never gets a matrix: a vector's factor is the diagonal of G Gᵀ with e = 1/2, or none where grafting
supplies a diagonal method anyway. A 1,024-vector would cost an eigendecomposition of a 1024×1024 matrix; on ResNet-50
the vectors' share of all eigendecompositions would be half.

Legend: K blocks are stacked, (K, d_1, ..., d_k). A factor is full, (K, d, d), or diagonal, (K, d).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from shampoo.hyperparameters import Grafting, Hyperparameters, StepScalars
from shampoo.matrix_roots import RootSolver, inverse_root_of_eigenvalues

FactorKind: TypeAlias = Literal["full", "diagonal"]


def factor_kinds(block: Sequence[int], grafting: Grafting) -> tuple[FactorKind, ...]:
    """The kind of factor of each mode of a block of this shape; () if it has no preconditioner."""
    if len(block) > 1:
        return tuple("full" for _ in block)
    return ("diagonal",) if grafting == "none" else ()


def factor_shape(kind: FactorKind, size: int) -> tuple[int, ...]:
    """Shape of one block's factor over a side of this size."""
    return (size, size) if kind == "full" else (size,)


def root_exponent(order: int, override: float | None) -> float:
    """The power e of A^(−e): the override for matrices and higher orders, else 1/(2·order)."""
    return override if override is not None and order > 1 else 1 / (2 * order)


def set_to_identity(root: Tensor) -> None:
    """Makes a root, full (K, d, d) or diagonal (K, d), one that changes nothing."""
    if root.dim() == 2:
        root.fill_(1)
    else:
        root.zero_().diagonal(dim1=-2, dim2=-1).fill_(1)


def update_statistics(factors: Sequence[Tensor], G: Tensor, at: StepScalars) -> None:
    """Adds the gradient G (K, d_1, ..., d_k) to the factors, in place."""
    for mode, A in enumerate(factors):
        X = _around(G, mode)
        K, before, d, after = X.shape
        if A.dim() == 2:
            A.mul_(at.factor_decay).add_(X.square().sum(dim=(1, 3)), alpha=at.factor_weight)
            continue
        if before == 1:
            unfolded = X.view(K, d, after)
        elif after == 1:
            unfolded = X.view(K, before, d).mT
        else:
            unfolded = X.transpose(1, 2).reshape(K, d, before * after)
        A.baddbmm_(unfolded, unfolded.mT, beta=at.factor_decay, alpha=at.factor_weight)


def refresh_roots(
    factors: Sequence[Tensor],
    roots: Sequence[Tensor],
    num_failed: Tensor,
    h: Hyperparameters,
    at: StepScalars,
    solver: RootSolver,
) -> None:
    """Writes the inverse root of each factor into `roots`, in place.

    A root that could not be found leaves the previous one in use and is counted in `num_failed`, (K,) integers.
    """
    exponent = root_exponent(len(factors), h.exponent_override)
    correction = at.factor_correction if h.grafting == "none" else None
    for A, root in zip(factors, roots, strict=True):
        solve = inverse_root_of_eigenvalues if A.dim() == 2 else solver
        found = solve(A, correction=correction, exponent=exponent, epsilon=h.epsilon)
        is_finite = found.isfinite().flatten(start_dim=1).all(dim=1)
        torch.where(is_finite.view(-1, *(1 for _ in root.shape[1:])), found, root, out=root)
        num_failed.add_(~is_finite)


def precondition(roots: Sequence[Tensor], F: Tensor, spare: tuple[Tensor, Tensor]) -> Tensor:
    """F ×_1 P_1 ... ×_k P_k, in one of the two spare tensors; neither of them may be F."""
    source, (target, other) = F, spare
    for mode, P in enumerate(roots):
        X, Y = _around(source, mode), _around(target, mode)
        K, before, d, after = X.shape
        if P.dim() == 2:
            torch.mul(X, P.view(K, 1, d, 1), out=Y)
        elif before == 1:
            torch.bmm(P, X.view(K, d, after), out=Y.view(K, d, after))
        elif after == 1:
            torch.bmm(X.view(K, before, d), P, out=Y.view(K, before, d))
        else:
            unfolded = X.transpose(1, 2).reshape(K, d, before * after)
            Y.copy_(torch.bmm(P, unfolded).view(K, d, before, after).transpose(1, 2))
        source, target, other = target, other, target
    return source


def _around(X: Tensor, mode: int) -> Tensor:
    """A contiguous (K, d_1, ..., d_k) as (K, product of the sides before `mode`, d_mode, product of those after)."""
    sides = X.shape[1:]
    return X.view(X.shape[0], math.prod(sides[:mode]), sides[mode], math.prod(sides[mode + 1 :]))
