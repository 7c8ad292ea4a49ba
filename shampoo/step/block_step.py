"""One step of stacked blocks: from their gradient and state to the direction along which they move.

    F = (β3 M + (1 − β3) G) / (1 − β3 β1^(t−1));   M ← β1 M + (1 − β1) G          (F = G for β1 = 0)
    P = the member's preconditioned F, once all factors of the block have been refreshed; else the plain step N(F)
    B ← μ B + P;  the direction is B, with Nesterov P + μ B, without momentum P

Legend, of one block at the parameter's step t:

    G          gradient, d_1 × ... × d_k;  G_(i) its mode-i unfolding, d_i × rest: of a matrix G itself, and then Gᵀ
    M, F       average of gradients, and the one to step along, without bias, in which β3 is the weight of M
    V          average of squared gradients, c the sum of its weights;  N(F) the step of `grafting`, as a rule Adam's
    A_i        factor of side i, d_i × d_i: how entries along it vary together;  Â_i = A_i / the sum of its weights
    β, w       weights of the old factor and of the new sample, β2 and 1 − β2 as a rule (`timing` has the exceptions)
    P_i, Q_i   inverse root of Â_i, and its eigenvectors in columns;  ×_i multiplies along side i (`mode_products`)
    λmax       largest eigenvalue of Â_i;  ε and εg keep from dividing by nearly nothing

All of them whiten: they divide the gradient by the root of its own covariance, so that every direction moves equally
far. They differ in the covariance. Adam's is diagonal, V; that of shampoo and kl is the Kronecker product of the
factors, one for each side; soap's is diagonal again, but in the basis of the factors' eigenvectors; spectral's is that
of this one F.

The members:

    shampoo   A_i ← β A_i + w G_(i) G_(i)ᵀ;   P = F ×_i P_i, P_i = (Â_i + ε λmax I)^(−e), e = 1/(2·number of factors),
              scaled per block to ‖N(F)‖ with grafting.            Gupta et al., arXiv 1802.09568, algorithms 1 and 2;
              averages, grafting, blocks: Shi et al., arXiv 2309.06497, algorithm 2 and section 2
    soap      the same A_i; G' = G ×_i Q_iᵀ in their eigenbasis Q_i; M and V are Adam's of G';
              P = (F/(√(V/c) + εg)) ×_i Q_i.                        Vyas et al., arXiv 2409.11321, algorithm 3
    kl        see `kl_statistics`; P = F ×_i S_i^(−1/2).            Lin et al., arXiv 2509.03378
    spectral  P = UVᵀ of F = UΣVᵀ, by a polynomial iteration, times a scale.         Jordan et al., Muon
              The rows of F standardised first: Ma et al., SWAN, arXiv 2412.13148, algorithm 1. With matrix_norm="rows"
              P = F with rows of one length, the dual of a table's norm: Bernstein & Newhouse, arXiv 2410.21265.
              With a rank see `leading_subspace`
    none      P = N(F)

Departures: weight decay is not part of P, so it never enters B. ε is relative to the largest eigenvalue by default.
Vectors have no preconditioner: they take the plain step. soap's V follows every change of the basis (`refresh`).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from shampoo.hyperparameters import Grafting, Hyperparameters
from shampoo.linalg.mode_products import accumulate_gram, mode_products, scaled
from shampoo.linalg.orthogonalization import orthogonalize
from shampoo.state.block_state import BlockState, Due, is_refreshed
from shampoo.state.timing import StepScalars, step_scalars
from shampoo.step import grafting
from shampoo.step.kl_statistics import begin_statistics, initialize_kl, kl_root, update_kl, whitened
from shampoo.step.leading_subspace import direction_by_parts
from shampoo.step.refresh import read_basis, read_root, refresh_side
from shampoo.torch_internals import FUSED_ADAM_DEVICES

Scratch = tuple[Tensor, Tensor, Tensor]
"""Three tensors (K, d_1, ..., d_k) to work in; the first holds the gradient at the beginning."""


@dataclass(frozen=True, slots=True)
class BlockDirection:
    """P of W ← W − lr·P, as a tensor and a factor to multiply it by, which saves a pass over the tensor."""

    tensor: Tensor
    """(K, d_1, ..., d_k): scratch memory, a new tensor, or a part of the state; do not write to it."""
    factor: float | Tensor
    """One number, or one for each block, (K, 1, ..., 1)."""


Solved = Mapping[int, tuple[Tensor, ...]]
"""The results of `per_matrix` for `solver_call`, by side."""
_MEAN_ROUNDINGS = 8
"""Largest error of a mean, in roundings of the largest element (epsilon times it): sums are pairwise."""


def block_direction(
    scratch: Scratch,
    state: BlockState,
    h: Hyperparameters,
    at: StepScalars,
    *,
    step: int,
    due: Due,
    all_refreshed: bool,
    solved: Solved | None = None,
) -> BlockDirection:
    """The direction P of W ← W − lr·P; updates `state` in place.

    Args:
        scratch: three tensors of the blocks' stacked shape; the first holds the gradient. All are overwritten.
        state: the state of the same blocks.
        at: their step's scalars.
        step: t.
        due: the units to refresh.
        all_refreshed: whether it is known that all units have been refreshed before, which saves a check.
        solved: the solution for the refresh of each side that is due, from statistics that already include this step's
            gradient; None if neither has been computed.
    """
    scale: float | Tensor
    if not state.sides:
        if h.preconditioner == "spectral" and scratch[0].dim() > 2:
            P, scale = _spectral(scratch, state, h, at)
            # Orthogonalisation ignores lengths, so there is no bias to correct.
            scale *= at.first_moment_correction
        else:
            P, scale = _plain(scratch, state, h, at, step)
    elif h.preconditioner == "kl":
        P, scale = _kl(scratch, state, h, at, step, due), 1.0
    else:
        if solved is None:
            update_gram_factors(scratch[0], state, at)
        _refresh(scratch, state, h, at, step, due, solved)
        if h.preconditioner == "soap":
            P, scale = _soap(scratch, state, h, at, step)
        else:
            ready = all_refreshed or is_refreshed(state)
            P, scale = _shampoo(scratch, state, h, at, step, ready=ready)
    factor = scale / at.first_moment_correction
    if state.momentum is None:
        return BlockDirection(P, factor)
    # The first moment itself must not be scaled in place.
    out = P if any(P is x for x in scratch) else scratch[1]
    return BlockDirection(_momentum(torch.mul(P, factor, out=out), state.momentum, h), 1.0)


def update_gram_factors(G: Tensor, state: BlockState, at: StepScalars) -> None:
    """Adds the gradient (K, d_1, ..., d_k) to shampoo's or soap's factors, if the step does."""
    if at.update_statistics:
        for mode, side in enumerate(state.sides):
            if side.factor is not None:
                accumulate_gram(side.factor, G, mode, decay=at.factor_decay, weight=at.factor_weight)


def _refresh(
    scratch: Scratch,
    state: BlockState,
    h: Hyperparameters,
    at: StepScalars,
    step: int,
    due: Due,
    solved: Solved | None = None,
) -> None:
    """Refreshes the units of `due`, in place; reads the gradient, `scratch[0]`, only in low precision."""
    for mode, start, stop in due:
        rows = state.rows(start, stop)
        X, spare = scratch[0][start:stop], (scratch[1][start:stop], scratch[2][start:stop])
        weight = 1.0
        if h.preconditioner == "kl" and h.low_precision_state:
            X, weight = whitened(X, spare, rows, mode, h)
            # The basis of M changes after the sample has been taken, so the two may share memory.
        done = None if solved is None else solved.get(mode)
        refresh_side(rows, mode, X, spare, h, at, step, sample_weight=weight, solved=done)


def _plain(scratch: Scratch, state: BlockState, h: Hyperparameters, at: StepScalars, step: int) -> tuple[Tensor, float]:
    """N(F) of blocks without a preconditioner, as (tensor, scalar), without the correction of F."""
    _, N, root = _diagonal_step(scratch, state, h, at, step, method=h.plain_method)
    return N, root


def _diagonal_step(
    scratch: Scratch, state: BlockState, h: Hyperparameters, at: StepScalars, step: int, *, method: Grafting
) -> tuple[Tensor, Tensor, float]:
    """F, and N(F) as (tensor, scalar), both without the bias correction of F, from the gradient `scratch[0]`; updates
    both moments. Each tensor is one of `scratch`, or M itself."""
    G, second, third = scratch
    M, V = state.first_moment, state.second_moment
    has_one_beta1 = h.beta3 in (None, h.betas[0])
    if method == "adam" and M is not None and V is not None and has_one_beta1 and G.device.type in FUSED_ADAM_DEVICES:
        betas = h.betas[0], h.second_moment_beta
        t = step if h.corrects_adam else None
        return M, grafting.adam_in_one_pass(G, M, V, betas=betas, epsilon=h.grafting_epsilon, step=t, out=third), 1.0
    if V is not None:
        grafting.accumulate(V, G, method=method, beta=h.second_moment_beta)
    F = _first_moment(G, M, h, out=second)
    N, root = grafting.direction(
        F,
        V,
        method=method,
        epsilon=h.grafting_epsilon,
        correction=at.second_moment_correction,
        out=third,
    )
    return F, N, root


def _shampoo(
    scratch: Scratch, state: BlockState, h: Hyperparameters, at: StepScalars, step: int, *, ready: bool
) -> tuple[Tensor, float | Tensor]:
    """P of shampoo, as a tensor and a scalar, with grafting one for each block, (K, 1, ..., 1); the plain step until
    blocks are `ready`."""
    method = h.grafting_method
    if method == "none":
        F = _first_moment(scratch[0], state.first_moment, h, out=scratch[1])
        if not ready:
            return F, 1.0
        return _by_roots(F, scratch, state, h), 1.0
    F, N, root = _diagonal_step(scratch, state, h, at, step, method=method)
    if not ready:
        return N, root
    length = _norms(N)
    P = _by_roots(F, scratch, state, h)
    # No step where P is zero, or so far from 1 that its square is zero or infinite.
    return P, length.div_(_norms(P)).nan_to_num_(nan=0.0, posinf=0.0).mul_(root)


def _by_roots(F: Tensor, scratch: Scratch, state: BlockState, h: Hyperparameters) -> Tensor:
    """F ×_i P_i, in scratch memory that F does not lie in."""
    first, second = [x for x in scratch if x is not F][:2]
    return mode_products([read_root(side) for side in state.sides], F, (first, second), dtype=h.product_precision)


def _soap(scratch: Scratch, state: BlockState, h: Hyperparameters, at: StepScalars, step: int) -> tuple[Tensor, float]:
    """P of soap, as (tensor, scalar)."""
    G, second, third = scratch
    bases = [read_basis(side) for side in state.sides]
    in_basis = mode_products(bases, G, (second, third), transposed=True, dtype=h.product_precision)
    first, other = [x for x in scratch if x is not in_basis]
    _, N, root = _diagonal_step((in_basis, first, other), state, h, at, step, method="adam")
    return mode_products(bases, N, (first, in_basis), dtype=h.product_precision), root


def _kl(scratch: Scratch, state: BlockState, h: Hyperparameters, at: StepScalars, step: int, due: Due) -> Tensor:
    """P of kl; F itself for blocks whose statistics have not begun. The statistics of a block begin with its first
    gradient of some size, so the blocks of a chunk may have begun at different steps: consecutive blocks that began
    together are stepped together."""
    begin_statistics(scratch[0], state, step=step)
    assert state.begun is not None
    begun: list[int] = state.begun.tolist()
    if begun.count(begun[0]) == len(begun):
        # As in almost every step.
        return _kl_begun(scratch, state, h, at, step, due, begun=begun[0])
    start = 0
    for together, of_block in itertools.groupby(begun):
        stop = start + len(list(of_block))
        rows = (scratch[0][start:stop], scratch[1][start:stop], scratch[2][start:stop])
        clipped = ((mode, max(first, start) - start, min(last, stop) - start) for mode, first, last in due)
        due_here = tuple((mode, first, last) for mode, first, last in clipped if first < last)
        P = _kl_begun(rows, state.rows(start, stop), h, at, step, due_here, begun=together)
        scratch[1][start:stop].copy_(P)
        start = stop
    return scratch[1]


def _kl_begun(
    scratch: Scratch, state: BlockState, h: Hyperparameters, at: StepScalars, step: int, due: Due, *, begun: int
) -> Tensor:
    """kl's direction of blocks whose statistics began at the same step; 0: not yet."""
    G, second, third = scratch
    if begun == 0:
        return _first_moment(G, state.first_moment, h, out=second)
    if begun != 1:
        since = step_scalars(h, step, has_factors=True, begun=begun)
        at = dataclasses.replace(since, update_statistics=at.update_statistics)
    in_basis: Tensor | None = None
    if begun == step:
        initialize_kl(G, (second, third), state, h, at, step)
    else:
        kept = G.clone() if due and at.update_statistics else None
        if at.update_statistics:
            in_basis = update_kl(scratch, state, h, at)
        if due:
            if kept is not None:
                G.copy_(kept)
            in_basis = None
            _refresh(scratch, state, h, at, step, due)
    bases = [read_basis(side) for side in state.sides]
    if in_basis is None:
        in_basis = mode_products(bases, G, (second, third), transposed=True, dtype=h.product_precision)
    spare = [x for x in scratch if x is not in_basis]
    F = _first_moment(in_basis, state.first_moment, h, out=spare[0])
    by_roots = scaled(F, [kl_root(side, h) for side in state.sides], spare[1])
    return mode_products(bases, by_roots, (spare[0], in_basis), dtype=h.product_precision)


def _spectral(scratch: Scratch, state: BlockState, h: Hyperparameters, at: StepScalars) -> tuple[Tensor, float]:
    """P of spectral, as (tensor, scalar), without the bias correction of F; blocks of more than two sides are treated
    as matrices, their first side by all others."""
    F = _first_moment(scratch[0], state.first_moment, h, out=scratch[1])
    K, m = F.shape[:2]
    n = math.prod(F.shape[2:])
    X, P, matches_adamw = F.view(K, m, n), scratch[2].view(K, m, n), h.adjust_lr_fn == "match_rms_adamw"
    # 0.2: the root mean square of AdamW's updates (Liu et al., arXiv 2502.16982), as `torch.optim.Muon` has it.
    if h.matrix_norm == "rows":
        _divide(X, _root_mean_squares(X), out=P)
        return scratch[2], 0.2 if matches_adamw else 1.0
    if state.leading is not None:
        P.copy_(direction_by_parts(scratch[0].view(K, m, n), X, state.leading, h, at))
        return scratch[2], 0.2 if matches_adamw else 1.0
    if h.standardize_rows and n > 1:  # of a row of one element nothing would be left
        centred = X - X.mean(dim=-1, keepdim=True)
        deviation = _root_mean_squares(centred)
        # If all values of a row are equal, only the rounding of their mean is left.
        rounding = _MEAN_ROUNDINGS * torch.finfo(X.dtype).eps * torch.linalg.vector_norm(X, math.inf, -1, keepdim=True)
        X = _divide(centred, deviation, above=rounding, out=P)
    scale = 0.2 * math.sqrt(max(m, n)) if matches_adamw else math.sqrt(max(1.0, m / n))
    return orthogonalize(X, dtype=h.product_precision).view_as(F), scale


def _root_mean_squares(X: Tensor) -> Tensor:
    """The root mean square of each row of X (K, m, n), as (K, m, 1)."""
    norms: Tensor = torch.linalg.vector_norm(X, dim=-1, keepdim=True)
    return norms.div_(math.sqrt(X.shape[-1]))


def _divide(X: Tensor, by: Tensor, *, above: Tensor | float = 0.0, out: Tensor) -> Tensor:
    """X / by; 0 where that is at most `above`."""
    return torch.div(X, torch.where(by > above, by, torch.inf), out=out)


def _first_moment(G: Tensor, M: Tensor | None, h: Hyperparameters, out: Tensor) -> Tensor:
    """F without its bias correction, which `block_direction` puts in; updates M. Is G, M or `out`."""
    if M is None:
        return G
    beta1 = h.betas[0]
    if h.beta3 is None or h.beta3 == beta1:
        return M.lerp_(G, 1 - beta1)
    torch.lerp(M, G, 1 - h.beta3, out=out)
    M.lerp_(G, 1 - beta1)
    return out


def _momentum(P: Tensor, B: Tensor, h: Hyperparameters) -> Tensor:
    B.mul_(h.momentum).add_(P)
    return P.add_(B, alpha=h.momentum) if h.nesterov else B


def _norms(X: Tensor) -> Tensor:
    """Frobenius norm of each block, (K, 1, ..., 1)."""
    norms: Tensor = torch.linalg.vector_norm(X, dim=tuple(range(1, X.dim())), keepdim=True)
    return norms
