"""The refresh of what is derived from a factor: inverse roots and eigenbases of one side of stacked blocks.

    shampoo   P = (Â + ε λmax I)^(−e)
    soap      Q' = eigenvectors of A;  S = QᵀQ';  M ← M ×_i Sᵀ,  V ← V ×_i (S∘S)ᵀ,  Q ← Q'
    kl        the same with M alone, and λ ← diag(Q'ᵀ A Q')

Legend: A is the factor of side i of a block, d × d, and Â = A / the sum of its weights; Q are its eigenvectors in
columns, λ and Λ its eigenvalues, λmax the largest; Q' replaces Q, and S leads from one to the other. G is the gradient,
G_(i) its mode-i unfolding, β the weight of the old factor. M and V, the averages of the gradient and of its square, are
kept in the coordinates of Q, so they are rotated with it; ×_i multiplies along side i.

Factors change little from step to step and their eigenvectors are expensive, so each is refreshed once in many steps.

V holds squares. Under a rotation S they mix by the squares of its entries, as long as the squared quantities are
uncorrelated; each row and column of S∘S sums to 1, so V keeps its sum. (If V is not rotated, as in SOAP's own code, it
can be far too small in a direction that M is rotated into, and the step far too long.)

In low precision the factor is stored only as A = QΛQᵀ, and the statistics are updated here: A ← β QΛQᵀ + (1 − β) G_(i)
G_(i)ᵀ, the first time A = G_(i) G_(i)ᵀ (Wang et al., "4-bit Shampoo", arXiv 2405.18144, whose rectification of Q is
used as well, except for "int4", which is orthogonal when it is read). kl updates Λ in every step, so it already has the
sample's diagonal, which counts once more here.

If no finite result is found, the previous one stays in use and the failure is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from shampoo.hyperparameters import Hyperparameters, Solver
from shampoo.linalg.eigenbases import (
    RefinedBasis,
    RefinementMethod,
    eigenbasis,
    eigenbasis_call,
    off_diagonal_share,
    refined_eigenbasis,
    refined_eigenbasis_call,
)
from shampoo.linalg.inverse_roots import (
    InverseRoot,
    condition_of_eigenvalues,
    inverse_root,
    root_call,
    root_of_eigenvalues,
)
from shampoo.linalg.mode_products import accumulate_gram, mode_products
from shampoo.linalg.per_matrix import Call
from shampoo.state.block_state import BlockState, Side
from shampoo.state.quantization import rectify
from shampoo.state.stored_matrices import StoredMatrices
from shampoo.state.timing import StepScalars


@dataclass(frozen=True, slots=True)
class _Eigen:
    """Eigenvalues (K, d) and basis (K, d, d) of stacked factors; they are new where `is_new` (K,) is true, else the old
    ones."""

    values: Tensor
    basis: Tensor
    is_new: Tensor
    share: Tensor | None = None
    """The share of the factor that is off the diagonal in the basis, (K,)."""
    change: Tensor | None = None
    """QᵀQ' (K, d, d) from the old basis to this one, if the solver has computed it."""


def read_basis(side: Side) -> Tensor | None:
    """Q, (K, d, d), as it is stored: in low precision it is orthogonal only up to that precision; None for the
    identity."""
    return None if side.basis is None else side.basis.read()


def read_root(side: Side) -> Tensor | None:
    """P, (K, d, d) or (K, d); None for the identity."""
    return side.root.read() if isinstance(side.root, StoredMatrices) else side.root


def refresh_side(
    state: BlockState,
    mode: int,
    X: Tensor,
    scratch: tuple[Tensor, Tensor],
    h: Hyperparameters,
    at: StepScalars,
    step: int,
    *,
    sample_weight: float,
    solved: tuple[Tensor, ...] | None = None,
) -> None:
    """Refreshes one side of all blocks of `state`, in place.

    Args:
        X: the tensor whose Gram matrix is this step's sample of the factor, (K, d_1, ..., d_k); read in low precision.
        scratch: two tensors like X to work in.
        step: t, recorded as the time of the refresh.
        sample_weight: multiplies the sample.
        solved: the result of `per_matrix` for `solver_call`, if it has been computed already.
    """
    side = state.sides[mode]
    assert side.refreshed is not None
    is_first = side.refreshed == 0
    side.refreshed.fill_(step)
    root = _root(h, at, state)
    if side.kind == "diagonal":
        _refresh_diagonal(side, X, mode, root, h, at, is_first=is_first)
        return
    A = side.factor if side.factor is not None else _low_precision_factor(side, X, mode, at, is_first, sample_weight)
    if side.basis is None:
        _refresh_root(side, A, root, h, solved=solved)
    else:
        _refresh_basis(state, mode, A, scratch, root, h, is_first=is_first, solved=solved)


def _refresh_diagonal(
    side: Side, X: Tensor, mode: int, root: InverseRoot, h: Hyperparameters, at: StepScalars, *, is_first: Tensor
) -> None:
    if h.low_precision_state and side.factor is not None:
        decay, weight = (0.0, 1.0) if bool(is_first.any()) else (at.sample_decay, at.sample_weight)
        accumulate_gram(side.factor, X, mode, decay=decay, weight=weight)
    if isinstance(side.root, Tensor) and side.factor is not None:
        _keep_finite(side, root_of_eigenvalues(side.factor, root), side.root, side.root.copy_)


def _refresh_root(
    side: Side, A: Tensor, root: InverseRoot, h: Hyperparameters, *, solved: tuple[Tensor, ...] | None
) -> None:
    """Refreshes the root of a side without a basis from its factor A (K, d, d)."""
    assert isinstance(side.root, StoredMatrices)
    assert side.condition is not None
    assert side.residual is not None
    solver = h.solver_on(A.device.type)
    assert solver in ("eigh", "eigh64", "coupled_newton")
    result = inverse_root(A, root, solver, solved=solved)
    _keep_finite(side, result.root, side.root.read(), side.root.write)
    side.condition.copy_(result.condition)
    side.residual.copy_(result.residual)


def _refresh_basis(
    state: BlockState,
    mode: int,
    A: Tensor,
    scratch: tuple[Tensor, Tensor],
    root: InverseRoot,
    h: Hyperparameters,
    *,
    is_first: Tensor,
    solved: tuple[Tensor, ...] | None,
) -> None:
    """Refreshes the basis of a side from its factor A (K, d, d), and all that follows from it."""
    side = state.sides[mode]
    assert side.basis is not None
    old = side.basis.read()
    eigen = _eigen(side, A, old, h, is_first=is_first, solved=solved)
    _write_condition(side, eigen, root)
    if h.preconditioner == "shampoo":
        assert isinstance(side.root, StoredMatrices)
        roots = root_of_eigenvalues(eigen.values, root)
        found = torch.bmm(eigen.basis * roots.unsqueeze(-2), eigen.basis.mT)
        side.root.write(_where(eigen.is_new, found, side.root.read()))
    if side.eigenvalues is not None:
        side.eigenvalues.copy_(torch.where(eigen.is_new.unsqueeze(-1), eigen.values, side.eigenvalues))
    # Unpacked, the old basis is the memory that is overwritten now; packed, the new basis is what is read back.
    moves, change = h.preconditioner in ("soap", "kl"), eigen.change
    if moves and change is None and side.basis.dtype == "float32":
        change = torch.bmm(old.mT, eigen.basis)
    side.basis.write(eigen.basis)
    if moves:
        change = torch.bmm(old.mT, side.basis.read()) if change is None else change
        _change_basis(state, mode, change, scratch)


def solver_call(state: BlockState, mode: int, h: Hyperparameters, at: StepScalars) -> Call | None:
    """The problem that the refresh of one side in float32 has to solve, once its statistics are up to date; None for a
    side without one."""
    side = state.sides[mode]
    A, solver = side.factor, h.solver_on("cpu")
    if side.kind != "full" or A is None:
        return None
    if side.basis is None:
        assert solver in ("eigh", "eigh64", "coupled_newton")
        return root_call(A, _root(h, at, state), solver)
    assert side.refreshed is not None
    if solver in ("qr", "cholesky_qr") and not bool((side.refreshed == 0).any()):
        method: RefinementMethod = "qr" if solver == "qr" else "cholesky_qr"
        return refined_eigenbasis_call(A, side.basis.read(), method, with_change=gives_change(h, solver))
    return eigenbasis_call(A, double=solver == "eigh64")


def gives_change(h: Hyperparameters, solver: Solver) -> bool:
    """True if the solver should also give the change of the basis, for the moments. Not in low precision, where the
    basis is not orthogonal enough, and not with `refresh_tolerance`, which leaves out some blocks."""
    moves = h.preconditioner in ("soap", "kl")
    return solver == "qr" and moves and not h.low_precision_state and h.refresh_tolerance == 0


def _change_basis(state: BlockState, mode: int, S: Tensor, scratch: tuple[Tensor, Tensor]) -> None:
    matrices: list[Tensor | None] = [None] * len(state.sides)
    for moment, transform in ((state.first_moment, S), (state.second_moment, S * S)):
        if moment is not None:
            matrices[mode] = transform
            moment.copy_(mode_products(matrices, moment, scratch, transposed=True))


def _eigen(
    side: Side, A: Tensor, old: Tensor, h: Hyperparameters, *, is_first: Tensor, solved: tuple[Tensor, ...] | None
) -> _Eigen:
    """Solves for the eigenvectors of A (K, d, d), except where they have not moved and where it fails."""
    solver = h.solver_on(A.device.type)
    stays = torch.zeros(len(A), dtype=torch.bool, device=A.device)
    if h.refresh_tolerance > 0:
        stays = (off_diagonal_share(A, old) <= h.refresh_tolerance) & ~_beside(A, is_first)
        if bool(stays.all()):  # to leave work out, the host has to wait and look
            return _Eigen(A.new_zeros(A.shape[:-1]), old, ~stays)

    def solve(A: Tensor, Q: Tensor) -> RefinedBasis:
        if solver in ("qr", "cholesky_qr") and not bool(is_first.any()):
            method: RefinementMethod = "qr" if solver == "qr" else "cholesky_qr"
            return refined_eigenbasis(A, Q, method, with_change=gives_change(h, solver), solved=solved)
        values, found = eigenbasis(A, double=solver == "eigh64", solved=solved)
        return RefinedBasis(values, found, share=values.new_zeros(len(values)), change=None)

    if h.refresh_tolerance > 0:
        moved = (~stays).nonzero().squeeze(1)
        found = solve(A[moved], old[moved])
        values, Q, share = A.new_zeros(A.shape[:-1]), old.clone(), A.new_zeros(len(A))
        values[moved], Q[moved], share[moved] = found.values, found.basis, found.share
        found = RefinedBasis(values, Q, share, change=None)
    else:
        found = solve(A, old)
    is_finite = _all_finite(found.values) & _all_finite(found.basis)
    _count_failures(side, ~is_finite)
    is_new = is_finite & ~stays
    change = found.change
    if change is not None:
        change = _where(is_new, change, torch.eye(A.shape[-1], dtype=A.dtype, device=A.device).expand_as(A))
    return _Eigen(found.values, _where(is_new, found.basis, old), is_new, found.share, change)


def _low_precision_factor(
    side: Side, X: Tensor, mode: int, at: StepScalars, is_first: Tensor, sample_weight: float
) -> Tensor:
    assert side.basis is not None
    assert side.eigenvalues is not None
    values, Q = side.eigenvalues, side.basis.read()
    if not side.basis.reads_orthogonal:
        Q = rectify(Q)
    # If there is nothing yet, the sample counts fully.
    first = _beside(values, is_first).view(-1, 1, 1)
    sample = torch.zeros_like(Q)
    accumulate_gram(sample, X, mode, decay=0.0, weight=sample_weight)
    past = torch.where(first, 0.0, torch.bmm(Q * (at.sample_decay * values).unsqueeze(-2), Q.mT))
    return past.add_(torch.where(first, sample, at.sample_weight * sample))


def _beside(x: Tensor, flags: Tensor) -> Tensor:
    """Flags of the host, copied to x's device without waiting for it; a copy from pageable memory would wait."""
    return flags.pin_memory().to(x.device, non_blocking=True) if x.is_cuda else flags.to(x.device)


def _root(h: Hyperparameters, at: StepScalars, state: BlockState) -> InverseRoot:
    num_factors = sum(side.kind != "identity" for side in state.sides)
    # Grafting sets the length of P, so a relative ε can be in the root's own unit.
    in_own_unit = h.grafting_method != "none" and h.epsilon_type == "relative"
    return InverseRoot(
        exponent=1 / (2 * num_factors) if h.exponent_override is None else h.exponent_override,
        epsilon=h.epsilon,
        relative_epsilon=h.epsilon_type == "relative",
        pseudo_inverse=h.pseudo_inverse,
        correction=None if in_own_unit else at.factor_correction,
    )


def _keep_finite(side: Side, found: Tensor, old: Tensor, write: Callable[[Tensor], object]) -> None:
    """Writes the results that are finite, and counts those that are not."""
    is_finite = _all_finite(found)
    _count_failures(side, ~is_finite)
    write(_where(is_finite, found, old))


def _all_finite(X: Tensor) -> Tensor:
    """True for each matrix or vector of a stack (K, ...) whose elements are all finite, (K,)."""
    dims = tuple(range(1, X.dim()))
    # With a NaN among the elements, both the largest and the smallest are NaN.
    return X.amax(dim=dims).isfinite() & X.amin(dim=dims).isfinite()


def _where(is_new: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """The rows of `new` (K, ...) where `is_new`, else those of `old`."""
    if is_new.device.type == "cpu" and bool(is_new.all()):
        return new  # as in almost every refresh; on other devices the check would wait for the device
    return torch.where(is_new.view(-1, *(1 for _ in new.shape[1:])), new, old)


def _count_failures(side: Side, failed: Tensor) -> None:
    assert side.num_failed is not None
    assert side.num_failed_in_a_row is not None
    side.num_failed.add_(failed)
    side.num_failed_in_a_row.add_(1).mul_(failed)


def _write_condition(side: Side, eigen: _Eigen, root: InverseRoot) -> None:
    assert side.condition is not None
    assert side.residual is not None
    side.condition.copy_(torch.where(eigen.is_new, condition_of_eigenvalues(eigen.values, root), side.condition))
    if eigen.share is not None:
        side.residual.copy_(torch.where(eigen.is_new, eigen.share, side.residual))
