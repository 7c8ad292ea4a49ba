"""Which constructor arguments of each optimizer can be searched or fixed, with their hard bounds.

These bounds say what the constructor accepts, not what is sensible: the presets' ranges do that. The API checks a space
with this table, without importing torch; a test holds it against the constructors' signatures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from search_spaces.parameters import Scalar

OptimizerName: TypeAlias = Literal["shampoo", "adamw", "sgd"]
OPTIMIZER_NAMES: tuple[str, ...] = get_args(OptimizerName)


@dataclass(frozen=True, slots=True)
class Argument:
    """What one argument accepts."""

    kind: Literal["float", "integer", "boolean", "choice", "pair"]
    """`pair`: two floats, reached as `name[0]` and `name[1]`, or fixed whole as a list."""
    elements: tuple[Argument, ...] = ()
    """What the elements of a pair accept."""
    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    """Whether `low` itself is refused."""
    open_high: bool = False
    choices: tuple[str, ...] = ()
    optional: bool = False
    """Whether None is accepted."""
    default: Scalar | tuple[float, float] = None


def _positive(default: float | None = None, *, optional: bool = False) -> Argument:
    return Argument("float", low=0.0, open_low=True, optional=optional, default=default)


def _non_negative(default: float) -> Argument:
    return Argument("float", low=0.0, default=default)


def _average(default: float | None = None, *, up_to_1: bool = False, optional: bool = False) -> Argument:
    """The weight of the past in a moving average, in [0, 1), or [0, 1] where 1 means a sum."""
    return Argument("float", low=0.0, high=1.0, open_high=not up_to_1, optional=optional, default=default)


def _integer(low: int, default: int | None) -> Argument:
    return Argument("integer", low=low, high=1_000_000, optional=default is None, default=default)


def _flag(default: bool) -> Argument:
    return Argument("boolean", default=default)


def _choice(default: str, *others: str) -> Argument:
    return Argument("choice", choices=(default, *others), default=default)


def _optional_choice(*choices: str) -> Argument:
    return Argument("choice", choices=choices, optional=True)


SHAMPOO: Mapping[str, Argument] = {
    "lr": _non_negative(1.5e-3),
    "betas": Argument("pair", (_average(), _average(up_to_1=True)), default=(0.9, 0.999)),
    "beta3": _average(optional=True),
    "shampoo_beta": _average(up_to_1=True, optional=True),
    "epsilon": _positive(1e-6),
    "epsilon_type": _choice("relative", "absolute"),
    "weight_decay": _non_negative(0.0),
    "weight_decay_type": _choice("decoupled", "l2", "independent"),
    "momentum": _average(0.0),
    "nesterov": _flag(False),
    "preconditioner": _choice("shampoo", "soap", "kl", "spectral", "none"),
    "solver": _optional_choice("eigh", "eigh64", "coupled_newton", "qr", "cholesky_qr"),
    "max_preconditioner_dim": _integer(2, 1024),
    "large_dim_method": _choice("blocking", "diagonal", "one_sided"),
    "one_sided": _flag(False),
    "precondition_frequency": _integer(1, None),
    "start_preconditioning_step": _integer(1, None),
    "statistics_frequency": _integer(1, None),
    "stagger_refresh": _flag(True),
    "refresh_tolerance": _average(0.0),
    "grafting": _optional_choice("none", "sgd", "adagrad", "rmsprop", "adam"),
    "grafting_beta2": _average(optional=True),
    "grafting_epsilon": _positive(1e-8),
    "exponent_override": _positive(optional=True),
    "pseudo_inverse": _flag(False),
    "use_bias_correction": _flag(True),
    "adjust_lr_fn": _choice("match_rms_adamw", "original"),
    "state_dtype": _choice("float32", "bfloat16", "int8", "int4"),
    "product_dtype": _choice("float32", "bfloat16"),
    "low_precision_weights": _choice("nearest", "stochastic", "master"),
    "max_failed_refreshes": _integer(0, 3),
    "distributed": _choice("auto", "lossless", "local"),
    "communication_dtype": _choice("float32", "bfloat16", "float16"),
    "num_ranks_per_group": _integer(1, None),
    "reduce_gradients": _flag(False),
}
"""Arguments of `shampoo.Shampoo`."""

ADAMW: Mapping[str, Argument] = {
    "lr": _non_negative(1e-3),
    "betas": Argument("pair", (_average(), _average()), default=(0.9, 0.999)),
    "eps": _non_negative(1e-8),
    "weight_decay": _non_negative(1e-2),
    "amsgrad": _flag(False),
}
"""Arguments of `torch.optim.AdamW` that change what it computes."""

SGD: Mapping[str, Argument] = {
    "lr": _non_negative(1e-3),
    "momentum": _non_negative(0.0),
    "dampening": _average(0.0, up_to_1=True),
    "weight_decay": _non_negative(0.0),
    "nesterov": _flag(False),
}
"""Arguments of `torch.optim.SGD` that change what it computes."""

ARGUMENTS: Mapping[str, Mapping[str, Argument]] = {"shampoo": SHAMPOO, "adamw": ADAMW, "sgd": SGD}

SCHEDULE: Mapping[str, Argument] = {
    "warmup_fraction": Argument("float", low=0.0, high=1.0, open_high=True),
    "decay": Argument("choice", choices=("cosine", "linear", "constant", "wsd")),
    "decay_fraction": Argument("float", low=0.0, high=1.0, open_low=True),
    "horizon": _positive(),
}
"""Fields of a trial's schedule, named `schedule.<field>`."""

TRAINING: Mapping[str, Argument] = {
    "gradient_clip_norm": _positive(optional=True),
    "precision": Argument("choice", choices=("float32", "bfloat16", "float16")),
}
"""Fields of the trial config itself, named `training.<field>`. Steps, batch size and seed belong to the job."""

AVERAGING: Mapping[str, Argument] = {
    "method": Argument("choice", choices=("ema", "lawa", "schedule_free", "primal")),
    "decay": _average(),
    "warm_up": Argument("choice", choices=("bias_correction", "ramp", "none")),
    "update_frequency": Argument("integer", low=1, high=1_000_000),
    "num_snapshots": Argument("integer", low=1, high=1_000_000),
    "mu_x": _average(),
    "mu_y": Argument("float", low=0.0, high=1.0, open_low=True),
    "lr_power": Argument("float", low=0.0),
    "weight_decay_at": Argument("choice", choices=("y", "z")),
}
"""Arguments of `shampoo.WeightAveraging`, named `averaging.<argument>`."""

COMPRESSION: Mapping[str, Argument] = {
    "rank": Argument("integer", low=1, high=1_000_000),
    "start_step": Argument("integer", low=2, high=1_000_000),
    "error_feedback": Argument("boolean"),
}
"""Fields of the gradient compression, named `compression.<field>`."""

SECTIONS: Mapping[str, Mapping[str, Argument]] = {
    "schedule": SCHEDULE,
    "training": TRAINING,
    "averaging": AVERAGING,
    "compression": COMPRESSION,
}
"""The parts of a trial config beside the optimizer's arguments and the workload's options."""

IN_FLIGHT: Mapping[str, frozenset[str]] = {
    "shampoo": frozenset(
        {"lr", "betas", "beta3", "shampoo_beta", "epsilon", "weight_decay", "momentum", "precondition_frequency"}
        | {"statistics_frequency", "refresh_tolerance", "grafting_beta2", "grafting_epsilon", "exponent_override"}
    ),
    "adamw": frozenset({"lr", "betas", "eps", "weight_decay"}),
    "sgd": frozenset({"lr", "momentum", "dampening", "weight_decay"}),
    "schedule": frozenset({"decay_fraction", "horizon"}),
    "training": frozenset({"gradient_clip_norm"}),
}
"""Numbers that may change between two steps of a training run, of each optimizer and section: what they weigh, scale or
time stays of the same kind and shape. They may not begin or cease to be 0, nor may an average begin or cease to be a
sum (1): that adds state or takes it away. Left out are those that count only at the beginning (the warm-up,
`start_preconditioning_step`), those that change no step (`max_failed_refreshes`), and a workload's options, which may
shape the model."""
