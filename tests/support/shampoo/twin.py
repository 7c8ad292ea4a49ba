"""Shampoo in one small class, to read before the optimizer; it takes the same steps.

Per parameter W with gradient G, at its step t = 1, 2, ..., with one factor A_i for each side of the tensor:

    M ← β1 M + (1 − β1) G;   V ← β2 V + (1 − β2) G⊙G                          Adam's averages, and
    A_i ← β2 A_i + (1 − β2) G_(i) G_(i)ᵀ                                      one of each side
    N = (M / (1 − β1^t)) / (√(V / (1 − β2^t)) + εg)                           Adam's step, which a vector takes
    P = M ×_i A_i^(−1/2k), k sides, whose eigenvalues λ count as λ + ε·λmax   Shampoo's direction,
    W ← (1 − lr·λ_w) W − lr · P ‖N‖/‖P‖                                       with the length of Adam's step

It lacks the rest of the optimizer: blocks of long sides, merged short ones, other arguments, speed, ranks.
`Shampoo(..., stagger_refresh=False)` takes the same steps wherever no side is cut or merged.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class PlainShampoo(torch.optim.Optimizer):
    def __init__(self, params: Iterable[Tensor], lr: float = 1.5e-3, **changes: Any) -> None:
        defaults = {"betas": (0.9, 0.999), "epsilon": 1e-6, "weight_decay": 0.0, "precondition_frequency": 50}
        super().__init__(params, {"lr": lr, **defaults, "grafting_epsilon": 1e-8, **changes})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # closures are left out
        for group in self.param_groups:
            for W in [W for W in group["params"] if W.grad is not None]:
                self._step(W, W.grad, self.state[W], group)

    def _step(self, W: Tensor, G: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        if not state:
            A = [W.new_zeros(d, d) for d in W.shape if W.dim() > 1]
            state.update(t=0, M=torch.zeros_like(W), V=torch.zeros_like(W), A=A, roots=A)
        state["t"] += 1
        state["M"].lerp_(G, 1 - beta1)
        state["V"].lerp_(G * G, 1 - beta2)
        for i, A in enumerate(state["A"]):
            unfolded = G.movedim(i, 0).flatten(start_dim=1)
            A.lerp_(unfolded @ unfolded.T, 1 - beta2)
        if (state["t"] - 1) % group["precondition_frequency"] == 0:
            state["roots"] = [inverse_root(A, 1 / (2 * W.dim()), group["epsilon"]) for A in state["A"]]
        mean = state["M"] / (1 - beta1 ** state["t"])
        adam = mean / ((state["V"] / (1 - beta2 ** state["t"])).sqrt() + group["grafting_epsilon"])
        P = mean if state["roots"] else adam
        for i, root in enumerate(state["roots"]):
            P = torch.tensordot(root, P, dims=([1], [i])).movedim(0, i)
        length = adam.norm() / P.norm() if P.norm() > 0 else 0.0
        W.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * length * P)


def inverse_root(A: Tensor, exponent: float, epsilon: float) -> Tensor:
    values, Q = torch.linalg.eigh(A)
    largest = values.max() or 1.0  # without any gradient the root is not needed
    return torch.mm(Q * (values.clamp(min=0) + epsilon * largest).pow(-exponent), Q.T)
