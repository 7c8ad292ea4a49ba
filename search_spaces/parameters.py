"""The three kinds of parameter and their scales. Values only: `SearchSpace` validates them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

Scalar: TypeAlias = str | int | float | bool | None
FloatScale: TypeAlias = Literal["linear", "log", "reverse_log"]
IntegerScale: TypeAlias = Literal["linear", "log"]
Conditions: TypeAlias = Mapping[str, tuple[Scalar, ...]]

SIGNIFICANT_DIGITS = 4
"""Sampled floats are rounded to this many digits of their scaled form: `lr=0.001437`, not seventeen digits."""


@dataclass(frozen=True, slots=True)
class Float:
    """A real parameter in [low, high]."""

    name: str
    """Path into the trial config: `lr`, `betas[0]`, `schedule.warmup_fraction`, `workload.label_smoothing`."""
    low: float
    high: float
    scale: FloatScale = "linear"
    """`log`: uniform in log x; `reverse_log`: uniform in log (1 - x), for averaging factors close to 1."""
    default: float | None = None
    """Tried first; None: the middle of the range on its scale (filled in by `SearchSpace`)."""
    when: Conditions = field(default_factory=dict)
    """Active only if each named categorical parameter has one of these values."""
    reason: str = ""
    source: str = ""

    kind: ClassVar[str] = "float"

    @property
    def domain(self) -> tuple[object, ...]:
        """The name and the range, equal for parameters that are one dimension."""
        return self.kind, self.name, self.low, self.high, self.scale

    def clipped(self, value: float) -> float:
        """The value of the range that is nearest to `value`."""
        return min(max(value, self.low), self.high)

    def to_unit(self, value: float) -> float:
        """Position of `value` in the range on its scale, in [0, 1]; what lies beyond the range is at its edge."""
        low, high = self._scaled(self.low), self._scaled(self.high)
        return 0.5 if low == high else (self._scaled(self.clipped(value)) - low) / (high - low)

    def from_unit(self, position: float) -> float:
        """Value at a position in [0, 1], rounded to `SIGNIFICANT_DIGITS` and kept inside the range."""
        low, high = self._scaled(self.low), self._scaled(self.high)
        scaled = low + position * (high - low)
        if self.scale == "linear":
            return self.rounded(scaled)
        return self.rounded(math.exp(scaled) if self.scale == "log" else 1 - math.exp(-scaled))

    def rounded(self, value: float) -> float:
        """`value` with few digits (of 1 - value on the reverse scale), inside the range."""
        digits = f".{SIGNIFICANT_DIGITS}g"
        short = 1 - float(format(1 - value, digits)) if self.scale == "reverse_log" else float(format(value, digits))
        if self.scale == "reverse_log":
            # 1 - 0.0673 is 0.9327 only up to the last bit; the decimal neighbour is what a person expects to read.
            short = round(short, 15)
        return self.clipped(short)

    def _scaled(self, value: float) -> float:
        if self.scale == "linear":
            return value
        return math.log(value) if self.scale == "log" else -math.log1p(-value)


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer parameter in [low, high]."""

    name: str
    low: int
    high: int
    scale: IntegerScale = "linear"
    default: int | None = None
    """Tried first; None: the middle of the range on its scale (filled in by `SearchSpace`)."""
    when: Conditions = field(default_factory=dict)
    reason: str = ""
    source: str = ""

    kind: ClassVar[str] = "integer"

    @property
    def domain(self) -> tuple[object, ...]:
        """The name and the range, equal for parameters that are one dimension."""
        return self.kind, self.name, self.low, self.high, self.scale

    def clipped(self, value: int) -> int:
        """The value of the range that is nearest to `value`."""
        return min(max(value, self.low), self.high)

    def to_unit(self, value: float) -> float:
        """Position of `value` in the range on its scale, in (0, 1): an integer's is the middle of its own slice.

        What lies beyond the range is at its edge.
        """
        low, high = self._scaled(self.low - 0.5), self._scaled(self.high + 0.5)
        return (self._scaled(min(max(value, self.low), self.high)) - low) / (high - low)

    def from_unit(self, position: float) -> int:
        """The integer whose slice of [0, 1] holds `position`."""
        low, high = self._scaled(self.low - 0.5), self._scaled(self.high + 0.5)
        scaled = low + position * (high - low)
        value = round(math.exp(scaled) if self.scale == "log" else scaled)
        return self.clipped(value)

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.scale == "log" else value


@dataclass(frozen=True, slots=True)
class Categorical:
    """A parameter with a few values and no order."""

    name: str
    choices: tuple[Scalar, ...]
    default: Scalar = None
    """Tried first; None where None is no choice: the first choice (filled in by `SearchSpace`)."""
    when: Conditions = field(default_factory=dict)
    reason: str = ""
    source: str = ""

    kind: ClassVar[str] = "categorical"

    @property
    def domain(self) -> tuple[object, ...]:
        """The name and the choices, equal for parameters that are one dimension."""
        return self.kind, self.name, *((isinstance(choice, bool), choice) for choice in self.choices)

    def to_unit(self, value: Scalar) -> float:
        """Middle of the choice's slice of [0, 1]."""
        index = next(i for i, choice in enumerate(self.choices) if is_same(choice, value))
        return (index + 0.5) / len(self.choices)

    def from_unit(self, position: float) -> Scalar:
        """The choice whose slice of [0, 1] holds `position`."""
        return self.choices[min(int(position * len(self.choices)), len(self.choices) - 1)]


Parameter: TypeAlias = Float | Integer | Categorical


def is_same(a: object, b: object) -> bool:
    """Equality of scalars that tells True from 1, but not 1 from 1.0 (JSON does not)."""
    return isinstance(a, bool) == isinstance(b, bool) and a == b


def is_active(parameter: Parameter, values: Mapping[str, Any]) -> bool:
    """True if `values` meet every condition of the parameter."""
    return all(
        name in values and any(is_same(values[name], wanted) for wanted in allowed)
        for name, allowed in parameter.when.items()
    )


def sectioned(name: str) -> tuple[str, str]:
    """The section of a trial config that a name addresses, "" for the optimizer's arguments, and the name there."""
    section, _, own = name.rpartition(".")
    return section, own
