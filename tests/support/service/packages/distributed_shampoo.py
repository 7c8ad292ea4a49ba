"""`distributed_shampoo` of facebookresearch/optimizers, as its recurrence was read on commit f606606: a float64
transcription, not the package, which is on no index.

Per block, at step t = 1, 2, ... of its group:

    L2 decay        G ← G + λW
    factors         A_i ← β2 A_i + w G_(i)G_(i)ᵀ, w = 1 - β2, or 1 if β2 = 1; every step
    roots           if t = s, or t > s and f divides t:  Â_i = A_i / (1 - β2ᵗ), with trace scaling / max(tr Â_i, ε);
                    P_i = (Â_i + εI)^(-e), e = 1/(2·order); pseudo-inverse: Λ ≤ rtol·max Λ, or atol, has the root 0
    grafting        V ← V + G² (AdaGrad), or βV + (1 - β)G²; Adam divides by 1 - βᵗ, always
    first moment    F = (β3 M + (1 - β3) G) / (1 - β3 β1^(t-1));  M ← β1 M + (1 - β1) G
    step            P = N(F) before s; else F x_i P_i · ‖N(F)‖ / ‖F x_i P_i‖, unscaled without grafting
    decay           P ← P + αW, α = λ (DECOUPLED) or λ / peak lr (INDEPENDENT)
    momentum        B ← μB + (1 - τ)P;  P ← B, with Nesterov (1 - τ)P + μB;   W ← W - lr·P

SOAP keeps V of G' = G x_i Q_iᵀ in whatever basis there is, unturned. Spectral descent orthogonalises F.
Left out: ranks, eigh's failures, iterate averages beside the momentum, orders above 2.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from tests.support.shampoo.reference.members import mode_products, newton_schulz, unfold


class WeightDecayType(Enum):
    L2 = 0
    DECOUPLED = 1
    INDEPENDENT = 3


@dataclass(frozen=True)
class SingleDeviceDistributedConfig:
    target_parameter_dimensionality: float = 1


@dataclass(frozen=True)
class ClassicMomentumConfig:
    momentum: float = 0.5
    dampening: float = 0.0
    use_nesterov: bool = False


@dataclass(frozen=True)
class SGDPreconditionerConfig:
    pass


@dataclass(frozen=True)
class AdaGradPreconditionerConfig:
    epsilon: float = 1e-10


@dataclass(frozen=True)
class RMSpropPreconditionerConfig(AdaGradPreconditionerConfig):
    beta2: float = 0.99


@dataclass(frozen=True)
class AdamPreconditionerConfig(AdaGradPreconditionerConfig):
    beta2: float = 0.999


@dataclass(frozen=True)
class PseudoInverseConfig:
    rank_atol: float = 0.0
    rank_rtol: float = 0.0


@dataclass(frozen=True)
class EigenConfig:
    rank_deficient_stability_config: PseudoInverseConfig | None = None


@dataclass(frozen=True)
class EighEigendecompositionConfig:
    pass


@dataclass(frozen=True)
class RootInvShampooPreconditionerConfig:
    amortized_computation_config: EigenConfig = EigenConfig()
    num_tolerated_failed_amortized_computations: int = 3
    use_trace_scaling: bool = False
    trace_scaling_exponent: float = 0.5
    inverse_exponent_override: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class EigenvalueCorrectedShampooPreconditionerConfig:
    amortized_computation_config: EighEigendecompositionConfig = EighEigendecompositionConfig()


@dataclass(frozen=True)
class NewtonSchulzOrthogonalizationConfig:
    scale_by_dims_fn: Callable[[int, int], float] = lambda *_: 1.0


@dataclass(frozen=True)
class SpectralDescentPreconditionerConfig:
    orthogonalization_config: NewtonSchulzOrthogonalizationConfig = NewtonSchulzOrthogonalizationConfig()


class DistributedShampoo(Optimizer):
    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        betas: tuple[float, float] = (0.9, 1.0),
        beta3: float = -1.0,
        epsilon: float = 1e-12,
        weight_decay: float = 0.0,
        weight_decay_type: WeightDecayType = WeightDecayType.DECOUPLED,
        max_preconditioner_dim: int = 1024,
        precondition_frequency: int = 1,
        start_preconditioning_step: float = -1,
        use_bias_correction: bool = True,
        iterate_averaging_config: ClassicMomentumConfig | None = None,
        grafting_config: Any = None,
        distributed_config: SingleDeviceDistributedConfig | None = None,
        preconditioner_config: Any = None,
    ) -> None:
        if distributed_config != SingleDeviceDistributedConfig(target_parameter_dimensionality=2):
            raise NotImplementedError("small matrices would be merged into vectors")
        defaults = {name: value for name, value in locals().items() if name not in ("self", "params", "__class__")}
        self._peak_lr = lr
        super().__init__(params, defaults)
        for group in self.param_groups:
            if group["start_preconditioning_step"] == -1:
                group["start_preconditioning_step"] = group["precondition_frequency"]
            if group["start_preconditioning_step"] < group["precondition_frequency"]:
                raise ValueError("start_preconditioning_step must be at least precondition_frequency")

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state[param]
                if not state:
                    state["W"], state["t"] = param.detach().double(), 0
                    state["blocks"] = _blocks(param, group["max_preconditioner_dim"])
                state["t"] += 1
                W = state["W"].reshape([d for d in param.shape if d != 1] or [1])
                G = param.grad.double().reshape(W.shape)
                for place, block in state["blocks"]:
                    W[place] += block.step(W[place].clone(), G[place], state["t"], group, self._peak_lr)
                param.copy_(state["W"])


def _blocks(param: Tensor, longest: int) -> list[tuple[tuple[slice, ...], _Block]]:
    sides = [d for d in param.shape if d != 1] or [1]
    if len(sides) > 2:
        raise NotImplementedError("the transcription stops at matrices")
    cuts = [[slice(i, min(i + longest, d)) for i in range(0, d, longest)] for d in sides]
    return [(place, _Block([s.stop - s.start for s in place])) for place in itertools.product(*cuts)]


class _Block:
    def __init__(self, shape: list[int]) -> None:
        self.A = [torch.zeros(d, d, dtype=torch.float64) for d in shape]
        self.roots = [torch.eye(d, dtype=torch.float64) for d in shape]
        self.M, self.V, self.D, self.B = (torch.zeros(shape, dtype=torch.float64) for _ in range(4))

    def step(self, W: Tensor, G: Tensor, t: int, group: dict[str, Any], peak_lr: float) -> Tensor:
        beta1, beta2 = group["betas"]
        beta3 = beta1 if group["beta3"] == -1 else group["beta3"]
        decay, kind = group["weight_decay"], group["weight_decay_type"]
        if kind is WeightDecayType.L2:
            G = G + decay * W
        self.A = [
            beta2 * A + (1 if beta2 == 1 else 1 - beta2) * unfold(G, i) @ unfold(G, i).T for i, A in enumerate(self.A)
        ]
        corrects, start, f = (
            group["use_bias_correction"],
            group["start_preconditioning_step"],
            group["precondition_frequency"],
        )
        c2 = 1 - beta2**t if corrects and beta2 < 1 else 1.0
        config = group["preconditioner_config"]
        is_spectral = isinstance(config, SpectralDescentPreconditionerConfig)
        is_soap = isinstance(config, EigenvalueCorrectedShampooPreconditionerConfig)
        if not is_spectral and (t == start or (t > start and t % f == 0)):
            self.roots = [self._root(A / c2, config, group["epsilon"], is_soap=is_soap) for A in self.A]
        F = G
        if beta1 > 0:
            F = (beta3 * self.M + (1 - beta3) * G) / (1 - beta3 * beta1 ** (t - 1) if corrects else 1)
            self.M = beta1 * self.M + (1 - beta1) * G
        N = self._grafted(F, G, t, group["grafting_config"])
        if is_soap:
            self.D = beta2 * self.D + (1 - beta2) * mode_products(G, [Q.T for Q in self.roots]) ** 2
        if t < start and N is not None:
            P = N
        else:
            P = self._preconditioned(F, c2, config, group["epsilon"])
            if N is not None:
                P = P * (N.norm() / (P.norm() + 1e-16))
        if kind is not WeightDecayType.L2:
            P = P + (decay if kind is WeightDecayType.DECOUPLED else decay / peak_lr) * W
        momentum = group["iterate_averaging_config"]
        if momentum is not None:
            damped = (1 - momentum.dampening) * P
            self.B = momentum.momentum * self.B + damped
            P = damped + momentum.momentum * self.B if momentum.use_nesterov else self.B
        change: Tensor = -group["lr"] * P
        return change

    def _grafted(self, F: Tensor, G: Tensor, t: int, config: Any) -> Tensor | None:
        if config is None or isinstance(config, SGDPreconditionerConfig):
            return None if config is None else F
        beta = getattr(config, "beta2", 1.0)
        self.V = self.V + G * G if beta == 1.0 else beta * self.V + (1 - beta) * G * G
        corrected = self.V / (1 - beta**t) if isinstance(config, AdamPreconditionerConfig) else self.V
        direction: Tensor = F / (corrected.sqrt() + config.epsilon)
        return direction

    def _root(self, A: Tensor, config: Any, epsilon: float, *, is_soap: bool) -> Tensor:
        eye = torch.eye(len(A), dtype=A.dtype)
        if is_soap:
            vectors: Tensor = torch.linalg.eigh(A + epsilon * eye).eigenvectors
            return vectors
        order = len(self.A)
        exponent = config.inverse_exponent_override.get(order, 1 / (2 * order))
        if config.use_trace_scaling:
            A = A * max(float(A.trace()), epsilon) ** -config.trace_scaling_exponent
        values, Q = torch.linalg.eigh(A + epsilon * eye)
        pseudo = config.amortized_computation_config.rank_deficient_stability_config
        if pseudo is not None:
            threshold = max(pseudo.rank_rtol * float(values.max()), pseudo.rank_atol)
            roots = torch.where(values > threshold, values.clamp(min=1e-300).pow(-exponent), 0.0)
        else:
            values = values - values.min() + epsilon if values.min() < epsilon else values
            roots = values.pow(-exponent)
        root: Tensor = Q * roots @ Q.T
        return root

    def _preconditioned(self, F: Tensor, c2: float, config: Any, epsilon: float) -> Tensor:
        if isinstance(config, SpectralDescentPreconditionerConfig):
            scale = config.orthogonalization_config.scale_by_dims_fn(F.shape[1], F.shape[0])
            return newton_schulz(F) * scale
        if isinstance(config, EigenvalueCorrectedShampooPreconditionerConfig):
            turned = mode_products(F, [Q.T for Q in self.roots])
            return mode_products(turned / ((self.D / c2).sqrt() + epsilon), self.roots)
        return mode_products(F, self.roots)
