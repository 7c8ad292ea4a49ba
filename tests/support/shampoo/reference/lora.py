"""The specification of `shampoo.LoraRite`: LoRA-RITE (arXiv:2410.20625, Algorithm 1) in float64, one factor at a time.

Nothing is shared with the package. A pair is X (n, r) and Y (m, r) of the product Y Xᵀ; an adapter's A is Xᵀ. Of each
factor, with the other one as it was before the step, at the t-th step at which that was not 0:

    Y = U S Qᵀ                        singular values, those that are null left out: U (m, k), S (k, k), Q (r, k)
    Ḡ = G Q S⁻¹                       all pairs' Ḡ together at most of the norm `clip_unmagnified_grad`
    P = UᵀU'
    b = β (1 − βᵗ⁻¹)/(1 − βᵗ)         Adam's correction of the bias, as a weight of the past, for β1 and β2
    ρ ← b2 (ρ + max |λ(V) − λ(P V Pᵀ)|)
    V ← b2 P V Pᵀ + (1 − b2) ḠᵀḠ/n
    M ← b1 M Pᵀ + (1 − b1) Ḡ ((V + ρI)^½ + εI)⁻¹
    X ← (1 − lr·λ) X − lr·M (Q S⁻¹)ᵀ
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass
class Side:
    """The state of one factor."""

    step: int = 0
    basis: Tensor = field(default_factory=lambda: torch.zeros(0))
    second_moment: Tensor = field(default_factory=lambda: torch.zeros(0))
    momentum: Tensor = field(default_factory=lambda: torch.zeros(0))
    escaped_mass: float = 0.0


class LoraRiteReference:
    """Pairs A (r, n) and B (m, r) in float64, stepped with one set of hyperparameters.

    Args:
        pairs: copied.
        settings: all hyperparameters of `LoraRite` but `paired`.
    """

    def __init__(self, pairs: Sequence[tuple[Tensor, Tensor]], settings: dict[str, Any]) -> None:
        self.settings = settings
        self._factors = [[A.double().T.clone(), B.double().clone()] for A, B in pairs]
        self._sides = [(Side(), Side()) for _ in pairs]

    @property
    def pairs(self) -> list[tuple[Tensor, Tensor]]:
        return [(X.T, Y) for X, Y in self._factors]

    def step(self, gradients: Sequence[tuple[Tensor, Tensor]]) -> None:
        """One step, with the gradients of A and B of each pair."""
        tasks = []
        for factors, sides, (of_a, of_b) in zip(self._factors, self._sides, gradients, strict=True):
            as_before = list(factors)
            for index, G in enumerate((of_a.double().T, of_b.double())):
                U, S, Q = reduced(as_before[1 - index])
                inverse = Q / S
                tasks.append((factors, index, sides[index], U, inverse, G @ inverse))
        total = math.sqrt(sum(float((task[-1] ** 2).sum()) for task in tasks))
        limit = self.settings["clip_unmagnified_grad"]
        clip = 1.0 if limit is None or total <= limit else limit / total
        for factors, index, side, U, inverse, G in tasks:
            factors[index] = factors[index] * (1 - self.settings["lr"] * self.settings["weight_decay"])
            if U.shape[1]:
                factors[index] = factors[index] - self.settings["lr"] * self._moved(side, U, clip * G) @ inverse.T

    def _moved(self, side: Side, U: Tensor, G: Tensor) -> Tensor:
        """The new first moment."""
        beta1, beta2 = self.settings["betas"]
        k = U.shape[1]
        if side.step == 0:
            moved, V, M, lost = torch.zeros(k, k), torch.zeros(k, k), torch.zeros(len(G), k), 0.0
            moved, V, M = moved.double(), V.double(), M.double()
        else:
            P = U.T @ side.basis
            V, M = side.second_moment, side.momentum @ P.T
            moved = P @ V @ P.T
            size = max(len(V), k)
            lost = float((spectrum(V, size) - spectrum(moved, size)).abs().max())
        side.step += 1
        past1, past2 = (beta * (1 - beta ** (side.step - 1)) / (1 - beta**side.step) for beta in (beta1, beta2))
        side.escaped_mass = past2 * (side.escaped_mass + lost)
        side.second_moment = past2 * moved + (1 - past2) * G.T @ G / len(G)
        values, vectors = torch.linalg.eigh(side.second_moment)
        roots = (values.clamp(min=0) + side.escaped_mass).sqrt() + self.settings["eps"]
        side.momentum = past1 * M + (1 - past1) * G @ vectors @ torch.diag(1 / roots) @ vectors.T
        side.basis = U
        return side.momentum


def reduced(Y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U (m, k), the k singular values, and Q (r, k), without those that are null beside the largest."""
    U, S, Qh = torch.linalg.svd(Y, full_matrices=False)
    k = len(S[S / S[0] > 1e-6])  # of zeros, 0/0 is no number above it
    return U[:, :k], S[:k], Qh[:k].T


def spectrum(V: Tensor, size: int) -> Tensor:
    """The eigenvalues, the largest first, and zeros up to `size`."""
    values = torch.linalg.eigvalsh(V).flip(0)
    return torch.cat([values, values.new_zeros(size - len(values))])
