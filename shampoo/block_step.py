"""One step of stacked blocks: from their gradient and state to the direction along which they move.

    A_i, roots   as in `preconditioners`; V, N as in `grafting`
    F = (β3 M + (1 − β3) G) / (1 − β3 β1^(t−1));   M ← β1 M + (1 − β1) G          (F = G for β1 = 0)
    P = N(F)                                       before the first refresh, and for blocks without a factor
    P = (F ×_i P_i) · ‖N(F)‖ / ‖F ×_i P_i‖         from then on, norms per block; without grafting F ×_i P_i itself
    B ← μ B + P;  the direction is B, with Nesterov P + μ B, without momentum P

Shi et al., arXiv 2309.06497, algorithm 2 and section 2. Departure: weight decay is no part of P, so it never enters B.
"""

from __future__ import annotations

import torch
from torch import Tensor

from shampoo import grafting
from shampoo.buckets import BlockState
from shampoo.hyperparameters import Hyperparameters, StepScalars
from shampoo.matrix_roots import RootSolver
from shampoo.preconditioners import precondition, refresh_roots, update_statistics


def block_direction(
    scratch: tuple[Tensor, Tensor, Tensor], state: BlockState, h: Hyperparameters, at: StepScalars, solver: RootSolver
) -> Tensor:
    """The direction P of W ← W − lr·P, (K, d_1, ..., d_k); updates `state` in place.

    Args:
        scratch: three tensors of the blocks' stacked shape; the first holds the gradient. All are overwritten.
        state: of the same blocks.
        at: their step's scalars.

    Returns:
        A scratch tensor, or the momentum buffer itself: not to be written to.
    """
    G, second, third = scratch
    if at.update_statistics:
        update_statistics(state.factors, G, at)
    if at.refresh and state.num_failed_roots is not None:
        refresh_roots(state.factors, state.roots, state.num_failed_roots, h, at, solver)
    if state.second_moment is not None:
        grafting.accumulate(state.second_moment, G, method=h.grafting, beta=h.second_moment_beta)
    F = _first_moment(G, state.first_moment, h, out=second)
    spare = (second, third) if F is G else (G, third)

    N, root = grafting.direction(
        F,
        state.second_moment,
        method=h.grafting,
        epsilon=h.grafting_epsilon,
        correction=at.second_moment_correction,
        out=spare[0],
    )
    # Bias corrections are scalars, so they are left out of F and N and multiply the result.
    scale: float | Tensor = root / at.first_moment_correction
    P = N
    if at.preconditioned and state.roots:
        if h.grafting == "none":
            P = precondition(state.roots, F, spare)
        else:
            length = _norms(N) * scale
            P = precondition(state.roots, F, spare)
            # No step where P is zero, or so far from 1 that its square is zero or infinite.
            scale = length.div_(_norms(P)).nan_to_num_(nan=0.0, posinf=0.0)
    # F may be the first moment itself, which must not be scaled in place.
    return _momentum(P, scale, state.momentum, h, out=spare[0] if P is F else P)


def _first_moment(G: Tensor, M: Tensor | None, h: Hyperparameters, out: Tensor) -> Tensor:
    """F without its bias correction; updates M. Is G, M or `out`."""
    if M is None:
        return G
    beta1 = h.betas[0]
    if h.beta3 is None or h.beta3 == beta1:
        return M.lerp_(G, 1 - beta1)
    torch.lerp(M, G, 1 - h.beta3, out=out)
    M.lerp_(G, 1 - beta1)
    return out


def _momentum(P: Tensor, scale: float | Tensor, B: Tensor | None, h: Hyperparameters, out: Tensor) -> Tensor:
    torch.mul(P, scale, out=out)
    if B is None:
        return out
    B.mul_(h.momentum).add_(out)
    return out.add_(B, alpha=h.momentum) if h.nesterov else B


def _norms(X: Tensor) -> Tensor:
    """Frobenius norm of each block, (K, 1, ..., 1)."""
    norms: Tensor = torch.linalg.vector_norm(X, dim=tuple(range(1, X.dim())), keepdim=True)
    return norms
