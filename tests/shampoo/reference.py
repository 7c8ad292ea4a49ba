"""The specification of `shampoo.Shampoo`: a dense, slow textbook implementation in float64.

One tensor and one block at a time, no buckets, no scratch, nothing shared with the package. Settings are a plain
dict of the constructor's keyword arguments, all of them given. Per parameter, at its step t = 1, 2, ...:

    l2 decay        G ← G + λW
    other decay     W ← (1 − lr·λ) W  (decoupled)   or   W ← (1 − λ·lr/peak_lr) W  (independent)
    and per block, with x_i the mode-i product and G_(i) the mode-i unfolding:
    statistics      A_i ← β2^k A_i + (1 − β2^k) G_(i) G_(i)ᵀ  if k divides t;  β2 = 1: A_i ← A_i + G_(i) G_(i)ᵀ
    refresh         if t = s, s + f, ...:  P_i = (Â_i + ε λmax(Â_i) I)^(−e), the identity if Â_i = 0
                    Â_i = A_i / (1 − β2^(k·number of updates)), for β2 = 1 Â_i = A_i;  e = 1/(2·order) or override
    grafting        V ← V + G⊙G, or its average;   N(F) = F / (√V̂ + εg), or F
    direction       F = (β3 M + (1 − β3) G) / (1 − β3 β1^(t−1));  M ← β1 M + (1 − β1) G
                    P = N(F) if t < s (F without grafting), else F x_1 P_1 ... x_k P_k scaled to ‖N(F)‖
    momentum        B ← μB + P;  P ← B, with Nesterov P + μB
    step            W ← W − lr·P

Vectors (order 1) are one block: N(F) with grafting; without, A is the diagonal of G Gᵀ and e = 1/2.
Sources: arXiv 1802.09568 (Shampoo), arXiv 2309.06497 (blocks, grafting, averages, correction).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def merge(shape: tuple[int, ...], longest: int) -> list[int]:
    """Drops sides of 1; merges the neighbours of smallest product while it is small, or one of them is, down to two."""
    sides = [d for d in shape if d > 1]
    if not sides:
        return [1]
    while len(sides) > 2:
        product, i = min((sides[i] * sides[i + 1], i) for i in range(len(sides) - 1))
        shorter = min(sides[i], sides[i + 1])
        if product <= longest or shorter <= math.isqrt(longest):
            sides = [*sides[:i], product, *sides[i + 2 :]]
        else:
            break
    return sides


def piece_lengths(length: int, longest: int) -> list[int]:
    """An exact division into few enough pieces, else pieces that differ by one."""
    fewest = -(-length // longest)
    exact = [c for c in range(fewest, 2 * fewest + 1) if length % c == 0]
    if exact:
        return [length // exact[0]] * exact[0]
    return [length // fewest + (1 if i < length % fewest else 0) for i in range(fewest)]


def unfold(X: Tensor, mode: int) -> Tensor:
    return X.movedim(mode, 0).reshape(X.shape[mode], -1)


def mode_product(X: Tensor, P: Tensor, mode: int) -> Tensor:
    product: Tensor = torch.tensordot(P, X, dims=([1], [mode]))
    return product.movedim(0, mode)


def inverse_root(A: Tensor, exponent: float, epsilon: float) -> Tensor:
    values, Q = torch.linalg.eigh(A)
    if values.max() <= 0:
        return torch.eye(len(A), dtype=A.dtype)
    damped: Tensor = values.clamp(min=0) + epsilon * values.max()
    return Q @ torch.diag(damped.pow(-exponent)) @ Q.T


class ReferenceBlock:
    """One block's state and its direction."""

    def __init__(self, shape: tuple[int, ...], settings: dict[str, Any]) -> None:
        self.settings = settings
        order = len(shape)
        self.diagonal = order == 1 and settings["grafting"] == "none"
        self.factored = order > 1 or self.diagonal
        override = settings["exponent_override"]
        self.exponent = override if override is not None and order > 1 else 1 / (2 * order)
        self.A = [torch.zeros(d, d, dtype=torch.float64) for d in shape] if self.factored else []
        self.P = [torch.eye(d, dtype=torch.float64) for d in shape] if self.factored else []
        self.M, self.V, self.B = (torch.zeros(shape, dtype=torch.float64) for _ in range(3))
        self.last_grafted_norm = 0.0

    def direction(self, G: Tensor, t: int) -> Tensor:
        s = self.settings
        beta1, beta2 = s["betas"]
        beta3 = beta1 if s["beta3"] is None else s["beta3"]
        frequency, k = s["precondition_frequency"], s["statistics_frequency"]
        start = frequency if s["start_preconditioning_step"] is None else s["start_preconditioning_step"]

        if t % k == 0:
            for i, A in enumerate(self.A):
                gram = unfold(G, i) @ unfold(G, i).T
                if self.diagonal:
                    gram = torch.diag(torch.diag(gram))
                self.A[i] = A + gram if beta2 == 1 else beta2**k * A + (1 - beta2**k) * gram
        if t >= start and (t - start) % frequency == 0:
            corrected = s["use_bias_correction"] and beta2 < 1
            c = 1 - beta2 ** (k * (t // k)) if corrected else 1
            self.P = [inverse_root(A / c, self.exponent, s["epsilon"]) for A in self.A]

        F = beta3 * self.M + (1 - beta3) * G if beta1 > 0 else G
        if beta1 > 0 and s["use_bias_correction"]:
            F = F / (1 - beta3 * beta1 ** (t - 1))
        self.M = beta1 * self.M + (1 - beta1) * G
        N = self.grafted(F, G, t)

        P = N
        if t >= start and self.factored:
            P = F
            for i, root in enumerate(self.P):
                P = mode_product(P, root, i)
            if s["grafting"] != "none" and P.norm() > 0:
                P = P * (N.norm() / P.norm())
                self.last_grafted_norm = N.norm().item()
        if s["momentum"] > 0:
            self.B = s["momentum"] * self.B + P
            P = P + s["momentum"] * self.B if s["nesterov"] else self.B
        return P

    def grafted(self, F: Tensor, G: Tensor, t: int) -> Tensor:
        s = self.settings
        method = s["grafting"]
        if method in ("none", "sgd"):
            return F
        beta = s["betas"][1] if s["grafting_beta2"] is None else s["grafting_beta2"]
        self.V = self.V + G * G if method == "adagrad" else beta * self.V + (1 - beta) * G * G
        corrected = method == "adam" and s["use_bias_correction"]
        return F / ((self.V / (1 - beta**t if corrected else 1)).sqrt() + s["grafting_epsilon"])


class ReferenceParameter:
    """One parameter's weights, blocks and step count."""

    def __init__(self, weight: Tensor, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.W = weight.detach().to(torch.float64).clone()
        self.t = 0
        longest = settings["max_preconditioner_dim"]
        self.sides = merge(tuple(weight.shape), longest)
        cuts = [piece_lengths(d, longest) for d in self.sides] if len(self.sides) > 1 else [[d] for d in self.sides]
        edges = [list(itertools.accumulate(lengths, initial=0)) for lengths in cuts]
        self.places = [
            tuple(slice(a, b) for a, b in corner)
            for corner in itertools.product(*(itertools.pairwise(e) for e in edges))
        ]
        self.blocks = [ReferenceBlock(tuple(s.stop - s.start for s in place), settings) for place in self.places]

    def step(self, gradient: Tensor) -> None:
        s = self.settings
        self.t += 1
        W, G = self.W.reshape(self.sides).clone(), gradient.detach().to(torch.float64).reshape(self.sides)
        if s["weight_decay_type"] == "l2":
            G = G + s["weight_decay"] * W
        elif s["weight_decay_type"] == "decoupled":
            W = (1 - s["lr"] * s["weight_decay"]) * W
        else:
            W = (1 - s["weight_decay"] * s["lr"] / s["peak_lr"]) * W
        for place, block in zip(self.places, self.blocks, strict=True):
            W[place] = W[place] - s["lr"] * block.direction(G[place], self.t)
        self.W = W.reshape(self.W.shape)


class ReferenceShampoo:
    """The textbook optimizer over a list of tensors; weights are read from `weights`."""

    def __init__(self, tensors: Sequence[Tensor], settings: dict[str, Any]) -> None:
        self.settings = {"peak_lr": settings["lr"], **settings}
        self.parameters = [ReferenceParameter(tensor, self.settings) for tensor in tensors]

    def step(self, gradients: Sequence[Tensor | None]) -> None:
        """Steps every parameter that has a gradient."""
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            if gradient is not None:
                parameter.step(gradient)

    @property
    def weights(self) -> list[Tensor]:
        return [parameter.W for parameter in self.parameters]
