"""Eigenbases of stacked symmetric matrices: computed from scratch, or updated as the matrices drift.

    found        A = Q Λ Qᵀ, λ descending
    followed     Q' R = A Q, one step of subspace iteration from the previous basis with the columns sorted by the
                 estimates diag(Qᵀ A Q), as SOAP's refresh (Vyas et al., arXiv 2409.11321)
    how far off  ‖B − diag B‖ / ‖B‖, B = Qᵀ A Q, Frobenius norms

Only the lower triangle of A is read. Departures in the followed basis, of which only the second changes it in exact
arithmetic: R's diagonal is positive, so that columns do not flip; A is shifted by some roundings of its largest
eigenvalue, so that a column of the null space stays where it is instead of following rounding (if A = 0, all columns
stay); A is scaled to entries of at most 1, because squares of gradients easily leave float32's range.

Legend: K matrices of size n are stacked, (K, n, n); eigenvectors are columns.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]  # documented, but the stubs do not export it

from shampoo.linalg.per_matrix import Call, per_matrix

RefinementMethod: TypeAlias = Literal["qr", "cholesky_qr"]

# The shift of a followed basis in roundings of the largest eigenvalue: above the noise of A Q in the null space, and
# far below every eigenvalue that A's precision can distinguish from zero.
_SHIFT_ROUNDINGS = 16

# Rows of the tiles in which large matrices are transposed on a CPU: 128 took less time than 64 and 256.
_TILE = 128

# The smallest singular value of the columns that CholeskyQR expects, in roundings. All products that were tried are
# above it: with statistics of full rank, of few gradients, of one gradient, and with eigenvalues that span twelve
# decades.
_SMALLEST_SINGULAR_VALUE = 1 / 128


def eigenbasis(A: Tensor, *, double: bool = False, solved: tuple[Tensor, ...] | None = None) -> tuple[Tensor, Tensor]:
    """Eigenvalues (K, n), descending, and eigenvectors (K, n, n) of A (K, n, n), in A's dtype.

    In A's precision, or with `double` in float64. If it fails or is not finite it is repeated in float64. A matrix for
    which that fails, too, has NaN for both, with a RuntimeWarning, and does not affect the others. Synchronises the
    host with a CUDA device. `solved` is the result of `per_matrix` for `eigenbasis_call`, if it has been computed
    already.
    """
    function, stacks = eigenbasis_call(A, double=double)
    values, Q = per_matrix(function, *stacks) if solved is None else solved
    warn_of_failures(values)
    return values, Q


def eigenbasis_call(A: Tensor, *, double: bool) -> Call:
    """The call of `per_matrix` that `eigenbasis` makes."""
    return partial(_eigenbasis, double=double), (A,)


@dataclass(frozen=True, slots=True)
class RefinedBasis:
    """A followed basis Q' of K matrices A, in A's dtype."""

    values: Tensor
    """diag(Q'ᵀ A Q'), (K, n)."""
    basis: Tensor
    """Q', (K, n, n)."""
    share: Tensor
    """The share of A that is off the diagonal in it, as `off_diagonal_share`, (K,)."""
    change: Tensor | None
    """Qᵀ Q', (K, n, n), if it was asked for."""


def refined_eigenbasis(
    A: Tensor,
    Q: Tensor,
    method: RefinementMethod,
    *,
    with_change: bool,
    solved: tuple[Tensor, ...] | None = None,
) -> RefinedBasis:
    """One step of subspace iteration from the basis Q.

    Q' is orthonormal to rounding, whatever A's rank; its columns are sorted by the estimates diag(Qᵀ A Q), descending.
    A matrix that is not finite has NaN, on the CPU with a RuntimeWarning. If Cholesky QR fails for a matrix, that
    matrix is done by QR on the CPU, and has NaN on a CUDA device, because the host should not wait for the outcome
    there.

    Args:
        A: (K, n, n).
        Q: (K, n, n), orthonormal columns, in A's dtype.
        method: "qr", by Householder reflections; or "cholesky_qr", the same basis in matrix products, Cholesky
            decompositions and triangular solves, for CUDA devices: on the CPU it is the slower one.
        with_change: whether Qᵀ Q' is wanted. With "qr" the eigenvalues then need no further matrix product, but Q has
            to be orthonormal to rounding.
        solved: the result of `per_matrix` for `refined_eigenbasis_call`, if it has been computed already.
    """
    function, stacks = refined_eigenbasis_call(A, Q, method, with_change=with_change)
    values, refined, share, *change = per_matrix(function, *stacks) if solved is None else solved
    if A.device.type == "cpu":
        warn_of_failures(values)
    return RefinedBasis(values, refined, share, change[0] if with_change else None)


def refined_eigenbasis_call(A: Tensor, Q: Tensor, method: RefinementMethod, *, with_change: bool) -> Call:
    """The call of `per_matrix` that `refined_eigenbasis` makes."""
    return partial(_refined, method=method, with_change=with_change), (A, Q)


def off_diagonal_share(A: Tensor, Q: Tensor) -> Tensor:
    """‖B − diag B‖ / ‖B‖ of B = Qᵀ A Q, (K,): 0 where Q is an eigenbasis of A, and where A = 0."""
    (share,) = per_matrix(_off_diagonal_share, A, Q)
    return share


def symmetric_from_lower(A: Tensor) -> Tensor:
    """The symmetric matrices (K, n, n) that have A's lower triangle, a new tensor."""
    n = A.shape[-1]
    if A.device.type != "cpu" or n <= 2 * _TILE:
        return torch.where(torch.ones(n, n, dtype=torch.bool, device=A.device).tril_(), A, A.mT)
    # A transposed copy of a large matrix misses the cache with every element; a tile's stays in the cache.
    symmetric = A.clone(memory_format=torch.contiguous_format)
    for start in range(0, n, _TILE):
        here = slice(start, start + _TILE)
        symmetric[:, here, here] = symmetric_from_lower(A[:, here, here])
        for below in range(start + _TILE, n, _TILE):
            there = slice(below, below + _TILE)
            symmetric[:, here, there] = A[:, there, here].mT
    return symmetric


def eigendecomposition(A: Tensor, *, double: bool) -> tuple[Tensor, Tensor]:
    """Eigenvalues, ascending, and eigenvectors, in the calling thread and in the precision that they took.

    That is float64 for the whole stack if one of its matrices needed it; NaN for matrices without a decomposition.
    """
    if double:
        A = A.double()
    try:
        return _finite_eigh(A)
    except LinAlgError:
        decompositions = [_eigh_in_any_precision(matrix) for matrix in A.unsqueeze(1).unbind()]
        return torch.cat([values for values, _ in decompositions]), torch.cat([Q for _, Q in decompositions])


def warn_of_failures(results: Tensor) -> None:
    """Warns if a row of a decomposition's results (K, ...) is NaN."""
    if results.isnan().any():
        # One text for all of them, so that Python's default filter shows it once.
        warnings.warn(
            "a Kronecker factor has no finite eigendecomposition in float64: what was found for it before stays in "
            "use, and the optimizer's state counts the failure",
            RuntimeWarning,
            stacklevel=3,
        )


def _finite_eigh(A: Tensor) -> tuple[Tensor, Tensor]:
    values, Q = torch.linalg.eigh(A)
    # LAPACK gives NaN for NaN without an error.
    if not values.isfinite().all():
        raise LinAlgError(f"eigenvalues of matrices {tuple(A.shape)} are not finite")
    return values, Q


def _eigh_in_any_precision(A: Tensor) -> tuple[Tensor, Tensor]:
    for matrix in (A, A.double()):
        try:
            return _finite_eigh(matrix)
        except LinAlgError:
            continue
    return A.new_full(A.shape[:-1], torch.nan), torch.full_like(A, torch.nan)


def _eigenbasis(A: Tensor, *, double: bool) -> tuple[Tensor, Tensor]:
    values, Q = eigendecomposition(A, double=double)
    return values.flip(-1).to(A.dtype), Q.flip(-1).to(A.dtype)


def _refined(A: Tensor, Q: Tensor, *, method: RefinementMethod, with_change: bool) -> tuple[Tensor, ...]:
    A, scale = _scaled_symmetric(A)
    # The transposes, whose rows are the columns: on a CPU, sorting and measuring columns costs ten times as much as
    # rows.
    Q = Q.mT.contiguous()
    QA = torch.bmm(Q, A)
    estimates = (Q * QA).sum(dim=-1, keepdim=True)
    largest = estimates.amax(dim=-2, keepdim=True)
    # If nothing is known about A, the whole step comes from the shift.
    shift = torch.where(largest > 0, _SHIFT_ROUNDINGS * torch.finfo(A.dtype).eps * largest, 1.0)
    # Columns of the null space have equal estimates, and keep their order.
    order = estimates.maximum(shift).argsort(dim=-2, descending=True, stable=True)
    rows = order.squeeze(-1).add_(torch.arange(len(Q), device=Q.device).unsqueeze(-1), alpha=Q.shape[-1]).flatten()
    Y = QA.addcmul_(Q, shift).flatten(end_dim=1).index_select(0, rows).view_as(Q)
    lengths = torch.linalg.vector_norm(Y, dim=-1, keepdim=True)
    Y = Y.div_(lengths).mT
    if method == "qr" and with_change:
        refined, reflections, signs = _householder(Y)
        change = torch.bmm(Q, refined)
        # (A + σI) Q_s = Q' R D with the sorted columns Q_s of Q and their lengths D, so Q'ᵀ A Q' = R D Q_sᵀ Q' − σI.
        # Both use memory that is no longer needed: fresh pages would take as long as the arithmetic.
        R, sorted_change = reflections.mT.tril_(), Y.mT
        torch.index_select(change.flatten(end_dim=1), 0, rows, out=sorted_change.flatten(end_dim=1))
        values = signs * sorted_change.mul_(lengths).mul_(R).sum(dim=-2) - shift.squeeze(-1)
        return values * scale, refined, _share_off_diagonal(values, A), change
    refined = _orthonormal_by_cholesky(Y) if method == "cholesky_qr" else _orthonormal(Y)
    if method == "cholesky_qr" and Y.device.type == "cpu":
        failed = refined.isnan().flatten(1).any(dim=1)
        if failed.any():
            refined[failed] = _orthonormal(Y[failed])
    values = (refined.mT * torch.bmm(refined.mT, A)).sum(dim=-1)
    results = values * scale, refined, _share_off_diagonal(values, A)
    return (*results, torch.bmm(Q, refined)) if with_change else results


def _share_off_diagonal(values: Tensor, A: Tensor) -> Tensor:
    """The share of A's norm that is off the diagonal in a basis where these values are on it."""
    # A rotation keeps the norm, so what the diagonal lacks is off it.
    of_rows = torch.linalg.vector_norm(A, dim=-1)  # by rows first: one sum of all squares would lose four digits
    on_diagonal: Tensor = torch.linalg.vector_norm(values, dim=-1) / torch.linalg.vector_norm(of_rows, dim=-1)
    return (1 - on_diagonal.square()).clamp(min=0).sqrt().nan_to_num(nan=0.0)


def _householder(Y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Q of Y = QR with a positive diagonal of R; R's upper triangle except for the signs of its rows, and these
    signs."""
    # The two halves of torch.linalg.qr, without its copy of R: a third of its time at n = 1024.
    reflections, scales = torch.geqrf(Y)
    Q: Tensor = torch.linalg.householder_product(reflections, scales)
    signs = torch.where(reflections.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(Y.dtype)
    return Q.mul_(signs.unsqueeze(-2)), reflections, signs


def _orthonormal(Y: Tensor) -> Tensor:
    """Q of Y = QR with a positive diagonal of R."""
    return _householder(Y)[0]


def _orthonormal_by_cholesky(Y: Tensor) -> Tensor:
    """The same Q by CholeskyQR, for columns of length 1; NaN where it is not orthonormal to rounding.

    Every pass makes Q more nearly orthonormal and leaves R triangular, so Q is the same after any number of passes. Two
    are enough for columns that are nearly orthonormal (CholeskyQR2, Yamamoto et al., ETNA 44, 2015). For nearly
    dependent columns, `_shifts` shifts the Gram matrix by its rounding, so that its decomposition exists (Fukaya et
    al., arXiv 1809.11085).
    """
    for shift in _shifts(Y.shape[-1], torch.finfo(Y.dtype).eps):
        gram = _gram(Y)
        is_close = _is_close(gram) if Y.device.type == "cpu" else None  # not on devices for which the host would wait
        if is_close is not None and is_close.all():
            break
        gram.diagonal(dim1=-2, dim2=-1).add_(shift)
        nearer = _times_inverse_root(Y, gram)
        # The result of a matrix must not depend on the others in the stack.
        Y = nearer if is_close is None else torch.where(is_close, Y, nearer)
    else:
        gram = _gram(Y)
    return torch.where(_is_close(gram), _times_inverse_root(Y, gram), torch.nan)


def _shifts(n: int, rounding: float) -> list[float]:
    """The shifts of the Gram matrices, one per pass, that bring the singular values of n columns of length 1 near 1.

    The first is for columns that are nearly the same: every entry of their Gram matrix is a sum of n terms of one sign,
    with an error of √n roundings if a BLAS library adds them one by one, and so is every pivot of its decomposition;
    times ‖Y‖² ≤ n. (The proven bound has n instead of √n and leaves no digit of float32; errors of either sign add up
    to √n, Higham and Mary, SISC 41, 2019.) After the first pass all but one of such columns are short, and n roundings
    are above the error. In each pass a small singular value grows by the root of the shift's inverse: float32 needs 5
    passes for 256 to 1024 columns, 6 for 2048.
    """
    first, later = n**1.5 * rounding, n * rounding
    # To base 2, in which powers of 2 are exact: 1024 columns need 4 of the later passes to the digit.
    to_grow = math.log2(1 / (_SMALLEST_SINGULAR_VALUE * rounding)) - math.log2(1 / first) / 2
    return [first] + [later] * math.ceil(to_grow / (math.log2(1 / later) / 2))


def _gram(Y: Tensor) -> Tensor:
    return torch.bmm(Y.mT, Y)


def _is_close(gram: Tensor) -> Tensor:
    """True if the singular values of Y are certainly in [√½, √1.5], (K, 1, 1): then one more pass is exact."""
    return (gram - torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)).abs().sum(
        dim=-1, keepdim=True
    ).amax(dim=-2, keepdim=True) < 0.5


def _times_inverse_root(Y: Tensor, gram: Tensor) -> Tensor:
    L, _ = torch.linalg.cholesky_ex(gram, check_errors=False)
    product: Tensor = torch.linalg.solve_triangular(L.mT, Y, upper=True, left=False)
    return product


def _off_diagonal_share(A: Tensor, Q: Tensor) -> tuple[Tensor]:
    A, _ = _scaled_symmetric(A)
    B = torch.bmm(Q.mT, torch.bmm(A, Q))
    norm = torch.linalg.vector_norm(B, dim=(-2, -1))
    B.diagonal(dim1=-2, dim2=-1).zero_()
    off_diagonal = torch.linalg.vector_norm(B, dim=(-2, -1))
    return (torch.where(norm == 0, 0.0, off_diagonal / norm),)


def _scaled_symmetric(A: Tensor) -> tuple[Tensor, Tensor]:
    """The symmetric matrices over their largest entries, and those (K, 1); zero stays zero."""
    A = symmetric_from_lower(A)
    scale = A.abs().amax(dim=(-2, -1), keepdim=True)
    return A.div_(torch.where(scale == 0, 1.0, scale)), scale[..., 0]
