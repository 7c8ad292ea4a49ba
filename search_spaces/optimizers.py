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
    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    """Whether `low` itself is refused."""
    open_high: bool = False
    choices: tuple[str, ...] = ()
    optional: bool = False
    """Whether None is accepted."""
    default: Scalar | tuple[float, float] = None


def _positive(default: float | None = None, *, high: float = math.inf, optional: bool = False) -> Argument:
    return Argument("float", 0.0, high, open_low=True, optional=optional, default=default)


def _non_negative(default: float) -> Argument:
    return Argument("float", 0.0, default=default)


def _flag(default: bool) -> Argument:
    return Argument("boolean", default=default)


SHAMPOO: Mapping[str, Argument] = {
    "lr": _non_negative(1e-3),
    "betas": Argument("pair", 0.0, 1.0, default=(0.9, 0.999)),
    "beta3": Argument("float", 0.0, 1.0, open_high=True, optional=True),
    "epsilon": _positive(1e-10),
    "weight_decay": _non_negative(0.0),
    "weight_decay_type": Argument("choice", choices=("decoupled", "l2"), default="decoupled"),
    "momentum": Argument("float", 0.0, 1.0, open_high=True, default=0.0),
    "nesterov": _flag(False),
    "max_preconditioner_dim": Argument("integer", 1, 65536, default=1024),
    "precondition_frequency": Argument("integer", 1, 1_000_000, default=10),
    "start_preconditioning_step": Argument("integer", 1, 1_000_000, optional=True),
    "statistics_frequency": Argument("integer", 1, 1_000_000, default=1),
    "grafting": Argument("choice", choices=("none", "sgd", "adagrad", "rmsprop", "adam"), default="adam"),
    "grafting_beta2": Argument("float", 0.0, 1.0, optional=True),
    "grafting_epsilon": _positive(1e-8),
    "exponent_override": _positive(optional=True),
    "use_bias_correction": _flag(True),
}
"""Arguments of `shampoo.Shampoo`."""

ADAMW: Mapping[str, Argument] = {
    "lr": _non_negative(1e-3),
    "betas": Argument("pair", 0.0, 1.0, open_high=True, default=(0.9, 0.999)),
    "eps": _non_negative(1e-8),
    "weight_decay": _non_negative(1e-2),
    "amsgrad": _flag(False),
}
"""Arguments of `torch.optim.AdamW` that change what it computes."""

SGD: Mapping[str, Argument] = {
    "lr": _non_negative(1e-3),
    "momentum": _non_negative(0.0),
    "dampening": Argument("float", 0.0, 1.0, default=0.0),
    "weight_decay": _non_negative(0.0),
    "nesterov": _flag(False),
}
"""Arguments of `torch.optim.SGD` that change what it computes."""

ARGUMENTS: Mapping[str, Mapping[str, Argument]] = {"shampoo": SHAMPOO, "adamw": ADAMW, "sgd": SGD}

SCHEDULE: Mapping[str, Argument] = {
    "warmup_fraction": Argument("float", 0.0, 1.0, open_high=True),
    "decay": Argument("choice", choices=("cosine", "linear", "constant")),
}
"""Fields of a trial's schedule, named `schedule.<field>`."""

TRAINING: Mapping[str, Argument] = {
    "gradient_clip_norm": _positive(optional=True),
    "batch_size": Argument("integer", 1, 10_000_000),
}
"""Fields of the trial config itself, named `training.<field>`. Steps and seed are the job's, not the search's."""
