"""Products of stacked blocks with matrices along one side, and Gram matrices of their unfoldings.

Legend: K blocks are stacked, (K, d_1, ..., d_k), contiguous. G ×_i A has A's rows in place of side i of G; the mode-i
unfolding G_(i) is d_i × rest. Kolda and Bader, "Tensor Decompositions and Applications", 2009.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

# From this side on, half of a Gram matrix is not computed; below it, smaller products lose more than this saves
# (measured on CPUs: 0.72 of the time for the whole at 1,024, 0.85 at 512, 1.15 and more at 256).
_HALVING_FROM = 512
_HALVING_LEVELS = 2
"""The number of times that the half is halved again. Each time saves half as much as the one before; two are, by
judgement, most of the saving."""


def mode_products(
    matrices: Sequence[Tensor | None],
    X: Tensor,
    spare: tuple[Tensor, Tensor],
    *,
    transposed: bool = False,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """X ×_1 A_1 ... ×_k A_k, or with the matrices transposed.

    Args:
        matrices: (K, d, d), or (K, d) for a diagonal one, or None for the identity.
        spare: two tensors like X to work in, neither of them X.
        dtype: the matrices, X and every product are rounded to it; it has half the size of X's. None: X's own.

    Returns:
        One of the spare tensors; X itself if every matrix is None.
    """
    if dtype is None or dtype == X.dtype:
        return _products(matrices, X, *spare, transposed=transposed)
    if all(A is None for A in matrices):
        return X
    # Both halves of one spare tensor, and the result in the other.
    halves = spare[1].view(-1).view(dtype)[: 2 * X.numel()].view(2, *X.shape)
    lower = [None if A is None else A.to(dtype) for A in matrices]
    return spare[0].copy_(_products(lower, halves[0].copy_(X), halves[1], halves[0], transposed=transposed))


def _products(
    matrices: Sequence[Tensor | None], source: Tensor, target: Tensor, other: Tensor, *, transposed: bool
) -> Tensor:
    for mode, A in enumerate(matrices):
        if A is None:
            continue
        K, before, d, after = around = _around(source, mode)
        if A.dim() == 2:
            torch.mul(source.view(around), A.view(K, 1, d, 1), out=target.view(around))
        elif before == 1:
            torch.bmm(A.mT if transposed else A, source.view(K, d, after), out=target.view(K, d, after))
        elif after == 1:
            torch.bmm(source.view(K, before, d), A if transposed else A.mT, out=target.view(K, before, d))
        else:
            unfolded = source.view(around).transpose(1, 2).reshape(K, d, before * after)
            product = torch.bmm(A.mT if transposed else A, unfolded).view(K, d, before, after)
            target.view(around).copy_(product.transpose(1, 2))
        source, target, other = target, other, target
    return source


def accumulate_gram(A: Tensor, X: Tensor, mode: int, *, decay: float, weight: float) -> None:
    """A ← decay·A + weight·X_(i) X_(i)ᵀ for X (K, d_1, ..., d_k); in place.

    A is (K, d, d), of which only the lower triangle counts, and the upper one may be left unchanged; or (K, d), the
    diagonal.
    """
    K, before, d, after = around = _around(X, mode)
    if A.dim() == 2:
        A.mul_(decay).add_(X.view(around).square().sum(dim=(1, 3)), alpha=weight)
        return
    if before == 1:
        unfolded = X.view(K, d, after)
    elif after == 1:
        unfolded = X.view(K, before, d).mT
    else:
        unfolded = X.view(around).transpose(1, 2).reshape(K, d, before * after)
    halve = A.device.type == "cpu"  # elsewhere more launches cost more than they save
    _accumulate_lower(A, unfolded, decay, weight, levels=_HALVING_LEVELS if halve else 0)


def _accumulate_lower(A: Tensor, X: Tensor, decay: float, weight: float, *, levels: int) -> None:
    d = X.shape[1]
    if levels == 0 or d < _HALVING_FROM >> (_HALVING_LEVELS - levels) or d % 2 == 1:
        A.baddbmm_(X, X.mT, beta=decay, alpha=weight)
        return
    h = d // 2
    A[:, h:, :h].baddbmm_(X[:, h:], X[:, :h].mT, beta=decay, alpha=weight)
    for half in (slice(0, h), slice(h, d)):
        _accumulate_lower(A[:, half, half], X[:, half], decay, weight, levels=levels - 1)


def scaled(X: Tensor, values: Sequence[Tensor | None], out: Tensor) -> Tensor:
    """X, (K, d_1, ..., d_k), times the values (K, d_i) of each side, None for 1, in `out`: a tensor like X, or X."""
    source = X
    for mode, of_side in enumerate(values):
        if of_side is not None:
            around = _around(X, mode)
            torch.mul(source.view(around), of_side.unsqueeze(1).unsqueeze(-1), out=out.view(around))
            source = out
    return out if source is out else out.copy_(X)


def _around(X: Tensor, mode: int) -> tuple[int, int, int, int]:
    """(K, product of the sides before `mode`, d_mode, product of those after) of a contiguous (K, d_1, ..., d_k)."""
    K, *sides = X.shape
    return K, math.prod(sides[:mode]), sides[mode], math.prod(sides[mode + 1 :])
