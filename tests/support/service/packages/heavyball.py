"""`heavyball.SOAP` and `heavyball.Muon`, as their recurrences were read in release 3.2.1: float64 transcriptions, not
the package, which compiles for minutes.

SOAP, per matrix, n = t - 1, β̂ = 1 - (1 - β)/(1 - βⁿ) or for the factors with t in place of n:

    t = 1           A_i = G_(i)G_(i)ᵀ;  Q_i = its eigenvectors;  nothing moves
    later           G' = G x_i Q_iᵀ;  M ← β̂1 M + (1 - β̂1) G';  V ← β̂2 V + (1 - β̂2) G'²
                    P = (M / max(√V, ε)) x_i Q_i;  A_i ← β̂s A_i + (1 - β̂s) G_(i)G_(i)ᵀ
                    if due:  Q' = the Q of A Q + lift·Q, columns by descending diag(Qᵀ A Q), put back in the old order;
                    M is turned from Q to Q', V is not;  W ← (1 - lr·λ) W - lr·P

Due as often as the sum of 1/f passes an integer. Vectors take AdamW's steps of the same form, from the first on.

Muon: E ← β1 E + (1 - β1) G;  X = G + E with Nesterov, else E;  with `heavyball_momentum` E ← β1 E + G;  X = G + β1 E
with Nesterov, else E;  P = √max(1, m/n)·O(X), O five steps of the quintic iteration with a set of coefficients each. A
kernel is a matrix m×n of its first side and all others;  W ← (1 - lr·λ) W - lr·P, each of its group.

Left out: blocks, merged shapes, precisions below float64.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from tests.support.shampoo.reference.members import mode_products, unfold

COEFFICIENTS = (
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
)


def _debiased(beta: float, step: int) -> float:
    return 1 - (1 - beta) / (1 - beta**step)


class _Transcribed(Optimizer):
    def __init__(self, params: Any, **defaults: Any) -> None:
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state[param]
                if not state:
                    state.update(t=0, W=param.detach().double())
                state["t"] += 1
                P = self.direction(state, param.grad.double(), group)
                if P is not None:
                    state["W"] = (1 - group["lr"] * group["weight_decay"]) * state["W"] - group["lr"] * P
                    param.copy_(state["W"])

    def direction(self, state: dict[str, Any], G: Tensor, group: dict[str, Any]) -> Tensor | None:
        raise NotImplementedError


class SOAP(_Transcribed):
    def direction(self, state: dict[str, Any], G: Tensor, group: dict[str, Any]) -> Tensor | None:
        t, is_matrix = state["t"], G.ndim > 1
        if t == 1:
            state["A"] = [unfold(G, i) @ unfold(G, i).T for i in range(G.ndim)] if is_matrix else []
            state["Q"] = [torch.linalg.eigh(A).eigenvectors.flip(1) for A in state["A"]]
            state.update(M=torch.zeros_like(G), V=torch.zeros_like(G), due=0.0)
            return None
        Q, M, V = state["Q"], state["M"], state["V"]
        turned = mode_products(G, [one.T for one in Q])
        for name, average, new, beta in (("M", M, turned, group["betas"][0]), ("V", V, turned**2, group["betas"][1])):
            weight = _debiased(beta, t - 1)
            state[name] = weight * average + (1 - weight) * new
        P = mode_products(state["M"] / state["V"].sqrt().clamp(min=group["eps"]), Q)
        weight = _debiased(group["shampoo_beta"], t)
        state["A"] = [weight * A + (1 - weight) * unfold(G, i) @ unfold(G, i).T for i, A in enumerate(state["A"])]
        before = math.floor(state["due"])
        state["due"] += 1 / group["precondition_frequency"]
        if is_matrix and math.floor(state["due"] + 1e-9) > before:
            bases = [_refined(A, one, group["eps"]) for A, one in zip(state["A"], Q, strict=True)]
            state["M"] = mode_products(mode_products(state["M"], Q), [one.T for one in bases])
            state["Q"] = bases
        return P


def _refined(A: Tensor, Q: Tensor, floor: float) -> Tensor:
    product = A @ Q
    values = (Q * product).sum(dim=0)
    noise = min(64 * len(A) * torch.finfo(torch.float32).eps, 0.125)
    work = product + max(floor, noise) * float(values.abs().max()) * Q
    order = values.argsort(descending=True)
    found, triangular = torch.linalg.qr(work[:, order])
    found = found * torch.where(triangular.diagonal() < 0, -1.0, 1.0)
    refined = torch.empty_like(found)
    refined[:, order] = found
    return refined


class Muon(_Transcribed):
    def direction(self, state: dict[str, Any], G: Tensor, group: dict[str, Any]) -> Tensor:
        beta, shape = group["betas"][0], G.shape
        G = G.flatten(1)
        is_sum = group.get("heavyball_momentum", False)
        state["E"] = beta * state.get("E", torch.zeros_like(G)) + (1 if is_sum else 1 - beta) * G
        X = (G + (beta if is_sum else 1) * state["E"]) if group["nesterov"] else state["E"]
        m, n = X.shape
        X = X / X.norm().clamp(min=1e-7)
        X = X.T if m > n else X
        for a, b, c in COEFFICIENTS:
            gram = X @ X.T
            X = a * X + (b * gram + c * gram @ gram) @ X
        scaled: Tensor = (X.T if m > n else X) * max(1, m / n) ** 0.5
        return scaled.view(shape)
