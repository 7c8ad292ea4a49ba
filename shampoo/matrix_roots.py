"""Inverse roots of stacked symmetric matrices, behind one interface: `RootSolver`.

Every solver gives (A/c + ε·λmax·I)^(−e) with negative eigenvalues, which are rounding, taken as zero, and the
identity where A = 0 (nothing is known of that block). λmax is the largest eigenvalue of A/c. Taking ε relative to it
makes ε free of the gradient's scale, so one value serves all layers; a factor in float32 knows its eigenvalues to
about 1e-7·λmax, below which a smaller ε only lets rounding through.

Where the caller sets the length of what the roots are applied to, c = λmax is the better unit: the eigenvalues of
such a root lie in [(1 + ε)^(−e), ε^(−e)] whatever the scale of the gradient was, or becomes before the next refresh.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]  # documented, but the stubs do not export it


class RootSolver(Protocol):
    """Computes inverse roots of a stack of matrices."""

    def __call__(self, A: Tensor, *, correction: float | None, exponent: float, epsilon: float) -> Tensor:
        """(A/correction + epsilon·λmax·I)^(−exponent), a new tensor like A: (K, n, n), symmetric.

        With `correction` None in units of the largest eigenvalue: (A/λmax + epsilon·I)^(−exponent). Not finite for
        those matrices of the stack, and only those, whose root could not be found.
        """


def inverse_root_of_eigenvalues(values: Tensor, *, correction: float | None, exponent: float, epsilon: float) -> Tensor:
    """The same root for eigenvalues alone, (..., n) over the last dimension; also that of a diagonal factor."""
    values = values.clamp(min=0)
    largest = values.amax(dim=-1, keepdim=True)
    # In units of λmax, so that neither ε·λmax underflows nor λmax/c overflows where the root itself is ordinary.
    roots = (values / largest + epsilon).pow_(-exponent)
    if correction is not None:
        roots.mul_(largest.pow(-exponent) * correction**exponent)
    # λmax = 0 gives NaN above, and so does a λmax that is NaN, which is to stay.
    return torch.where(largest == 0, torch.ones_like(roots), roots)


def eigh_inverse_root(A: Tensor, *, correction: float | None, exponent: float, epsilon: float) -> Tensor:
    """`RootSolver` by eigendecomposition in A's precision; reads the lower triangle only.

    Where that fails or is not finite it is repeated in float64, a matrix at a time; one that fails there as well has
    NaN for a root, with a warning.
    """
    values, Q = _eigh(A)
    roots = inverse_root_of_eigenvalues(values, correction=correction, exponent=exponent, epsilon=epsilon)
    return torch.bmm(Q * roots.unsqueeze(-2), Q.mT).to(A.dtype)


def _eigh(A: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors, in float64 if A's precision was not enough; NaN for matrices that have none."""
    try:
        return _finite_eigh(A)
    except LinAlgError:
        decompositions = [_eigh_or_nan(matrix.unsqueeze(0)) for matrix in A.double().unbind()]
        return torch.cat([values for values, _ in decompositions]), torch.cat([Q for _, Q in decompositions])


def _eigh_or_nan(A: Tensor) -> tuple[Tensor, Tensor]:
    try:
        return _finite_eigh(A)
    except LinAlgError as error:
        # One text for all of them, so that Python's default filter shows it once.
        warnings.warn(
            f"a Kronecker factor has no finite eigendecomposition in float64 ({type(error).__name__}): its previous "
            "root stays in use, and num_failed_roots in the optimizer's state counts it",
            RuntimeWarning,
            stacklevel=2,
        )
        return A.new_full(A.shape[:-1], torch.nan), torch.full_like(A, torch.nan)


def _finite_eigh(A: Tensor) -> tuple[Tensor, Tensor]:
    values, Q = _eigh_by_rows(A)
    # LAPACK gives NaN for NaN without an error.
    finite = values.isfinite().all(dim=-1)
    if not finite.all():
        raise LinAlgError(
            f"{int((~finite).sum())} of {len(A)} matrices {tuple(A.shape[1:])} have no finite eigenvalues"
        )
    return values, Q


def _eigh_by_rows(A: Tensor) -> tuple[Tensor, Tensor]:
    """`torch.linalg.eigh` of a stack; on the CPU one thread to a matrix, several matrices at a time.

    Multi-threaded LAPACK waits for its threads by spinning: beside another busy process a 256×256 `eigh` on two
    threads was measured at 251 ms instead of 3.1 ms. One thread to a matrix is immune, and no slower over a stack.
    """
    num_threads = torch.get_num_threads()
    if A.device.type != "cpu" or num_threads == 1:
        return _eigh_of(A)
    shares = A.chunk(num_threads)
    # The pool lives as long as the call: worker threads must start inside the window to take its setting over,
    # and a pool that stays would neither pickle nor survive a fork.
    with _single_threaded_linear_algebra(), ThreadPoolExecutor(len(shares)) as pool:
        results = list(pool.map(_eigh_of, shares))
    return torch.cat([values for values, _ in results]), torch.cat([Q for _, Q in results])


def _eigh_of(A: Tensor) -> tuple[Tensor, Tensor]:
    values, Q = torch.linalg.eigh(A)
    return values, Q


@contextmanager
def _single_threaded_linear_algebra() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
