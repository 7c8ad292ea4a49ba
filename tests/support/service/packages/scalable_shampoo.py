"""`distributed_shampoo` of google-research/scalable_shampoo for optax, as its recurrence was read on commit 01aac340:
a float64 transcription in torch, not the package, which needs JAX.

At count c = 0, 1, ..., per parameter, with f the period of roots and s the start:

    statistics      A_i ← β2 A_i + (1 - β2) G_(i)G_(i)ᵀ, from ε·I, sums if β2 = 1; if the period of statistics divides c
    roots           if f divides c:  P_i = (A_i + ε λmax I)^(-1/p), λmax 1 unless relative; p = 2·order or the override
    grafting        N = G (SGD), G / (√V + εg) with V ← V + G² (AdaGrad) or β2 V + (1 - β2) G² (RMSprop)
    step            S = G x_i P_i · ‖N‖ / (‖G x_i P_i‖ + 1e-16);  without a preconditioner S = N
                    both are multiplied by the learning rate here if it is not decoupled
    momentum        B ← β1 B + S, and of N alike;  Nesterov S + β1 B;  those of N while c < s
    decay           decoupled: + lr·λ·W;  the update is -lr times all of it if the learning rate is decoupled

Left out: blocks of a longer side, shapes that are merged, quantisation, the iteration that stands for `eigh`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Any

import torch
from torch import Tensor

from tests.support.shampoo.reference.members import mode_products, unfold


class GraftingType(Enum):
    SGD = auto()
    ADAGRAD = auto()
    RMSPROP = auto()


class Transformation:
    """A gradient transformation over one list of tensors, which keeps its state itself."""

    def __init__(self, update: Callable[[list[Tensor], list[Tensor]], list[Tensor]]) -> None:
        self.update = update


def clip_by_global_norm(max_norm: float) -> Transformation:
    """That of optax."""

    def update(gradients: list[Tensor], _params: list[Tensor]) -> list[Tensor]:
        norm = torch.cat([G.flatten() for G in gradients]).norm()
        return gradients if norm < max_norm else [G / norm * max_norm for G in gradients]

    return Transformation(update)


def chain(*parts: Transformation) -> Transformation:
    """That of optax."""

    def update(gradients: list[Tensor], params: list[Tensor]) -> list[Tensor]:
        for part in parts:
            gradients = part.update(gradients, params)
        return gradients

    return Transformation(update)


def distributed_shampoo(**given: Any) -> Transformation:
    state: dict[int, _Parameter] = {}
    count = 0

    def update(gradients: list[Tensor], params: list[Tensor]) -> list[Tensor]:
        nonlocal count
        for index, param in enumerate(params):
            state.setdefault(index, _Parameter(param, given))
        found = [state[i].update(G, params[i], count) for i, G in enumerate(gradients)]
        count += 1
        return found

    return Transformation(update)


class _Parameter:
    def __init__(self, param: Tensor, given: dict[str, Any]) -> None:
        if not given["moving_average_for_momentum"] and not given["best_effort_shape_interpretation"]:
            self.given = given
        else:
            raise NotImplementedError("averages for momentum, or merged shapes")
        has_factors = param.ndim >= given["skip_preconditioning_rank_lt"]
        shape = param.shape if has_factors else ()
        if any(d > given["block_size"] for d in shape):
            raise NotImplementedError("blocks")
        self.A = [given["matrix_epsilon"] * torch.eye(d, dtype=torch.float64) for d in shape]
        self.roots = [torch.eye(d, dtype=torch.float64) for d in shape]
        self.V, self.B, self.B_graft = (torch.zeros_like(param, dtype=torch.float64) for _ in range(3))

    def update(self, G: Tensor, W: Tensor, count: int) -> Tensor:
        o = self.given
        beta1, beta2, weight = o["beta1"], o["beta2"], 1.0 if o["beta2"] == 1.0 else 1 - o["beta2"]
        if count % o["statistics_compute_steps"] == 0:
            self.A = [beta2 * A + weight * unfold(G, i) @ unfold(G, i).T for i, A in enumerate(self.A)]
        if count % o["preconditioning_compute_steps"] == 0:
            self.roots = [self._root(A) for A in self.A]
        N = G
        if o["graft_type"] is not GraftingType.SGD:
            is_sum = o["graft_type"] is GraftingType.ADAGRAD
            self.V = self.V + G * G if is_sum else beta2 * self.V + weight * G * G
            N = G / (self.V.sqrt() + o["diagonal_epsilon"])
        lr = float(o["learning_rate"](count))
        N = N * (1.0 if o["decoupled_learning_rate"] else lr)
        P = mode_products(G, self.roots) if self.A else N
        S = P * (N.norm() / (P.norm() + 1e-16))
        decay = o["weight_decay"] * W
        if not o["decoupled_weight_decay"]:
            S, N = S + decay, N + decay
        self.B, self.B_graft = beta1 * self.B + S, beta1 * self.B_graft + N
        has_begun = count >= o["start_preconditioning_step"]
        step, momentum = (S, self.B) if has_begun else (N, self.B_graft)
        found = step + beta1 * momentum if o["nesterov"] else momentum
        if o["decoupled_weight_decay"]:
            found = found + lr * decay
        return -found * (lr if o["decoupled_learning_rate"] else 1.0)

    def _root(self, A: Tensor) -> Tensor:
        values, Q = torch.linalg.eigh(A)
        unit = float(values.max()) if self.given["relative_matrix_epsilon"] else 1.0
        power = self.given["exponent_override"] or 2 * len(self.A)
        root: Tensor = Q * (values.clamp(min=0) + self.given["matrix_epsilon"] * unit).pow(-1 / power) @ Q.T
        return root
