"""Inverse roots of stacked symmetric matrices, by eigendecomposition or only by matrix products.

    damped       (A/c + ε·λmax·I)^(−e), or with an absolute ε (A/c + ε·I)^(−e), or
    pseudo       (A/c)^(−e) on the eigenvectors whose eigenvalues exceed the threshold, ε·λmax or ε, and 0 on the others

Negative eigenvalues come from rounding, and are taken as zero. λmax is the largest eigenvalue of A/c. An ε relative to
it does not depend on the gradient's scale, so one value serves all layers. In float32 the eigenvalues of a factor are
accurate to about 1e-7·λmax; a smaller ε only lets rounding through. If A = 0, nothing is known about that block: the
root is the identity, unless an absolute ε says what it is.

If the caller sets the length of the result, c = λmax is the better unit: the eigenvalues of such a root are in [(1 +
ε)^(−e), ε^(−e)], whatever the scale of the gradient was, or becomes before the next refresh.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from shampoo.linalg.coupled_newton import coupled_newton, root_order
from shampoo.linalg.eigenbases import eigendecomposition, symmetric_from_lower, warn_of_failures
from shampoo.linalg.per_matrix import Call, per_matrix

RootMethod: TypeAlias = Literal["eigh", "eigh64", "coupled_newton"]


@dataclass(frozen=True, slots=True)
class InverseRoot:
    """The definition of the root of A that is wanted."""

    exponent: float
    """The e of A^(−e)."""
    epsilon: float
    relative_epsilon: bool
    """True if epsilon is in units of the largest eigenvalue of A/correction; else it is absolute."""
    pseudo_inverse: bool
    """True if eigenvalues of at most the threshold are null and have root 0, and the others are not damped."""
    correction: float | None
    """The c by which A is divided. None is λmax with a relative epsilon, and 1 with an absolute one."""


@dataclass(frozen=True, slots=True)
class RootResult:
    """Inverse roots of a stack, and how well they are known."""

    root: Tensor
    """(K, n, n), symmetric, in A's dtype; not finite for exactly those matrices whose root could not be found."""
    condition: Tensor
    """(K,) float32: largest over smallest of the damped, or not null, eigenvalues. By coupled Newton an estimate, from
    below, off by at most a small factor. NaN where there is no root."""
    residual: Tensor
    """(K,) float32: by coupled Newton the largest entry of |M − I| at its end, even if the root then comes from an
    eigendecomposition; otherwise 0."""


def root_of_eigenvalues(values: Tensor, root: InverseRoot) -> Tensor:
    """The root of eigenvalues (..., n), over the last dimension; also the root of a diagonal factor."""
    # In float64, where neither ε·λmax underflows nor λmax/c overflows if the root itself is ordinary.
    scaled, threshold, largest = _scaled(values, root)
    if root.pseudo_inverse:
        roots = torch.where(scaled <= threshold, 0.0, scaled.pow(-root.exponent))
    else:
        roots = (scaled + threshold).pow(-root.exponent)
    if root.relative_epsilon or root.pseudo_inverse:
        roots = torch.where(largest == 0, 1.0, roots)
    return torch.where(largest.isfinite(), roots, torch.nan).to(values.dtype)


def inverse_root(
    A: Tensor, root: InverseRoot, method: RootMethod, *, solved: tuple[Tensor, ...] | None = None
) -> RootResult:
    """The root of every matrix of the stack A, (K, n, n), of which only the lower triangle is read.

    "eigh" and "eigh64" take it from an eigendecomposition in A's precision or in float64. If that fails or is not
    finite it is repeated in float64, one matrix at a time. A matrix that fails there, too, has NaN for a root, with a
    RuntimeWarning. They synchronise the host with a CUDA device.

    "coupled_newton" is made of matrix products (see `coupled_newton`), in A's precision, or less if the caller allows
    TF32. A matrix that does not converge is repeated as by "eigh64" on the CPU. On a CUDA device it has NaN for a root,
    without a warning and without waiting for the device.

    Args:
        solved: the result of `per_matrix` for `root_call` of the same arguments, if it has been computed already.

    Raises:
        ValueError: for "coupled_newton" with an exponent that is not 1/p for an integer p, or with a pseudo-inverse,
            which takes eigenvalues.
    """
    function, stacks = root_call(A, root, method)
    root_of, condition, residual = per_matrix(function, *stacks) if solved is None else solved
    if method != "coupled_newton" or A.device.type == "cpu":
        warn_of_failures(condition)
    return RootResult(root_of, condition, residual)


def root_call(A: Tensor, root: InverseRoot, method: RootMethod) -> Call:
    """The call of `per_matrix` that `inverse_root` makes; raises as that does."""
    if method != "coupled_newton":
        return partial(_eigh_root, root=root, double=method == "eigh64"), (A,)
    order = root_order(root.exponent)
    if root.pseudo_inverse:
        raise ValueError("coupled_newton knows no eigenvalues and so no pseudo-inverse: take eigh or eigh64")
    return partial(_newton_root, root=root, order=order), (A,)


def _eigh_root(A: Tensor, *, root: InverseRoot, double: bool) -> tuple[Tensor, Tensor, Tensor]:
    values, Q = eigendecomposition(A, double=double)
    roots = root_of_eigenvalues(values, root)
    product = torch.bmm(Q * roots.unsqueeze(-2), Q.mT)
    return (
        symmetric_from_lower(product).to(A.dtype),
        condition_of_eigenvalues(values, root),
        torch.zeros_like(values[:, 0]).float(),
    )


def _newton_root(A: Tensor, *, root: InverseRoot, order: int) -> tuple[Tensor, Tensor, Tensor]:
    roots, condition, residual = coupled_newton(
        symmetric_from_lower(A),
        order=order,
        epsilon=root.epsilon,
        relative_epsilon=root.relative_epsilon,
        correction=root.correction,
    )
    if A.device.type == "cpu":
        failed = condition.isnan()
        if failed.any():
            roots[failed], condition[failed], _ = _eigh_root(A[failed], root=root, double=True)
    return roots, condition, residual


def condition_of_eigenvalues(values: Tensor, root: InverseRoot) -> Tensor:
    """The `RootResult.condition` of eigenvalues (K, n)."""
    scaled, threshold, largest = _scaled(values, root)
    if root.pseudo_inverse:
        smallest = torch.where(scaled <= threshold, torch.inf, scaled).amin(dim=-1, keepdim=True)
        condition = scaled.amax(dim=-1, keepdim=True) / smallest
    else:
        damped = scaled + threshold
        condition = damped.amax(dim=-1, keepdim=True) / damped.amin(dim=-1, keepdim=True)
    return torch.where(largest == 0, 1.0, condition).squeeze(-1).float()


def _scaled(values: Tensor, root: InverseRoot) -> tuple[Tensor, Tensor, Tensor]:
    """In float64: the eigenvalues of A/c, what damps them or separates them from null, and A's largest."""
    values = values.double().clamp(min=0)
    largest = values.amax(dim=-1, keepdim=True)
    if not root.relative_epsilon:
        return values / (root.correction or 1.0), torch.full_like(largest, root.epsilon), largest
    unit = largest if root.correction is None else root.correction
    return values / unit, largest / unit * root.epsilon, largest
