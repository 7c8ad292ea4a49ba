"""The factors of KL-Shampoo: the S_i whose Kronecker product is nearest to E[g gᵀ] in Kullback-Leibler divergence.

With G the gradient, d_1 × ... × d_k, g the same as a vector, D_i the product of the sides other than i, Q_i and λ_i the
eigenvectors and eigenvalues of S_i, λ̃ = λ + ε λmax:

    X = G ×_{j≠i} (λ̃_j^(−1/2) Q_jᵀ);   Δ_i = X_(i) X_(i)ᵀ / D_i, which for a matrix is G S_b^(−1) Gᵀ / d_b
    S_i ← β S_i + w Δ_i;                λ_i ← β λ_i + w diag(Q_iᵀ Δ_i Q_i)

X is G whitened along all sides except i: if the other factors are right, only S_i is left, and the mean of Δ_i is S_i.
λ_i are the eigenvalues in a basis that is some steps old: they are updated without a new basis.

All sides are updated from the same old Q and λ; β and w = 1 − β are β2 and 1 − β2, except for the bias (`timing`). The
first time, one side after the other gets S_i = Δ_i and Q_i, λ_i from it: the product of the factors then has the
gradient's scale from the first step. (If all sides began together from λ = 1, the product would have the square of that
scale, which the recurrence takes many steps to forget.) Lin et al., arXiv 2509.03378, whose β2 is 1 − β2 here.

Before an update the factors follow the gradient's scale: where ρ = mean(G∘G) / Π_i mean(λ̃_i) exceeds 1e6, all S_i and
λ_i are multiplied by ρ^(1/n), for n factors. Otherwise each side would take the whole rise and their product its
square, which the averages forget slowly: after gradients rose by 1e10, the step length was too short for 290 steps (β2
= 0.95). Ordinary training does not come near this limit: batches of one had ρ up to 440. In ρ, mean(G∘G) is at least
1e-28, so that zero gradients, which say nothing about a scale, do not make the factors vanish. On devices other than
the CPU this would add two kernels to every three of a step, so it is done once in a refresh period, and a rise at
another step is missed.

c S_1 and S_2/c have the same product. If gradients leave out more of one side than of another, c drifts without bound.
So factors are balanced when they are further apart than 1e12.

A block's statistics begin with its first gradient that float32 can square, with a mean square of 1e-28 or more. The
smaller gradients of a saturated network would give factors of mere rounding errors, and an infinite 1/λ̃. Until then
the step is plain, and the host waits for the device to find out.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from shampoo.hyperparameters import Hyperparameters
from shampoo.linalg.mode_products import accumulate_gram, mode_products, scaled
from shampoo.state import buckets
from shampoo.state.block_state import BlockState, Side
from shampoo.state.timing import StepScalars
from shampoo.step.refresh import read_basis, refresh_side

LEAST_MEAN_SQUARE = 1e-28
"""Least mean square of a gradient with which statistics begin: 1e10 times the smallest number that float32 can divide
by, for any dtype."""

LARGEST_EXCESS = 1e6
"""Largest ratio of a gradient's mean square to the one that the factors predict; above it, they take the gradient's
scale."""
LARGEST_SPREAD = 1e12
"""Largest ratio of two factors' mean eigenvalues; above it, all are given the same mean. float32 spans 1e76."""


def begin_statistics(G: Tensor, state: BlockState, *, step: int) -> None:
    """Writes `step` to `begun` for blocks whose statistics begin with G, (K, d_1, ..., d_k)."""
    assert state.begun is not None
    if 0 not in state.begun.tolist():
        return
    squared = torch.linalg.vector_norm(G.flatten(start_dim=1), dim=1).double().square()
    is_measurable = squared >= LEAST_MEAN_SQUARE * math.prod(G.shape[1:])
    state.begun.masked_fill_((state.begun == 0) & is_measurable.cpu(), step)


def kl_root(side: Side, h: Hyperparameters) -> Tensor | None:
    """λ̃^(−1/2), (K, d); None for a side without a factor. 1 where all eigenvalues are 0: nothing is known."""
    values = side.eigenvalues
    if values is None:
        return None
    values = values.clamp(min=0)
    largest = values.amax(dim=-1, keepdim=True)
    raised = values.add_(largest, alpha=h.epsilon) if h.epsilon_type == "relative" else values.add_(h.epsilon)
    return raised.rsqrt_().masked_fill_(largest == 0, 1.0)


def whitened(
    G: Tensor, spare: tuple[Tensor, Tensor], state: BlockState, mode: int, h: Hyperparameters
) -> tuple[Tensor, float]:
    """X of one side, in new memory, and 1/D_i."""
    others = [None if other == mode else read_basis(side) for other, side in enumerate(state.sides)]
    X = mode_products(others, G, spare, transposed=True)
    roots = [None if other == mode else kl_root(side, h) for other, side in enumerate(state.sides)]
    return scaled(X, roots, torch.empty_like(X)), G.shape[mode + 1] / math.prod(G.shape[1:])


def initialize_kl(
    G: Tensor, spare: tuple[Tensor, Tensor], state: BlockState, h: Hyperparameters, at: StepScalars, step: int
) -> None:
    """Sets all factors from the first gradient G, (K, d_1, ..., d_k), one side after the other."""
    for mode, side in enumerate(state.sides):
        if side.kind == "identity":
            continue
        X, weight = whitened(G, spare, state, mode, h)
        if side.factor is not None:
            accumulate_gram(side.factor, X, mode, decay=0.0, weight=weight)
        elif side.eigenvalues is not None:
            accumulate_gram(side.eigenvalues, X, mode, decay=0.0, weight=weight)
        refresh_side(state, mode, X, spare, h, at, step, sample_weight=weight)


def follow_scale(G: Tensor, state: BlockState, h: Hyperparameters) -> None:
    """Multiplies the factors of blocks far below the scale of their gradient G, (K, d_1, ..., d_k), or far apart from
    each other, in place."""
    roots = [root for side in state.sides if (root := kl_root(side, h)) is not None]
    # Logarithms, in float64: products of means and their ratios may not fit into float32.
    squared = torch.linalg.vector_norm(G.flatten(start_dim=1), dim=1).double().square() / math.prod(G.shape[1:])
    levels = torch.stack([root.double().pow(-2).mean(dim=-1) for root in roots], dim=-1).log_()
    excess = squared.clamp_(min=LEAST_MEAN_SQUARE).log_() - levels.sum(dim=-1)
    is_far_above = (excess > math.log(LARGEST_EXCESS)) & excess.isfinite()
    is_apart = levels.amax(dim=-1) - levels.amin(dim=-1) > math.log(LARGEST_SPREAD)
    if h.epsilon_type == "absolute":
        is_apart.fill_(False)  # ε keeps them together, and their product does depend on c
    if G.device.type in buckets.READABLE_DEVICES and not bool((is_far_above | is_apart).any()):
        return  # as in almost every step; on other devices the check would wait for the device
    change = torch.where(is_far_above, excess / len(roots), 0.0).unsqueeze(-1)
    change = change + torch.where(is_apart.unsqueeze(-1), levels.mean(dim=-1, keepdim=True) - levels, 0.0)
    with_factors = [side for side in state.sides if side.eigenvalues is not None]
    for side, by in zip(with_factors, change.exp_().to(G.dtype).unbind(dim=-1), strict=True):
        for quantity in (side.factor, side.eigenvalues):
            if quantity is not None:
                quantity.mul_(by.view(-1, *(1 for _ in quantity.shape[1:])))


def update_kl(scratch: tuple[Tensor, Tensor, Tensor], state: BlockState, h: Hyperparameters, at: StepScalars) -> Tensor:
    """Adds the gradient, `scratch[0]`, to all factors and their eigenvalues, in place.

    Returns:
        G ×_i Q_iᵀ, one of the scratch tensors, all of which are overwritten.
    """
    is_queued = scratch[0].device.type not in buckets.READABLE_DEVICES
    if not is_queued or at.phase == 0:
        follow_scale(scratch[0], state, h)
    roots = [kl_root(side, h) for side in state.sides]
    bases = [read_basis(side) for side in state.sides]
    sides = scratch[0].shape[1:]
    numel = math.prod(sides)
    prefix, free = scratch[0], (scratch[1], scratch[2])  # prefix: G with the bases of the sides so far
    for mode, side in enumerate(state.sides):
        if side.factor is not None:
            later = [Q if other > mode else None for other, Q in enumerate(bases)]
            X = mode_products(later, prefix, free, transposed=True)
            others = [None if other == mode else root for other, root in enumerate(roots)]
            X = scaled(X, others, free[0] if X is prefix else X)
            weight = at.factor_weight * sides[mode] / numel
            accumulate_gram(side.factor, X, mode, decay=at.factor_decay, weight=weight)
        own = [Q if other == mode else None for other, Q in enumerate(bases)]
        prefix = mode_products(own, prefix, free, transposed=True)
        first, second = (x for x in scratch if x is not prefix)
        free = (first, second)
    Y = scaled(prefix, roots, free[0])
    if not is_queued:
        Y.mul_(Y)
    for mode, (side, root) in enumerate(zip(state.sides, roots, strict=True)):
        if side.eigenvalues is not None and root is not None:
            dims = tuple(1 + other for other in range(len(sides)) if other != mode)
            # A norm writes no squares, but on the CPU the norm of columns takes 20 times as long as their sum.
            sums = torch.linalg.vector_norm(Y, dim=dims).square_() if is_queued else Y.sum(dim=dims)
            weight = at.factor_weight * sides[mode] / numel
            # It was divided by its own root, too: undo that.
            side.eigenvalues.mul_(at.factor_decay).addcdiv_(sums, root.square(), value=weight)
    return prefix
