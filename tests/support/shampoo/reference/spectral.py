"""The spectral member on one block, in float64: a part of the specification, with the letters of `members.py`.

spectral (Muon): P = scale · O(F), F seen as m × n with m = d_1; O is Newton-Schulz, five steps; scale 0.2·√max(m, n)
("match_rms_adamw") or √max(1, m/n) ("original").

    standardize_rows   O(X), X = (F − mean)/deviation of each row of F, 0 for a row of one value; F where n = 1
    matrix_norm rows   P = c·F_i/RMS(F_i) for each row i of F, 0 for a row of zeros; c = 0.2 or 1
    rank r             COSMOS, arXiv 2502.17410, of F seen as l × d, d the shorter side, with r ≤ d columns Q (cosines
                       at first), S (0) and V (0):
                       Q' = the Q of β2 Q S + (1 − β2) GᵀGQ;  T = QᵀQ';  S ← β2 TᵀST + (1 − β2) (GQ')ᵀGQ'
                       V ← β2 V + (1 − β2) (GQ')∘(GQ');  A = (FQ'/(√(V/(1 − β2^t)) + εg)) Q'ᵀ
                       B = O(F − FQ'Q'ᵀ) with RMS `rest_scale`;  P = c·(A + B)/RMS(A + B); c = 0.2 or 1
                       Directions that no gradient has had stay as they are, and have no step
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tests.support.shampoo.reference.members import Block, average, newton_schulz


def cosines(d: int) -> Tensor:
    """The discrete cosine transform: orthonormal columns, of ever higher frequency."""
    angles = torch.outer(torch.arange(d, dtype=torch.float64) + 0.5, torch.arange(d, dtype=torch.float64)) * math.pi / d
    return torch.nn.functional.normalize(torch.cos(angles), dim=0)


def rms(X: Tensor) -> Tensor:
    """The root mean square, of zeros 1."""
    value = X.square().mean().sqrt()
    return torch.where(value > 0, value, 1.0)


class SpectralBlock(Block):
    def __init__(self, shape: tuple[int, ...], kinds: Sequence[str], s: dict[str, Any]) -> None:
        super().__init__(shape, ["identity"] * len(shape), s)
        if s["rank"] is not None:
            d, long = sorted((shape[0], math.prod(shape[1:])))
            self.Q = cosines(d)[:, : s["rank"]]
            r = self.Q.shape[1]
            self.S, self.W = (torch.zeros(size, r, dtype=torch.float64) for size in (r, long))

    def direction(self, F: Tensor, G: Tensor, t: int) -> Tensor:
        X = F.reshape(self.shape[0], -1)
        if self.s["rank"] is not None:
            Y = G.reshape(self.shape[0], -1)
            wide = len(X) < X.shape[1]
            P = self.by_parts(X.T, Y.T, t).T if wide else self.by_parts(X, Y, t)
            return P.reshape(self.shape)
        m, n = X.shape
        matches_adamw = self.s["adjust_lr_fn"] == "match_rms_adamw"
        if self.s["matrix_norm"] == "rows":
            length = X.square().mean(dim=1, keepdim=True).sqrt()
            return (0.2 if matches_adamw else 1.0) * torch.where(length > 0, X / length, 0.0).reshape(self.shape)
        if self.s["standardize_rows"] and n > 1:
            X = X - X.mean(dim=1, keepdim=True)
            deviation = X.std(dim=1, keepdim=True, correction=0)
            X = torch.where(deviation > 0, X / deviation, 0.0)
        scale = 0.2 * math.sqrt(max(m, n)) if matches_adamw else math.sqrt(max(1, m / n))
        return (scale * newton_schulz(X)).reshape(self.shape)

    def by_parts(self, F: Tensor, G: Tensor, t: int) -> Tensor:
        """Adam along the columns of Q, and the rest orthogonalised; the shorter side is the second."""
        beta2, Q = self.s["betas"][1], self.Q
        C = beta2 * Q @ self.S + (1 - beta2) * G.T @ G @ Q
        self.Q = torch.linalg.qr(C / C.abs().max().clamp(min=1e-300) + 1e-28 * Q).Q
        T = Q.T @ self.Q
        self.S = average(T.T @ self.S @ T, (G @ self.Q).T @ G @ self.Q, beta2)
        self.W = average(self.W, (G @ self.Q).square(), beta2)
        correction = 1 - beta2**t if self.s["use_bias_correction"] else 1
        N = F @ self.Q / ((self.W / correction).sqrt() + self.s["grafting_epsilon"])
        squares = torch.diag(self.S)
        N = torch.where(squares > 1e-28 * squares.max(), N, 0.0)
        rest = F - F @ self.Q @ self.Q.T
        if rest.abs().max() < 1e-14 * F.abs().max():
            rest = torch.zeros_like(rest)
        B = newton_schulz(rest)
        P = N @ self.Q.T + B * self.s["rest_scale"] / rms(B)
        scaled: Tensor = P * ((0.2 if self.s["adjust_lr_fn"] == "match_rms_adamw" else 1.0) / rms(P))
        return scaled
