"""The members of the family on one block, in float64: the second half of the specification in `shampoo.py`.

G is the block's gradient, a tensor d_1 × ... × d_k; x_i is the mode-i product, G_(i) the mode-i unfolding. All members
average the gradient and may add momentum:

    F = (β3 M + (1 − β3) G) / (1 − β3 β1^(t−1));   M ← β1 M + (1 − β1) G;   F = G for β1 = 0
    P = the member's direction from F;   B ← μB + P;  P ← B, with Nesterov P + μB

`use_bias_correction` = False leaves out every division by a sum of weights but adam grafting's own. Relative ε stands
for ε λmax.

plain, and grafting's N(F). V ← V + G⊙G (adagrad) or V ← β V + (1 − β) G⊙G (rmsprop, adam; adam: V̂ = V/(1 − β^t)):

    N(F) = F / (√V̂ + εg);   F itself for sgd.   Where there is no grafting it is adam with β2, for β2 = 1 adagrad.

Statistics are taken if k = `statistics_frequency` divides t (kl: t − s, from the start s on); a diagonal factor keeps
the diagonal of each Gram matrix.

shampoo, arXiv 1802.09568; blocks, grafting, averages and correction as in arXiv 2309.06497:

    A_i ← β2^k A_i + (1 − β2^k) G_(i) G_(i)ᵀ;  β2 = 1: A_i ← A_i + G_(i) G_(i)ᵀ
    P_i = (Â_i + εI)^(−e),  Â_i = A_i / (1 − β2^(k·number of updates)),  the identity where that is 0^(−e);
          e = 1/(2·number of factors) or the override
          pseudo-inverse: eigenvalues up to ε have the root 0, others λ^(−e)
    P = F x_1 P_1 ... x_k P_k scaled to ‖N(F)‖, unscaled without grafting;  N(F) before the start

soap, arXiv 2409.11321, with bases Q_i (the identity at first), β_s = `shampoo_beta`, V in the basis:

    A_i ← β_s^k A_i + (1 − β_s^k) G_(i) G_(i)ᵀ;  β_s = 1: sums
    refresh of a basis from Q_i to Q':  V ← V x_i (S∘S)ᵀ,  S = Q_iᵀ Q'
    V ← β2 V + (1 − β2) G'∘G',  G' = G x_i Q_iᵀ;   P = (F' / (√(V/(1 − β2^t)) + εg)) x_i Q_i,  F' = F x_i Q_iᵀ

kl, arXiv 2509.03378, with bases Q_i (I), eigenvalues λ_i (1), λ̃_i = λ_i + ε, or 1 if λ_i = 0, D_i the product of the
other sides:

    Δ_i = (1/D_i) X_(i) X_(i)ᵀ,  X = G x_{j≠i} λ̃_j^(−1/2) Q_jᵀ
    first statistics, i = 1, ..., k in turn:  S_i = Δ_i;  Q_i, λ_i = eigenvectors and -values of S_i;
            with the first G, from the start on, of which the mean of G∘G is at least 1e-28
    later:  where ρ = max(mean(G∘G), 1e-28) / Π_i mean(λ̃_i) > 1e6, first S_i ← ρ^(1/number of factors) S_i, and so λ_i;
            all Δ_i from the old Q, λ;  S_i ← (1 − w) S_i + w Δ_i;  λ_i ← (1 − w) λ_i + w diag(Q_iᵀ Δ_i Q_i)
            at the n-th statistics w = (1 − β2^k)/(1 − β2^(kn)), which corrects the bias; without that w = 1 − β2^k
    refresh:  Q_i ← Q',  λ_i ← diag(Q'ᵀ S_i Q')
    P = F x_i Q_i λ̃_i^(−1/2) Q_iᵀ;   F before the first statistics

spectral stands in `spectral.py`.

Q' is the eigenvectors of the factor A; from the second refresh on with solver qr and cholesky_qr it is the Q of A·Q
with the columns of the old Q in descending order of diag(Qᵀ A Q): one step of subspace iteration. The eigenvalues that
go with it are diag(Q'ᵀ A Q').

Here M is kept in the block's own coordinates throughout; in exact arithmetic that is the M in the basis, rotated at
each refresh, of the papers. No column's sign and no permutation of columns matters: every use of Q pairs them off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# Of Jordan's quintic iteration, X ← aX + (bXXᵀ + c(XXᵀ)²)X; the default of torch.optim.Muon.
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
# Of a gradient that kl's statistics begin with.
LEAST_MEAN_SQUARE = 1e-28
# Of the mean square over what kl's factors predict; above it they are multiplied.
LARGEST_EXCESS = 1e6


def unfold(X: Tensor, mode: int) -> Tensor:
    return X.movedim(mode, 0).reshape(X.shape[mode], -1)


def mode_product(X: Tensor, P: Tensor, mode: int) -> Tensor:
    moved = X.movedim(mode, 0)
    product = P @ moved.reshape(len(moved), -1)
    return product.reshape(len(P), *moved.shape[1:]).movedim(0, mode)


def mode_products(X: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    for mode, P in enumerate(matrices):
        X = mode_product(X, P, mode)
    return X


def damping(values: Tensor, s: dict[str, Any]) -> Tensor:
    """ε of these eigenvalues."""
    unit = values.max() if s["epsilon_type"] == "relative" else torch.ones_like(values.max())
    epsilon: Tensor = s["epsilon"] * unit
    return epsilon


def inverse_root(values: Tensor, exponent: float, s: dict[str, Any]) -> Tensor:
    """The eigenvalues of an inverse root."""
    epsilon = damping(values, s)
    if values.max() <= 0 and (s["pseudo_inverse"] or s["epsilon_type"] == "relative"):
        return torch.ones_like(values)
    if s["pseudo_inverse"]:
        return torch.where(values > epsilon, values.clamp(min=epsilon).pow(-exponent), 0.0)
    return (values.clamp(min=0) + epsilon).pow(-exponent)


def next_basis(A: Tensor, Q: Tensor, *, first: bool, solver: str) -> Tensor:
    if first or solver not in ("qr", "cholesky_qr"):
        vectors: Tensor = torch.linalg.eigh(A).eigenvectors
        return vectors
    order = torch.diag(Q.T @ A @ Q).argsort(descending=True)
    refined: Tensor = torch.linalg.qr(A @ Q[:, order]).Q
    return refined


def newton_schulz(X: Tensor) -> Tensor:
    a, b, c = NEWTON_SCHULZ
    X = X / X.norm().clamp(min=1e-7)
    if len(X) > X.shape[1]:
        return newton_schulz(X.T).T
    for _ in range(5):
        gram = X @ X.T
        X = a * X + (b * gram + c * gram @ gram) @ X
    return X


def average(old: Tensor, new: Tensor, beta: float, updates: int = 1) -> Tensor:
    """β^updates of the old value, and the rest of the new; β = 1: their sum."""
    return old + new if beta == 1 else beta**updates * old + (1 - beta**updates) * new


@dataclass
class Unit:
    """One factor's place in the schedule."""

    cost: int
    phase: int = 0
    refreshed: bool = False


class Block:
    """One block's state and its direction: what the members share."""

    def __init__(self, shape: tuple[int, ...], kinds: Sequence[str], s: dict[str, Any]) -> None:
        self.shape, self.kinds, self.s = shape, kinds, s
        self.modes = [i for i, kind in enumerate(kinds) if kind != "identity"]
        """The sides that have a factor; lists of factors and units run over these."""
        self.units = [Unit(cost=shape[i] ** 3 if kinds[i] == "full" else 0) for i in self.modes]
        self.M, self.V, self.B = (torch.zeros(shape, dtype=torch.float64) for _ in range(3))

    def step(self, G: Tensor, t: int) -> Tensor:
        """The direction P of W ← W − lr·P."""
        s = self.s
        beta1 = s["betas"][0]
        F = G
        if beta1 > 0:
            F = s["beta3"] * self.M + (1 - s["beta3"]) * G
            F = F / (1 - s["beta3"] * beta1 ** (t - 1) if s["use_bias_correction"] else 1)
        self.M = beta1 * self.M + (1 - beta1) * G
        P = self.direction(F, G, t)
        if s["momentum"] > 0:
            self.B = s["momentum"] * self.B + P
            P = P + s["momentum"] * self.B if s["nesterov"] else self.B
        return P

    def direction(self, F: Tensor, G: Tensor, t: int) -> Tensor:
        raise NotImplementedError

    def plain(self, F: Tensor, G: Tensor, t: int, method: str) -> Tensor:
        s = self.s
        if method in ("none", "sgd"):
            return F
        beta = 1.0 if method == "adagrad" else s["grafting_beta2"]
        self.V = average(self.V, G * G, beta)
        corrected = method == "adam" and (s["use_bias_correction"] or s["grafting"] == "adam")
        direction: Tensor = F / ((self.V / (1 - beta**t if corrected else 1)).sqrt() + s["grafting_epsilon"])
        return direction

    def gram(self, X: Tensor, mode: int) -> Tensor:
        product = unfold(X, mode) @ unfold(X, mode).T
        return torch.diag(torch.diag(product)) if self.kinds[mode] == "diagonal" else product

    def refreshed(self, A: Tensor, Q: Tensor, u: int) -> tuple[Tensor, Tensor]:
        """Eigenvalues and basis of unit u's factor A, and marks it as refreshed."""
        unit = self.units[u]
        first, unit.refreshed = not unit.refreshed, True
        if self.kinds[self.modes[u]] == "full":
            Q = next_basis(A, Q, first=first, solver=self.s["solver"])
        return self.estimates(A, Q, u), Q

    def estimates(self, A: Tensor, Q: Tensor, u: int) -> Tensor:
        """diag(Qᵀ A Q) of unit u; a diagonal factor's Q is the identity."""
        return torch.diag(Q.T @ A @ Q if self.kinds[self.modes[u]] == "full" else A)

    def eye(self, mode: int) -> Tensor:
        return torch.eye(self.shape[mode], dtype=torch.float64)

    def is_due(self, unit: Unit, t: int) -> bool:
        f, start = self.s["precondition_frequency"], self.s["start_preconditioning_step"]
        return bool(t == start or (t > start and (t - start) % f == unit.phase))

    def takes_statistics(self, t: int) -> bool:
        return bool(t % self.s["statistics_frequency"] == 0)


class PlainBlock(Block):
    """The grafted method alone."""

    def direction(self, F: Tensor, G: Tensor, t: int) -> Tensor:
        method = self.s["grafting"]
        if method == "none":
            method = "adagrad" if self.s["betas"][1] == 1 else "adam"
        return self.plain(F, G, t, method)


class ShampooBlock(Block):
    def __init__(self, shape: tuple[int, ...], kinds: Sequence[str], s: dict[str, Any]) -> None:
        super().__init__(shape, kinds, s)
        self.A = [torch.zeros_like(self.eye(i)) for i in self.modes]
        self.Q = [self.eye(i) for i in self.modes]
        self.roots = [torch.ones(shape[i], dtype=torch.float64) for i in self.modes]
        self.exponent = s["exponent_override"] or 1 / (2 * max(1, len(self.modes)))

    def direction(self, F: Tensor, G: Tensor, t: int) -> Tensor:
        s = self.s
        beta2, k = s["betas"][1], s["statistics_frequency"]
        if self.takes_statistics(t):
            self.A = [average(A, self.gram(G, i), beta2, k) for A, i in zip(self.A, self.modes, strict=True)]
        for u, unit in enumerate(self.units):
            if self.is_due(unit, t):
                corrected = s["use_bias_correction"] and beta2 < 1
                A = self.A[u] / (1 - beta2 ** (k * (t // k)) if corrected else 1)
                values, self.Q[u] = self.refreshed(A, self.Q[u], u)
                self.roots[u] = inverse_root(values, self.exponent, s)
        N = self.plain(F, G, t, s["grafting"])
        if not all(unit.refreshed for unit in self.units):
            return N
        P = F
        for Q, root, i in zip(self.Q, self.roots, self.modes, strict=True):
            P = mode_product(mode_product(P, root.unsqueeze(1) * Q.T, i), Q, i)
        if s["grafting"] != "none" and P.norm() > 0:
            P = P * (N.norm() / P.norm())
        return P


class SoapBlock(Block):
    def __init__(self, shape: tuple[int, ...], kinds: Sequence[str], s: dict[str, Any]) -> None:
        super().__init__(shape, kinds, s)
        self.A = [torch.zeros_like(self.eye(i)) for i in self.modes]
        self.Q = [self.eye(i) for i in range(len(shape))]

    def direction(self, F: Tensor, G: Tensor, t: int) -> Tensor:
        s = self.s
        if self.takes_statistics(t):
            k = s["statistics_frequency"]
            self.A = [
                average(A, self.gram(G, i), s["shampoo_beta"], k) for A, i in zip(self.A, self.modes, strict=True)
            ]
        for u, i in enumerate(self.modes):
            if self.is_due(self.units[u], t):
                old = self.Q[i]
                _, self.Q[i] = self.refreshed(self.A[u], old, u)
                self.V = mode_product(self.V, (old.T @ self.Q[i]).square().T, i)
        into = [Q.T for Q in self.Q]
        N = self.plain(mode_products(F, into), mode_products(G, into), t, "adam")
        return mode_products(N, self.Q)


class KlBlock(Block):
    def __init__(self, shape: tuple[int, ...], kinds: Sequence[str], s: dict[str, Any]) -> None:
        super().__init__(shape, kinds, s)
        self.num_updates = 0
        self.S: list[Tensor] = []
        self.Q = [self.eye(i) for i in self.modes]
        self.values = self.ones()

    def direction(self, F: Tensor, G: Tensor, t: int) -> Tensor:
        begins = self.num_updates == 0 and bool((G * G).mean() >= LEAST_MEAN_SQUARE)
        if begins:
            self.begin_statistics(G)
        elif self.num_updates > 0:
            self.update_statistics(G)
        if self.num_updates == 0:
            return F
        for u, unit in enumerate(self.units):
            if not begins and self.is_due(unit, t):
                self.values[u], self.Q[u] = self.refreshed(self.S[u], self.Q[u], u)
        P = F
        for u, i in enumerate(self.modes):
            P = mode_product(mode_product(P, self.whitening(u), i), self.Q[u], i)
        return P

    def ones(self) -> list[Tensor]:
        return [torch.ones(self.shape[i], dtype=torch.float64) for i in self.modes]

    def damped(self, u: int) -> Tensor:
        """λ̃."""
        values = self.values[u].clamp(min=0)
        return values + damping(values, self.s) if values.max() > 0 else torch.ones_like(values)

    def whitening(self, u: int) -> Tensor:
        """λ̃^(−1/2) Qᵀ."""
        return self.damped(u).rsqrt().unsqueeze(1) * self.Q[u].T

    def divergence_gradient(self, G: Tensor, u: int) -> Tensor:
        """Δ of factor u from the others."""
        X = G
        for v, j in enumerate(self.modes):
            if v != u:
                X = mode_product(X, self.whitening(v), j)
        i = self.modes[u]
        return self.gram(X, i) / (math.prod(self.shape) // self.shape[i])

    def begin_statistics(self, G: Tensor) -> None:
        self.num_updates = 1
        for u in range(len(self.units)):
            self.S.append(self.divergence_gradient(G, u))
            self.values[u], self.Q[u] = self.refreshed(self.S[u], self.Q[u], u)

    def follow_scale(self, G: Tensor) -> None:
        """Brings factors that are far below the gradient's scale to it."""
        predicted = math.prod(float(self.damped(u).mean()) for u in range(len(self.units)))
        excess = max(float((G * G).mean()), LEAST_MEAN_SQUARE) / predicted
        if excess > LARGEST_EXCESS:
            change = excess ** (1 / len(self.units))
            self.S = [change * S for S in self.S]
            self.values = [change * values for values in self.values]

    def update_statistics(self, G: Tensor) -> None:
        self.follow_scale(G)
        beta2 = self.s["betas"][1]
        self.num_updates += 1
        weight = 1 - beta2
        if self.s["use_bias_correction"]:
            weight /= 1 - beta2**self.num_updates
        deltas = [self.divergence_gradient(G, u) for u in range(len(self.modes))]
        for u, delta in enumerate(deltas):
            self.S[u] = average(self.S[u], delta, 1 - weight)
            self.values[u] = average(self.values[u], self.estimates(delta, self.Q[u], u), 1 - weight)
