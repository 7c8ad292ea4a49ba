"""The hyperparameters of one parameter group: their meaning and their legal values.

They live in `param_groups` and are read and checked at every step, so a change there (a learning-rate schedule,
population-based training) takes effect at the next step or raises. A hyperparameter that a group's member of the
family does not use must have its default: none is silently ignored.

`shampoo.declarations` says how to add one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeAlias

import torch

from shampoo.declarations import (
    AVERAGE,
    AVERAGE_OR_SUM,
    IN_FLIGHT,
    NOT_NEGATIVE,
    POSITIVE,
    Declaration,
    Range,
    declarations_of,
    used_by,
    values_of_group,
)

Preconditioner: TypeAlias = Literal["shampoo", "soap", "kl", "spectral", "none"]
Grafting: TypeAlias = Literal["none", "sgd", "adagrad", "rmsprop", "adam"]
WeightDecayType: TypeAlias = Literal["decoupled", "l2", "independent"]
EpsilonType: TypeAlias = Literal["relative", "absolute"]
Solver: TypeAlias = Literal["eigh", "eigh64", "coupled_newton", "qr", "cholesky_qr"]
LargeDimMethod: TypeAlias = Literal["blocking", "diagonal", "one_sided"]
AdjustLr: TypeAlias = Literal["match_rms_adamw", "original"]
MatrixNorm: TypeAlias = Literal["spectral", "rows"]
StateDtype: TypeAlias = Literal["float32", "bfloat16", "int8", "int4"]
ProductDtype: TypeAlias = Literal["float32", "bfloat16"]
LowPrecisionWeights: TypeAlias = Literal["nearest", "stochastic", "master"]
Distributed: TypeAlias = Literal["auto", "lossless", "local"]
CommunicationDtype: TypeAlias = Literal["float32", "bfloat16", "float16"]

KRONECKER = used_by("shampoo", "soap", "kl")
"""The members with Kronecker factors."""
BOUNDED = used_by("shampoo", "soap")  # members whose steps are bounded, whatever gradients their factors have seen
MATRICES = used_by("shampoo", "soap", "kl", "spectral")
"""The members that treat matrices differently from vectors."""

DEFAULT_REFRESH_PERIOD: Mapping[str, int] = {"shampoo": 50, "soap": 10, "kl": 10, "spectral": 1, "none": 1}
"""Steps from one refresh to the next by member: for soap and kl the period of SOAP's authors, for shampoo the one that
README's figures are measured with; spectral and none refresh nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hyperparameters:
    """Checked hyperparameters of a parameter group; flat and JSON-able.

    Raises:
        ValueError: a value is illegal, or would have no effect with the others; the message holds the values.
    """

    lr: Annotated[float, NOT_NEGATIVE, IN_FLIGHT] = 1.5e-3
    """Learning rate, >= 0. With grafting it has the scale of the grafted method's learning rate, with soap and kl of
    Adam's."""
    betas: Annotated[tuple[float, float], AVERAGE, AVERAGE_OR_SUM, IN_FLIGHT] = (0.9, 0.999)
    """(β1, β2): β1 in [0, 1) averages the gradient, 0 keeps no average; β2 in [0, 1] averages the factors (soap: the
    squared gradient in the eigenbasis, see `shampoo_beta`), 1 sums. Above 0 for kl, and where it counts if β1 is."""
    beta3: Annotated[float | None, AVERAGE, IN_FLIGHT] = None
    """Weight of the old average in the current direction, in [0, 1); None: β1. β1² gives Nadam, or Muon's Nesterov."""
    shampoo_beta: Annotated[float | None, AVERAGE_OR_SUM, used_by("soap"), IN_FLIGHT] = None
    """soap's average of the factors, in [0, 1], 1 sums; None: β2."""
    epsilon: Annotated[float, POSITIVE, used_by("shampoo", "kl"), IN_FLIGHT] = 1e-6
    """Damping ε, added to the eigenvalues of a factor, > 0; with `pseudo_inverse` the largest eigenvalue that counts as
    null. kl wants 1e-2 where gradients have a low rank, as PowerSGD's: each factor counts a direction that is new to
    the other 1/ε times over, and its steps become that much too short."""
    epsilon_type: Annotated[EpsilonType, used_by("shampoo", "kl")] = "relative"
    """relative: `epsilon` is a share of the factor's largest eigenvalue; absolute: a number."""
    weight_decay: Annotated[float, NOT_NEGATIVE, IN_FLIGHT] = 0.0
    """Weight decay λ, >= 0."""
    weight_decay_type: WeightDecayType = "decoupled"
    """decoupled: W ← (1 − lr·λ)W, as AdamW; independent: W ← (1 − λ·lr/peak_lr)W; l2: G ← G + λW."""
    momentum: Annotated[float, AVERAGE, IN_FLIGHT] = 0.0
    """μ in [0, 1) of B ← μB + P, undamped as in `torch.optim.SGD`; 0: none."""
    nesterov: bool = False
    """Step along P + μB instead of B; needs momentum."""
    preconditioner: Preconditioner = "shampoo"
    """The member of the family. shampoo: inverse roots of Kronecker factors; soap: Adam in their eigenbasis; kl: the
    factors that minimise the Kullback-Leibler divergence; spectral: orthogonalised momentum (Muon); none: the plain
    method that `grafting` names. Shapes the state."""
    solver: Annotated[Solver | None, KRONECKER] = None
    """The way to roots and eigenbases: eigh, eigh64 (in float64), coupled_newton (shampoo), and the warm-started
    qr and cholesky_qr. None: eigh on the CPU; elsewhere, where products are far faster, coupled_newton if it can find
    the root and cholesky_qr for soap and kl. Between those that keep a basis and those that do not it shapes
    shampoo's state."""
    max_preconditioner_dim: Annotated[int, Range(low=2), MATRICES] = 1024
    """Longest side of a block, >= 2; for longer sides see `large_dim_method`. A side over 32 times as long as the
    product of the others has no full factor either. Shapes the state."""
    large_dim_method: Annotated[LargeDimMethod, MATRICES] = "blocking"
    """A side longer than `max_preconditioner_dim` is cut evenly (blocking), or has a diagonal factor (diagonal), or
    none (one_sided). For soap and spectral, which have no diagonal factors, these two are one. Shapes the state."""
    one_sided: Annotated[bool, KRONECKER] = False
    """Precondition the shortest side of a block alone. Shapes the state."""
    precondition_frequency: Annotated[int | None, Range(low=1), KRONECKER, IN_FLIGHT] = None
    """Steps from one refresh of a root or basis to the next, >= 1. None: 50 for shampoo, 10 for soap and kl."""
    start_preconditioning_step: Annotated[int | None, Range(low=1), BOUNDED] = None
    """Step of the first roots and bases; until then steps are those of `grafting`, Adam's for soap, and without
    grafting as long as the gradient. None: the first with statistics; for soap the one after, because in the basis of
    one gradient that gradient is diagonal, and Adam makes whole steps of the rounding beside it; kl's is the first."""
    statistics_frequency: Annotated[int | None, Range(low=1), BOUNDED, IN_FLIGHT] = None
    """Steps from one update of the factors to the next; at most the two above. None: 1; with a low-precision
    `state_dtype` an update is part of a refresh, and nothing else can be asked for. kl takes every gradient: its roots
    enlarge what its factors have not seen."""
    stagger_refresh: Annotated[bool, KRONECKER] = True
    """Spread the refreshes over the period instead of doing all at once: no step is much longer than others."""
    refresh_tolerance: Annotated[float, AVERAGE, KRONECKER, IN_FLIGHT] = 0.0
    """Leave out a due refresh while the off-diagonal part of the factor in its old basis has at most this share of its
    norm, in [0, 1); 0: never. Useful: 0.2 to 0.4. Keeps a basis, so for shampoo 0 or not shapes the state."""
    grafting: Grafting | None = None
    """Method whose step length each block takes, and which steps for blocks without a preconditioner; none: the
    preconditioned step's own length. None: adam for shampoo and none, none for the others. Shapes the state."""
    grafting_beta2: Annotated[float | None, AVERAGE, used_by("shampoo", "none"), IN_FLIGHT] = None
    """Average of squared gradients of rmsprop and adam grafting, in [0, 1), above 0 if β1 is; None: β2."""
    grafting_epsilon: Annotated[float, POSITIVE, IN_FLIGHT] = 1e-8
    """Added to the root of the squared gradients in adagrad, rmsprop and adam steps, soap's included; > 0."""
    exponent_override: Annotated[float | None, POSITIVE, used_by("shampoo"), IN_FLIGHT] = None
    """Factors enter as A^(−exponent_override), > 0; None: 1/(2·number of factors of the block)."""
    pseudo_inverse: Annotated[bool, used_by("shampoo")] = False
    """Leave out the null space of a factor instead of damping it: eigenvalues up to `epsilon` have the root 0."""
    use_bias_correction: bool = True
    """Divide averages (gradient, factors, squared gradients) by the sum of their weights. Squared gradients of adam
    grafting are divided always; those of rmsprop, which is the same without it, never."""
    adjust_lr_fn: Annotated[AdjustLr, used_by("spectral")] = "match_rms_adamw"
    """Scale of spectral's m×n step; match_rms_adamw: 0.2·√max(m, n), so that AdamW's lr fits; original:
    √max(1, m/n)."""
    standardize_rows: Annotated[bool, used_by("spectral")] = False
    """Give the rows of what spectral orthogonalises mean 0 and variance 1 first. SWAN, if betas[0] is 0."""
    matrix_norm: Annotated[MatrixNorm, used_by("spectral")] = "spectral"
    """Norm in which spectral's step is steepest; rows: every row of a block has one length, as tables want. Its root
    mean square is then 0.2, or 1 with adjust_lr_fn="original"."""
    rank: Annotated[int | None, Range(low=1), used_by("spectral")] = None
    """Leading eigenvectors of a matrix's shorter side along which spectral steps as Adam, orthogonalising the rest:
    COSMOS, whose authors take 64 and betas=(0.9, 0.95). None: none. The whole step's root mean square is 0.2, or 1
    with adjust_lr_fn="original". Shapes the state."""
    rest_scale: Annotated[float, POSITIVE, used_by("spectral"), IN_FLIGHT] = 0.1
    """With `rank`, root mean square of the orthogonalised rest beside Adam's steps of about 1 along the leading
    eigenvectors, before the whole is scaled; > 0."""
    state_dtype: Annotated[StateDtype, KRONECKER] = "float32"
    """Precision of Kronecker factors, roots and bases; below float32 a factor is kept as its eigenvectors in that
    precision and its eigenvalues in float32. Shapes the state."""
    product_dtype: Annotated[ProductDtype, MATRICES] = "float32"
    """Precision of what is multiplied where roots, bases or spectral's polynomial meet a gradient; statistics and
    refreshes keep the state's. bfloat16 rounds the step a little, and is faster where the processor has units for it
    and products take most of the time."""
    low_precision_weights: LowPrecisionWeights = "nearest"
    """The step of parameters below float32: rounded to nearest; rounded stochastically; or from a float32 master
    copy in the state. Shapes the state."""
    max_failed_refreshes: Annotated[int, Range(low=0), KRONECKER] = 3
    """Times in a row that the refresh of one factor may fail, keeping the previous root, before step() raises; >= 0."""
    distributed: Distributed = "auto"
    """The way ranks share the work (`shampoo.distributed`). lossless: every rank owns blocks, which it steps with the
    numbers of a single process, of DTensors and of plain parameters, which all ranks then hold alike, as under DDP;
    local: every rank steps its shard of a DTensor as if it were the parameter, without communication. auto: DTensors
    lossless, and plain parameters by every rank. In one process all are the same. Shapes the state."""
    communication_dtype: CommunicationDtype = "float32"
    """Precision in which owners send weights back: below the weights' own their change is sent, in units of its largest
    element. Gradients travel in theirs."""
    num_ranks_per_group: Annotated[int | None, Range(low=1)] = None
    """Number of consecutive ranks that share plain parameters, a divisor of the world size, each group on its own.
    None: as many as make any rank's share smaller. Shapes the state."""
    reduce_gradients: bool = False
    """The gradients of plain parameters are those of each rank alone: the owners average them, by a reduce-scatter in
    place of DDP's all-reduce. For a model without DDP or under its `no_sync`; all ranks are one group."""

    def __post_init__(self) -> None:
        for name, declaration in DECLARATIONS.items():
            declaration.check(getattr(self, name))
        object.__setattr__(self, "betas", tuple(self.betas))
        self._check_averages()
        self._check_effect()
        self._check_schedule()
        self._check_grafting()
        self._check_solver()
        self._check_distribution()

    def _check_averages(self) -> None:
        if self.beta3 is not None and self.betas[0] == 0:
            raise ValueError(f"beta3 needs betas[0] > 0, got beta3={self.beta3}, betas[0]={self.betas[0]}")
        if (self.preconditioner in ("soap", "kl") or self.rank is not None) and self.betas[1] == 1:
            what = f"preconditioner={self.preconditioner!r}" if self.rank is None else f"rank={self.rank}"
            raise ValueError(f"betas[1] must be below 1 for {what}, got {self.betas[1]!r}")
        # One gradient's factors have no inverse outside its span, where momentum is, and the other factor's span.
        is_outside = self.preconditioner == "kl" or (self.preconditioner in ("shampoo", "soap") and self.betas[0] > 0)
        if self.betas[1] == 0 and is_outside:
            raise ValueError(f"betas[1] must be > 0 for {self.preconditioner}, or steps explode: betas={self.betas}")
        # The square of a zero gradient bounds no step along momentum, while an average of squares does for β1 < √β2.
        if self.second_moment_beta == 0 and self.betas[0] > 0 and self.plain_method in ("rmsprop", "adam"):
            name = "betas[1]" if self.grafting_beta2 is None else "grafting_beta2"
            raise ValueError(f"{name} must be > 0 with betas[0] > 0, or steps explode: betas={self.betas}")
        if self.nesterov and self.momentum == 0:
            raise ValueError(f"nesterov needs momentum > 0, got nesterov={self.nesterov}, momentum={self.momentum}")

    def _check_effect(self) -> None:
        for name in unused(self.preconditioner):
            value = getattr(self, name)
            if value != DEFAULTS[name]:
                raise ValueError(f"{name}={value!r} has no effect with preconditioner={self.preconditioner!r}")
        if self.one_sided and self.large_dim_method == "diagonal":
            raise ValueError("large_dim_method='diagonal' has no effect with one_sided=True")
        for name in ("standardize_rows", "product_dtype", "rank"):
            if self.matrix_norm == "rows" and getattr(self, name) != DEFAULTS[name]:
                raise ValueError(f"{name}={getattr(self, name)!r} has no effect with matrix_norm='rows'")
        if self.rank is None and self.rest_scale != DEFAULTS["rest_scale"]:
            raise ValueError(f"rest_scale={self.rest_scale!r} needs a rank, got None")
        if self.rank is not None and self.standardize_rows:
            raise ValueError(f"standardize_rows=True orthogonalises whole matrices, got rank={self.rank}")
        # Grafting compensates the scale of a factor, unless ε is absolute, or statistics are weighted one by one.
        in_factors = self.grafting_method == "none" or self.epsilon_type == "absolute" or self.low_precision_state
        in_factors = in_factors and self.preconditioner == "shampoo" and self.factor_beta < 1
        in_plain_steps = self.plain_method == "adam" and self.grafting_method == "none"
        if not (self.use_bias_correction or self.betas[0] > 0 or in_plain_steps or in_factors):
            raise ValueError(
                f"use_bias_correction={self.use_bias_correction} has no effect with betas={self.betas}, grafting="
                f"{self.grafting_method!r}: no average that counts has a bias"
            )

    def _check_schedule(self) -> None:
        if self.low_precision_state:
            if self.statistics_frequency is not None:
                raise ValueError(
                    f"statistics_frequency={self.statistics_frequency} has no effect with state_dtype="
                    f"{self.state_dtype!r}: statistics are part of a refresh"
                )
        elif self.statistics_period > min(self.refresh_period, self.first_refresh):
            raise ValueError(
                "a refresh before the statistics have changed has no effect: statistics_frequency="
                f"{self.statistics_frequency} must be at most precondition_frequency={self.refresh_period} "
                f"and start_preconditioning_step={self.first_refresh}"
            )

    def _check_grafting(self) -> None:
        method = self.grafting_method
        if self.preconditioner in ("soap", "kl", "spectral") and method != "none":
            raise ValueError(f"preconditioner={self.preconditioner!r} has its own step length, got grafting={method!r}")
        if self.preconditioner == "none" and method == "none":
            raise ValueError("preconditioner='none' is the plain method that grafting names, got grafting='none'")
        averaged = method in ("rmsprop", "adam")
        if self.grafting_beta2 is not None and not averaged:
            raise ValueError(f"grafting_beta2={self.grafting_beta2} has no effect with grafting={method!r}")
        if self.grafting_beta2 is None and averaged and self.betas[1] == 1:
            raise ValueError(f"grafting={method!r} with betas[1]=1 needs grafting_beta2 < 1, got None")
        if method == "sgd" and self.grafting_epsilon != DEFAULTS["grafting_epsilon"]:
            raise ValueError(f"grafting_epsilon={self.grafting_epsilon} has no effect with grafting={method!r}")

    def _check_solver(self) -> None:
        if self.preconditioner in ("soap", "kl") and self.solver == "coupled_newton":
            raise ValueError(f"preconditioner={self.preconditioner!r} needs eigenbases, got solver='coupled_newton'")
        if self.solver != "coupled_newton":
            return
        if self._root_order is None:
            raise ValueError(
                f"solver='coupled_newton' needs exponent_override=1/p for an integer p, got {self.exponent_override}"
            )
        for name in ("pseudo_inverse", "refresh_tolerance", "state_dtype"):
            if getattr(self, name) != DEFAULTS[name]:
                raise ValueError(f"{name}={getattr(self, name)!r} needs eigenvectors, got solver='coupled_newton'")

    def _check_distribution(self) -> None:
        if self.distributed == "local" and self.communication_dtype != "float32":
            raise ValueError(f"communication_dtype={self.communication_dtype!r} has no effect with distributed='local'")
        for name in ("num_ranks_per_group", "reduce_gradients"):
            if self.distributed != "lossless" and getattr(self, name) not in (None, False):
                raise ValueError(
                    f"{name}={getattr(self, name)!r} needs distributed='lossless', got {self.distributed!r}"
                )
        if self.reduce_gradients and self.num_ranks_per_group is not None:
            given = self.num_ranks_per_group
            raise ValueError(f"num_ranks_per_group={given} has no effect with reduce_gradients=True, of one group")

    @classmethod
    def of_group(cls, group: Mapping[str, Any]) -> Self:
        """The hyperparameters that a parameter group holds now."""
        return cls(**values_of_group(group, NAMES))

    @property
    def refresh_period(self) -> int:
        """Steps from one refresh of a unit to the next, `precondition_frequency` or its default."""
        period = self.precondition_frequency
        return DEFAULT_REFRESH_PERIOD[self.preconditioner] if period is None else period

    @property
    def statistics_period(self) -> int:
        """Steps from one update of the factors to the next, `statistics_frequency` or its default."""
        if self.low_precision_state and self.preconditioner != "kl":
            return self.refresh_period
        return 1 if self.statistics_frequency is None else self.statistics_frequency

    @property
    def first_refresh(self) -> int:
        """Step at which every unit is refreshed, `start_preconditioning_step` or its default."""
        if self.start_preconditioning_step is not None:
            return self.start_preconditioning_step
        first_statistics = 1 if self.low_precision_state else self.statistics_period
        return first_statistics + 1 if self.preconditioner == "soap" else first_statistics

    @property
    def grafting_method(self) -> Grafting:
        """`grafting` or its default."""
        if self.grafting is not None:
            return self.grafting
        return "adam" if self.preconditioner in ("shampoo", "none") else "none"

    @property
    def plain_method(self) -> Grafting:
        """The method that steps for parameters without a preconditioner: grafting's, or adam; adagrad if β2 sums."""
        if self.grafting_method != "none":
            return self.grafting_method
        return "adagrad" if self.betas[1] == 1 else "adam"

    @property
    def second_moment_beta(self) -> float:
        """The β of the average of squared gradients; meaningful for rmsprop, adam and soap."""
        return self.betas[1] if self.grafting_beta2 is None else self.grafting_beta2

    @property
    def corrects_adam(self) -> bool:
        """True if Adam's steps correct the bias of squared gradients: in grafting always, as Meta's do."""
        return self.use_bias_correction or self.grafting_method == "adam"

    @property
    def factor_beta(self) -> float:
        """The β of the factors."""
        return self.betas[1] if self.shampoo_beta is None else self.shampoo_beta

    @property
    def low_precision_state(self) -> bool:
        return self.state_dtype != "float32"

    def solver_on(self, device_type: str) -> Solver:
        """`solver` or its default; meaningful for members with factors."""
        if self.solver is not None:
            return self.solver
        if device_type == "cpu":
            return "eigh"
        if self.preconditioner in ("soap", "kl"):
            return "cholesky_qr"
        return "eigh" if self.keeps_basis or self.pseudo_inverse or self._root_order is None else "coupled_newton"

    @property
    def _root_order(self) -> int | None:
        """The p of roots A^(−1/p), if `exponent_override` says it; None if it is not an integer."""
        order = round(1 / self.exponent_override) if self.exponent_override else 2
        is_root = self.exponent_override is None or abs(order * self.exponent_override - 1) < 1e-9
        return order if is_root and order > 0 else None

    @property
    def keeps_basis(self) -> bool:
        """True if the state holds the eigenvectors of factors."""
        if self.preconditioner == "shampoo":
            return self.solver in ("qr", "cholesky_qr") or self.refresh_tolerance > 0 or self.low_precision_state
        return self.preconditioner in ("soap", "kl")

    @property
    def product_precision(self) -> torch.dtype | None:
        """`product_dtype`; None for the state's own."""
        return torch.bfloat16 if self.product_dtype == "bfloat16" else None

    @property
    def structure(self) -> dict[str, object]:
        """The values that decide which state tensors exist, and their shapes: fixed once the state is allocated."""
        return {
            "preconditioner": self.preconditioner,
            "max_preconditioner_dim": self.max_preconditioner_dim,
            "large_dim_method": self.large_dim_method,
            "one_sided": self.one_sided,
            "rank": self.rank,
            "grafting": self.grafting_method,
            "betas[1] == 1 without grafting": self.plain_method == "adagrad" and self.grafting_method == "none",
            "betas[0] > 0": self.betas[0] > 0,
            "momentum > 0": self.momentum > 0,
            "state_dtype": self.state_dtype,
            "eigenvectors kept (solver, refresh_tolerance)": self.keeps_basis,
            "low_precision_weights": self.low_precision_weights,
            "distributed == 'local'": self.distributed == "local",
        }


DECLARATIONS: Mapping[str, Declaration] = {one.name: one for one in declarations_of(Hyperparameters)}
DEFAULTS: Mapping[str, Any] = {name: declaration.default for name, declaration in DECLARATIONS.items()}
NAMES: tuple[str, ...] = tuple(DECLARATIONS)
_UNUSED: Mapping[str, tuple[str, ...]] = {
    member: tuple(name for name, one in DECLARATIONS.items() if one.used_by is not None and member not in one.used_by)
    for member in DECLARATIONS["preconditioner"].choices
}


def unused(preconditioner: str) -> tuple[str, ...]:
    """The hyperparameters that this member of the family does not use."""
    return _UNUSED.get(preconditioner, ())
