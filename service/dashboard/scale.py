"""The axis of a chart that the server draws: where a value lies, and what is written below. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from service.api.figures import axis_type, log_ticks

NUM_STEPS = 6
"""Steps between ticks, about: so many labels have room on a phone."""
MARGIN = 3.0
"""Percent of the width that stay free at either end, so that no mark is cut."""
_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Tick:
    """A labelled place of an axis."""

    x: float
    """Percent of its width."""
    label: str


@dataclass(frozen=True, slots=True)
class AxisScale:
    """An axis from `low` to `high`."""

    low: float
    high: float
    is_log: bool = False

    @classmethod
    def of(cls, values: Sequence[float], ends: Sequence[float] = (), *, furthest: float = 1.0) -> AxisScale:
        """The axis that holds all values, and the ends of intervals as far as `furthest` allows.

        Args:
            ends: they extend the axis by at most `furthest` times what the values span, on either side.
        """
        low, high = min(values), max(values)
        is_log = axis_type([*values]) == "log"
        if not is_log:
            room = furthest * (high - low)
            low, high = max(min([low, *ends]), low - room), min(max([high, *ends]), high + room)
        if low == high:
            reach = abs(low) * 0.05 or 1.0
            low, high = low - reach, high + reach
        return cls(low, high, is_log)

    def place(self, value: float) -> float:
        """The place of a value, in percent of the width; one beyond an end lies at that end's edge."""
        low, high = self._unbent(self.low), self._unbent(self.high)
        if self.is_log and value <= 0.0:
            return 0.0
        share = (self._unbent(value) - low) / (high - low)
        return round(min(100.0, max(0.0, MARGIN + (100.0 - 2.0 * MARGIN) * share)), 2)

    def ticks(self, write: Callable[[float], str]) -> list[Tick]:
        """Round values along the axis, as `write` writes them."""
        return [Tick(self.place(value), write(value)) for value in self._round_values()]

    def _round_values(self) -> list[float]:
        if self.is_log:
            return [value for value in log_ticks(self.low, self.high) if self.low <= value <= self.high]
        rough = (self.high - self.low) / NUM_STEPS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * digit for digit in _ROUND if power * digit >= rough * (1.0 - 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)]

    def _unbent(self, value: float) -> float:
        return math.log10(value) if self.is_log else value
