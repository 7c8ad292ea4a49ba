"""Inverse p-th roots of stacked symmetric matrices by the coupled Newton iteration, which needs only matrix products.

    B = (A/c + ridge I) / d,  d its largest eigenvalue            so that B's eigenvalues lie in (0, 1]
    M_0 = z B,  X_0 = z^(1/p) I,  z = (p + 1)/2
    T = ((p + 1) I − M)/p,  X ← X T,  M ← T^p M                   until M = I, when X = B^(−1/p)

Legend: A is one symmetric matrix, n × n; the result is the inverse p-th root of A/c, damped by the ridge
(`inverse_roots`). All matrices here are polynomials in A, so they commute, and M = Xᵖ B always holds: when M has become
I, X is the root. An eigenvalue m of M becomes m ((p + 1 − m)/p)ᵖ, which converges to 1 from anywhere in (0, p + 1); z
puts the largest eigenvalue in the middle.

Iannazzo, SIAM J. Matrix Anal. Appl. 28 (2006), and Guo and Higham, ibid., in the form of Anil et al., arXiv 2002.09018.
A small eigenvalue of M grows by ((p + 1)/p)^p in each iteration, which determines their number, and converges
quadratically in the end. The result is more accurate than an eigendecomposition in the same precision. X and M always
start from A, so nothing depends on the previous root.

The largest eigenvalue is a Rayleigh quotient of a column of a high power of A, found by squaring: deterministic, and
no more than λmax.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_NUM_SQUARINGS = 8
"""Squarings for the largest eigenvalue of A. With 8 the estimate is guaranteed to be at least n^(−1/256) λmax, 97% at n
= 1024, and for all but adversarial matrices it is exact to about 1e-5."""
_NUM_SQUARINGS_OF_ROOT = 4
"""Squarings for the largest eigenvalue of X, which only a condition number depends on: half as many, by judgement."""

# Roundings of M − I at which M counts as I, per p + 1: a few times the floor at which M − I was seen to stay.
_TOLERANCE_ROUNDINGS = 8


def root_order(exponent: float) -> int:
    """The integer p with exponent = 1/p.

    Raises:
        ValueError: if there is none.
    """
    order = round(1 / exponent) if exponent > 0 else 0
    if order < 1 or not math.isclose(order * exponent, 1, rel_tol=1e-9):
        raise ValueError(f"coupled_newton finds roots of exponent 1/p, p an integer: not of exponent {exponent}")
    return order


def coupled_newton(
    A: Tensor, *, order: int, epsilon: float, relative_epsilon: bool, correction: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The root of `InverseRoot` (which see) with exponent 1/order of A (K, n, n), both triangles of which are read.

    Returns:
        The roots (K, n, n) in A's dtype, NaN where the iteration did not converge; an estimate of their condition
        number (K,) float32, NaN likewise; and the largest entry of |M − I| (K,) float32. Never waits for a CUDA
        device: there it makes as many iterations as the largest condition number that epsilon allows may need.
    """
    p = order
    identity = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    size = A.abs().amax(dim=(-2, -1)).double()
    is_zero = size == 0
    A = A / _column(size.masked_fill(is_zero, 1), A)
    # Scalars are in float64, as A may be near the limits of float32.
    largest = _largest_eigenvalue(A, _NUM_SQUARINGS).double().mul_(size).masked_fill_(is_zero, 0)
    unit = 1.0 if correction is None else correction
    ridge = epsilon * largest if relative_epsilon else torch.full_like(largest, epsilon * unit)
    d = largest + ridge
    start = (p + 1) / 2
    M = A * _column(start * size / d, A) + _column(start * ridge / d, A) * identity
    X = (identity * start ** (1 / p)).expand_as(M)

    residual = torch.full_like(size, torch.inf)
    tolerance = _TOLERANCE_ROUNDINGS * (p + 1) * torch.finfo(A.dtype).eps
    for _ in range(_max_iterations(p, epsilon if relative_epsilon else 0, A.dtype)):
        # A matrix that has converged keeps its values. NaN is not active: what has diverged stays NaN.
        D = M - identity
        residual = torch.linalg.vector_norm(D, ord=torch.inf, dim=(-2, -1)).double()
        is_active = residual > tolerance
        if A.device.type == "cpu" and not is_active.any():
            break
        T = torch.sub(identity, D, alpha=1 / p)
        X, M = _where(is_active, torch.bmm(X, T), X), _where(is_active, torch.bmm(_power(T, p), M), M)

    condition = _largest_eigenvalue(X, _NUM_SQUARINGS_OF_ROOT).double() ** p
    scale = (d / largest if relative_epsilon and correction is None else d / unit) ** (-1 / p)
    X = (X + X.mT) / 2 * _column(scale, A)
    if relative_epsilon:
        X = _where(is_zero, identity, X)
        residual, condition = residual.masked_fill(is_zero, 0), condition.masked_fill(is_zero, 1)
    has_converged = residual <= tolerance
    return (
        X.masked_fill(~has_converged[:, None, None], torch.nan),
        torch.where(has_converged, condition, torch.nan).float(),
        residual.float(),
    )


def _max_iterations(order: int, epsilon: float, dtype: torch.dtype) -> int:
    """The number of iterations that condition number (1 + epsilon)/epsilon may take, epsilon relative."""
    # Eigenvalues far below the precision's rounding cannot be distinguished from negative ones, which diverge.
    condition = 1 + 1 / max(epsilon, 0.01 * torch.finfo(dtype).eps)
    growth = order * math.log((order + 1) / order)
    # From 1 to convergence took at most 6, and eigenvalues as small as rounding may be smaller than epsilon says.
    return math.ceil(math.log(condition) / growth) + 10


def _largest_eigenvalue(A: Tensor, num_squarings: int) -> Tensor:
    """An estimate from below of the largest eigenvalue of A (K, n, n), (K,); NaN where A = 0."""
    B = A
    for _ in range(num_squarings):
        B = torch.bmm(B, B)
        B = B / B.diagonal(dim1=-2, dim2=-1).sum(dim=-1)[:, None, None]
    # The column with the largest diagonal entry has at least 1/n of the trace, which is at least λmax^q.
    column = B.diagonal(dim1=-2, dim2=-1).argmax(dim=-1)[:, None, None].expand(-1, B.shape[1], 1)
    x = B.gather(2, column)
    for _ in range(4):
        x = torch.bmm(B, x)
        x = x / torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return (x * torch.bmm(A, x)).sum(dim=(1, 2))


def _power(T: Tensor, exponent: int) -> Tensor:
    """T^exponent by repeated squaring."""
    power = None
    while True:
        if exponent % 2:
            power = T if power is None else torch.bmm(power, T)
        exponent //= 2
        if exponent == 0:
            assert power is not None
            return power
        T = torch.bmm(T, T)


def _where(condition: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """New matrices where the condition (K,) holds, else the old ones."""
    # For a single matrix on the CPU the loop has checked this already; a copy would cost a tenth of the iteration.
    if len(old) == 1 and old.device.type == "cpu":
        return new if condition else old
    return torch.where(condition[:, None, None], new, old)


def _column(scalars: Tensor, like: Tensor) -> Tensor:
    """One scalar per matrix, (K,), in the matrices' dtype as (K, 1, 1)."""
    return scalars.to(like.dtype)[:, None, None]
