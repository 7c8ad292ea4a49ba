"""The arguments of weight averaging: their meaning, their legal values, and which method takes which."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

AveragingMethod: TypeAlias = Literal["ema", "lawa", "schedule_free", "primal"]
WarmUp: TypeAlias = Literal["bias_correction", "ramp", "none"]
WeightDecayAt: TypeAlias = Literal["y", "z"]

# What each method takes, and what stands in for None.
_DEFAULTS: dict[AveragingMethod, dict[str, Any]] = {
    "ema": {"decay": 0.999, "warm_up": "bias_correction", "update_frequency": 1},
    "lawa": {"num_snapshots": 5, "update_frequency": 100},
    "schedule_free": {"mu_y": 0.9, "lr_power": 2.0, "weight_decay_at": "y"},
    "primal": {"mu_x": 0.9967, "mu_y": 0.7, "weight_decay_at": "z"},
}


@dataclass(frozen=True, slots=True)
class AveragingArguments:
    """Checked arguments; flat and JSON-able. None becomes the method's default, and stays None where it has no use.

    Raises:
        ValueError: a value is illegal, or has no effect with this method; the message holds name and value.
    """

    method: AveragingMethod = "ema"
    """See the package's docstring."""
    decay: float | None = None
    """ema: d in [0, 1), weight of the old average at each update; 0.999."""
    warm_up: WarmUp | None = None
    """ema: how much the first updates weigh; bias_correction."""
    update_frequency: int | None = None
    """ema, lawa: steps from one update of the average to the next, >= 1; 1 for ema, 100 for lawa."""
    num_snapshots: int | None = None
    """lawa: k >= 1 weights in the mean, each a copy in memory; 5."""
    mu_x: float | None = None
    """primal: μ_x in [0, 1), weight of the old x; 0.9967, which averages over about 300 steps."""
    mu_y: float | None = None
    """schedule_free (its β; 0.9), primal (0.7): μ_y in (0, 1], share of x in the point of the gradient."""
    lr_power: float | None = None
    """schedule_free: p >= 0, a step's weight in the average is lr^p; 2."""
    weight_decay_at: WeightDecayAt | None = None
    """schedule_free (y), primal (z): the weights that the wrapped optimizer decays."""

    def __post_init__(self) -> None:
        methods = get_args(AveragingMethod)
        _require(self.method in methods, "method", self.method, f"one of {methods}")
        defaults = _DEFAULTS[self.method]
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "method":
                continue
            if value is None:
                object.__setattr__(self, field.name, defaults.get(field.name))
            elif field.name not in defaults:
                raise ValueError(f"{field.name}={value!r} has no effect with method={self.method!r}")
        for name in ("decay", "mu_x"):
            self._check(name, _is_number, lambda value: 0 <= value < 1, "a number in [0, 1)")
        self._check("mu_y", _is_number, lambda value: 0 < value <= 1, "a number in (0, 1]")
        self._check("lr_power", _is_number, lambda value: value >= 0, "a finite number >= 0")
        for name in ("update_frequency", "num_snapshots"):
            self._check(name, _is_int, lambda value: value >= 1, "an integer >= 1")
        self._check("warm_up", _is_str, lambda value: value in get_args(WarmUp), f"one of {get_args(WarmUp)}")
        sites = get_args(WeightDecayAt)
        self._check("weight_decay_at", _is_str, lambda value: value in sites, f"one of {sites}")

    def _check(self, name: str, is_kind: Any, is_legal: Any, rule: str) -> None:
        value = getattr(self, name)
        _require(value is None or (is_kind(value) and is_legal(value)), name, value, rule)

    @property
    def interpolates(self) -> bool:
        """The method moves the point of the gradient, so the parameters hold y while training."""
        return self.method in ("schedule_free", "primal")

    def in_use(self) -> dict[str, Any]:
        """The arguments that this method takes, its name first; `AveragingArguments(**x.in_use()) == x`."""
        return {"method": self.method, **{name: getattr(self, name) for name in _DEFAULTS[self.method]}}


def _require(condition: bool, name: str, value: object, rule: str) -> None:
    if not condition:
        raise ValueError(f"{name} must be {rule}, got {value!r}")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_str(value: object) -> bool:
    return isinstance(value, str)
