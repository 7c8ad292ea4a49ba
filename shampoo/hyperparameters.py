"""The hyperparameters of one parameter group: their meaning, their legal values, and the scalars of one step.

They live in `param_groups` and are read and checked at every step, so a change there (a learning-rate schedule,
population-based training) takes effect at the next step or raises.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias, get_args

Grafting: TypeAlias = Literal["none", "sgd", "adagrad", "rmsprop", "adam"]
WeightDecayType: TypeAlias = Literal["decoupled", "l2", "independent"]

DEFAULT_GRAFTING_EPSILON = 1e-8


def _require(condition: bool, name: str, value: object, rule: str) -> None:
    if not condition:
        raise ValueError(f"{name} must be {rule}, got {value!r}")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """Checked hyperparameters of a parameter group; flat and JSON-able.

    Raises:
        ValueError: a value is illegal, or would have no effect beside the others; the message holds the values.
    """

    lr: float
    """Learning rate, >= 0. With grafting it has the scale of the grafted method's learning rate."""
    betas: tuple[float, float]
    """(β1, β2). β1 in [0, 1) averages the gradient, 0 keeps no average; β2 in [0, 1] averages the factors, 1 sums."""
    beta3: float | None
    """Weight of the old average in the current direction, in [0, 1); None: β1. β1² gives Nadam."""
    epsilon: float
    """Added to the eigenvalues of a factor, *as a share of its largest one*; > 0."""
    weight_decay: float
    """λ >= 0."""
    weight_decay_type: WeightDecayType
    """decoupled: W ← (1 − lr·λ)W, as AdamW; independent: W ← (1 − λ·lr/peak_lr)W; l2: G ← G + λW."""
    momentum: float
    """μ in [0, 1) of B ← μB + P, undamped as in `torch.optim.SGD`; 0: none."""
    nesterov: bool
    """Step along P + μB instead of B; needs momentum."""
    max_preconditioner_dim: int
    """Longest side of a block, >= 2; longer sides are cut evenly. Shapes the state."""
    precondition_frequency: int
    """Steps from one refresh of the roots to the next, >= 1."""
    start_preconditioning_step: int | None
    """Step of the first refresh; before it the grafted method steps alone. None: `precondition_frequency`."""
    statistics_frequency: int
    """Steps from one update of the factors to the next; at most the two above."""
    grafting: Grafting
    """Method whose step length each block takes; none: the preconditioned step's own length. Shapes the state."""
    grafting_beta2: float | None
    """Average of squared gradients of rmsprop and adam grafting, in [0, 1); None: β2."""
    grafting_epsilon: float
    """Added to the root of the squared gradients in adagrad, rmsprop and adam grafting; > 0."""
    exponent_override: float | None
    """Factors enter as A^(−exponent_override), > 0, for every order >= 2; None: 1/(2·order)."""
    use_bias_correction: bool
    """Divide averages (gradient, factors, adam grafting) by the sum of their weights."""

    def __post_init__(self) -> None:
        _require(_is_number(self.lr) and self.lr >= 0, "lr", self.lr, "a finite number >= 0")
        self._check_averages()
        for name in ("weight_decay", "epsilon", "grafting_epsilon"):
            value = getattr(self, name)
            _require(_is_number(value) and value >= 0, name, value, "a finite number >= 0")
        for name in ("epsilon", "grafting_epsilon"):
            _require(getattr(self, name) > 0, name, getattr(self, name), "> 0")
        decays = get_args(WeightDecayType)
        _require(self.weight_decay_type in decays, "weight_decay_type", self.weight_decay_type, f"one of {decays}")
        _require(isinstance(self.nesterov, bool), "nesterov", self.nesterov, "a bool")
        _require(isinstance(self.use_bias_correction, bool), "use_bias_correction", self.use_bias_correction, "a bool")
        if self.nesterov and self.momentum == 0:
            raise ValueError(f"nesterov needs momentum > 0, got nesterov={self.nesterov}, momentum={self.momentum}")
        exponent = self.exponent_override
        _require(
            exponent is None or (_is_number(exponent) and exponent > 0),
            "exponent_override",
            exponent,
            "None or a finite number > 0",
        )
        self._check_schedule()
        self._check_grafting()

    def _check_averages(self) -> None:
        betas = self.betas
        _require(
            isinstance(betas, tuple | list) and len(betas) == 2 and all(map(_is_number, betas)),
            "betas",
            betas,
            "a pair of numbers",
        )
        object.__setattr__(self, "betas", (betas[0], betas[1]))
        _require(0 <= betas[0] < 1, "betas[0]", betas[0], "in [0, 1)")
        _require(0 <= betas[1] <= 1, "betas[1]", betas[1], "in [0, 1]")
        _require(
            self.beta3 is None or (_is_number(self.beta3) and 0 <= self.beta3 < 1),
            "beta3",
            self.beta3,
            "None or in [0, 1)",
        )
        if self.beta3 is not None and betas[0] == 0:
            raise ValueError(f"beta3 needs betas[0] > 0, got beta3={self.beta3}, betas[0]={betas[0]}")
        _require(_is_number(self.momentum) and 0 <= self.momentum < 1, "momentum", self.momentum, "in [0, 1)")

    def _check_schedule(self) -> None:
        _require(
            _is_int(self.max_preconditioner_dim) and self.max_preconditioner_dim >= 2,
            "max_preconditioner_dim",
            self.max_preconditioner_dim,
            "an integer >= 2",
        )
        for name in ("precondition_frequency", "statistics_frequency"):
            value = getattr(self, name)
            _require(_is_int(value) and value >= 1, name, value, "an integer >= 1")
        start = self.start_preconditioning_step
        _require(
            start is None or (_is_int(start) and start >= 1),
            "start_preconditioning_step",
            start,
            "None or an integer >= 1",
        )
        if self.statistics_frequency > min(self.precondition_frequency, self.first_refresh):
            raise ValueError(
                "a refresh before the statistics have changed has no effect: statistics_frequency="
                f"{self.statistics_frequency} must be at most precondition_frequency={self.precondition_frequency} "
                f"and start_preconditioning_step={self.first_refresh}"
            )

    def _check_grafting(self) -> None:
        methods = get_args(Grafting)
        _require(self.grafting in methods, "grafting", self.grafting, f"one of {methods}")
        averaged = self.grafting in ("rmsprop", "adam")
        if self.grafting_beta2 is not None:
            _require(
                _is_number(self.grafting_beta2) and 0 <= self.grafting_beta2 < 1,
                "grafting_beta2",
                self.grafting_beta2,
                "None or in [0, 1)",
            )
            if not averaged:
                raise ValueError(f"grafting_beta2={self.grafting_beta2} has no effect with grafting={self.grafting!r}")
        elif averaged and self.betas[1] == 1:
            raise ValueError(f"grafting={self.grafting!r} with betas[1]=1 needs grafting_beta2 < 1, got None")
        if self.grafting in ("none", "sgd") and self.grafting_epsilon != DEFAULT_GRAFTING_EPSILON:
            raise ValueError(f"grafting_epsilon={self.grafting_epsilon} has no effect with grafting={self.grafting!r}")

    @classmethod
    def of_group(cls, group: Mapping[str, Any]) -> Self:
        """The hyperparameters that a parameter group holds now."""
        missing = [name for name in NAMES if name not in group]
        if missing:
            raise ValueError(f"parameter group lacks {', '.join(missing)}")
        return cls(**{name: group[name] for name in NAMES})

    @property
    def first_refresh(self) -> int:
        """Step of the first refresh, `start_preconditioning_step` or its default."""
        start = self.start_preconditioning_step
        return self.precondition_frequency if start is None else start

    @property
    def second_moment_beta(self) -> float:
        """The β of grafting's squared gradients; meaningful for rmsprop and adam."""
        return self.betas[1] if self.grafting_beta2 is None else self.grafting_beta2

    @property
    def structure(self) -> dict[str, object]:
        """What decides which state tensors exist and their shapes: fixed once the state is allocated."""
        return {
            "max_preconditioner_dim": self.max_preconditioner_dim,
            "grafting": self.grafting,
            "betas[0] > 0": self.betas[0] > 0,
            "momentum > 0": self.momentum > 0,
        }

    def require_structure(self, built: Mapping[str, object]) -> None:
        """Checks that the state that was allocated for `built` still fits.

        Raises:
            ValueError: it does not; the message says what changed.
        """
        for name, value in self.structure.items():
            if built[name] != value:
                raise ValueError(
                    f"{name} changed from {built[name]!r} to {value!r}: it shapes the optimizer state, "
                    "so it needs a new optimizer"
                )


NAMES: tuple[str, ...] = tuple(field.name for field in dataclasses.fields(Hyperparameters))


@dataclass(frozen=True, slots=True)
class StepScalars:
    """What depends on hyperparameters and a parameter's step count t = 1, 2, ... alone."""

    preconditioned: bool
    """t has reached the first refresh."""
    update_statistics: bool
    refresh: bool
    factor_decay: float
    """Weight of the old factor in an update of the statistics."""
    factor_weight: float
    """Weight of G Gᵀ in it."""
    factor_correction: float
    """Sum of the weights in the factor; 1 for sums and without bias correction."""
    first_moment_correction: float
    """Sum of the weights in the direction F."""
    second_moment_correction: float
    """Sum of the weights in V; 1 unless grafting is adam with bias correction."""


def step_scalars(h: Hyperparameters, t: int) -> StepScalars:
    """The scalars of step t.

    Statistics taken every k steps decay by β2^k, which keeps their horizon in steps. The correction of the direction
    F_t = β3·M_{t−1} + (1 − β3)·G_t is 1 − β3·β1^(t−1), which is Adam's 1 − β1^t for β3 = β1.
    """
    beta1, beta2 = h.betas
    beta3 = beta1 if h.beta3 is None else h.beta3
    k = h.statistics_frequency
    decay = beta2**k
    correct = h.use_bias_correction
    return StepScalars(
        preconditioned=t >= h.first_refresh,
        update_statistics=t % k == 0,
        refresh=t >= h.first_refresh and (t - h.first_refresh) % h.precondition_frequency == 0,
        factor_decay=decay,
        factor_weight=1.0 if beta2 == 1 else 1 - decay,
        factor_correction=1 - decay ** (t // k) if correct and beta2 < 1 else 1.0,
        first_moment_correction=1 - beta3 * beta1 ** (t - 1) if correct and beta1 > 0 else 1.0,
        second_moment_correction=1 - h.second_moment_beta**t if correct and h.grafting == "adam" else 1.0,
    )
